//go:build fdb

package fdbkv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/tuple"

	"skein.blue/internal/kv"
)

// joined folds values into one string, separated by commas. It fails on "bad".
type joined struct{}

var errJoin = errors.New("bad operand")

func (joined) Name() string { return "joined" }

func (joined) Fold(dst, _ []byte, values [][]byte, _ bool) ([]byte, error) {
	for i, v := range values {
		if string(v) == "bad" {
			return nil, errJoin
		}
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, v...)
	}
	return dst, nil
}

func newStore(prefix string) *Store {
	s := &Store{o: Options{Merger: joined{}, Location: Location{ClusterFile: "/the.cluster", Prefix: prefix}}, prefix: tuple.Tuple{prefix}.Pack()}
	s.end = kv.PrefixEnd(s.prefix)
	return s
}

// cutFrame returns the frames that appendFrame wrote. A truncated run of frames is an
// error, unless it ends between two.
func TestFrameRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		var frames []byte
		type frame struct {
			value   []byte
			operand bool
		}
		var want []frame
		ends := map[int]bool{0: true}
		for range rng.IntN(6) {
			f := frame{bytes.Repeat([]byte{byte(rng.Uint32())}, []int{0, 1, 63, 64, 65, 200, 8191, 8192, 20_000}[rng.IntN(9)]), rng.IntN(2) == 0}
			want = append(want, f)
			frames = appendFrame(frames, f.value, f.operand)
			ends[len(frames)] = true
		}
		rest := frames
		for i, w := range want {
			var f frame
			var err error
			f.value, f.operand, rest, err = cutFrame(nil, rest)
			if err != nil || !bytes.Equal(f.value, w.value) || f.operand != w.operand {
				t.Fatalf("frame %d of %d: %d bytes, %v, want %d, %v: %v", i, len(want), len(f.value), f.operand, len(w.value), w.operand, err)
			}
			if cap(f.value) > len(f.value) {
				t.Fatal("appending to a value would overwrite the next frame")
			}
		}
		if len(rest) > 0 {
			t.Fatalf("%d bytes are left", len(rest))
		}
		for range 20 {
			end := rng.IntN(len(frames) + 1)
			if end == 0 {
				continue
			}
			var err error
			for rest := frames[:end]; len(rest) > 0 && err == nil; {
				_, _, rest, err = cutFrame([]byte{0xab}, rest)
			}
			if (err == nil) != ends[end] || err != nil && !strings.Contains(err.Error(), "ab") {
				t.Fatalf("cut at %d of %d: %v", end, len(frames), err)
			}
		}
	}
	huge := binary.AppendUvarint(nil, 1<<63)
	for _, bad := range [][]byte{{}, {0x80}, {4, 1}, huge, bytes.Repeat([]byte{0xff}, 11)} {
		if v, _, _, err := cutFrame(nil, bad); err == nil {
			t.Errorf("%x is parsed as %x", bad, v)
		}
	}
}

// A value that was set is returned unchanged. Operands, with or without a value before
// them, are folded.
func TestValueOfFrames(t *testing.T) {
	s := newStore("x")
	frames := func(parts ...string) (b []byte) { // operands begin with +
		for _, p := range parts {
			v, operand := strings.CutPrefix(p, "+")
			b = appendFrame(b, []byte(v), operand)
		}
		return b
	}
	for _, c := range []struct {
		frames []byte
		want   string
	}{
		{frames(""), ""},
		{frames("a"), "a"},
		{frames("bad"), "bad"}, // a value that was set is not folded
		{frames("+a"), "a"},
		{frames("a", "+b"), "a,b"},
		{frames("+a", "+b", "+c"), "a,b,c"},
		{frames("", "+"), ","},
	} {
		if got, err := s.value([]byte("k"), c.frames); err != nil || string(got) != c.want {
			t.Errorf("%q folds to %q, want %q: %v", c.frames, got, c.want, err)
		}
	}
	for _, bad := range [][]byte{frames("a", "+bad"), frames("+bad"), append(frames("a"), 0x80), append(frames("a", "+b"), 9), {}} {
		if got, err := s.value([]byte("k"), bad); err == nil {
			t.Errorf("%q folds to %q", bad, got)
		}
	}
	if _, err := s.value([]byte("k"), frames("+bad")); !errors.Is(err, errJoin) {
		t.Errorf("error of the Merger: %v", err)
	}
}

// A folded value, and the operands that may be appended before the next fold, fit into a value
// of FoundationDB.
func TestFoldBounds(t *testing.T) {
	if len(appendFrame(nil, make([]byte, maxFolded), false))+700*len(appendFrame(nil, make([]byte, maxAppend), true)) > 100_000 {
		t.Errorf("%d bytes folded and 700 operands of %d do not fit", maxFolded, maxAppend)
	}
}

// Keys keep their order under the prefix. Neither the keys of a store nor its format lie in
// the range of another store.
func TestKeysUnderPrefixes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var stores []*Store
	for _, prefix := range []string{"a", "aa", "ab", "a.", "b", "skein", "skein2"} {
		stores = append(stores, newStore(prefix))
	}
	random := func() []byte {
		b := make([]byte, rng.IntN(6))
		for i := range b {
			b[i] = "\x00\x01a\xfe\xff"[rng.IntN(5)]
		}
		return b
	}
	for range 2000 {
		x, y := random(), random()
		s := stores[rng.IntN(len(stores))]
		if bytes.Compare(s.key(x), s.key(y)) != bytes.Compare(x, y) {
			t.Fatalf("the prefix changes the order of %q and %q", x, y)
		}
		all, part := s.keyRange(nil, nil), s.keyRange(x, y)
		in := func(r fdb.KeyRange, k []byte) bool {
			return bytes.Compare(k, r.Begin.FDBKey()) >= 0 && bytes.Compare(k, r.End.FDBKey()) < 0
		}
		z := random()
		if !in(all, s.key(x)) || in(part, s.key(z)) != (bytes.Compare(z, x) >= 0 && bytes.Compare(z, y) < 0) {
			t.Fatalf("%q, %q, %q", x, y, z)
		}
		for _, o := range stores {
			if o != s && in(all, o.key(x)) || in(all, o.formatKey()) {
				t.Fatalf("a key of store %s lies in the range of store %s", o.o.Prefix, s.o.Prefix)
			}
		}
	}
	var formats []string
	for _, s := range stores {
		before := slices.Clone(s.prefix)
		formats = append(formats, string(s.formatKey()))
		if !bytes.Equal(s.prefix, before) {
			t.Fatal("the prefix was changed")
		}
	}
	slices.Sort(formats)
	if len(slices.Compact(formats)) != len(stores) {
		t.Errorf("two stores have the same format key: %q", formats)
	}
}

// A malformed cluster file is an error; the client library would silently wait.
func TestCheckClusterFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "fdb.cluster")
	for content, why := range map[string]string{
		"a:b@127.0.0.1:4500\n":                      "",
		"a_1:B2@127.0.0.1:4500,10.0.0.1:4500":       "",
		"# of us\n\n  a:b@[::1]:4500:tls  \n# more": "",
		"":                          "is empty",
		"\n\n":                      "is empty",
		"# a:b@127.0.0.1:4500\n":    "is empty",
		"a@127.0.0.1:4500":          "want description",
		"a-b:c@127.0.0.1:4500":      "want description",
		"a:b@127.0.0.1:4500 c":      "want description",
		"a:b@":                      "want description",
		"hello\na:b@127.0.0.1:4500": "hello",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := checkClusterFile(path)
		if why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%q: %v", content, err)
		}
	}
	if err := checkClusterFile(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

// Each error code of FoundationDB has its cause and its error of package kv.
func TestErrorCodes(t *testing.T) {
	s := newStore("x")
	for _, c := range []struct {
		code  int
		cause string
		is    error
	}{
		{codeNotCommitted, "conflict", nil},
		{codeUnknown, "unknown", nil},
		{codeTooOld, "too_old", kv.ErrTooOld},
		{codeTimedOut, "timeout", kv.ErrUnavailable},
		{codeTxnTooLarge, "other", kv.ErrTooLarge},
		{codeKeyTooLarge, "other", kv.ErrTooLarge},
		{codeValueTooLarge, "other", kv.ErrTooLarge},
		{codeCancelled, "other", nil},
	} {
		if got := cause(c.code); got != c.cause {
			t.Errorf("%d: %q", c.code, got)
		}
		err := s.explain(fmt.Errorf("within: %w", fdb.Error{Code: c.code}))
		for _, e := range []error{kv.ErrTooOld, kv.ErrUnavailable, kv.ErrTooLarge, kv.ErrClosed} {
			if errors.Is(err, e) != (e == c.is) { //nolint:errorlint // compares the table's values, not wrapped errors
				t.Errorf("%d: %v", c.code, err)
			}
		}
		if c.is == kv.ErrUnavailable && !strings.Contains(err.Error(), "/the.cluster") { //nolint:errorlint // as above
			t.Errorf("%v does not name the cluster", err)
		}
	}
	if err := s.explain(errJoin); err != errJoin { //nolint:errorlint // it must not be wrapped
		t.Errorf("another error: %v", err)
	}
	if err := s.explain(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
}
