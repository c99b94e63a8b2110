package check

import (
	"bytes"
	"fmt"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// eachKind yields the kinds whose records and sets are compared: those of the table, and labels.
func (v *checker) eachKind(yield func(*kinds.Info) bool) {
	for _, rows := range [][]kinds.Info{v.kinds.All, v.kinds.Labels()} {
		for i := range rows {
			if !yield(&rows[i]) {
				return
			}
		}
	}
}

// labelCheck is the part of a checker that knows labels.
type labelCheck struct{ *checker }

func (v *checker) ofLabels() labelCheck { return labelCheck{v} }

// labels reads all labels, and calls each with every live one. It checks their form.
func (v labelCheck) labels(each func(k kinds.Kind, member, set dict.ID)) error {
	for _, k := range v.kinds.Labels() {
		if err := v.scan([]byte{format.KeyLabels, byte(k.Kind)}, func(key, value []byte) error {
			kind, member, set, err := format.ParseLabelKey(key)
			var entries format.LabelEntries
			if err == nil {
				entries, err = format.DecodeLabels(value)
			}
			if err != nil {
				v.broken("label %x: %v", key, err)
				v.unreadable = true
				return nil
			}
			if err := v.label(key, value, kind, member, set, entries); err != nil {
				return err
			}
			if _, is := entries.Date(); is {
				each(kind, member, set)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// label checks a label, and adds its date to the sum of dates.
func (v labelCheck) label(key, value []byte, kind kinds.Kind, member, set dict.ID, entries format.LabelEntries) error {
	if again := entries.Append(nil); !bytes.Equal(again, value) {
		v.broken("label %x is %x; expected %x", key, value, again)
	}
	v.named(kind.Members(), member, "the subject of a label")
	v.named(dict.URI, set, "label")
	if date, _ := entries.Date(); date == format.Undated { // several versions
		if err := v.noteRepeated(kind, member, []uint64{uint64(set), uint64(set)}); err != nil {
			return err
		}
	}
	var dated []datedSubject
	for i := range entries {
		e := &entries[i]
		if !e.Live() {
			continue
		}
		if v.dates.isLarge(kind, uint64(set)) {
			dated = append(dated, datedSubject{uint64(set), format.DateOf(e.Path())})
		}
		if e.Expires == 0 {
			continue
		}
		if _, ok, err := v.r.Get(format.AppendExpiryKey(nil, e.Expires, key)); err != nil {
			return err
		} else if !ok {
			v.broken("label %x will expire, and is not in the order of expiry", key)
		}
	}
	v.checker.ofDates().datedRecords(kind, member, dated)
	return nil
}

// labelers checks the states of the labelers, and the order in which labels expire.
func (v labelCheck) labelers() error {
	if err := v.scan(format.LabelersPrefix, func(key, value []byte) error {
		if _, err := format.DecodeLabeler(key, value); err != nil {
			v.broken("%v", err)
		}
		return nil
	}); err != nil {
		return err
	}
	lo, hi := format.ExpiryKeys(format.MaxLabelTime)
	err := v.r.Scan(lo, hi, false, func(key, _ []byte) (bool, error) {
		v.progress.tick()
		expires, label, err := format.ParseExpiryKey(key)
		if err != nil {
			v.broken("%v", err)
			return true, nil
		}
		value, _, err := v.r.Get(label)
		if err != nil {
			return false, err
		}
		entries, err := format.DecodeLabels(value)
		found := false
		for i := range entries {
			found = found || entries[i].Live() && entries[i].Expires == expires
		}
		if err != nil || !found {
			v.broken("key %x names a label that does not expire then", key)
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("checking when labels expire: %w", err)
	}
	return nil
}
