package check

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/kv"
)

// sizer is an engine that returns the given sizes, and 1 byte more for each range.
type sizer struct {
	kv.Store

	rows map[string][]byte
	disk uint64
	err  error
}

func (s *sizer) DiskBytes() uint64 { return s.disk }

func (s *sizer) RangeBytes(lo, hi []byte) (n uint64, err error) {
	for k, v := range s.rows {
		if k >= string(lo) && (hi == nil || k < string(hi)) {
			n += uint64(len(k) + len(v))
		}
	}
	return n, s.err
}

// TestUsage: Usage names each part that has keys, with the bytes that the engine says, and what is left of the disk's.
func TestUsage(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		b := h.bench(t)
		b.rows["zz"] = []byte("of no keyspace")
		bytes, all := map[string]uint64{}, uint64(0)
		parts := format.Parts(kinds.BuiltIn)
		for k, v := range b.rows {
			if i := slices.IndexFunc(parts, func(p format.Part) bool { return strings.HasPrefix(k, string(p.Prefix)) }); i >= 0 {
				bytes[parts[i].Name] += uint64(len(k) + len(v))
				all += uint64(len(k) + len(v))
			}
		}
		for _, test := range []struct {
			disk, over uint64 // and the rest of it
			known      bool   // the parts have bytes
		}{{all, 0, true}, {all + 7, 7, true}, {0, 0, true}, {all - 1, all - 1, false}} {
			got, err := Usage(b.table, kinds.BuiltIn, &sizer{rows: b.rows, disk: test.disk})
			must(t, err)
			want := map[string]uint64{}
			if test.known {
				maps.Copy(want, bytes)
			}
			if test.over > 0 {
				want["the rest, logs and indexes"] = test.over
			}
			seen := map[string]uint64{}
			for _, k := range got {
				seen[k.Name] += k.Bytes
			}
			if len(got) != len(want) || !maps.Equal(seen, want) {
				t.Errorf("with %d bytes on disk: %v, want %v", test.disk, got, want)
			}
		}
		gone := errors.New("gone")
		if _, err := Usage(b.table, kinds.BuiltIn, &sizer{err: gone}); !errors.Is(err, gone) {
			t.Errorf("a failing engine: %v", err)
		}
	})
}
