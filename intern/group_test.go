package intern

import (
	"context"
	"fmt"
	"testing"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// hook calls before once, between the first attempt of an Update and its commit.
type hook struct {
	kv.Store
	before func()
}

func slotOf(slot uint8) func() uint8 { return func() uint8 { return slot } }

func (h *hook) Update(ctx context.Context, fn func(kv.Txn) error) error {
	return h.Store.Update(ctx, func(tx kv.Txn) error {
		err := fn(tx)
		if before := h.before; before != nil {
			h.before = nil
			before()
		}
		return err
	})
}

// TestFirstOfGroupComesBack: the first id of a group comes back if another writer was faster
// with the string that it was drawn for. It goes out again, and the group keeps the strings that
// it has by then.
func TestFirstOfGroupComesBack(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: Merger{}})
	settings := dict.Settings{ShardBits: 6, LeaseSize: 65536, Partitions: 64}
	open := func(slot uint8) *Claimer {
		c, _ := openAs(t, store, Options{Settings: settings, Slot: slotOf(slot)}).(*Claimer)
		return c
	}
	a, b := open(0), open(1)
	claim := func(in *Claimer, from, to int) dict.ID {
		var batch Batch
		for i := from; i < to; i++ {
			batch.Add(dict.URI, fmt.Appendf(nil, "at://did:web:x.com/a.b.c/%05d", i))
		}
		must(t, in.Prepare(t.Context(), &batch, 0))
		return batch.ID(0)
	}
	claim(a, 1000, 1063) // so that a starts its next group
	hooked := &hook{store, func() { claim(b, 0, 1) }}
	a.leases.store = hooked
	claim(a, 0, 10) // no string gets its first id
	a.leases.store = store
	if id := claim(a, 100, 200); id&dict.GroupMask != 0 {
		t.Errorf("the test proves nothing: the ids continue at %d", id)
	}
	must(t, store.View(t.Context(), func(r kv.Reader) error {
		var ids []dict.ID
		if err := EachString(r, dict.URI, func(_ []byte, id dict.ID) error { ids = append(ids, id); return nil }); err != nil {
			return err
		}
		return Strings(r, dict.URI, ids, func(i int, s []byte) error {
			var back Batch
			n := back.Add(dict.URI, s)
			if err := Lookup(r, &back); err != nil || back.ID(n) != ids[i] {
				t.Errorf("id %d stands for %s, whose id is %d: %v", ids[i], s, back.ID(n), err)
			}
			return nil
		})
	}))
}
