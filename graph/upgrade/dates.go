package upgrade

import (
	"cmp"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// The step to format.FormatDates visits the records, the sets and the dates, in this order:
//
//   - Each record that names the subject of a large set adds its date to the member's block. Two
//     different dates come to Undated.
//   - Each container gives its members that have no date yet, because a row overrides them, Undated.
//   - Each block of dates loses the ids that are in no container, because only a row has them.

// large has the subjects of the sets that have containers, by kind.
type large map[kinds.Kind]*roaring64.Bitmap

// findLarge finds the large sets.
func findLarge(r kv.Reader, _ format.Header) (any, error) {
	found := large{}
	err := kv.ScanPrefix(r, []byte{format.KeyReverse}, func(key, v []byte) error {
		k, subject, _, isRow, err := format.ParseReverseKey(key)
		if err != nil || !isRow || k == kinds.Hidden {
			return err
		}
		row, err := format.ParseRow(subject, v)
		if err == nil && row.Generation > 0 {
			if found[k] == nil {
				found[k] = roaring64.New()
			}
			found[k].Add(uint64(subject))
		}
		return err
	})
	return found, err
}

// addDates visits a key of the step to format.FormatDates.
func addDates(tx kv.Txn, h format.Header, prepared any, key, value []byte) (int, error) {
	switch key[0] {
	case format.KeyRecord:
		found, _ := prepared.(large)
		return dateRecords(tx, found, key, value)
	case format.KeyReverse:
		return dateContainer(tx, key, value)
	}
	return dropDates(tx, format.Layout{Settings: h.Settings, Ungrouped: true}, key, value)
}

// dateRecords adds the dates of the records of a chunk.
func dateRecords(tx kv.Txn, found large, key, value []byte) (written int, err error) {
	k, actor, _, _, err := format.ParseChunkKey(key)
	if err != nil || found[k] == nil {
		return len(key) + len(value), err
	}
	records, err := read.LiveRecords(tx, key, value)
	if err != nil {
		return 0, err
	}
	const low = 1<<format.DateShift - 1
	written = len(key) + len(value)
	for _, r := range records {
		if r.Subject == dict.None || !found[k].Contains(uint64(r.Subject)) {
			continue
		}
		under := format.AppendDateBlock(format.AppendDatesKey(nil, k, r.Subject), uint64(actor)>>format.DateShift)
		dates := format.AppendDates(nil, nil, []format.Dated{{Member: uint16(actor & low), Date: format.DateOf(r.Path)}})
		tx.Merge(under, dates)
		written += len(under) + len(dates)
	}
	return written, nil
}

// dateContainer gives the members of a container that have no date Undated.
func dateContainer(tx kv.Txn, key, value []byte) (written int, err error) {
	k, subject, block, isRow, err := format.ParseReverseKey(key)
	written = len(key) + len(value)
	if err != nil || isRow || k == kinds.Hidden {
		return written, err
	}
	members, err := format.ContainerMembers(block<<16, value)
	if err != nil {
		return 0, err
	}
	var keys kv.Keys
	var blocks []uint64
	for rest := members; len(rest) > 0; {
		at := rest[0] >> format.DateShift
		keys.Add(format.AppendDateBlock(format.AppendDatesKey(nil, k, subject), at))
		blocks = append(blocks, at)
		n, _ := slices.BinarySearch(rest, (at+1)<<format.DateShift)
		rest = rest[n:]
	}
	written += len(blocks) * costOfRead
	stored := make([][]byte, len(blocks))
	if err := tx.MultiGet(keys.List(), func(i int, v []byte, _ bool) error { stored[i] = slices.Clone(v); return nil }); err != nil {
		return 0, err
	}
	for i, at := range blocks {
		dated := map[uint64]uint32{}
		if err := format.EachDate(at<<format.DateShift, stored[i], func(id uint64, date uint32) { dated[id] = date }); err != nil {
			return 0, err
		}
		n, _ := slices.BinarySearch(members, (at+1)<<format.DateShift)
		var missing []format.Dated
		for _, m := range members[:n] {
			if _, ok := dated[m]; !ok {
				missing = append(missing, format.Dated{Member: uint16(m & (1<<format.DateShift - 1)), Date: format.Undated})
			}
		}
		if len(missing) > 0 {
			under, dates := keys.List()[i], format.AppendDates(nil, nil, missing)
			tx.Merge(under, dates)
			written += len(under) + len(dates)
		}
		members = members[n:]
	}
	return written, nil
}

// costOfRead is what a read counts towards the size of a slice, in bytes: a transaction of FoundationDB
// ends after five seconds.
const costOfRead = 1 << 10

// dropDates removes from a block of dates the ids that are not in their container.
func dropDates(tx kv.Txn, layout format.Layout, key, value []byte) (written int, err error) {
	k, subject, block, err := format.ParseDatesKey(key)
	if err != nil {
		return 0, err
	}
	set, err := read.OpenSet(tx, layout, k, subject)
	if err != nil {
		return 0, err
	}
	container, _, err := tx.Get(set.ContainerKey(block >> 4))
	if err != nil {
		return 0, err
	}
	container = slices.Clone(container)
	var gone []uint16
	var failed error
	if err := format.EachDate(block<<format.DateShift, value, func(id uint64, _ uint32) {
		in, err := format.ContainerHas(container, uint16(id))
		if err != nil {
			failed = err
		}
		if !in {
			gone = append(gone, uint16(id&(1<<format.DateShift-1)))
		}
	}); err != nil || failed != nil {
		return 0, cmp.Or(err, failed)
	}
	written = len(key) + len(value) + 2*costOfRead
	if len(gone) > 0 {
		tx.Merge(slices.Clone(key), format.AppendDates(nil, gone, nil))
		written += len(key) + 2*len(gone)
	}
	return written, nil
}

// finishDates writes the new version.
func finishDates(_ kv.Txn, h format.Header, _ Tally) ([]byte, error) {
	h.Version = format.FormatDates
	return h.Append(nil), nil
}
