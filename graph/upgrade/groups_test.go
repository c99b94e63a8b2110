package upgrade

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"skein.blue/graph/check"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/memkv"
)

// TestGroupsAfterCrashes interrupts the step that groups rows at each of its writes. Some writes end within a group. The next run
// continues it: each row is in its group once, and nothing else has changed.
func TestGroupsAfterCrashes(t *testing.T) {
	const rows = 2*sliceKeys + 500
	rng := rand.New(rand.NewPCG(10, 0))
	h := format.Header{Version: format.FormatPacked, Settings: dict.DefaultSettings, Kinds: kinds.BuiltIn.Numbers()}
	old := map[string]string{string(format.HeaderKey): string(h.Append(nil))}
	want := map[string]string{}
	groups := map[string]*format.RowGroup{}
	empty, spilled := 0, 0
	for _, k := range []kinds.Kind{kinds.Like, kinds.Repost, 4} {
		subject := dict.ID(7 << 32)
		for range rows {
			subject += 1 + dict.ID(rng.IntN(40)/36*rng.IntN(100))
			var row []byte
			above := format.AppendRowKey(nil, k, subject)
			switch rng.IntN(20) {
			case 0: // all of its members left
				empty++
			case 1:
				spilled++
				row = format.AppendDatedRow(nil, subject, 1+rng.Uint64N(3), []uint64{3}, []uint64{rng.Uint64N(1<<40) + 9}, []uint32{77})
				container := string(format.AppendContainerKey(nil, above, 5))
				old[container] = string(format.AppendContainer(nil, []uint16{8}, nil))
				want[container] = old[container]
			default:
				row = format.AppendRow(nil, subject, 0, nil, []uint64{rng.Uint64N(1 << 40)})
			}
			old[string(above)] = string(row)
			if k == 4 {
				want[string(above)] = string(row)
				continue
			}
			if len(row) == 0 {
				continue
			}
			group := string(format.AppendRowGroupKey(nil, k, subject))
			if groups[group] == nil {
				groups[group] = new(format.RowGroup)
			}
			groups[group].Add(subject, row)
		}
	}
	for key, g := range groups {
		want[key] = string(g.Value)
	}
	h.Version = format.Newest
	want[string(format.HeaderKey)] = string(h.Append(nil))
	crashes := crashAnywhere(t, func(f memkv.Faults) kv.Store { return holding(t, old, f) }, func(n int, got map[string]string) {
		sameRows(t, n, got, want)
	})
	if crashes < 5 || empty < 100 || spilled < 100 || len(groups) > rows {
		t.Errorf("%d crashes, %d empty rows, %d spilled, %d groups: too few to prove anything", crashes, empty, spilled, len(groups))
	}
}

// TestMalformedRowsStay: a row that cannot be read stays where it is, and skein check reports its key. The rows of its neighbours are
// moved, and can be read and folded.
func TestMalformedRowsStay(t *testing.T) {
	h := format.Header{Version: format.FormatPacked, Settings: dict.DefaultSettings, Kinds: kinds.BuiltIn.Numbers()}
	layout := format.Layout{Settings: h.Settings}
	row := func(subject dict.ID) string { return string(format.AppendRowKey(nil, kinds.Like, subject)) }
	for name, bad := range map[string]struct{ key, value string }{
		"cut":                          {row(5), "\x03\x05"},
		"plain, and cut":               {row(5), "\x80"},
		"not ascending":                {row(5), "\x04\x00"},
		"with a partition in its key":  {row(4) + "\x00", "\x04"},
		"of a subject before the last": {row(4) + "\x3f", "\x04"},
	} {
		dir := t.TempDir()
		s, err := pebblekv.Open(pebblekv.Options{Dir: dir, Create: true, Merger: write.NewMerger(write.Limits{}), Marker: format.HeaderKey})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Update(t.Context(), func(tx kv.Txn) error {
			tx.Set(format.HeaderKey, h.Append(nil))
			for _, subject := range []dict.ID{4, 6} {
				tx.Set([]byte(row(subject)), format.AppendRow(nil, subject, 0, nil, []uint64{7}))
			}
			tx.Set([]byte(bad.key), []byte(bad.value))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), s, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.Compact(t.Context()); err != nil {
			t.Errorf("%s: compacting: %v", name, err)
		}
		if err := s.View(t.Context(), func(r kv.Reader) error {
			for subject, want := range map[dict.ID]bool{4: true, 5: false, 6: true} {
				if has, err := read.HasEdge(r, layout, kinds.Like, 7, subject); has != want || err != nil {
					t.Errorf("%s: 7 likes %d: %v, %v", name, subject, has, err)
				}
			}
			v, _, err := r.Get([]byte(bad.key))
			if string(v) != bad.value {
				t.Errorf("%s: the row became %x", name, v)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		want, found := fmt.Sprintf("set key %x does not fit this store's layout", bad.key), false
		if err := check.Store(t.Context(), s, func(p string) { found = found || p == want }, nil); err != nil || !found {
			t.Errorf("%s: check does not report %q: %v", name, want, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSeveralWritersKeepTheirRows: a store with several writers has no groups, and the step visits none of its keys.
func TestSeveralWritersKeepTheirRows(t *testing.T) {
	h := format.Header{Version: format.FormatPacked, Settings: dict.SharedSettings, Kinds: kinds.BuiltIn.Numbers()}
	rows := map[string]string{string(format.HeaderKey): string(h.Append(nil))}
	key := string(format.Layout{Settings: h.Settings}.AppendMemberKey(nil, kinds.Like, 5, 7))
	rows[key] = string(format.AppendRow(nil, 5, 0, nil, []uint64{7}))
	store := holding(t, rows, memkv.Faults{})
	if _, err := Run(t.Context(), store, func(keys int64) { t.Errorf("%d keys were visited", keys) }); err != nil {
		t.Fatal(err)
	}
	h.Version = format.Newest
	rows[string(format.HeaderKey)] = string(h.Append(nil))
	if got := everything(t, store); !maps.Equal(got, rows) {
		t.Errorf("the store has %q, want %q", got, rows)
	}
}
