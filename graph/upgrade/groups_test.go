package upgrade

import (
	"maps"
	"math/rand/v2"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/memkv"
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
	h.Version = format.FormatRowGroups
	want[string(format.HeaderKey)] = string(h.Append(nil))
	crashes := crashAnywhere(t, func(f memkv.Faults) kv.Store { return holding(t, old, f) }, func(n int, got map[string]string) {
		if maps.Equal(got, want) {
			return
		}
		for key, v := range want {
			if got[key] != v {
				t.Fatalf("after a crash at write %d, %x is %x, want %x", n, key, got[key], v)
			}
		}
		t.Fatalf("after a crash at write %d there are %d keys, want %d", n, len(got), len(want))
	})
	if crashes < 5 || empty < 100 || spilled < 100 || len(groups) > rows {
		t.Errorf("%d crashes, %d empty rows, %d spilled, %d groups: too few to prove anything", crashes, empty, spilled, len(groups))
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
	h.Version = format.FormatRowGroups
	rows[string(format.HeaderKey)] = string(h.Append(nil))
	if got := everything(t, store); !maps.Equal(got, rows) {
		t.Errorf("the store has %q, want %q", got, rows)
	}
}
