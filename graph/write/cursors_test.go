package write

import (
	"slices"
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
	layout := format.Layout{Settings: dict.Settings{Partitions: 3}}
	for shared, want := range map[bool][]format.Seq{true: {50, 900, 50}, false: {50, 50, 50}} { // one partition is not ahead of itself
		store := memkv.Open(memkv.Options{Merger: NewMerger(Limits{})})
		w := Writer{Options: Options{Layout: layout, Shared: shared}}
		seg := &Segment{Source: "relay", Parts: format.AllPartitions(3), Batch: new(batch.Batch), Whole: true}
		seg.Batch.Seen(50, nil)
		if err := store.Update(t.Context(), func(tx kv.Txn) error {
			out := Result{Cursors: []format.CursorRow{{Number: 1, Seq: 10}, {Number: 1, Seq: 900}, {Number: 1, Seq: 900, Future: true}}}
			for i := range out.Cursors {
				tx.Set(format.CursorKey(uint8(i), seg.Source), out.Cursors[i].Value())
			}
			w.writeCursors(tx, seg, &out)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		var got []format.Seq
		if err := store.View(t.Context(), func(r kv.Reader) error {
			return kv.ScanPrefix(r, []byte{format.KeyCursor}, func(_, v []byte) error {
				row, err := format.DecodeCursor(v)
				got = append(got, row.Seq)
				return err
			})
		}); err != nil || !slices.Equal(got, want) {
			t.Errorf("shared %t: the partitions are at %d, want %d: %v", shared, got, want, err)
		}
	}
}
