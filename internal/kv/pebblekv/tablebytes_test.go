package pebblekv_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/kvtest"
)

// The counts of the bytes in tables agree with what flushes and compactions write, if it cannot be compressed.
func TestTableBytes(t *testing.T) {
	tables := new(pebblekv.TableBytes)
	s, err := pebblekv.Open(pebblekv.Options{Dir: t.TempDir(), Create: true, Memory: 64 << 20, Merger: kvtest.LastByte{}, TableBytes: tables})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 25))
	const keys, size = 20_000, 400
	for first := 0; first < keys; first += 1000 {
		err := s.Update(t.Context(), func(tx kv.Txn) error {
			for i := range 1000 {
				v := make([]byte, 0, size)
				for len(v) < size {
					v = binary.LittleEndian.AppendUint64(v, rng.Uint64())
				}
				tx.Set([]byte{"ab"[i%2], byte(rng.Uint32()), byte(first >> 8), byte(first), byte(i >> 8), byte(i)}, v)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	written, sum := int64(0), tables.Sum()
	for _, n := range s.Written().Levels {
		written += n
	}
	if all := sum['a'] + sum['b']; all < keys*size || float64(written) < 0.9*float64(all) || float64(written) > 1.1*float64(all) || sum['a'] < all*2/5 || sum['b'] < all*2/5 {
		t.Errorf("%d bytes written to tables, counted %v", written, sum)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
