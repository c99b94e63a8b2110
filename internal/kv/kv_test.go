package kv_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"skein.blue/internal/kv"
)

// A key lies in [prefix, PrefixEnd(prefix)) exactly if it begins with prefix.
func TestPrefixEndBoundsExactlyThePrefix(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	random := func() []byte {
		b := make([]byte, rng.IntN(5))
		for i := range b {
			b[i] = "\x00\x01a\xfe\xff"[rng.IntN(5)]
		}
		return b
	}
	within := 0
	for range 200_000 {
		prefix, key := random(), random()
		end := kv.PrefixEnd(prefix)
		in := bytes.Compare(key, prefix) >= 0 && (end == nil || bytes.Compare(key, end) < 0)
		if in != bytes.HasPrefix(key, prefix) {
			t.Fatalf("prefix %q ends at %q: %q within = %v", prefix, end, key, in)
		}
		if in {
			within++
		}
	}
	if within < 1000 {
		t.Errorf("only %d keys were in range, too few to prove anything", within)
	}
}

// Damage is an ErrCorrupt, wraps the engine's error, and names the file and its keys.
func TestDamage(t *testing.T) {
	var err error = &kv.Damage{File: "000007.sst", First: []byte{0x0a}, Last: []byte{0xff, 0x0b}, Err: io.ErrUnexpectedEOF}
	if !errors.Is(err, kv.ErrCorrupt) || !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, kv.ErrDamaged) {
		t.Errorf("%v", err)
	}
	for _, part := range []string{"000007.sst", "0a", "ff0b", io.ErrUnexpectedEOF.Error()} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not contain %s", err, part)
		}
	}
}
