package write

import (
	"bytes"
	"fmt"
	"slices"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// This file writes labels. They do not come with the stream of events, and have no part in its phases:
// a labeler sends them, and the store keeps how far each labeler is read.

// labelKind returns the kind of a label's sets.
func labelKind(l *batch.Label) kinds.Kind {
	if kinds.DID.Valid([]byte(l.Subject)) {
		return kinds.LabeledAccount
	}
	return kinds.LabeledRecord
}

// AddLabels adds the strings of labels, as AddStrings does, and returns the places of each label's subject and set.
func (w *Writer) AddLabels(labels []batch.Label) (places [][2]int) {
	for i := range labels {
		l := &labels[i]
		places = append(places, [2]int{w.strings.Add(labelKind(l).Members(), []byte(l.Subject)), w.strings.Add(dict.URI, []byte(kinds.LabelSet(l.Labeler, l.Value)))})
	}
	return places
}

// labelChange is what a write does to the labels of a member and a set.
type labelChange struct {
	key           []byte
	kind          kinds.Kind
	member, set   dict.ID
	before, after format.LabelEntries
}

// AttemptLabels makes one attempt at a write of labels, in the order of the labeler's stream, together
// with the labeler's state. now is the time by which labels expire, in microseconds; before are the counts
// so far. Of the Result, Totals and Sets are set. Call Begin and AddLabels first.
func (w *Writer) AttemptLabels(tx kv.Txn, labels []batch.Label, state *format.Labeler, now int64, before format.Counts) (out Result, err error) {
	out.Totals = before.Clone()
	w.strings.Retry()
	places := w.AddLabels(labels)
	if err := w.resolve(tx, &out.Totals); err != nil {
		return out, err
	}
	byKey := map[string]int{}
	var changes []labelChange
	at := make([]int, len(labels))
	for i := range labels {
		k := labelKind(&labels[i])
		c := labelChange{kind: k, member: w.strings.ID(places[i][0]), set: w.strings.ID(places[i][1])}
		c.key = dict.AppendID(format.AppendLabelsKey(nil, k, c.member), c.set)
		n, known := byKey[string(c.key)]
		if !known {
			n = len(changes)
			byKey[string(c.key)], changes = n, append(changes, c)
		}
		at[i] = n
	}
	if err := readLabels(tx, changes); err != nil {
		return out, err
	}
	for i := range labels {
		e := labels[i].LabelEntry
		e.Expired = e.Expires != 0 && e.Expires <= now && !e.Negated
		changes[at[i]].after.Put(e)
	}
	if out.Sets, err = w.putLabels(tx, changes); err != nil {
		return out, err
	}
	if err := SetJSON(tx, append(slices.Clone(format.LabelersPrefix), state.Name...), state); err != nil {
		return out, err
	}
	return out, SetCounts(tx, 0, before, out.Totals)
}

// readLabels reads what the store has of the changed labels.
func readLabels(tx kv.Txn, changes []labelChange) error {
	keys := make([][]byte, len(changes))
	for i := range changes {
		keys[i] = changes[i].key
	}
	err := tx.MultiGet(keys, func(i int, v []byte, ok bool) (err error) {
		if !ok {
			return nil
		}
		c := &changes[i]
		if c.before, err = format.DecodeLabels(v); err != nil {
			return fmt.Errorf("label %x: %w", c.key, err)
		}
		c.after = slices.Clone(c.before)
		return nil
	})
	if err != nil {
		return fmt.Errorf("graph: reading labels: %w", err)
	}
	return nil
}

// putLabels writes changed labels, when they expire, and the changes of the sets, which it returns.
func (w *Writer) putLabels(tx kv.Txn, changes []labelChange) (sets []SetChange, err error) {
	for i := range changes {
		c := &changes[i]
		if slices.Equal(c.before, c.after) {
			continue
		}
		tx.Set(c.key, c.after.Append(nil))
		had, has := expiries(c.before), expiries(c.after)
		for _, t := range had {
			if !slices.Contains(has, t) {
				tx.Delete(format.AppendExpiryKey(nil, t, c.key))
			}
		}
		for _, t := range has {
			if !slices.Contains(had, t) {
				tx.Set(format.AppendExpiryKey(nil, t, c.key), nil)
			}
		}
		was, before := c.before.Date()
		is, after := c.after.Date()
		switch {
		case after && (!before || is != was): // another date makes the member's date unknown
			sets = append(sets, SetChange{Kind: c.kind, Date: is, Subject: c.set, Member: c.member})
		case before && !after:
			sets = append(sets, SetChange{Kind: c.kind, Remove: true, Subject: c.set, Member: c.member})
		}
	}
	slices.SortFunc(sets, compareSetChanges)
	return sets, new(rows).write(tx, sets, w.Layout, w.Merger)
}

// expiries returns the times at which live entries expire.
func expiries(es format.LabelEntries) (times []int64) {
	for i := range es {
		if e := &es[i]; e.Live() && e.Expires != 0 {
			times = append(times, e.Expires)
		}
	}
	return times
}

// ExpireLabels marks up to most labels that have expired by now, and removes their members from the sets. It
// returns how many it found. The changes are those of Result.Sets.
func (w *Writer) ExpireLabels(tx kv.Txn, now int64, most int) (sets []SetChange, found int, err error) {
	lo, hi := format.ExpiryKeys(now)
	var last []byte
	seen := map[string]bool{}
	var changes []labelChange
	err = tx.Scan(lo, hi, false, func(key, _ []byte) (bool, error) {
		if found == most {
			return false, nil
		}
		found++
		last = bytes.Clone(key)
		_, label, err := format.ParseExpiryKey(key)
		if err != nil || seen[string(label)] {
			return err == nil, err
		}
		seen[string(label)] = true
		c := labelChange{key: bytes.Clone(label)}
		c.kind, c.member, c.set, err = format.ParseLabelKey(label)
		changes = append(changes, c)
		return err == nil, err
	})
	if err != nil || found == 0 {
		return nil, found, err
	}
	// As a range, which later scans pass at once. In any case: nothing is due twice.
	tx.DeleteRange(lo, append(last, 0))
	if err := readLabels(tx, changes); err != nil {
		return nil, found, err
	}
	for i := range changes {
		changes[i].after.Expire(now)
	}
	sets, err = w.putLabels(tx, changes)
	return sets, found, err
}
