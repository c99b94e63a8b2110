package write_test

import (
	"context"
	"fmt"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// touching counts the bytes that merges into one set touch: those of the
// operand, and those of the value that it will be folded into.
type touching struct {
	kv.Store
	prefix   string
	row, all int
	merges   int
}

type touchingTxn struct {
	kv.Txn
	t *touching
}

func (t *touching) Update(ctx context.Context, fn func(kv.Txn) error) error {
	return t.Store.Update(ctx, func(tx kv.Txn) error { return fn(&touchingTxn{tx, t}) })
}

func (x *touchingTxn) Merge(key, operand []byte) {
	if len(key) >= len(x.t.prefix) && string(key[:len(x.t.prefix)]) == x.t.prefix {
		v, _, _ := x.Snapshot().Get(key)
		n := len(operand) + len(v)
		x.t.all += n
		if x.t.merges++; len(key) == len(x.t.prefix) {
			x.t.row += n
		}
	}
	x.Txn.Merge(key, operand)
}

// Adding an edge to a set of ten million members touches no more bytes than
// adding one to a set of ten thousand: an operand, and a row that is never
// larger than its limit. Every 2,048 additions the row is spilled, which touches
// the containers, of 8 KiB at most, that its members belong to; that is counted
// apart. The followers here are new accounts, whose ids are neighbours.
//
//	go test ./graph/write -run AddEdge -v
func TestAddEdge(t *testing.T) {
	const adds, actors = 5000, 11_000_000
	rows := map[int]int{}
	for _, size := range []int{10_000, 10_000_000} {
		store := &touching{Store: memory(write.Limits{})}
		s := open(t, store, graph.Options{})
		var b batch.Batch
		event := func(i int) {
			did := fmt.Appendf(nil, "did:plc:%024d", i)
			for j := range did[8:] { // digits that base32 has
				did[8+j] = 'a' + did[8+j] - '0'
			}
			data := make([]byte, 32)
			b.AddCommit(format.Seq(i+1), &batch.Commit{DID: did, Rev: dict.AppendTID(nil, uint64(i+1)<<20), Data: data})
			b.AddPut(1, dict.AppendTID(nil, uint64(i+1)<<19), []byte("did:plc:star"))
			b.Seen(format.Seq(i+1), nil)
		}
		event(0)
		apply(t, s, "test", &b)
		// Put the members there, as spills would have.
		var star dict.ID
		if err := store.View(t.Context(), func(r kv.Reader) (err error) { star, err = ask.AccountID(r, "did:plc:star"); return err }); err != nil {
			t.Fatal(err)
		}
		key := format.AppendRowKey(nil, 1, star)
		first := uint64(star) >> 16 << 16
		for block := first; block < first+actors; block += 1 << 16 {
			var members []uint16
			for m := range 1 << 16 {
				if (int(block-first)+m)%(actors/size) == 0 {
					members = append(members, uint16(m))
				}
			}
			err := store.Store.Update(t.Context(), func(tx kv.Txn) error {
				tx.Merge(format.AppendBlock(append([]byte(nil), key...), block>>16), format.AppendContainer(nil, members, nil))
				tx.Set(key, format.AppendRow(nil, star, 1, nil, nil))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		store.prefix = string(key)
		b.Reset()
		for i := range adds {
			event(1 + i)
			apply(t, s, "test", &b)
			b.Reset()
		}
		t.Logf("a set of %d: %d bytes an edge in its row, and %d in its containers", size, store.row/adds, (store.all-store.row)/adds)
		rows[size] = store.row
	}
	if rows[10_000_000] > rows[10_000]*11/10 {
		t.Errorf("rows: %v", rows)
	}
}
