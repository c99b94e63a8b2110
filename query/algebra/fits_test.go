package algebra

import (
	"fmt"
	"testing"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// A sample of one large set does not exceed the bound of different results, whatever the set's size.
func TestSampleFitsATally(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{}), Limits: memkv.Limits{Key: 1e4, Value: 1e8, Txn: 1e9, Age: time.Hour}})
	g := oracle.GraphOn(t, 1, 10, store)
	g.Put(g.Accounts[0], "follow", g.Accounts[1])
	const share = DefaultHopUnits - memberUnits
	const n = 2 * share // members
	text := fmt.Sprintf("rank(of=members(%s),via=followers,top=10)", g.Accounts[1])
	e := parsed(t, text)
	must(t, store.Update(t.Context(), func(tx kv.Txn) error {
		return g.Store.View(t.Context(), func(sn *ask.View) error {
			ids, err := Lookup(sn, e.Strings)
			must(t, err)
			key := format.AppendRowKey(nil, kinds.ByName("follow").Kind, ids[0])
			tx.Set(key, format.AppendRow(nil, ids[0], 1, nil, nil, nil))
			layout := format.Layout{Settings: dict.DefaultSettings}
			members := make([]uint64, 1<<16)
			for first, left := uint64(1<<20), n; left > 0; first += 1 << 16 {
				m := min(left, len(members))
				for j := range m {
					members[j] = first + uint64(j)
				}
				tx.Set(layout.AppendSetLeafKey(nil, kinds.ByName("follow").Kind, ids[0], dict.ID(members[m-1])), format.AppendRow(nil, ids[0], 0, nil, members[:m], nil))
				left -= m
			}
			return nil
		})
	}))
	must(t, g.Store.View(t.Context(), func(sn *ask.View) error {
		v, err := NewEvaluation(t.Context(), sn, e, free())
		must(t, err)
		_, err = v.Set(&e.Root)
		return err
	}))
}
