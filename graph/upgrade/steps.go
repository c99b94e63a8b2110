package upgrade

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A Step brings a store from one version of the format to the next.
type Step struct {
	From uint8
	// Prefixes are those of the keys that are gone through, in this order.
	Prefixes [][]byte
	// Move returns what stands in the place of a key from now on. nil where there are
	// no Prefixes, and where Count is set.
	Move func(key, value []byte) (newKey, newValue []byte, err error)
	// Count, if it is set, is called instead of Move, and changes nothing but the tally, which
	// is kept from slice to slice, and handed to Finish.
	Count func(header, key, value []byte, t Tally) error
	// Finish is the last write of the step: rows that there is one of. header is the
	// value of format.HeaderKey before the step. It returns the one after it; nil makes
	// the store one without a graph.
	Finish func(tx kv.Txn, header []byte, t Tally) (newHeader []byte, err error)
}

// A Tally is what a step has counted, by partition.
type Tally map[uint8]*Tallied

// Tallied are the accounts of a partition.
type Tallied struct {
	Complete   int64 `json:"complete"`
	Incomplete int64 `json:"incomplete"`
}

// Steps are those from the oldest version that can be brought up to date.
var Steps = []Step{
	{From: 3, Finish: oneHeader},
	{From: 4, Prefixes: [][]byte{{format.KeyAccount}}, Count: countAccounts, Finish: countComplete},
	{From: 5, Prefixes: [][]byte{{format.KeyAccount}}, Count: countAccounts, Finish: countDoubts},
}

// countAccounts counts the accounts of a group of which all is there, and those of which
// something is missing or in doubt.
func countAccounts(header, key, value []byte, t Tally) error {
	h, err := format.HeaderOf(header[0], header)
	if err != nil {
		return err
	}
	return format.Layout{Settings: h.Settings}.EachState(key, value, func(id dict.ID, st format.RepoState) error {
		part := h.Settings.PartitionOfID(id)
		if t[part] == nil {
			t[part] = &Tallied{}
		}
		if st.Complete() {
			t[part].Complete++
		}
		if st.Incomplete() {
			t[part].Incomplete++
		}
		return nil
	})
}

// countComplete has the accounts counted of which all is there, which were not counted before.
// The states of accounts have more flags from here on, and no other form.
func countComplete(tx kv.Txn, header []byte, t Tally) ([]byte, error) {
	h, err := format.HeaderOf(4, header)
	if err != nil {
		return nil, err
	}
	if err := setCounts(tx, h, t); err != nil {
		return nil, err
	}
	h.Version = 5
	return h.Append(nil), nil
}

// countDoubts has those counted of which something is missing or in doubt, counts a hole of
// the stream that no comparison of the repos has followed yet, and has what kinds lack wait
// for a sweep and no longer for a time.
func countDoubts(tx kv.Txn, header []byte, t Tally) ([]byte, error) {
	h, err := format.HeaderOf(5, header)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(setCounts(tx, h, t), noteHole(tx, h), countSweeps(tx, h)); err != nil {
		return nil, err
	}
	h.Version = 6
	return h.Append(nil), nil
}

// setCounts sets what was tallied in the rows of the lanes that wrote the partitions.
func setCounts(tx kv.Txn, h format.Header, t Tally) error {
	layout := format.Layout{Settings: h.Settings}
	rows, err := countRows(tx, layout)
	if err != nil || len(rows) == 0 {
		return err
	}
	firsts := slices.Sorted(maps.Keys(rows))
	for first, c := range rows {
		c.Complete, c.Incomplete = 0, 0
		rows[first] = c
	}
	for part, n := range t {
		at, found := slices.BinarySearch(firsts, part)
		if !found {
			at = max(at-1, 0)
		}
		c := rows[firsts[at]]
		c.Complete += n.Complete
		c.Incomplete += n.Incomplete
		rows[firsts[at]] = c
	}
	for first, c := range rows {
		if err := setJSON(tx, layout.PartKey(format.KeyCounts, first), c); err != nil {
			return err
		}
	}
	return nil
}

// countRows reads the rows of counts, by their first partition.
func countRows(r kv.Reader, layout format.Layout) (map[uint8]format.Counts, error) {
	rows := map[uint8]format.Counts{}
	err := kv.ScanPrefix(r, format.KeyCounts, func(k, v []byte) error {
		first := uint8(0)
		if layout.Shared() {
			first = k[len(k)-1]
		}
		c, err := format.DecodeCounts(v)
		rows[first] = c
		return err
	})
	return rows, err
}

// noteHole counts a hole where a gap was noted after the last comparison of all repos, by the
// times of both, which is what version 5 has.
func noteHole(tx kv.Txn, h format.Header) error {
	layout := format.Layout{Settings: h.Settings}
	var compared time.Time
	first := true
	err := kv.ScanPrefix(tx, format.KeyBackfill, func(_, v []byte) error {
		b, err := format.DecodeBackfill(v)
		if at := b.Done["comparison"]; first || at.Before(compared) {
			compared, first = at, false
		}
		return err
	})
	if err != nil {
		return err
	}
	gaps, err := read.Gaps(tx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(gaps, func(g format.Gap) bool {
		return g.Suspect && g.Reason != format.KindAdded && g.Time.After(compared)
	}) {
		return nil
	}
	rows, err := countRows(tx, layout)
	if err != nil {
		return err
	}
	for part := range rows {
		if err := setJSON(tx, layout.PartKey(format.KeyHoles, part), format.Holes{Noted: 1}); err != nil {
			return err
		}
	}
	return nil
}

// countSweeps has the kinds wait for a sweep of which something is lacking, by the rule of
// version 5: until all writers have listed all repos since, and none waits to be fetched.
func countSweeps(tx kv.Txn, h format.Header) error {
	v, ok, err := tx.Get(format.KeyLacking)
	if err != nil || !ok {
		return err
	}
	var since map[string]time.Time
	if err := json.Unmarshal(v, &since); err != nil {
		return fmt.Errorf("reading of which kinds something is lacking: %w", err)
	}
	var listed time.Time
	end, first := uint8(0), true
	err = kv.ScanPrefix(tx, format.KeyBackfill, func(_, v []byte) error {
		b, err := format.DecodeBackfill(v)
		if first || b.ReposFrom.Before(listed) {
			listed, first = b.ReposFrom, false
		}
		end = max(end, b.End)
		return err
	})
	if err != nil {
		return err
	}
	waiting := end < h.Settings.Partitions
	err = tx.Scan([]byte{format.KeyResync}, []byte{format.KeyResync + 1}, false, func(_, _ []byte) (bool, error) { waiting = true; return false, nil })
	if err != nil {
		return err
	}
	lacking := map[string]format.Lack{}
	for name, at := range since {
		if waiting || !listed.After(at) {
			lacking[name] = format.Lack{At: at, Sweep: 1}
		}
	}
	if len(lacking) == 0 {
		tx.Delete(format.KeyLacking)
		return nil
	}
	return setJSON(tx, format.KeyLacking, lacking)
}

func setJSON(tx kv.Txn, key []byte, row any) error {
	v, err := json.Marshal(row)
	if err != nil {
		return fmt.Errorf("writing %q: %w", key, err)
	}
	tx.Set(key, v)
	return nil
}

// oneHeader puts the settings of the dictionary, which had a row and a version of their
// own, into the header, and the kinds that were indexed.
func oneHeader(tx kv.Txn, _ []byte, _ Tally) ([]byte, error) {
	v, ok, err := tx.Get(format.OldSettingsKey)
	if err != nil {
		return nil, err
	}
	if !ok {
		// The program that made the store ended between its first two writes.
		for _, keyspace := range []byte{dict.KeyID, format.KeyAccount, format.KeyRecord} {
			found := false
			err := tx.Scan([]byte{keyspace}, []byte{keyspace + 1}, false, func(_, _ []byte) (bool, error) { found = true; return false, nil })
			if err != nil {
				return nil, err
			}
			if found {
				return nil, errors.New("the store has no settings of its dictionary: restore it from a backup, or index anew")
			}
		}
		tx.Delete(format.KeySecret)
		return nil, nil
	}
	h := format.Header{Version: 4, Kinds: []kinds.Kind{1, 2, 3, 4}}
	if h.Settings, err = format.DecodeOldSettings(v); err != nil {
		return nil, err
	}
	tx.Delete(format.OldSettingsKey)
	return h.Append(nil), nil
}

// readTally reads what a step has counted so far.
func readTally(r kv.Reader) (Tally, error) {
	t := Tally{}
	v, ok, err := r.Get(format.UpgradeTallyKey)
	if err != nil || !ok {
		return t, err
	}
	if err := json.Unmarshal(v, &t); err != nil {
		return t, fmt.Errorf("reading what was counted so far: %w", err)
	}
	return t, nil
}
