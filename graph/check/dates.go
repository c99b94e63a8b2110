package check

import (
	"cmp"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/zeebo/xxh3"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
)

// dates compares the dates of large sets with the records, by sums of hashes.
//
// A date is the second of the member's only record. Members whose records have to be read, Undated or OneRecord,
// are not compared: their hashes, of 32 bits, are in skipped, which takes up to 512 MB, and
// an edge whose hash is there is left out of both sums, dated or not: 2 % of those with dates if 87 million have none.
type dates struct {
	seed    uint64
	large   map[kinds.Kind]*roaring64.Bitmap // subjects of sets that were spilled
	skipped *roaring.Bitmap
}

func newDates() dates {
	return dates{seed: rand.Uint64(), large: map[kinds.Kind]*roaring64.Bitmap{}, skipped: roaring.New()}
}

func (d *dates) hash(k kinds.Kind, actor, subject uint64) uint32 {
	var b [17]byte
	binary.LittleEndian.PutUint64(b[:], actor)
	binary.LittleEndian.PutUint64(b[8:], subject)
	b[16] = byte(k)
	return uint32(xxh3.HashSeed(b[:], d.seed))
}

func (d *dates) isCompared(k kinds.Kind, actor, subject uint64) bool {
	return !d.skipped.Contains(d.hash(k, actor, subject))
}

func (d *dates) isLarge(k kinds.Kind, subject uint64) bool {
	return d.large[k] != nil && d.large[k].Contains(subject)
}

// dateCheck is the part of a checker that knows the dates of large sets.
type dateCheck struct{ *checker }

func (v *checker) ofDates() dateCheck { return dateCheck{v} }

// readDates finds the large sets, and the edges to skip.
func (v dateCheck) readDates() error {
	d := &v.dates
	row := func(k kinds.Kind, subject dict.ID, row []byte) {
		if r, err := format.ParseRow(subject, row); err != nil || r.Generation == 0 || k == kinds.Hidden || v.kinds.Info(k) == nil {
			return // eachSet reports an error
		}
		if d.large[k] == nil {
			d.large[k] = roaring64.New()
		}
		d.large[k].Add(uint64(subject))
	}
	if err := cmp.Or(v.scan([]byte{format.KeyReverse}, func(key, value []byte) error {
		if k, subject, _, _, isLeaf, err := v.ParseSetKey(key); err == nil && !isLeaf {
			row(k, subject, value)
		}
		return nil
	}), v.scan([]byte{format.KeyRows}, func(key, value []byte) error {
		if k, first, err := format.ParseRowGroupKey(key); err == nil {
			_ = format.EachRow(first, value, func(subject dict.ID, one []byte) error { row(k, subject, one); return nil })
		}
		return nil
	})); err != nil {
		return err
	}
	return v.eachDate(func(k kinds.Kind, subject dict.ID, id uint64, date uint32) {
		if date == format.Undated {
			d.skipped.Add(d.hash(k, id, uint64(subject)))
		}
	})
}

// sumDates adds up the dates of the sets.
func (v dateCheck) sumDates() error {
	return v.eachDate(func(k kinds.Kind, subject dict.ID, id uint64, date uint32) {
		if (k.IsLabel() || !v.erasing[dict.ID(id)]) && v.dates.isCompared(k, id, uint64(subject)) {
			v.addDated(1, k, id, uint64(subject), date)
		}
	})
}

func (v dateCheck) addDated(side int, k kinds.Kind, actor, subject uint64, date uint32) {
	v.inDates.addNumbers(side, uint64(date)<<8|uint64(k), actor, subject)
}

// eachDate calls each with the members of all large sets, and with their dates (read.Dates).
func (v dateCheck) eachDate(each func(k kinds.Kind, subject dict.ID, id uint64, date uint32)) error {
	for k := range v.eachKind {
		large := v.dates.large[k.Kind]
		if large == nil {
			continue
		}
		for subject := range sets.FromBitmap(large).All() {
			_, err := read.Dates(v.r, v.Layout, k.Kind, dict.ID(subject), &read.DateRange{Last: format.Undated}, func(id uint64, date uint32) error {
				each(k.Kind, dict.ID(subject), id, date)
				return nil
			})
			if errors.Is(err, dict.ErrStored) {
				v.unreadable = true // eachSet reports it
			} else if err != nil {
				return err
			}
		}
	}
	return nil
}

// datedRecords adds up the dates of an actor's records of a kind, given the subject and the date of each.
func (v dateCheck) datedRecords(k kinds.Kind, actor dict.ID, records []datedSubject) {
	slices.SortFunc(records, func(x, y datedSubject) int { return cmp.Compare(x.subject, y.subject) })
	for same := range sets.Runs(records, func(x, y datedSubject) bool { return x.subject == y.subject }) {
		date := same[0].date
		if len(same) > 1 {
			date = format.Undated
		}
		if v.dates.isCompared(k, uint64(actor), same[0].subject) {
			v.addDated(0, k, uint64(actor), same[0].subject, date)
		}
	}
}

// datedSubject is the subject of a record, and the record's date.
type datedSubject struct {
	subject uint64
	date    uint32
}
