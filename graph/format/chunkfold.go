package format

import "slices"

// fold appends the chunk that values, oldest first, fold to, and returns the number of its
// paths.
func (f *chunkFolder) fold(dst, key []byte, values [][]byte, base bool) (out []byte, n int, err error) {
	c, err := CoderOfKey(key)
	if err != nil {
		return nil, 0, err
	}
	if out, n, ok := f.extend(dst, c, values, base); ok {
		return out, n, nil
	}
	f.records = f.records[:0]
	var generation uint64
	oldest := 0 // the number of records of the oldest value
	for age, v := range values {
		var g uint64
		if f.records, g, err = c.Read(f.records, v, uint32(age)); err != nil {
			return nil, 0, err
		}
		generation = max(generation, g)
		if age == 0 {
			oldest = len(f.records)
		}
	}
	f.sort(oldest)
	kept := f.newest(base && generation == 0)
	return c.Append(dst, generation, kept), len(kept), nil
}

// extend folds like fold, but keeps the bytes of the oldest value and appends to them. ok is
// false if a newer value has a path that is not above all of the oldest. Most accounts only
// add records, in the order of time.
func (f *chunkFolder) extend(dst []byte, c ChunkCoder, values [][]byte, base bool) (out []byte, n int, ok bool) {
	if c.IsRaw() || len(values) < 2 {
		return nil, 0, false
	}
	f.records = f.records[:0]
	for age, v := range values[1:] {
		var generation uint64
		var err error
		if f.records, generation, err = c.Read(f.records, v, uint32(age)); err != nil || generation > 0 {
			return nil, 0, false
		}
	}
	f.sort(len(f.records))
	end, n, generation, ok := c.walk(values[0])
	if !ok || len(f.records) > 0 && n > 0 && f.records[0].Path.TID <= end.micros<<ClockBits|end.clock {
		return nil, 0, false
	}
	kept := f.newest(base && generation == 0)
	return c.appendAfter(append(dst, values[0]...), end, kept), n + len(kept), true
}

// newest reduces the sorted records to the newest change of each entry. It drops removed ones if
// there can be no older value (base).
func (f *chunkFolder) newest(base bool) []Record {
	kept := f.records[:0]
	for i := range f.records {
		r := &f.records[i]
		if i+1 < len(f.records) && CompareEntries(r, &f.records[i+1]) == 0 {
			continue
		}
		if r.Flags == Removed && base {
			continue
		}
		kept = append(kept, *r)
	}
	return kept
}

// chunkFolder is the scratch of a fold.
type chunkFolder struct{ records, newer []Record }

// sort sorts the records. The first oldest of them come from the oldest value: usually these
// are many and already sorted, and the rest are few.
func (f *chunkFolder) sort(oldest int) {
	all := f.records
	for _, part := range [][]Record{all[:oldest], all[oldest:]} {
		if !slices.IsSortedFunc(part, CompareRecords) {
			slices.SortFunc(part, CompareRecords)
		}
	}
	if oldest == 0 || oldest == len(all) || CompareRecords(all[oldest-1], all[oldest]) < 0 {
		return
	}
	// Merge from the end, beginning in the space of the newer records.
	f.newer = append(f.newer[:0], all[oldest:]...)
	for i, j, at := oldest-1, len(f.newer)-1, len(all)-1; j >= 0; at-- {
		if i >= 0 && CompareRecords(all[i], f.newer[j]) > 0 {
			all[at] = all[i]
			i--
		} else {
			all[at] = f.newer[j]
			j--
		}
	}
}
