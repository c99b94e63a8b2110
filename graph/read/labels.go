package read

import (
	"fmt"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Labels calls each for the live labels of a member, and with onward for those of all members with higher ids, with the set
// of what has the label, until each returns false.
func Labels(r kv.Reader, k kinds.Kind, member dict.ID, onward bool, each func(member, set dict.ID, e *format.LabelEntry) bool) error {
	lo := format.AppendLabelsKey(nil, k, member)
	hi := kv.PrefixEnd(lo)
	if onward {
		hi = kv.PrefixEnd([]byte{format.KeyLabels, byte(k)})
	}
	return r.Scan(lo, hi, false, func(key, v []byte) (bool, error) {
		_, member, set, err := format.ParseLabelKey(key)
		if err != nil {
			return false, err
		}
		entries, err := format.DecodeLabels(v)
		if err != nil {
			return false, fmt.Errorf("reading label %x: %w", key, err)
		}
		for i := range entries {
			if e := &entries[i]; e.Live() && !each(member, set, e) {
				return false, nil
			}
		}
		return true, nil
	})
}

// Labelers returns the state of every labeler whose labels the store has, by name.
func Labelers(r kv.Reader) (all []format.Labeler, err error) {
	err = kv.ScanPrefix(r, format.LabelersPrefix, func(k, v []byte) error {
		l, err := format.DecodeLabeler(k, v)
		all = append(all, l)
		return err
	})
	return all, err
}
