package read

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"skein.blue/graph/format"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Counts returns the sum of the counts of all lanes, and of the claimed strings.
func Counts(r kv.Reader) (format.Counts, error) {
	total := format.Counts{}.Clone()
	err := kv.ScanPrefix(r, format.KeyCounts, func(_, v []byte) error {
		c, err := format.DecodeCounts(v)
		total.Add(c)
		return err
	})
	if err != nil {
		return total, err
	}
	claimed, err := intern.Claimed(r)
	for _, ns := range dict.Namespaces {
		total.Strings[ns.String()] += claimed[ns]
	}
	return total, err
}

// AccountCounts returns those of Counts that are about accounts, with less work.
func AccountCounts(r kv.Reader) (total format.AccountCounts, err error) {
	err = kv.ScanPrefix(r, format.KeyCounts, func(_, v []byte) error {
		c, err := format.FromJSON[format.AccountCounts](v)
		total.Add(c)
		return err
	})
	return total, err
}

// HiddenVersions are the versions of the partitions' hidden accounts, and their sum. They only grow, so two states with the same sum are
// the same.
type HiddenVersions struct {
	Parts [dict.MaxPartitions]uint64
	Sum   uint64
}

// Hidden returns the versions of the hidden set.
func Hidden(r kv.Reader) (at HiddenVersions, err error) {
	err = kv.ScanPrefix(r, format.KeyHidden, func(k, v []byte) error {
		n, err := format.DecodeVersion(v)
		at.Parts[k[len(k)-1]%dict.MaxPartitions] = n
		at.Sum += n
		return err
	})
	return at, err
}

// HiddenSince calls each with what was changed between two states, in order. ok is false if not all of that is kept and can be read.
func HiddenSince(r kv.Reader, from, to *HiddenVersions, each func(*format.Hiding)) (ok bool, err error) {
	var keys [][]byte
	var versions []uint64
	for part, version := range from.Parts {
		if to.Parts[part]-version > format.HidingRing {
			return false, nil
		}
		for version++; version <= to.Parts[part]; version++ {
			keys, versions = append(keys, format.HidingKey(uint8(part), version)), append(versions, version)
		}
	}
	ok = true
	err = r.MultiGet(keys, func(i int, v []byte, _ bool) error {
		var h format.Hiding
		ok = ok && json.Unmarshal(v, &h) == nil && h.Version == versions[i]
		each(&h)
		return nil
	})
	return ok, err
}

// Cursors returns the cursor of each source: the lowest of its partitions.
func Cursors(r kv.Reader) ([]format.Cursor, error) {
	var all []format.Cursor
	err := kv.ScanPrefix(r, []byte{format.KeyCursor}, func(k, v []byte) error {
		c, err := format.DecodeCursor(v)
		_, source := format.ParseCursorKey(k)
		if c.IsCursor() {
			all = append(all, format.Cursor{Source: source, Seq: c.Seq, Time: c.Time, Future: c.Future, Exact: c.Exact})
		}
		return err
	})
	slices.SortFunc(all, func(x, y format.Cursor) int {
		return cmp.Or(cmp.Compare(x.Source, y.Source), cmp.Compare(x.Seq, y.Seq))
	})
	return slices.CompactFunc(all, func(x, y format.Cursor) bool { return x.Source == y.Source }), err
}

// WriteState returns a state that every write of events changes. If two calls return the same
// state, no event was applied in between.
func WriteState(r kv.Reader) (state string, err error) {
	err = kv.ScanPrefix(r, format.KeyWriter, func(k, v []byte) error {
		state += fmt.Sprintf("%x %x\n", k, v)
		return nil
	})
	return state, err
}
