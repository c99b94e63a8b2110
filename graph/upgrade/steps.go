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

// A Step migrates a store from one version of the format to the next. Its functions receive
// the header that the store had before the step: the settings and the kinds decide what a key
// means, its keyspace alone does not.
type Step struct {
	From, To format.Version
	// Prefixes are the prefixes of the keys to visit, in this order. A step without any is
	// one write.
	Prefixes [][]byte
	// OneWriter says that the step visits no keys in a store with several writers.
	OneWriter bool
	// Move returns the row that replaces a visited one.
	Move func(h format.Header, key, value []byte) (newKey, newValue []byte, err error)
	// Count, if set, is called instead of Move. It changes the tally and nothing else. The
	// tally persists from slice to slice, until Finish.
	Count func(h format.Header, key, value []byte, t Tally) error
	// Prepare, if set, reads what Visit needs, once for each run of the step.
	Prepare func(r kv.Reader, h format.Header) (any, error)
	// Visit, if set, is called instead of Move. It writes rows under other keys, and returns how many
	// bytes. prepared is what Prepare returned.
	Visit func(tx kv.Txn, h format.Header, prepared any, key, value []byte) (written int, err error)
	// Open, if set, is called instead of Move, at the beginning of each slice. It returns what visits the
	// rows of the slice, like Visit, and what ends the slice.
	Open func(tx kv.Txn, h format.Header) (visit func(key, value []byte) (written int, err error), end func() error)
	// Finish changes the rows that exist once, in the last write of the step. It returns the
	// new header; nil leaves a store without a graph.
	Finish func(tx kv.Txn, h format.Header, t Tally) (newHeader []byte, err error)
}

// A Tally is what a step has counted, by partition.
type Tally map[uint8]*Tallied

// Tallied counts the accounts of a partition.
type Tallied struct {
	Complete   int64 `json:"complete"`
	Incomplete int64 `json:"incomplete"`
}

// Steps are the migrations, from format.Oldest to format.Newest.
var Steps = []Step{
	{From: format.FormatAccountGroups, To: format.FormatOneHeader, Finish: moveSettings},
	{From: format.FormatOneHeader, To: format.FormatResyncs, Prefixes: [][]byte{{format.KeyAccount}}, Count: countAccounts, Finish: addComplete},
	{From: format.FormatResyncs, To: format.FormatHoles, Prefixes: [][]byte{{format.KeyAccount}}, Count: countAccounts, Finish: addHoles},
	{From: format.FormatHoles, To: format.FormatDates, Prefixes: [][]byte{{format.KeyRecord}, {format.KeyReverse}, {format.KeyDates}}, Prepare: findLarge, Visit: addDates, Finish: finishDates},
	{From: format.FormatDates, To: format.FormatRepeated, Prefixes: [][]byte{{format.KeyRecord}, {format.KeyReverse}, {format.KeyDates}}, Open: openRepeated, Finish: finishRepeated},
	{From: format.FormatRepeated, To: format.FormatPacked, Prefixes: [][]byte{{format.KeyRecord}}, Open: openPacked, Finish: finishPacked},
	{From: format.FormatPacked, To: format.FormatRowGroups, Prefixes: [][]byte{{format.KeyReverse, byte(kinds.Like)}, {format.KeyReverse, byte(kinds.Repost)}}, OneWriter: true, Open: openGroups, Finish: finishGroups},
	{From: format.FormatRowGroups, To: format.FormatPostGroups, Prefixes: [][]byte{{dict.KeyID, byte(dict.URI)}}, OneWriter: true, Open: openPosts, Finish: finishPosts},
}

// headerOf reads the header of a store that has the value v under format.HeaderKey. The
// settings of a store before format.FormatOneHeader have a row of their own; without it, they
// are zero.
func headerOf(r kv.Reader, v []byte) (h format.Header, err error) {
	version, err := format.HeaderVersion(v)
	if err != nil || version >= format.FormatOneHeader {
		if err == nil {
			h, err = format.DecodeHeaderOf(version, v)
		}
		return h, err
	}
	h = format.Header{Version: version, Kinds: []kinds.Kind{1, 2, 3, 4}}
	v, ok, err := r.Get(format.OldSettingsKey)
	if err != nil || !ok {
		return h, err
	}
	h.Settings, err = format.DecodeOldSettings(v)
	return h, err
}

// moveSettings writes the first header with settings and kinds.
func moveSettings(tx kv.Txn, h format.Header, _ Tally) ([]byte, error) {
	if h.Settings == (dict.Settings{}) {
		return nil, dropEmpty(tx)
	}
	tx.Delete(format.OldSettingsKey)
	h.Version = format.FormatOneHeader
	return h.Append(nil), nil
}

// dropEmpty deletes the rest of a store whose maker stopped between its first two writes,
// before it wrote the settings. A store without settings that has data is an error.
func dropEmpty(tx kv.Txn) error {
	for _, keyspace := range []byte{dict.KeyID, format.KeyAccount, format.KeyRecord} {
		found := false
		err := tx.Scan([]byte{keyspace}, []byte{keyspace + 1}, false, func(_, _ []byte) (bool, error) { found = true; return false, nil })
		if err != nil {
			return err
		}
		if found {
			return errors.New("the store has data, but no settings of its dictionary: restore a backup, or index again")
		}
	}
	tx.Delete(format.KeySecret)
	return nil
}

// countAccounts counts the complete and the incomplete accounts of a group.
func countAccounts(h format.Header, key, value []byte, t Tally) error {
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

// addComplete sets the counts of complete accounts, which older programs did not keep.
func addComplete(tx kv.Txn, h format.Header, t Tally) ([]byte, error) {
	if err := setCounts(tx, h, t); err != nil {
		return nil, err
	}
	h.Version = format.FormatResyncs
	return h.Append(nil), nil
}

// addHoles sets the counts of complete and incomplete accounts, notes a hole that the repos
// were not compared after, and lets late kinds wait for a sweep instead of a time.
func addHoles(tx kv.Txn, h format.Header, t Tally) ([]byte, error) {
	if err := errors.Join(setCounts(tx, h, t), noteHole(tx, h), countSweeps(tx, h)); err != nil {
		return nil, err
	}
	h.Version = format.FormatHoles
	return h.Append(nil), nil
}

// setCounts adds the tally of each partition to the row of the lane that wrote it.
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

// noteHole notes a hole if a gap is newer than the last comparison of all repos. It compares
// their times: format.FormatResyncs has nothing else.
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

// countSweeps lets kinds that are still incomplete wait for the first sweep. In
// format.FormatResyncs a kind was incomplete until every writer had listed all repos since the
// kind was added, and the queue was empty.
func countSweeps(tx kv.Txn, h format.Header) error {
	v, ok, err := tx.Get(format.KeyLacking)
	if err != nil || !ok {
		return err
	}
	var since map[string]time.Time
	if err := json.Unmarshal(v, &since); err != nil {
		return fmt.Errorf("reading the incomplete kinds: %w", err)
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

// readTally reads the tally of the step that is under way.
func readTally(r kv.Reader) (Tally, error) {
	t := Tally{}
	v, ok, err := r.Get(format.UpgradeTallyKey)
	if err != nil || !ok {
		return t, err
	}
	if err := json.Unmarshal(v, &t); err != nil {
		return t, fmt.Errorf("reading the tally of the migration: %w", err)
	}
	return t, nil
}
