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
	prefix := format.AppendLabelsKey(nil, k, member)
	return r.Scan(prefix, kv.PrefixEnd(prefix), false, func(key, v []byte) (bool, error) {
		_, _, set, err := format.ParseLabelKey(key)
		if err != nil {
			return false, err
		}
		entries, err := format.DecodeLabels(v)
		if err != nil {
			return false, fmt.Errorf("reading label %x: %w", key, err)
		}
		for i := range entries {
			if e := &entries[i]; e.Live() && !each(set, e) {
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
