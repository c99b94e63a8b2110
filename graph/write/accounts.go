package write

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
)

// A StateCache keeps the states of accounts as of the last commit.
type StateCache = sets.Recent[dict.ID, format.RepoState]

// NewStateCache returns a StateCache that uses up to the given number of bytes.
func NewStateCache(bytes int64) *StateCache {
	return sets.NewRecent[dict.ID, format.RepoState](bytes, func(id dict.ID) uint64 { return uint64(id) * 0x9e3779b97f4a7c15 })
}

// accounts is the phase that reads the states of the segment's accounts, each once, with what the queue of repos to
// fetch has of them (queue.go), and in the end writes what changed.
type accounts struct {
	layout  format.Layout
	cache   *StateCache
	placing int               // Limits.Placing
	actors  []int32           // per event, the index of its DID among the write's strings
	at      []int32           // per event, the index of its account among states
	index   map[dict.ID]int32 // of states
	states  []actorState
	missing []int32 // states to read
	keys    kv.Keys
	sorter  sets.Sorter
	kbuf    []byte
}

// actorState is the state of an account before the write (was) and after it (now).
type actorState struct {
	id       dict.ID
	did      []byte // in the batch
	known    bool   // had a row before the write
	made     bool   // got its id in this write, so the store has no record of it
	changed  bool
	was, now format.RepoState

	row     *queueRow               // in the queue; nil: it has none
	touched *touched                // what the stream changed since it was queued; nil: not read
	stored  map[string]storedRecord // the records that a snapshot replaces, by pathName
	// manyNotes and manyStored say that touched and stored were not read to their ends, which are too far for one write.
	manyNotes, manyStored bool
}

// gather adds the DIDs of the segment's events to strings.
func (a *accounts) gather(seg *Segment, strings *intern.Batch) {
	a.actors = a.actors[:0]
	last := batch.Span{}
	for i, p := range seg.Events {
		did := seg.Batch.Event(int(p.N)).DID
		if i > 0 && did == last { // in an archive, an account's rows are adjacent
			a.actors = append(a.actors, a.actors[i-1])
			continue
		}
		last = did
		a.actors = append(a.actors, int32(strings.Add(dict.DID, seg.did(p))))
	}
}

// read reads the states of the accounts. Their ids must be resolved already.
func (a *accounts) read(tx kv.Txn, seg *Segment, strings *intern.Batch, t *kinds.Table) error {
	if a.index == nil {
		a.index = map[dict.ID]int32{}
	}
	clear(a.index)
	clear(a.states)
	a.states, a.missing, a.at = a.states[:0], a.missing[:0], a.at[:0]
	for i, n := range a.actors {
		if i > 0 && n == a.actors[i-1] {
			a.at = append(a.at, a.at[i-1])
			continue
		}
		id := strings.ID(int(n))
		if at, ok := a.index[id]; ok {
			a.at = append(a.at, at)
			continue
		}
		a.index[id] = int32(len(a.states))
		a.at = append(a.at, int32(len(a.states)))
		st, ok := a.cache.Get(id)
		made := strings.Made(int(n))
		if !ok && !made {
			a.missing = append(a.missing, int32(len(a.states)))
		}
		a.states = append(a.states, actorState{id: id, did: seg.did(seg.Events[i]), known: ok, made: made, was: st, now: st})
	}
	if err := a.readMissing(tx); err != nil {
		return err
	}
	return a.readQueued(tx, seg, t)
}

// readMissing reads the groups of accounts whose states are missing, each group once.
func (a *accounts) readMissing(tx kv.Txn) error {
	mask := a.layout.AccountMask()
	group := func(i int32) dict.ID { return a.states[i].id &^ mask }
	slices.SortFunc(a.missing, func(x, y int32) int { return cmp.Compare(a.states[x].id, a.states[y].id) })
	a.keys.Reset()
	for n, i := range a.missing {
		if n == 0 || group(i) != group(a.missing[n-1]) {
			a.kbuf = a.layout.AccountKey(a.kbuf[:0], group(i))
			a.keys.Add(a.kbuf)
		}
	}
	rest, filling := a.missing, a.cache.Growing()
	return tx.MultiGet(a.keys.List(), func(_ int, v []byte, _ bool) error { // v is empty if the group is not stored
		of := rest
		for n := range rest {
			if group(rest[n]) != group(rest[0]) {
				of = rest[:n]
				break
			}
		}
		rest = rest[len(of):]
		return a.takeGroup(v, of, filling)
	})
}

// takeGroup fills in the missing states, which are all of one group and ascend, from its value.
// While the cache is growing, it caches the states of the group's other accounts, too, so a newly opened store reads each group
// only once.
func (a *accounts) takeGroup(v []byte, missing []int32, filling bool) error {
	mask := a.layout.AccountMask()
	first := a.states[missing[0]].id &^ mask
	return format.EachAccount(v, func(low byte, row []byte) (bool, error) { // the group's rows and missing both ascend by id
		for len(missing) > 0 && byte(a.states[missing[0]].id&mask) < low {
			missing = missing[1:]
		}
		wanted := len(missing) > 0 && byte(a.states[missing[0]].id&mask) == low
		if !wanted && !filling {
			return len(missing) > 0, nil
		}
		st, err := format.DecodeRepoState(row)
		if wanted {
			as := &a.states[missing[0]]
			as.known, as.was, as.now = true, st, st
		} else if _, cached := a.cache.Get(first | dict.ID(low)); !cached && err == nil {
			a.cache.Put(first|dict.ID(low), st)
		}
		return true, err
	})
}

// ofEvent returns the state of the account of the segment's i-th event.
func (a *accounts) ofEvent(i int) *actorState { return &a.states[a.at[i]] }

// count counts the records that changes add and remove in the totals and in the states. Events may replace a state, so its counts
// follow from those before the write.
func (a *accounts) count(changes []change, totals *format.Counts, t *kinds.Table) {
	for i := range a.states {
		a.states[i].now.Records = a.states[i].was.Records
	}
	var all [kinds.Max + 1]int64
	for one := range sets.Runs(changes, sameKindAndActor) {
		n := 0
		for i := range one {
			switch c := &one[i]; {
			case c.delete && c.existed:
				n--
			case !c.delete && !c.existed:
				n++
			}
		}
		k := one[0].kind
		if all[k] += int64(n); n != 0 && k <= kinds.LastBuiltIn {
			as := &a.states[a.index[one[0].actor]]
			as.now.Records[k-1] += uint32(n)
			as.changed = true
		}
	}
	for _, k := range t.All {
		totals.Records[k.Name] += all[k.Kind]
	}
}

// write writes the changed accounts by groups, and adds their changes to the totals.
func (a *accounts) write(tx kv.Txn, totals *format.Counts) {
	a.sorter.Reset()
	for i := range a.states {
		if as := &a.states[i]; as.changed {
			if !as.known {
				totals.Accounts++
			}
			totals.Move(&as.was, &as.now)
			a.sorter.Add(uint64(as.id), i)
		}
	}
	States(tx, a.layout, func(yield func(dict.ID, *format.RepoState) bool) {
		for _, it := range a.sorter.Sort() {
			if as := &a.states[it.At]; !yield(as.id, &as.now) {
				return
			}
		}
	})
}

// States writes the states of accounts, which ascend by id, those of a group together.
func States(tx kv.Txn, l format.Layout, states iter.Seq2[dict.ID, *format.RepoState]) {
	var key, group []byte
	flush := func() {
		switch {
		case len(group) == 0:
		case l.AccountMask() == 0: // a group is one account
			tx.Set(key, group)
		default:
			tx.Merge(key, group)
		}
		group = group[:0]
	}
	first := dict.None
	for id, st := range states {
		if of := id &^ l.AccountMask(); of != first {
			flush()
			first = of
		}
		key, group = l.AccountKey(key[:0], id), l.AppendAccount(group, id, st)
	}
	flush()
}

// committed caches the states of all accounts that now have a row.
func (a *accounts) committed() {
	for i := range a.states {
		if as := &a.states[i]; as.changed || as.known {
			a.cache.Put(as.id, as.now)
		}
	}
}

// SetCounts sets the counts of the lane with a first partition.
func SetCounts(tx kv.Txn, first uint8, was, now format.Counts) error {
	if was.AccountCounts != now.AccountCounts {
		tx.Touch() // questions keep these
	}
	return SetJSON(tx, format.PartKey(format.KeyCounts, first), now)
}

// SetJSON sets a value as JSON.
func SetJSON(tx kv.Txn, key []byte, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("graph: encoding %q: %w", key, err)
	}
	tx.Set(key, text)
	return nil
}
