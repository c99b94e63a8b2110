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
	f.records, f.starts = f.records[:0], f.starts[:0]
	var reach uint64
	for _, v := range values {
		var g uint64
		f.starts = append(f.starts, len(f.records))
		if f.records, g, err = c.Read(f.records, v); err != nil {
			return nil, size, err
		}
		reach = max(reach, g)
	}
	f.sort()
	kept := f.newest(base && reach == 0) // the head of leaves keeps removed entries
	if base {
		if out, bytes, ok := c.appendPacked(dst, reach, kept); ok {
			return out, Folded{len(kept), bytes}, nil
		}
	}
	out = c.Append(dst, reach, kept)
	return out, Folded{len(kept), len(out) - len(dst)}, nil
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
type chunkFolder struct {
	records, spare []Record
	starts         []int // of the values' records
}

// sort sorts the records by entry, then by the age of their values.
func (f *chunkFolder) sort() {
	f.records, f.spare = mergeRuns(f.records, f.spare, f.starts, CompareEntries)
}
