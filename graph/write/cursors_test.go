package write

import (
	"testing"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// A write moves the cursors of its lane's partitions to where it reaches, but for one
// that is further, unless that is in its relay's future.
func TestCursorsAhead(t *testing.T) {
	rows := []format.CursorRow{{Number: 1, Seq: 10}, {Number: 1, Seq: 900}, {Number: 1, Seq: 900, Future: true}}
	for _, c := range []struct {
		shared bool
		want   [3]format.Seq
	}{
		{true, [3]format.Seq{50, 900, 50}},
		{false, [3]format.Seq{50, 50, 50}}, // it has one partition: nothing can be ahead
	} {
		store := memkv.Open(memkv.Options{Merger: NewMerger(Limits{})})
		layout := format.Layout{Settings: dict.Settings{Partitions: 3}}
		w := Writer{Options: Options{Layout: layout, Shared: c.shared}}
		seg := &Segment{Source: "relay", Batch: seen(50), Whole: true}
		err := store.Update(t.Context(), func(tx kv.Txn) error {
			out := Result{Cursors: append([]format.CursorRow(nil), rows...)}
			for i := range out.Cursors {
				tx.Set(layout.CursorKey(uint8(i), seg.Source), out.Cursors[i].Value())
			}
			w.writeCursors(tx, seg, &out)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		err = store.View(t.Context(), func(r kv.Reader) error {
			for i, want := range c.want {
				v, _, err := r.Get(layout.CursorKey(uint8(i), seg.Source))
				if err != nil {
					return err
				}
				row, err := format.DecodeCursor(v)
				if err != nil {
					return err
				}
				if row.Seq != want {
					t.Errorf("shared %t: partition %d is at %d, want %d", c.shared, i, row.Seq, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func seen(seq format.Seq) *batch.Batch {
	b := new(batch.Batch)
	b.Seen(seq, nil)
	return b
}
