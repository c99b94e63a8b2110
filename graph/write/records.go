package write

import (
	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
)

// records is the phase that writes the changed records.
type records struct {
	records    []format.Record
	kbuf, vbuf []byte
}

// write merges the changed records, one operand per head.
func (r *records) write(tx kv.Txn, all []change, merger *Merger) error {
	for changes := range sets.Runs(all, sameKindAndActor) {
		r.records = r.records[:0]
		for i := range changes {
			c := &changes[i]
			if c.delete && !c.existed || !c.delete && c.existed && c.new == c.old {
				continue
			}
			rec := format.Record{Path: c.path, Subject: c.new, IsMany: c.kind.IsMany()}
			if c.delete {
				if rec.Flags = format.Removed; rec.IsMany {
					rec.Subject = c.old
				}
			} else if c.new == dict.None {
				rec.Flags = format.NoSubject
			}
			r.records = append(r.records, rec)
		}
		if len(r.records) == 0 {
			continue
		}
		c := &changes[0]
		r.kbuf = format.AppendRecordsKey(r.kbuf[:0], c.kind, c.actor)
		coder := format.CoderOf(c.kind, c.actor)
		r.vbuf = coder.Append(r.vbuf[:0], 0, r.records)
		if err := merger.mergeRecords(tx, coder, r.kbuf, r.vbuf, r.records); err != nil {
			return err
		}
	}
	return nil
}
