package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
)

// sizer is an engine that returns the given sizes, and 1 byte more for each range.
type sizer struct {
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

// TestUsage: Usage counts every key once, in its own part, and takes the bytes from the engine.
func TestUsage(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		b := h.bench(t)
		b.rows["d\x00"], b.rows["g\x00"], b.rows["zz"] = []byte("1"), []byte("2"), []byte("of no keyspace")
		keys, bytes := map[string]int64{}, map[string]uint64{}
		parts, _ := format.Parts(kinds.BuiltIn)
		for k, v := range b.rows {
			name := "leases, cursors, notes"
			if i := slices.IndexFunc(parts, func(p format.Part) bool { return strings.HasPrefix(k, string(p.Prefix)) }); i >= 0 {
				name = parts[i].Name
				bytes[name] += uint64(len(k) + len(v))
			}
			if k != "zz" {
				keys[name]++
			}
		}
		all := uint64(0)
		for _, n := range bytes {
			all += n
		}
		const overhead = "logs, indexes and overhead"
		for _, test := range []struct {
			disk, over uint64 // and the rest of it
			known      bool   // the parts have bytes
		}{{all, 0, true}, {all + 7, 7, true}, {0, 0, true}, {all - 1, all - 1, false}} {
			s := &sizer{rows: b.rows, disk: test.disk}
			got, err := Usage(b.table, kinds.BuiltIn, s, nil)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, k := range got {
				if seen[k.Name] {
					t.Errorf("%s occurs twice", k.Name)
				}
				seen[k.Name] = true
				want := Keyspace{Name: k.Name, Keys: keys[k.Name], Bytes: bytes[k.Name]}
				if !test.known {
					want.Bytes = 0
				}
				if k.Name == overhead {
					want.Bytes = test.over
				}
				if k != want {
					t.Errorf("with %d bytes on disk: %+v, want %+v", test.disk, k, want)
				}
			}
			if seen[overhead] != (test.over > 0) {
				t.Errorf("with %d bytes on disk: %+v", test.disk, got)
			}
			for name := range keys {
				if !seen[name] {
					t.Errorf("%s is missing", name)
				}
			}
		}
		gone := errors.New("gone")
		if _, err := Usage(b.table, kinds.BuiltIn, &sizer{err: gone}, nil); !errors.Is(err, gone) {
			t.Errorf("a failing engine: %v", err)
		}
	})
}

func TestTotals(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		b := h.bench(t)
		counts, cursors, table, err := Totals(b.table)
		want, cerr := read.Counts(b.table)
		if err != nil || cerr != nil || table != kinds.BuiltIn || fmt.Sprint(counts) != fmt.Sprint(want) || counts.Accounts == 0 {
			t.Errorf("%+v, want %+v: %v, %v", counts, want, err, cerr)
		}
		if len(cursors) != 1 || cursors[0].Source != "relay" || cursors[0].Seq == 0 {
			t.Errorf("%+v", cursors)
		}
		for name, breaks := range map[string]func(){
			"no header":   func() { delete(b.rows, string(format.HeaderKey)) },
			"importing":   func() { b.rows[string(format.KeyImport)] = nil },
			"the counts":  func() { b.rows[b.first('m', isCounts)] = nil },
			"the cursors": func() { b.rows["c"] = nil },
		} {
			b = h.bench(t)
			breaks()
			if _, _, _, err := Totals(b.table); err == nil {
				t.Errorf("%s: no error", name)
			}
		}
	})
}
