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
	before := []format.CursorRow{{Number: 1, Seq: 900}, {Number: 1, Seq: 10}, {Number: 1, Seq: 900, Future: true}}
	for partitions, want := range map[uint8][]format.Seq{3: {900, 50, 50}, 1: {900}} {
		store := memkv.Open(memkv.Options{Merger: NewMerger(Limits{})})
		w := Writer{Options: Options{Layout: format.Layout{Settings: dict.Settings{Partitions: partitions}}}}
		seg := &Segment{Source: "relay", Parts: format.AllPartitions(partitions), Batch: new(batch.Batch), Whole: true}
		seg.Batch.Seen(50, nil)
		must(t, store.Update(t.Context(), func(tx kv.Txn) error {
			out := Result{Cursors: slices.Clone(before[:partitions])}
			for i := range out.Cursors {
				tx.Set(format.CursorKey(uint8(i), seg.Source), out.Cursors[i].Value())
			}
			w.writeCursors(tx, seg, &out)
			return nil
		}))
		var got []format.Seq
		if err := store.View(t.Context(), func(r kv.Reader) error {
			return kv.ScanPrefix(r, []byte{format.KeyCursor}, func(_, v []byte) error {
				row, err := format.DecodeCursor(v)
				got = append(got, row.Seq)
				return err
			})
		}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d partitions are at %d, want %d: %v", partitions, got, want, err)
		}
	}
}
