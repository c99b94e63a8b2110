package check

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// TestRefused: an unreadable store is an error, not a report.
func TestRefused(t *testing.T) {
	h := format.Header{Version: format.Newest + 1, Settings: dict.DefaultSettings, Kinds: []kinds.Kind{1}}
	newer := h.Append(nil)
	gone := errors.New("gone")
	for name, test := range map[string]struct {
		change func(b *bench)
		says   string
	}{
		"no header":         {func(b *bench) { delete(b.rows, string(format.HeaderKey)) }, "there is no graph in the store"},
		"a newer format":    {func(b *bench) { b.rows[string(format.HeaderKey)] = newer }, "index again"},
		"an import":         {func(b *bench) { b.rows[string(format.KeyImport)] = nil }, "run skein import again"},
		"the header fails":  {func(b *bench) { b.bad = []badRange{{"m", "n", gone}} }, "gone"},
		"the jobs fail":     {func(b *bench) { b.bad = []badRange{{"e", "e\xff", gone}} }, "checking the erase jobs"},
		"the accounts fail": {func(b *bench) { b.bad = []badRange{{"a", "a\xff", gone}} }, "checking the accounts"},
		"the ids fail":      {func(b *bench) { b.bad = []badRange{{"i", "i\xff", gone}} }, "checking the strings"},
		"the leases fail":   {func(b *bench) { b.bad = []badRange{{"l", "l\xff", gone}} }, "checking the leases"},
		"the records fail":  {func(b *bench) { b.bad = []badRange{{"r", "r\xff", gone}} }, "checking the records"},
		"the sets fail":     {func(b *bench) { b.bad = []badRange{{"v", "v\xff", gone}} }, "checking the sets"},
	} {
		eachStore(t, func(t *testing.T, h healthy) {
			b := h.bench(t)
			test.change(b)
			err := Verify(b.table, func(p string) { t.Errorf("%s: %s", name, p) }, nil)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v, want %q", name, err, test.says)
			}
		})
	}
}

// crowded is a Reader of a table, with many more keys in one keyspace.
type crowded struct {
	*table

	keyspace byte
	n        int
}

func (c crowded) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) error {
	for n := 0; lo[0] == c.keyspace && n < c.n; n++ {
		if more, err := each(append(slices.Clone(lo), byte(n>>16), byte(n>>8), byte(n)), nil); !more || err != nil {
			return err
		}
	}
	return c.table.Scan(lo, hi, reverse, each)
}

// TestProgress: progress receives the number of keys read, from time to time.
func TestProgress(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		const n = 140_000
		read, reports := []int64{}, 0
		err := Verify(crowded{h.bench(t).table, format.KeyErase, n}, func(string) { reports++ }, func(keys int64) { read = append(read, keys) })
		if err != nil || !slices.Equal(read, []int64{65536, 131072}) || reports != n {
			t.Errorf("%v, %d reports, want %d: %v", read, reports, n, err)
		}
	})
}

// changing is an engine that cannot keep a state for long: it moves to the next state after
// some scans.
type changing struct {
	kv.Store

	states []*table
	scans  int
}

type changingReader struct {
	kv.Reader

	c     *changing
	scans int
}

func (r *changingReader) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) error {
	if r.scans++; r.scans%r.c.scans == 0 && len(r.c.states) > 1 {
		r.c.states = r.c.states[1:]
		r.Reader = r.c.states[0]
	}
	return r.Reader.Scan(lo, hi, reverse, each)
}

func (c *changing) ViewAcross(_ context.Context, fn func(kv.Reader) error) (crossings int, err error) {
	before := len(c.states)
	err = fn(&changingReader{Reader: c.states[0], c: c})
	return before - len(c.states), err
}

// TestMixed: a check that reads several states fails if a write came in between.
func TestMixed(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		same := func() *table { return h.bench(t).table }
		written := func() *table {
			b := h.bench(t)
			key := b.first('m', func(k string, _ []byte) bool { return strings.HasPrefix(k, string(format.KeyWriter)) })
			b.rows[key] = []byte("another token")
			return b.table
		}
		for name, test := range map[string]struct {
			states []*table
			want   int // states, 0 if they are one
		}{
			"one":                         {[]*table{same()}, 0},
			"two without a write between": {[]*table{same(), same()}, 0},
			"two":                         {[]*table{same(), written()}, 2},
			"three":                       {[]*table{same(), same(), written()}, 3},
		} {
			err := Store(t.Context(), &changing{states: test.states, scans: 3}, func(p string) { t.Errorf("%s: %s", name, p) }, nil)
			var mixed *Mixed
			switch {
			case test.want == 0 && err != nil:
				t.Errorf("%s: %v", name, err)
			case test.want > 0 && (!errors.As(err, &mixed) || mixed.States != test.want || !strings.Contains(err.Error(), "changed during the check")):
				t.Errorf("%s: %v, want %d states", name, err, test.want)
			}
		}
		// The error that ended the check takes precedence.
		one, two := same(), written()
		delete(one.rows, string(format.HeaderKey))
		delete(two.rows, string(format.HeaderKey))
		if err := Store(t.Context(), &changing{states: []*table{one, two}, scans: 1}, func(string) {}, nil); !errors.Is(err, read.ErrFormat) {
			t.Errorf("without a header: %v", err)
		}
	})
}

// TestInterrupted: a check whose context ends does not report that as a problem of the store, wherever it is.
func TestInterrupted(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		ended := 0
		for keyspace := range byte(0x80) {
			keys := h.keyspaceKeys(keyspace)
			for at, key := range keys[:min(11, len(keys))] {
				b := h.bench(t)
				b.bad = []badRange{{key, key, context.Canceled}}
				err := Verify(b.table, func(problem string) { t.Errorf("interrupted at key %d of keyspace %q: %s", at, keyspace, problem) }, nil)
				if errors.Is(err, context.Canceled) {
					ended++
				} else if err != nil {
					t.Errorf("interrupted at key %d of keyspace %q: %v", at, keyspace, err)
				}
			}
		}
		if ended < 50 {
			t.Errorf("%d checks were interrupted", ended)
		}
	})
}
