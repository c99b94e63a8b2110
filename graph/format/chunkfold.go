package format

// fold appends the chunk that values, oldest first, fold to. If base is set, it packs the chunk if it can.
func (f *chunkFolder) fold(dst, key []byte, values [][]byte, base bool) (out []byte, size Folded, err error) {
	c, err := CoderOfKey(key)
	if err != nil {
		return nil, size, err
	}
	if base && len(values) == 1 && isPacked(values[0]) { // such a fold made it: every read of a head that nothing was merged into since comes here
		return append(dst, values[0]...), size, nil
	}
	if out, size, ok := f.extend(dst, c, values, base); ok {
		return out, size, nil
	}
	f.records, f.starts = f.records[:0], f.starts[:0]
	var reach uint64
	for age, v := range values {
		var g uint64
		f.starts = append(f.starts, len(f.records))
		if f.records, g, err = c.Read(f.records, v, uint32(age)); err != nil {
			return nil, size, err
		}
		reach = max(reach, g)
	}
	f.sort()
	kept := f.newest(drops(base, reach))
	if base && c.packs(reach, len(kept)) && !hasFlags(kept) {
		f.ends = appendEnds(f.ends[:0], kept)
		if out, bytes, ok := c.appendPacked(dst, f.ends); ok {
			return out, Folded{len(kept), bytes}, nil
		}
	}
	out = c.Append(dst, reach, kept)
	return out, Folded{len(kept), len(out) - len(dst)}, nil
}

// extend folds without building the records of the oldest value, for the usual case that newer records come later. It appends to the oldest value's
// bytes, or packs all. It returns false, and fold does the work, if
//
//   - a value is malformed, or the oldest has keys that are not TIDs;
//   - a newer value has a reach, or a path that is not above all paths of the oldest;
//   - the oldest has removed paths that the fold drops; or
//   - the oldest is packed and the result cannot be.
func (f *chunkFolder) extend(dst []byte, c ChunkCoder, values [][]byte, base bool) (out []byte, size Folded, ok bool) {
	if len(values) == 0 {
		return nil, size, false
	}
	f.records, f.starts, f.ends = f.records[:0], f.starts[:0], f.ends[:0]
	for age, v := range values[1:] {
		var reach uint64
		var err error
		f.starts = append(f.starts, len(f.records))
		if f.records, reach, err = c.Read(f.records, v, uint32(age)); err != nil || reach > 0 {
			return nil, size, false
		}
	}
	f.sort()
	ends := &f.ends
	if !base {
		ends = nil
	}
	w, ok := c.walk(values[0], ends)
	drop := drops(base, w.reach)
	if !ok || w.raw || w.removed && drop || len(f.records) > 0 && w.records > 0 && f.records[0].Path.Raw == nil && f.records[0].Path.TID <= w.end.tid() {
		return nil, size, false
	}
	kept := f.newest(drop)
	n := w.records + len(kept)
	if base && !w.flags && c.packs(w.reach, n) && !hasFlags(kept) {
		f.ends = appendEnds(f.ends, kept)
		if out, bytes, ok := c.appendPacked(dst, f.ends); ok {
			return out, Folded{n, bytes}, true
		}
	}
	if isPacked(values[0]) && (base || len(kept) > 0) {
		return nil, size, false
	}
	out = c.appendAfter(append(dst, values[0]...), w.end, kept)
	return out, Folded{n, len(out) - len(dst)}, true
}

// drops reports whether a fold drops removed entries: the oldest value is among those that it folds (base), and the head has no leaves.
func drops(base bool, reach uint64) bool { return base && reach == 0 }

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
type chunkFolder struct {
	records, spare []Record
	starts         []int      // of the values' records
	ends           []chunkEnd // of the records of a chunk that may be packed
}

// sort sorts the records by entry, then by the age of their values.
func (f *chunkFolder) sort() {
	f.records, f.spare = mergeRuns(f.records, f.spare, f.starts, CompareEntries)
}
