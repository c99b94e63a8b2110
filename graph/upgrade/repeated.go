package upgrade

import (
	"bytes"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// repeated visits the keys of one slice of the step to format.FormatRepeated. For each subject that several records of an actor
// name, it merges the actor into the subject's row once more, so that the row notes the actor as repeated. It skips rows with containers: their dates tell. If one
// chunk overrides a record of another, the actor may be noted as repeated without need.
//
// Each chunk adds the actor to the sets of those of its subjects that it or an earlier chunk has named before. So
// a slice writes no more than the chunks that it visits, however many records the actor has: a transaction of
// FoundationDB is bounded.
type repeated struct {
	tx       kv.Txn
	layout   format.Layout
	kind     kinds.Kind // of the last visited chunk, like actor; 0 before the first
	actor    dict.ID
	subjects *roaring64.Bitmap // of the actor's records so far
	records  []format.Record
	keys     kv.Keys // of the rows of members to add
	members  []member
}

type member struct{ actor, subject dict.ID }

func openRepeated(tx kv.Txn, h format.Header) (visit func(key, value []byte) (int, error), end func() error) {
	s := &repeated{tx: tx, layout: format.Layout{Settings: h.Settings, Ungrouped: true}, subjects: roaring64.New()}
	return s.visit, s.end
}

// visit visits a key: of a record, a set or a date.
func (s *repeated) visit(key, value []byte) (written int, err error) {
	switch key[0] {
	case format.KeyReverse:
		err = s.row(key, value)
	case format.KeyDates:
		err = s.dates(key, value)
	default:
		return s.chunk(key, value)
	}
	return len(key) + len(value), err
}

// row makes the members of a row undated whose date has the number of format.OneRecord.
func (s *repeated) row(key, value []byte) error {
	_, subject, _, isRow, err := format.ParseReverseKey(key)
	if err != nil || !isRow {
		return err
	}
	row, err := format.ParseRow(subject, value)
	if err != nil || row.Dates == nil {
		return err
	}
	members, err := row.AppendMembers(nil)
	for i, id := range members {
		if row.Date(i) == format.OneRecord {
			s.tx.Merge(bytes.Clone(key), format.AppendRow(nil, subject, 0, nil, []uint64{id}))
		}
	}
	return err
}

// dates does so for the members of a block of dates.
func (s *repeated) dates(key, value []byte) error {
	var late []format.Dated
	err := format.EachDate(0, value, func(id uint64, date uint32) {
		if date == format.OneRecord {
			late = append(late, format.Dated{Member: uint16(id), Date: format.Undated})
		}
	})
	if len(late) > 0 {
		s.tx.Merge(bytes.Clone(key), format.AppendDates(nil, nil, late))
	}
	return err
}

// chunk notes the subjects of a chunk that the actor has named before. If earlier chunks of the first actor were
// visited in another slice, it reads them first.
func (s *repeated) chunk(key, value []byte) (written int, err error) {
	k, actor, _, _, err := format.ParseChunkKey(key)
	if err != nil {
		return 0, err
	}
	if k != s.kind || actor != s.actor {
		first := s.kind == 0
		s.kind, s.actor = k, actor
		s.subjects.Clear()
		if first {
			if err := s.earlier(key); err != nil {
				return 0, err
			}
		}
	}
	written = len(key) + len(value)
	err = s.eachSubject(key, value, func(subject dict.ID) {
		if s.subjects.CheckedAdd(uint64(subject)) || !format.HasRepeated(k) {
			return
		}
		s.keys.Add(s.layout.AppendMemberKey(nil, k, subject, actor))
		s.members = append(s.members, member{actor, subject})
		written += costOfRead
	})
	return written, err
}

// eachSubject calls each with the subjects of a chunk's records.
func (s *repeated) eachSubject(key, value []byte, each func(subject dict.ID)) error {
	c, err := format.CoderOfKey(key)
	if err == nil {
		s.records, _, err = c.Read(s.records[:0], value, 0)
	}
	if err != nil {
		return fmt.Errorf("chunk %x: %w", key, err)
	}
	for i := range s.records {
		if r := &s.records[i]; r.Flags == 0 && r.Subject != dict.None {
			each(r.Subject)
		}
	}
	return nil
}

// earlier adds the subjects of the chunks of the slice's first actor that lie before key.
func (s *repeated) earlier(key []byte) error {
	return s.tx.Snapshot().Scan(format.AppendRecordsKey(nil, s.kind, s.actor), key, false, func(k, v []byte) (bool, error) {
		return true, s.eachSubject(k, v, func(subject dict.ID) { s.subjects.Add(uint64(subject)) })
	})
}

// end adds the noted members again.
func (s *repeated) end() error {
	keys := s.keys.List()
	noted := make([]bool, 0, len(keys))
	if err := s.tx.MultiGet(keys, func(i int, v []byte, _ bool) error {
		row, err := format.ParseRow(s.members[i].subject, v)
		// An overridden record may name a subject whose set the actor has left.
		noted = append(noted, row.Generation == 0 && row.Has(uint64(s.members[i].actor)))
		return err
	}); err != nil {
		return err
	}
	for i, m := range s.members {
		if noted[i] {
			s.tx.Merge(keys[i], format.AppendRow(nil, m.subject, 0, nil, []uint64{uint64(m.actor)}))
		}
	}
	return nil
}

// finishRepeated writes the new version.
func finishRepeated(_ kv.Txn, h format.Header, _ Tally) ([]byte, error) {
	h.Version = format.FormatRepeated
	return h.Append(nil), nil
}
