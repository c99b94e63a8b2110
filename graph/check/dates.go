package check

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/zeebo/xxh3"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
)

// dates compares the dates of large sets with the containers and with the records, by sums of hashes.
//
// The ids in a set's blocks of dates are those in its containers. A date that is not Undated is the
// second of the member's only record. Members that are Undated, those that a row removes, and those with
// one date in a row and another in a block are not compared: their hashes, of 32 bits, are in skipped, and
// an edge whose hash is there is left out of both sums, dated or not.
type dates struct {
	seed    uint64
	large   map[kinds.Kind]*roaring64.Bitmap // subjects of sets that have containers
	skipped *roaring.Bitmap
	skips   uint64 // the hashes in skipped
	below   uint64 // only edges with hashes below are compared

	members, dated   map[kinds.Kind]edgeSum // ids in containers, and in blocks of dates
	fromRecs, stored map[kinds.Kind]edgeSum // edges with dates
}

// mostSkipped bounds skipped: above it, half of the edges are no longer compared.
const mostSkipped = 64 << 20

func newDates(seed uint64) dates {
	return dates{
		seed: seed, large: map[kinds.Kind]*roaring64.Bitmap{}, skipped: roaring.New(), below: 1 << 32,
		members: map[kinds.Kind]edgeSum{}, dated: map[kinds.Kind]edgeSum{}, fromRecs: map[kinds.Kind]edgeSum{}, stored: map[kinds.Kind]edgeSum{},
	}
}

func (d *dates) hash(k kinds.Kind, actor, subject uint64) uint32 {
	var b [17]byte
	binary.LittleEndian.PutUint64(b[:], actor)
	binary.LittleEndian.PutUint64(b[8:], subject)
	b[16] = byte(k)
	return uint32(xxh3.HashSeed(b[:], d.seed))
}

func (d *dates) skip(k kinds.Kind, actor, subject uint64) {
	h := d.hash(k, actor, subject)
	if uint64(h) >= d.below {
		return
	}
	if d.skipped.CheckedAdd(h) {
		d.skips++ // to count the bitmap each time would take longer than all else
	}
	if d.skips > mostSkipped {
		d.below /= 2
		d.skipped.RemoveRange(d.below, 1<<32)
		d.skips = d.skipped.GetCardinality()
	}
}

func (d *dates) isCompared(k kinds.Kind, actor, subject uint64) bool {
	h := d.hash(k, actor, subject)
	return uint64(h) < d.below && !d.skipped.Contains(h)
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
	var rows rowDates
	return v.eachDate(func(k kinds.Kind, subject dict.ID, id uint64, date uint32) {
		if rows.kind != k || rows.subject != subject {
			rows = v.readLarge(k, subject)
		}
		if i, over := slices.BinarySearch(rows.members, id); date == format.Undated || over && rows.dates[i] != date {
			d.skip(k, id, uint64(subject))
		}
	})
}

// rowDates are the members in the rows of a large set, ascending, and their dates.
type rowDates struct {
	kind    kinds.Kind
	subject dict.ID
	members []uint64
	dates   []uint32
	seen    []bool // members that are in blocks, too
}

// readLarge reads the rows of a set that has dates. They override its containers.
func (v dateCheck) readLarge(k kinds.Kind, subject dict.ID) (rows rowDates) {
	d := &v.dates
	if d.large[k] == nil {
		d.large[k] = roaring64.New()
	}
	d.large[k].Add(uint64(subject))
	t, err := read.OpenSet(v.r, v.Layout, k, subject)
	if err != nil { // eachSet reports it
		v.unreadable = true
		return rowDates{kind: k, subject: subject}
	}
	if t.Generation == 0 {
		v.broken("the %s set of %d has dates, and no containers", k, subject)
	}
	for _, id := range t.Removed {
		d.skip(k, id, uint64(subject))
	}
	rows = rowsOf(k, subject, &t)
	for i, id := range rows.members {
		if rows.dates[i] == format.Undated {
			d.skip(k, id, uint64(subject))
		}
	}
	return rows
}

func rowsOf(k kinds.Kind, subject dict.ID, t *read.Set) rowDates {
	rows := rowDates{k, subject, t.Members, t.Dates, make([]bool, len(t.Members))}
	for len(rows.dates) < len(rows.members) {
		rows.dates = append(rows.dates, format.Undated)
	}
	return rows
}

// sumDates adds up the blocks of dates, and the dates that only rows have.
func (v dateCheck) sumDates() error {
	d := &v.dates
	compare := func(k kinds.Kind, subject dict.ID, id uint64, date uint32) {
		if (k.IsLabel() || !v.erasing[dict.ID(id)]) && d.isCompared(k, id, uint64(subject)) {
			v.addDated(d.stored, k, id, uint64(subject), date)
		}
	}
	var rows rowDates
	onlyInRows := func() {
		for i, id := range rows.members {
			if !rows.seen[i] {
				compare(rows.kind, rows.subject, id, rows.dates[i])
			}
		}
		rows = rowDates{}
	}
	err := v.eachDate(func(k kinds.Kind, subject dict.ID, id uint64, date uint32) {
		if rows.kind != k || rows.subject != subject {
			onlyInRows()
			rows = rowDates{kind: k, subject: subject}
			if t, err := read.OpenSet(v.r, v.Layout, k, subject); err == nil {
				rows = rowsOf(k, subject, &t)
			} // else eachSet reports it
		}
		if i, over := slices.BinarySearch(rows.members, id); over {
			rows.seen[i] = true
		}
		v.add(d.dated, k, id, uint64(subject))
		compare(k, subject, id, date)
	})
	onlyInRows()
	return err
}

func (v dateCheck) addDated(sums map[kinds.Kind]edgeSum, k kinds.Kind, actor, subject uint64, date uint32) {
	v.add(sums, k, actor, subject^uint64(date)<<32^uint64(date)*0x9e3779b97f4a7c15)
}

// eachDate reads all blocks of dates, and checks their form the first time.
func (v dateCheck) eachDate(each func(k kinds.Kind, subject dict.ID, id uint64, date uint32)) error {
	first := !v.datesChecked
	v.datesChecked = true
	broken := func(f string, args ...any) {
		if first {
			v.broken(f, args...)
		}
	}
	return v.scan([]byte{format.KeyDates}, func(key, value []byte) error {
		k, subject, block, err := format.ParseDatesKey(key)
		if err != nil || v.kinds.Info(k) == nil {
			broken("dates key %x is malformed, or of an unknown kind", key)
			return nil //nolint:nilerr // it is reported
		}
		var present []format.Dated
		if err := format.EachDate(block<<format.DateShift, value, func(id uint64, date uint32) {
			present = append(present, format.Dated{Member: uint16(id & (1<<format.DateShift - 1)), Date: date})
			if date == format.OneRecord {
				date = format.Undated
			}
			each(k, subject, id, date)
		}); err != nil {
			broken("dates %x: %v", key, err)
			v.unreadable = true
			return nil
		}
		if again := format.AppendDates(nil, nil, present); string(again) != string(value) && len(value) > 0 {
			broken("dates %x keep removed members with nothing below them", key)
		}
		return nil
	})
}

// datedRecords adds up the dates of an actor's records of a kind, given the subject and the date of each.
func (v dateCheck) datedRecords(k kinds.Kind, actor dict.ID, records []datedSubject) {
	slices.SortFunc(records, func(x, y datedSubject) int { return cmp.Compare(x.subject, y.subject) })
	for len(records) > 0 {
		subject, date := records[0].subject, records[0].date
		for ; len(records) > 0 && records[0].subject == subject; records = records[1:] {
			if records[0].date != date {
				date = format.Undated
			}
		}
		if v.dates.isCompared(k, uint64(actor), subject) {
			v.addDated(v.dates.fromRecs, k, uint64(actor), subject, date)
		}
	}
}

// datedSubject is the subject of a record, and the record's date.
type datedSubject struct {
	subject uint64
	date    uint32
}

// compareDates compares the sums.
func (v dateCheck) compareDates() error {
	d := &v.dates
	for k := range v.eachKind {
		if v.damage.any() {
			return nil
		}
		if d.members[k.Kind] != d.dated[k.Kind] {
			v.broken("the containers of the %s sets have %d members, their dates %d, and they differ", k.Name, d.members[k.Kind].n, d.dated[k.Kind].n)
		}
		if d.fromRecs[k.Kind] == d.stored[k.Kind] {
			continue
		}
		v.broken("the dates of %d members of %s sets differ from those of %d records", d.stored[k.Kind].n, k.Name, d.fromRecs[k.Kind].n)
		if v.unreadable {
			continue
		}
		if err := v.findWrongDates(k.Kind); err != nil {
			return err
		}
	}
	return nil
}

// findWrongDates reports the dates that are not those of the records. It reads the records of every
// member with a date.
func (v dateCheck) findWrongDates(kind kinds.Kind) (err error) {
	scanned := v.eachDate(func(k kinds.Kind, subject dict.ID, id uint64, date uint32) {
		if err != nil || k != kind || v.erasing[dict.ID(id)] && !k.IsLabel() || !v.dates.isCompared(k, id, uint64(subject)) {
			return
		}
		var found []uint32
		err = read.Records(v.r, k, dict.ID(id), func(r *format.Record) bool {
			if r.Subject == subject {
				found = append(found, format.DateOf(r.Path))
			}
			return true
		})
		if len(found) == 0 || slices.ContainsFunc(found, func(f uint32) bool { return f != date }) {
			v.broken("actor %d has the date %d in the %s set of %d; its records have %d", id, date, k, subject, found)
		}
	})
	return cmp.Or(err, scanned)
}
