package read

import (
	"fmt"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Labels calls each for the live labels of a member, with the set of what has the label, until each returns false.
func Labels(r kv.Reader, k kinds.Kind, member dict.ID, each func(set dict.ID, e *format.LabelEntry) bool) error {
	key := format.AppendLabelsKey(nil, k, member)
	return scanLabels(r, key, kv.PrefixEnd(key), func(_, set dict.ID, e *format.LabelEntry) bool { return each(set, e) })
}

// LabelsFrom is Labels of a member and of all with higher ids.
func LabelsFrom(r kv.Reader, k kinds.Kind, member dict.ID, each func(member, set dict.ID, e *format.LabelEntry) bool) error {
	return scanLabels(r, format.AppendLabelsKey(nil, k, member), kv.PrefixEnd([]byte{format.KeyLabels, byte(k)}), each)
}

func scanLabels(r kv.Reader, lo, hi []byte, each func(member, set dict.ID, e *format.LabelEntry) bool) error {
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
