package upgrade

import (
	"bytes"
	"fmt"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// repeated visits the keys of one slice of the step to format.FormatRepeated. It adds an actor again to the set of each subject
// that several of its records name, unless the set has containers, and so dates. If one chunk overrides a record
// of another, the record counts twice: a member may be noted as repeated without need.
type repeated struct {
	tx       kv.Txn
	layout   format.Layout
	kind     kinds.Kind // of the last visited chunk, like actor; 0 before the first
	actor    dict.ID
	subjects []dict.ID // of the actor's records so far
	records  []format.Record
	keys     kv.Keys // of the rows of members to add
	members  []member
}

type member struct{ actor, subject dict.ID }

func openRepeated(tx kv.Txn, h format.Header) (visit func(key, value []byte) (int, error), end func() error) {
	s := &repeated{tx: tx, layout: format.Layout{Settings: h.Settings}}
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

// chunk adds the records of a chunk. If earlier chunks of the first actor were visited in another slice, it
// reads all of that actor's records.
func (s *repeated) chunk(key, value []byte) (written int, err error) {
	k, actor, bucket, _, err := format.ParseChunkKey(key)
	if err != nil {
		return 0, err
	}
	if k != s.kind || actor != s.actor {
		first := s.kind == 0
		written += s.endActor()
		if s.kind, s.actor = k, actor; first {
			if err := s.earlier(key); err != nil {
				return 0, err
			}
		}
	}
	if s.records, _, err = format.CoderOf(k, actor, bucket).Read(s.records[:0], value, 0); err != nil {
		return 0, fmt.Errorf("chunk %x: %w", key, err)
	}
	for i := range s.records {
		s.add(&s.records[i])
	}
	return written + len(key) + len(value), nil
}

func (s *repeated) add(r *format.Record) {
	if r.Flags == 0 && r.Subject != dict.None {
		s.subjects = append(s.subjects, r.Subject)
	}
}

// earlier adds the records of the chunks of the slice's first actor that lie before key.
func (s *repeated) earlier(key []byte) error {
	return s.tx.Snapshot().Scan(format.AppendRecordsKey(nil, s.kind, s.actor), key, false, func(k, v []byte) (bool, error) {
		c, err := format.CoderOfKey(k)
		if err == nil {
			s.records, _, err = c.Read(s.records[:0], v, 0)
		}
		for i := range s.records {
			s.add(&s.records[i])
		}
		return err == nil, err
	})
}

// endActor notes the subjects that several records of the last actor name. It returns what adding them
// counts towards the size of the slice.
func (s *repeated) endActor() (written int) {
	slices.Sort(s.subjects)
	for i := 1; i < len(s.subjects) && format.HasRepeated(s.kind); i++ {
		if of := s.subjects[i]; of == s.subjects[i-1] && (i == 1 || of != s.subjects[i-2]) {
			s.keys.Add(s.layout.AppendMemberKey(nil, s.kind, of, s.actor))
			s.members = append(s.members, member{s.actor, of})
			written += costOfRead
		}
	}
	s.subjects = s.subjects[:0]
	return written
}

// end adds the noted members again.
func (s *repeated) end() error {
	s.endActor()
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
