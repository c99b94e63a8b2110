package graph

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"skein/graph/format"
	"skein/graph/kinds"
	"skein/intern"
	"skein/intern/dict"
	"skein/internal/kv"
	"skein/internal/radix"
)

// An applier turns a stretch of a batch into one atomic write. Its memory is
// reused from write to write.
//
// The work of an attempt, in order: resolve the actors, read their states,
// walk the events in stream order (replays drop out here), keep the last word
// on each path, resolve its subject, read what the paths held before, decide
// each edge once, write. Reads see the state before the write, so nothing may
// be decided before the whole stretch has been walked.
type applier struct {
	events  []picked
	source  uint32 // number of the source, in the partition of the event at hand
	strings intern.Batch
	actors  []int32 // per event, the index of its actor in strings
	index   map[dict.ID]int32
	states  []actorState
	changes []change
	spare   []change // scratch of lastWords
	sorter  radix.Sorter
	edges   edgeSorter
	keys    keyBuffer
	asked   []asked // what keys are for
	index32 []int32 // the changes that are asked for
	records []format.Record
	raw     []byte // keys of records
	left    []edge // scratch of others
	gone    []edge // scratch of settleOld
	newest  []*format.Record
	byPath  []int32
	order   []int32
	direct  []direct
	scanned []edge  // the actors and kinds that were scanned, ascending; without subjects
	lost    []edge  // of those, the edges that have no record left, ascending
	missing []int32 // states that are to be read
	kbuf    []byte
	vbuf    []byte
	result  result
	timing  Timing
}

// picked is an event of the batch that is the lane's.
type picked struct {
	n    int32 // index in the batch
	part uint8 // that its account is in
}

type actorState struct {
	id       dict.ID
	known    bool // had a row before
	made     bool // got its id in this write: the store has nothing about it
	changed  bool
	was, now format.RepoState
}

// change is the last word on one path within the write, and before that was
// found, any word on it.
type change struct {
	kind    kinds.Kind
	delete  bool
	existed bool
	fresh   bool // nothing can be stored under the path
	actor   dict.ID
	path    format.Path // its bytes lie in the batch
	subject int32       // index in strings, or -1
	order   uint32      // position in the stream
	new     dict.ID     // the subject from now on, or None
	old     dict.ID     // the subject before, or None
}

// result is what an attempt came to, kept until it is known to be committed.
type result struct {
	counts        format.Counts
	hidden        map[dict.ID]bool // changes of the hidden set
	hiddenVersion uint64
	erasing       map[dict.ID]bool
	cursors       []format.CursorRow // by partition, from the lane's first
	cursorSet     bool               // they were written
	added         [kinds.Max + 1]int // edges, by kind
	removed       [kinds.Max + 1]int
	replays       int
	notes         uint32 // under which number the notes of the batch were written; 0: they were not
}

// Timing says where the time of Apply went, since the store was opened.
type Timing struct {
	Intern time.Duration // ids of strings, their reads included
	Read   time.Duration // reads of states, records and edges
	Graph  time.Duration // sorting and deciding
	Commit time.Duration // building and committing the write
}

// Timing returns where the time of the writer went. It is for the writer.
func (s *Store) Timing() (t Timing) {
	for _, l := range s.lanes {
		t.Intern += l.ap.timing.Intern
		t.Read += l.ap.timing.Read
		t.Graph += l.ap.timing.Graph
		t.Commit += l.ap.timing.Commit
	}
	return t
}

// maxSegment bounds the events of one write.
const maxSegment = 32_768

// Apply applies a batch from the named source and stores its cursor, in as few
// atomic writes as it can: the cursor of each covers just what is in it. A
// commit is never split. What was applied before is dropped, and so are the
// events of partitions that are not this Store's.
func (s *Store) Apply(ctx context.Context, source string, b *Batch) error {
	if s.Shared() {
		if err := s.beginSource(ctx, source, b); err != nil {
			return err
		}
		if err := s.lanes[0].applyNotes(ctx, source, b); err != nil {
			return err
		}
	}
	if len(s.lanes) == 1 {
		if err := s.lanes[0].apply(ctx, source, b); err != nil {
			return err
		}
	} else {
		errs := make([]error, len(s.lanes))
		var wg sync.WaitGroup
		for i, l := range s.lanes {
			wg.Go(func() { errs[i] = l.apply(ctx, source, b) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		s.gauges()
	}
	return s.lanes[0].trimNotes(ctx)
}

// apply applies what the lane has in the batch. A write that is too large is
// divided, and before that, what made it so may be spilled.
func (s *lane) apply(ctx context.Context, source string, b *Batch) error {
	s.pick(source, b)
	for from, spilledFor := 0, -1; ; {
		to := s.segment(b, from)
		for {
			err := s.applySegment(ctx, source, b, from, to)
			if err == nil {
				break
			}
			if !errors.Is(err, kv.ErrTooLarge) || to-from <= 1 && spilledFor == from {
				return err
			}
			if to-from <= 1 {
				spilledFor = from
			}
			s.in.Abandon(&s.ap.strings)
			s.o.Metrics.retry("too_large")
			if err := s.spill(ctx); err != nil {
				return err
			}
			to = from + max((to-from)/2, 1)
		}
		if err := s.spill(ctx); err != nil {
			return err
		}
		if from = to; from == len(s.ap.events) {
			return nil
		}
	}
}

// segment returns the end of the write that begins at from. What comes in the
// stream after the deletion of an account and is that account's is left to
// another write, which finds the account's records gone.
func (s *lane) segment(b *Batch, from int) int {
	const mostDeleted = 16
	events := s.ap.events
	var gone [][]byte
	for i := from; i < len(events); i++ {
		e := &b.events[events[i].n]
		if i-from >= maxSegment || len(gone) == mostDeleted {
			return i
		}
		if len(gone) > 0 && slices.ContainsFunc(gone, func(did []byte) bool { return bytes.Equal(did, b.bytes(e.did)) }) {
			return i
		}
		if e.kind == eventAccount && e.flags&deleted != 0 {
			gone = append(gone, b.bytes(e.did))
		}
	}
	return len(events)
}

// errErasing ends an attempt that met an account which is still being erased.
type errErasing struct{ actor dict.ID }

func (e errErasing) Error() string { return fmt.Sprintf("graph: account %d is being erased", e.actor) }

func (s *lane) applySegment(ctx context.Context, source string, b *Batch, from, to int) error {
	a := &s.ap
	a.strings.Reset()
	need := 0
	for _, p := range a.events[from:to] {
		need += 1 + int(b.events[p.n].ops.end-b.events[p.n].ops.start)
	}
	for {
		if s.Shared() {
			if err := s.claimStrings(ctx, b, a.events[from:to]); err != nil {
				return err
			}
		} else if err := s.in.Prepare(ctx, &s.ap.strings, need); err != nil {
			return err
		}
		start := time.Now()
		var end time.Time
		err := s.update(ctx, func(tx kv.Txn) error {
			err := s.attempt(tx, source, b, from, to)
			end = time.Now()
			return err
		})
		erasing, isErasing := errors.AsType[errErasing](err)
		switch {
		case err == nil:
			a.timing.Commit += time.Since(end)
			if s.o.Metrics != nil {
				s.o.Metrics.Commit.Observe(time.Since(start).Seconds())
			}
			s.events += int64(to - from)
			s.committed(source, b)
			return nil
		case isErasing:
			s.o.Metrics.retry("erasing")
			if err := s.eraseNow(ctx, erasing.actor); err != nil {
				return err
			}
		case errors.Is(err, intern.ErrNoLease):
			s.o.Metrics.retry("lease")
		default:
			return fmt.Errorf("graph: applying up to seq %d of %s: %w", b.last, source, err)
		}
	}
}

// attempt is one attempt at the write. It changes nothing but the applier, and the
// cache of states: what it reads there of accounts that are not in the write nobody
// else changes, and those that are committed overwrites.
func (s *lane) attempt(tx kv.Txn, source string, b *Batch, from, to int) error {
	a := &s.ap
	a.result = result{counts: s.counts.Clone(), cursors: s.cursors(source)}
	a.edges.reset()
	a.strings.Retry()
	events := a.events[from:to]
	whole := to == len(a.events)

	clock := time.Now()
	lap := func(d *time.Duration) {
		now := time.Now()
		*d += now.Sub(clock)
		clock = now
	}
	a.actors = a.actors[:0]
	for _, p := range events {
		a.actors = append(a.actors, int32(a.strings.Add(dict.DID, b.bytes(b.events[p.n].did))))
	}
	if err := s.resolve(tx); err != nil {
		return err
	}
	lap(&a.timing.Intern)
	if err := s.loadStates(tx); err != nil {
		return err
	}
	lap(&a.timing.Read)
	a.changes = a.changes[:0]
	for i, p := range events {
		a.source = a.result.cursors[p.part-s.first].Number
		if err := s.event(b, &b.events[p.n], &a.states[a.index[a.strings.ID(int(a.actors[i]))]]); err != nil {
			return err
		}
	}
	a.lastWords()
	lap(&a.timing.Graph)
	for i := range a.changes {
		if c := &a.changes[i]; c.subject >= 0 {
			o := &b.ops[c.subject]
			c.subject = int32(a.strings.Add(o.kind.Info().To.Is, b.bytes(o.subject)))
		}
	}
	if err := s.resolve(tx); err != nil {
		return err
	}
	lap(&a.timing.Intern)
	if err := a.readOld(tx); err != nil {
		return err
	}
	lap(&a.timing.Read)
	a.decide()
	lap(&a.timing.Graph)
	if err := a.decideEdges(tx); err != nil {
		return err
	}
	lap(&a.timing.Read)
	if err := a.writeRecords(tx); err != nil {
		return err
	}
	a.edges.merge(tx, s.Store)
	s.writeStates(tx)
	seq := b.last
	if !whole {
		seq = b.events[events[len(events)-1].n].seq
	} else if !s.Shared() {
		a.result.notes = format.NoteNumber(a.result.cursors[0].Number, s.first)
		if err := writeNotes(tx, source, a.result.notes, b.dead, b.gaps); err != nil {
			return err
		}
	}
	if b.last != 0 {
		a.result.cursorSet = true
		for i := range a.result.cursors {
			c := &a.result.cursors[i]
			if s.Shared() && c.Seq > seq && !c.Future { // it was ahead of the others
				continue
			}
			c.Live = false
			if c.Seq = seq; whole {
				c.Time, c.Future = b.Time(), false
			}
			tx.Set(s.CursorKey(s.first+uint8(i), source), c.Value())
		}
	}
	err := s.writeTotals(tx)
	lap(&a.timing.Commit)
	return err
}

// resolve gives ids to the strings that have none, and counts the new ones.
func (s *lane) resolve(tx kv.Txn) error {
	if s.Shared() {
		return nil // they are claimed
	}
	made, err := s.in.Resolve(tx, &s.ap.strings)
	for _, ns := range dict.Namespaces {
		s.ap.result.counts.Strings[ns.String()] += int64(made[ns])
	}
	return err
}

// loadStates reads the states of the actors of the write, each once.
func (s *lane) loadStates(tx kv.Txn) error {
	a := &s.ap
	if a.index == nil {
		a.index = map[dict.ID]int32{}
	}
	clear(a.index)
	a.states = a.states[:0]
	a.missing = a.missing[:0]
	for _, n := range a.actors {
		id := a.strings.ID(int(n))
		if _, ok := a.index[id]; ok {
			continue
		}
		a.index[id] = int32(len(a.states))
		st, ok := s.states.get(id)
		made := a.strings.Made(int(n))
		if !ok && !made {
			a.missing = append(a.missing, int32(len(a.states)))
		}
		now := st
		if !ok {
			now.LowBucket = format.LowNone // unless it is found
		}
		a.states = append(a.states, actorState{id: id, known: ok, made: made, was: st, now: now})
	}
	return s.readStates(tx)
}

// readStates reads the groups of the states that are missing, each once.
func (s *lane) readStates(tx kv.Txn) error {
	a := &s.ap
	mask := s.AccountMask()
	group := func(i int32) dict.ID { return a.states[i].id &^ mask }
	slices.SortFunc(a.missing, func(x, y int32) int { return cmp.Compare(a.states[x].id, a.states[y].id) })
	a.keys.reset()
	for n, i := range a.missing {
		if n == 0 || group(i) != group(a.missing[n-1]) {
			a.kbuf = s.AccountKey(a.kbuf[:0], group(i))
			a.keys.add(a.kbuf)
		}
	}
	rest, filling := a.missing, s.states.filling()
	return tx.MultiGet(a.keys.keys, func(_ int, v []byte, _ bool) error { // no group: an empty one
		of := rest
		for n := range rest {
			if group(rest[n]) != group(rest[0]) {
				of = rest[:n]
				break
			}
		}
		rest = rest[len(of):]
		first := group(of[0])
		var failed error
		err := format.EachAccount(v, func(low byte, row []byte) bool { // both ascend
			for len(of) > 0 && byte(a.states[of[0]].id&mask) < low {
				of = of[1:]
			}
			wanted := len(of) > 0 && byte(a.states[of[0]].id&mask) == low
			if !wanted && !filling {
				return len(of) > 0
			}
			var st format.RepoState
			if st, failed = format.DecodeRepoState(row); wanted {
				as := &a.states[of[0]]
				as.known, as.was, as.now = true, st, st
			} else if failed == nil {
				s.states.offer(first|dict.ID(low), st)
			}
			return failed == nil
		})
		return errors.Join(err, failed)
	})
}

// committed takes over what the attempt came to.
func (s *lane) committed(source string, b *Batch) {
	a := &s.ap
	r := &a.result
	if !s.Shared() {
		s.in.Committed(&a.strings)
	}
	for i := range a.states {
		if as := &a.states[i]; as.changed || as.known {
			s.states.put(as.id, as.now)
		}
	}
	s.counts = r.counts
	s.replays += int64(r.replays)
	if r.cursorSet { // else the source has no cursor still, or the one that it had
		s.sources[source] = r.cursors
	}
	if len(r.hidden) > 0 && !s.Shared() {
		s.hidden.publish(r.hiddenVersion, r.hidden)
	}
	for id := range r.erasing {
		s.erasing[id] = true
	}
	if r.notes != 0 {
		s.notes.add(r.notes, len(b.dead), len(b.gaps))
	}
	if m := s.o.Metrics; m != nil {
		m.Replays.Add(float64(r.replays))
		for _, k := range kinds.All {
			m.Edges.WithLabelValues(k.Name, "add").Add(float64(r.added[k.Kind]))
			m.Edges.WithLabelValues(k.Name, "remove").Add(float64(r.removed[k.Kind]))
		}
	}
	if !s.Shared() {
		s.gauges()
	}
}

// keyBuffer gathers keys for a MultiGet in one arena.
type keyBuffer struct {
	keys  [][]byte
	arena []byte
}

func (k *keyBuffer) reset() { k.keys, k.arena = k.keys[:0], k.arena[:0] }

func (k *keyBuffer) add(key []byte) {
	start := len(k.arena)
	k.arena = append(k.arena, key...) // if it grows, earlier keys stay in the old array
	k.keys = append(k.keys, k.arena[start:len(k.arena):len(k.arena)])
}
