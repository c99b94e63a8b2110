package write

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
)

// edges is the phase that decides, once for each changed edge, whether its set gains or loses the
// member, and writes the changes of the sets.
type edges struct {
	removed, added []edge      // edges that a record stops or starts naming: ascending, each once
	unread         []edge      // removed edges that other records may name
	sets           []SetChange // by set, then member
	spare          []SetChange // scratch space for sorting sets
	others         [searchers]otherRecords
	groups         [][]edge // of search: by actor and kind
	found          []edge   // likewise
	lone           loneEdges
	sorter         sets.Sorter
	rows           rows

	addedOf, removedOf [kinds.Max + 1]int // members that sets gained and lost, by kind
}

// A SetChange says that a reverse set gains or loses a member.
type SetChange struct {
	Kind    kinds.Kind // the kind of edge
	Remove  bool       // the set loses the member
	Date    uint32     // of the record that adds the member (format.DateOf); format.Undated if several do
	Subject dict.ID    // whose set it is
	Member  dict.ID    // the account with the edge
}

// decide decides which members the sets gain and lose. An edge that lost a record stays if this
// write adds another record of it, or if the store has one that this write does not remove. Edges whose
// actor's records were not all read are looked up in their sets, all together; only if a set cannot rule
// out other records, the actor's records are read.
func (e *edges) decide(tx kv.Txn, changes []change, layout format.Layout, t *kinds.Table, s *searches) error {
	e.removed, e.added, e.sets = e.removed[:0], e.added[:0], e.sets[:0]
	e.addedOf, e.removedOf = [kinds.Max + 1]int{}, [kinds.Max + 1]int{}
	e.gather(changes)
	for _, c := range e.added {
		e.sets = append(e.sets, SetChange{c.kind, false, c.date, c.subject, c.actor})
		e.addedOf[c.kind]++
	}
	e.removed = slices.DeleteFunc(e.removed, func(g edge) bool {
		_, again := slices.BinarySearchFunc(e.added, g, compareEdges)
		return again
	})
	lose := func(lost ...edge) {
		for _, g := range lost {
			e.sets = append(e.sets, SetChange{Kind: g.kind, Remove: true, Subject: g.subject, Member: g.actor})
			e.removedOf[g.kind]++
		}
	}
	e.unread = e.unread[:0]
	for _, g := range e.removed {
		if g.lone {
			lose(g)
		} else {
			e.unread = append(e.unread, g)
		}
	}
	lone, others, err := e.lone.read(tx, layout, e.unread)
	if err != nil {
		return fmt.Errorf("graph: looking an edge up in its set: %w", err)
	}
	lose(lone...)
	lost, err := e.search(tx, changes, others, t, s)
	if err != nil {
		return fmt.Errorf("graph: looking for other records of an edge: %w", err)
	}
	lose(lost...)
	e.spare = sets.SortBy(&e.sorter, e.sets, e.spare, compareSetChanges, func(c *SetChange) uint64 { return uint64(c.Subject) }, func(c *SetChange) uint64 { return uint64(c.Kind) })
	e.sets, e.spare = e.spare, e.sets
	return nil
}

// RemoveMembers removes members from sets, as part of a write. It sorts them, and returns them
// without duplicates.
func RemoveMembers(tx kv.Txn, all []SetChange, layout format.Layout, merger *Merger) ([]SetChange, error) {
	slices.SortFunc(all, compareSetChanges)
	all = slices.Compact(all)
	return all, new(rows).write(tx, all, layout, merger)
}

// gather collects the edges that records stop or start naming.
func (e *edges) gather(changes []change) {
	for i := range changes {
		c := &changes[i]
		if c.loses() && !c.kept {
			e.removed = append(e.removed, edge{kind: c.kind, lone: c.lone || c.kind.IsSelf(), tid: c.path.TID, actor: c.actor, subject: c.old})
		}
		if !c.delete && c.new != dict.None && c.new != c.old {
			e.added = append(e.added, edge{kind: c.kind, date: format.DateOf(c.path), actor: c.actor, subject: c.new})
		}
	}
	e.removed, e.added = sortEdges(e.removed), sortEdges(e.added)
}

// sortEdges sorts edges that already ascend by kind and actor, and drops duplicates. An edge that
// several records name is Undated.
func sortEdges(edges []edge) []edge {
	for one := range sets.Runs(edges, sameActor) {
		if len(one) > 1 {
			slices.SortFunc(one, compareEdges)
		}
	}
	kept := edges[:0]
	for _, g := range edges {
		if n := len(kept); n > 0 && compareEdges(kept[n-1], g) == 0 {
			kept[n-1].date = format.Undated
			continue
		}
		kept = append(kept, g)
	}
	return kept
}

func compareSetChanges(x, y SetChange) int {
	return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Subject, y.Subject), cmp.Compare(x.Member, y.Member))
}

// searchers is how many actors search reads at a time. Its work is unpacking, which keeps a core busy.
const searchers = 2

// search returns those of the removed edges that no stored record names after this write. The edges ascend.
// It searches several actors side by side if the engine has readers for that, and leaves out those with too many records.
func (e *edges) search(tx kv.Txn, changes []change, removed []edge, t *kinds.Table, s *searches) ([]edge, error) {
	e.groups = slices.AppendSeq(e.groups[:0], sets.Runs(removed, sameActor))
	e.found = e.found[:0]
	var mu sync.Mutex // guards e.found
	search := func(r kv.Reader, one []edge, o *otherRecords) error {
		lost, err := o.search(s.reader(r, one[0].actor), changes, one, t)
		if errors.Is(err, ErrFar) {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		e.found = append(e.found, lost...)
		return err
	}
	forker, ok := tx.(kv.Forker)
	if !ok || len(e.groups) < 2 {
		for _, one := range e.groups {
			if err := search(tx, one, &e.others[0]); err != nil {
				return nil, err
			}
		}
		return e.found, nil
	}
	var next atomic.Int32
	var wg sync.WaitGroup
	var errs [searchers]error
	for i := range e.others {
		wg.Go(func() {
			r, release := forker.Fork()
			var err error
			for n := int(next.Add(1)) - 1; n < len(e.groups) && err == nil; n = int(next.Add(1)) - 1 {
				err = search(r, e.groups[n], &e.others[i])
			}
			errs[i] = errors.Join(err, release())
		})
	}
	wg.Wait()
	return e.found, errors.Join(errs[:]...)
}

// mostNear is the most windows in which otherRecords looks before it reads all records. With more, it reads all at once.
const mostNear = 4

// windows returns the windows in which to look for other records of the removed edges, all of one actor and kind, one after
// another. The last one is all of time. Before it come those in which the records are most likely: most accounts that like a post a second time
// are expected to do so within weeks. There are none of these for kinds whose subjects are accounts, and if the edges' records are scattered.
func windows(removed []edge, t *kinds.Table) (windows []read.Window) {
	const near = 1 << 51 // 26 days, as a TID
	if t.Info(removed[0].kind).To.Is() == dict.URI {
		for i := range removed {
			tid := removed[i].tid
			if tid > 0 && !slices.ContainsFunc(windows, func(w read.Window) bool { return w.Has(format.Path{TID: tid}) }) {
				windows = append(windows, read.Window{From: tid - min(tid, near), To: min(tid+near, format.EndOfTime)})
			}
		}
	}
	if len(windows) > mostNear {
		windows = nil
	}
	return append(windows, read.Window{})
}

// otherRecords finds, among removed edges, those that no remaining record names. It holds scratch
// memory.
type otherRecords struct{ left []edge }

// search returns those of the removed edges, all of one actor and kind, that no stored record names after this
// write. It first looks where they are most likely. If that does not find one for each edge, it reads all records of
// the actor, once, however many edges it checks. The edges ascend.
func (o *otherRecords) search(r kv.Reader, changes []change, removed []edge, t *kinds.Table) (lost []edge, err error) {
	kind, actor := removed[0].kind, removed[0].actor
	first, _ := slices.BinarySearchFunc(changes, removed[0], func(c change, g edge) int {
		return cmp.Or(cmp.Compare(c.kind, g.kind), cmp.Compare(c.actor, g.actor))
	})
	changes = changes[first:]
	left := append(o.left[:0], removed...)
	place := func(subject dict.ID) (int, bool) {
		if len(left) == 1 { // as usual
			return 0, left[0].subject == subject
		}
		return slices.BinarySearchFunc(left, subject, func(e edge, id dict.ID) int { return cmp.Compare(e.subject, id) })
	}
	wanted := func(subject dict.ID) bool { _, found := place(subject); return found }
	for _, w := range windows(removed, t) {
		err = read.RecordsNaming(r, kind, actor, w, wanted, func(rec *format.Record) bool {
			c := change{kind: kind, actor: actor, path: rec.Path}
			i, changed := slices.BinarySearchFunc(changes, c, func(x, y change) int { return compareChanges(&x, &y) })
			if !changed || !changes[i].delete && changes[i].new == rec.Subject { // unchanged, or written again as it was
				at, _ := place(rec.Subject)
				left = slices.Delete(left, at, at+1)
			}
			return len(left) > 0
		})
		if err != nil || len(left) == 0 {
			break
		}
	}
	o.left = left
	return left, err
}

// rows writes changes of sets. It holds scratch memory.
type rows struct {
	add, less  []uint64 // members of one set
	dates      []uint32 // of add
	kbuf, vbuf []byte
	group      format.RowGroup // the operand of the group under groupKey
	groupKey   []byte
}

// write merges all changes, which ascend by set and member, one operand per row or row group. It spills a
// row that gains more members than a row may have: if it left that to a later write, the members would
// lose their dates in a set that has no leaves yet.
//
// In a store with partitions, the ids of one partition come from several shards, with those of other
// partitions between them. write sorts the changes of a set by partition first: if a row came twice, its
// spill would undo what was merged into it before.
func (e *rows) write(tx kv.Txn, all []SetChange, layout format.Layout, merger *Merger) error {
	partition := func(x, y SetChange) int {
		return cmp.Compare(layout.Settings.PartitionOfID(x.Member), layout.Settings.PartitionOfID(y.Member))
	}
	sameSet := func(x, y SetChange) bool { return x.Kind == y.Kind && x.Subject == y.Subject }
	for set := range sets.Runs(all, sameSet) {
		if !slices.IsSortedFunc(set, partition) {
			slices.SortStableFunc(set, partition)
		}
	}
	e.groupKey = e.groupKey[:0]
	e.group.Reset()
	sameRow := func(x, y SetChange) bool { return sameSet(x, y) && partition(x, y) == 0 }
	for changes := range sets.Runs(all, sameRow) {
		if changes[0].Kind.IsSelf() {
			continue // there are no sets of the kind
		}
		e.add, e.less, e.dates = e.add[:0], e.less[:0], e.dates[:0]
		for _, c := range changes {
			if c.Remove {
				e.less = append(e.less, uint64(c.Member))
			} else {
				e.add, e.dates = append(e.add, uint64(c.Member)), append(e.dates, c.Date)
			}
		}
		c := changes[0]
		e.kbuf = layout.AppendMemberKey(e.kbuf[:0], c.Kind, c.Subject, c.Member)
		e.vbuf = format.AppendRow(e.vbuf[:0], c.Subject, 0, e.less, e.add, e.dates)
		most := merger.limits.row(e.kbuf)
		if len(e.add) > most {
			if err := merger.spillMerged(tx, layout, c.Kind, c.Subject, e.kbuf, e.vbuf); err != nil {
				return fmt.Errorf("graph: spilling set %x: %w", e.kbuf, err)
			}
			continue
		}
		if format.HasGroups(c.Kind) {
			if !bytes.Equal(e.groupKey, e.kbuf) {
				e.endGroup(tx)
				e.groupKey = append(e.groupKey[:0], e.kbuf...)
			}
			e.group.Add(c.Subject, e.vbuf)
		} else {
			tx.Merge(e.kbuf, e.vbuf)
		}
		if len(changes) > most {
			merger.MarkLarge(e.kbuf)
		}
	}
	e.endGroup(tx)
	return nil
}

// endGroup merges the operand of a group.
func (e *rows) endGroup(tx kv.Txn) {
	if len(e.groupKey) > 0 {
		tx.Merge(e.groupKey, e.group.Value)
		e.groupKey = e.groupKey[:0]
		e.group.Reset()
	}
}
