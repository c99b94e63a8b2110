package graph_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/export"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/query/evidence"
	"skein.blue/query/language"
)

// go test ./graph -run TestComplete -complete.steps 1000000 -timeout 2h is the long run.
var completeSteps = flag.Int("complete.steps", 12_000, "steps of TestComplete, of all seeds together")

// TestComplete draws together everything that may happen between a network and an index, and
// checks after every step what package evidence says of it, in both directions:
//
//   - An account whose own records are called complete has exactly the records of its repo: a state that the repo had,
//     and none that is older than what the stream has brought, or should have brought, up to here.
//   - If everybody is, that holds for all accounts of the network, also for those that the index never heard of; if
//     everybody is within a window, it holds for the records in that.
//   - If each account is complete, all hosts were listed, and there is no hole, then everybody is complete.
//
// Now and then everything is allowed to come to rest; then every account must be complete, everybody is, and all are as active as
// they are.
//
// What is drawn: accounts, old and new; commits, some damaged, too big, refuted, forged, with an operation that is lost, with a rev of the far future, or sent again; repos that are put back to an
// older state; takedowns, deactivations, deletions, returns, some without an #account; holes with any of these inside;
// comparisons with a list; lists of hosts, readable or not; snapshots in parts, of the newest state, or of an older one from a
// cache, any number of times; an archive; a kind that is added; export and import; and kills
// before and after any write.
func TestComplete(t *testing.T) {
	const seeds = 12
	total := map[string]int{}
	for seed := range uint64(seeds) {
		n := newNet(t, seed)
		for range *completeSteps / seeds {
			n.step()
			n.check()
			if t.Failed() {
				t.Fatalf("seed %d: the last steps were %v", seed, n.said)
			}
		}
		n.rest()
		for what, times := range n.did {
			total[what] += times
		}
	}
	t.Log(total)
	t.Logf("of %d claims, %d %% are complete", total["claims"], 100*total["complete"]/max(total["claims"], 1))
	if 3*total["complete"] < total["claims"] {
		t.Error("fewer than a third of all claims are complete: saying nothing must not pass")
	}
	for _, what := range []string{"complete", "commit", "damaged", "too big", "refuted", "forged", "lost op", "future rev", "put back", "status", "deleted", "back", "silently back", "hole", "compare", "part", "older", "placed", "many changes, erasing=true", "many changes, erasing=false", "archive", "lacking", "sweep", "import", "kill", "redelivered", "new", "listed", "unlistable", "everybody", "window", "claims", "dropped"} {
		if total[what] == 0 {
			t.Errorf("%q never happened: the test shows nothing of it", what)
		}
	}
}

// futureRev is added to a rev to put it into the far future.
const futureRev = 1 << 62

// A netState is a state of a repo: none of its members changes any more.
type netState struct {
	rev     uint64
	root    [32]byte
	records map[string]string // collection/rkey → subject
}

// A netAccount is an account with its repo. The last of states is what it holds now.
type netAccount struct {
	did    string
	states []netState // states[0] is an empty repo without a rev
	active bool
	gone   bool  // deleted
	born   int   // the first of states since it was last deleted
	events []int // of the stream
}

// A netEvent is an event of the stream.
type netEvent struct {
	account         int
	what            string // commit, sync, status
	state           int    // of the account, after it
	before          int    // and before it, of a commit
	first           bool   // of a commit: it has no since
	form            string // of a commit: "damaged", "unreadable", "too big", "refuted", "lost op", "future rev"
	active, deleted bool   // of the account, after it
	lost            bool   // in a hole
	dropped         bool   // by the relay, silently: the account was inactive, or writes again at once
	needed          bool   // not lost: nothing else shows that the archive lacks what was before, or what was dropped
	at              uint64 // after what was made up to then
}

// A netFetch is a repo that was fetched, and is being put in place.
type netFetch struct {
	account, state int
	generation     uint64
	asked          *format.RepoState // of a hidden account whose host says that it is active
	bounds         []string
	next           int
}

// A netList is a list of the repos, at a time.
type netList struct {
	at     int // the length of the stream then
	noted  uint64
	roster format.Roster
	revs   []uint64 // 0: not listed
	active []bool
	index  []format.Rev // what the index had then
}

// net is a network and an index.
type net struct {
	t        *testing.T
	rng      *rand.Rand
	clock    uint64
	accounts []*netAccount
	stream   []netEvent
	at       int // of the stream, how much was delivered, or lost
	heard    int // from where on the index listens

	store   *crashingStore
	s       *graph.Store
	hasX    bool // the kind is configured
	calm    bool // little goes wrong, and lists are read
	placing int  // the limit
	fetches []*netFetch
	list    *netList

	lists  map[string]bool // hosts whose lists are still to be read; nil: none
	failed []string        // those that could not be

	archive   bool
	row, rows int         // of the archive
	lacking   map[int]int // by account, the row from which on the archive lacks its rows
	shown     int         // how far the stream has to come to show it

	did  map[string]int
	said []string
}

var errKilled = errors.New("killed")

// crashingStore ends writes as a kill would: before, or after they are committed.
type crashingStore struct {
	kv.Store

	mu  sync.Mutex // guards rng: ids are leased in a goroutine of their own
	rng *rand.Rand
	off atomic.Bool
}

func (c *crashingStore) Update(ctx context.Context, fn func(kv.Txn) error) error {
	c.mu.Lock()
	when := c.rng.IntN(400)
	c.mu.Unlock()
	if !c.off.Load() && when == 0 {
		return errKilled
	}
	if err := c.Store.Update(ctx, fn); err != nil {
		return err
	}
	if !c.off.Load() && when == 1 {
		return errKilled
	}
	return nil
}

func newNet(t *testing.T, seed uint64) *net {
	t.Helper()
	n := &net{t: t, calm: seed%4 != 0, placing: int(seed % 2), rng: rand.New(rand.NewPCG(seed, 77)), clock: 1 << 61, did: map[string]int{}}
	for i := range 6 {
		n.accounts = append(n.accounts, &netAccount{did: fmt.Sprintf("did:web:a%d.example.com", i), states: []netState{{records: map[string]string{}}}, active: true})
	}
	for range 30 { // before the index is there
		n.happen()
	}
	n.at = n.rng.IntN(2) * n.rng.IntN(len(n.stream))
	n.heard = n.at
	n.store = n.newStore()
	n.open()
	return n
}

func (n *net) newStore() *crashingStore {
	return &crashingStore{Store: memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{Row: 8, Chunk: 8, Search: 24, Placing: n.placing})}), rng: rand.New(rand.NewPCG(n.rng.Uint64(), 78))}
}

// xs is the kind that is added.
func (n *net) xs() []kinds.Info {
	if !n.hasX {
		return nil
	}
	more, err := kinds.Parse("a.b.c subject did xs ys")
	must(n.t, err)
	return more
}

func (n *net) open() {
	n.t.Helper()
	n.store.off.Store(true)
	defer func() { n.store.off.Store(false) }()
	var err error
	n.s, err = graph.Open(n.t.Context(), n.store, graph.Options{Queued: func([]batch.Queued) {}, Kinds: n.xs(), SliceSize: 3})
	must(n.t, err)
	n.fetches, n.list, n.lists, n.failed = nil, nil, nil, nil
	if hosts := n.s.Backfill().Hosts; len(hosts) > 0 { // they are read again
		n.lists = map[string]bool{}
		for host := range hosts {
			n.lists[host] = true
		}
	}
}

// killed begins again with what the store has, if err says that the process was killed.
func (n *net) killed(err error) bool {
	n.t.Helper()
	if err == nil {
		return false
	}
	if !errors.Is(err, errKilled) {
		n.t.Fatal(err)
	}
	n.do("kill")
	n.open()
	n.at = n.heard
	if c, ok := n.s.Cursor("relay"); ok {
		n.at = max(n.at, int(c.Seq))
	}
	if c, ok := n.s.Cursor("archive x"); ok && n.archive {
		n.row = int(c.Seq)
	}
	return true
}

func (n *net) do(what string, args ...any) {
	n.did[what]++
	n.said = append(n.said, fmt.Sprint(append([]any{what}, args...)...))
	if len(n.said) > 60 {
		n.said = n.said[20:]
	}
}

func (n *net) now(a int) *netState {
	acc := n.accounts[a]
	return &acc.states[len(acc.states)-1]
}

var netCollections = []string{"a.b.c", "app.bsky.feed.like", "app.bsky.graph.block", "app.bsky.graph.follow"}

// happen has something happen in the network, which the stream tells.
func (n *net) happen() {
	a := n.rng.IntN(len(n.accounts))
	acc := n.accounts[a]
	e := netEvent{account: a, before: len(acc.states) - 1}
	again := false
	if len(n.accounts) < 10 && n.rng.IntN(90) == 0 {
		n.accounts = append(n.accounts, &netAccount{did: fmt.Sprintf("did:web:a%d.example.com", len(n.accounts)), states: []netState{{records: map[string]string{}}}, active: true})
		n.do("new", len(n.accounts)-1)
	}
	what := n.rng.IntN(40)
	if n.calm && n.rng.IntN(12) > 0 {
		what = 39
	}
	switch {
	case what < 2 && len(acc.states)-1 > acc.born+1 && acc.active: // put back to an older state
		back := acc.born + 1 + n.rng.IntN(len(acc.states)-acc.born-2)
		if acc.states[back].rev == n.now(a).rev {
			return
		}
		acc.states = append(acc.states, acc.states[back])
		e.what = "sync"
		n.do("put back", a, " to ", acc.states[back].rev)
	case what < 6:
		if acc.gone {
			acc.gone, again = false, true
			n.do("back", a)
		}
		acc.active = !acc.active
		e.what = "status"
		n.do("status", a, acc.active)
	case what == 6 && n.rng.IntN(3) == 0:
		acc.active, acc.gone = false, true
		acc.born = len(acc.states)
		acc.states = append(acc.states, netState{records: map[string]string{}})
		e.what = "status"
		n.do("deleted", a)
	case what == 7 && !acc.active: // the relay repairs the status, and sends no #account
		n.do("silently back", a)
		e.what, e.first = "commit", n.now(a).rev == 0
		acc.active, acc.gone = true, false
		acc.states = append(acc.states, n.commit(a))
	case acc.gone:
		return
	case n.rng.IntN(40) == 0:
		e.what = "forged"
		n.do("forged", a)
	default:
		e.what, e.first = "commit", n.now(a).rev == 0
		acc.states = append(acc.states, n.commit(a))
		form := n.rng.IntN(50)
		if n.calm && n.rng.IntN(12) > 0 {
			form = 49
		}
		switch form {
		case 0:
			e.form = "damaged"
		case 1:
			e.form = "unreadable"
		case 3:
			e.form = "refuted"
		case 2:
			e.form = "too big"
		case 4:
			e.form = "lost op"
		case 5:
			e.form = "future rev"
			acc.states[len(acc.states)-1].rev += futureRev
		}
		if e.form != "" {
			n.do(e.form, a)
		}
		if e.dropped = !acc.active && n.rng.IntN(2) == 0 || form == 49 && n.rng.IntN(40) == 0; e.dropped {
			n.do("dropped", a)
		}
		again = e.dropped && acc.active // else nothing shows it
		n.do("commit", a, " ", n.now(a).rev)
	}
	e.state, e.active, e.deleted, e.at = len(acc.states)-1, acc.active, acc.gone, n.clock+1<<10
	acc.events = append(acc.events, len(n.stream))
	n.stream = append(n.stream, e)
	if again { // an account that is there again has a repo
		acc.states = append(acc.states, n.commit(a))
		acc.events = append(acc.events, len(n.stream))
		n.stream = append(n.stream, netEvent{account: a, what: "commit", before: e.state, first: !e.dropped, state: e.state + 1, active: true, needed: e.dropped, at: n.clock + 1<<10})
	}
}

// commit returns the state after some operations.
func (n *net) commit(a int) netState {
	n.clock += 1<<16 + n.rng.Uint64N(1<<44)
	s := netState{rev: n.clock, records: maps.Clone(n.now(a).records)}
	for range 1 + n.rng.IntN(3) {
		rkey := []string{"self", "other", string(dict.AppendTID(nil, n.clock-n.rng.Uint64N(3)))}[n.rng.IntN(3)]
		path := netCollections[n.rng.IntN(4)] + "/" + rkey
		if paths := slices.Sorted(maps.Keys(s.records)); len(paths) > 0 && n.rng.IntN(2) == 0 {
			path = paths[n.rng.IntN(len(paths))]
		}
		if n.rng.IntN(8) == 0 { // a path of any earlier state: the repo may have been put back since
			old := n.accounts[a].states[n.rng.IntN(len(n.accounts[a].states))].records
			if paths := slices.Sorted(maps.Keys(old)); len(paths) > 0 {
				path = paths[n.rng.IntN(len(paths))]
			}
		}
		if _, there := s.records[path]; there && n.rng.IntN(3) > 0 {
			delete(s.records, path)
			continue
		}
		s.records[path] = fmt.Sprintf("did:web:s%d.example.com", n.rng.IntN(5))
		if strings.HasPrefix(path, "app.bsky.feed.like/") {
			s.records[path] = fmt.Sprintf("at://did:web:a.example.com/app.bsky.feed.post/%d", n.rng.IntN(5))
		}
	}
	s.root = sha256.Sum256(fmt.Append(nil, a, s.rev))
	return s
}

// kind returns the kind of a path, and its record key; 0 if it is not indexed.
func (n *net) kind(path string) (kinds.Kind, []byte) {
	collection, rkey, _ := strings.Cut(path, "/")
	for i := range n.s.Kinds().All {
		if k := &n.s.Kinds().All[i]; k.Collection == collection {
			return k.Kind, []byte(rkey)
		}
	}
	return 0, nil
}

// changes adds what leads from one state to another.
func (n *net) changes(b *batch.Batch, from, to *netState) {
	for _, path := range slices.Sorted(maps.Keys(from.records)) {
		if _, there := to.records[path]; !there {
			if k, rkey := n.kind(path); k != 0 {
				b.AddDelete(k, rkey)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(to.records)) {
		if s := to.records[path]; from.records[path] != s {
			if k, rkey := n.kind(path); k != 0 {
				b.AddPut(k, rkey, []byte(s))
			}
		}
	}
}

// netEnd is the time of all events: no rev is too far ahead of it.
var netEnd = []byte("2112-01-01T00:00:00Z")

func netTID(rev uint64) []byte { return dict.AppendTID(nil, rev) }

// event adds an event of the stream.
func (n *net) event(b *batch.Batch, i int) {
	e := &n.stream[i]
	acc := n.accounts[e.account]
	seq, st := format.Seq(i+1), &acc.states[e.state]
	switch e.what {
	case "status":
		b.AddAccount(seq, []byte(acc.did), e.active, e.deleted)
	case "sync":
		c := &batch.Commit{DID: []byte(acc.did), Rev: netTID(st.rev), Data: st.root[:], OtherRev: true}
		if st.rev >= futureRev { // as the consumer refuses it
			c.Rev = nil
		}
		b.AddSync(seq, c)
	case "forged": // the account did not make it
		b.AddCommit(seq, &batch.Commit{DID: []byte(acc.did), Refuted: true})
	case "commit":
		before := &acc.states[e.before]
		c := &batch.Commit{DID: []byte(acc.did), Rev: netTID(st.rev), Data: st.root[:]}
		if !e.first {
			c.Since, c.PrevData = netTID(before.rev), before.root[:]
		}
		switch e.form {
		case "damaged":
			c.Data = nil
		case "unreadable":
			c.Rev, c.Data = nil, nil
		case "refuted": // because its key could not be looked up
			c = &batch.Commit{DID: c.DID, Refuted: true}
		case "too big":
			c.TooBig = true
		case "future rev": // as the consumer refuses it
			c.Rev, c.Data = nil, nil
		}
		b.AddCommit(seq, c)
		if e.form == "" {
			n.changes(b, before, st)
		}
		if e.form == "lost op" {
			for path := range st.records {
				if k, rkey := n.kind(path); k != 0 && st.records[path] != before.records[path] {
					b.AddPut(k, rkey, nil)
				}
			}
			b.LoseOp()
		}
	}
	b.Seen(seq, netEnd)
}

// deliver delivers the next events, and says where some are lost.
func (n *net) deliver(most int) {
	var b batch.Batch
	to := min(n.at+most, len(n.stream))
	if last := &n.stream[to-1]; last.dropped && last.active { // the next event shows that
		to++
	}
	at, lost := n.at, false
	for ; at < to; at++ {
		if n.stream[at].lost {
			if !lost {
				b.AddGap(format.Gap{After: format.Seq(at), Reason: "outdated_cursor", Time: time.Unix(int64(n.rng.IntN(1<<30)), 0).UTC(), Suspect: true})
				n.do("hole", at)
			}
			lost, b.Heard = true, time.Time{}
			continue
		}
		lost, b.Heard = false, time.UnixMicro(int64(n.stream[at].at>>10))
		if n.stream[at].dropped {
			b.Seen(format.Seq(at+1), netEnd)
			continue
		}
		n.event(&b, at)
	}
	if n.killed(n.s.Apply(n.t.Context(), "relay", &b)) {
		return
	}
	n.at = at
}

// redeliver delivers some again.
func (n *net) redeliver() {
	from := max(n.at-n.rng.IntN(15), n.heard)
	var b batch.Batch
	for i := from; i < n.at; i++ {
		if !n.stream[i].lost && !n.stream[i].dropped {
			n.event(&b, i)
		}
	}
	n.do("redelivered", from)
	n.killed(n.s.Apply(n.t.Context(), "relay", &b))
}

func (n *net) account(a int) (st format.RepoState, row *format.Resync) {
	n.t.Helper()
	must(n.t, n.s.View(n.t.Context(), func(sn *ask.View) (err error) { st, _, row, err = sn.Account(n.accounts[a].did); return err }))
	return st, row
}

// fetch has a host send the repo of an account that is queued: as it is, or from a cache.
func (n *net) fetch(a int, cached bool) {
	acc := n.accounts[a]
	st, row := n.account(a)
	if row == nil {
		return
	}
	if !acc.active {
		n.status(a, false)
		return
	}
	f := &netFetch{account: a, state: len(acc.states) - 1, generation: row.Generation}
	if st.Has(format.FlagHidden) {
		f.asked = &st
	}
	// From before a repo was put back in a hole nothing is sent: its rev may be above all that
	// the index was ever told, and nobody could tell it from the newest state; likewise if the index heard no commit before.
	// Nor from before the index listened, or from before a commit that did not even name its rev, or that the relay dropped. Nor is a state with a rev of
	// the far future sent once there is a newer one: that rev does not tell which is older.
	oldest, unreadable, heard := acc.born, false, false
	for _, i := range acc.events {
		e := &n.stream[i]
		isUnreadable := e.form == "unreadable" || e.form == "refuted" || e.form == "future rev"
		unreadable = unreadable || isUnreadable
		if e.what == "sync" && (e.lost || unreadable || !heard) || isUnreadable || e.dropped || i < n.heard {
			oldest = max(oldest, e.state)
		}
		heard = heard || e.what == "commit" && i >= n.heard && !e.lost
		if acc.states[e.state].rev >= futureRev {
			oldest = max(oldest, min(e.state+1, f.state))
		}
	}
	if cached && f.state > oldest {
		f.state = oldest + n.rng.IntN(f.state-oldest)
	}
	if acc.states[f.state].rev == 0 {
		return // there is no repo yet
	}
	f.bounds = []string{""}
	for _, bound := range []string{"app.bsky.feed.m", "app.bsky.graph.c", "app.bsky.graph.follow/3"} {
		if n.rng.IntN(3) == 0 {
			f.bounds = append(f.bounds, bound)
		}
	}
	if paths := slices.Sorted(maps.Keys(acc.states[f.state].records)); len(paths) > 0 { // within a collection, perhaps within the text of a TID
		path := paths[n.rng.IntN(len(paths))]
		f.bounds = append(f.bounds, path[:len(path)-n.rng.IntN(2)*n.rng.IntN(min(14, len(path)))])
	}
	slices.Sort(f.bounds)
	f.bounds = append(slices.Compact(f.bounds), "")
	n.fetches = append(n.fetches, f)
}

// place puts the next part of something that was fetched in place.
func (n *net) place(i int) {
	f := n.fetches[i]
	acc := n.accounts[f.account]
	st := &acc.states[f.state]
	sn := batch.Snapshot{
		DID: []byte(acc.did), Rev: netTID(st.rev), Data: st.root[:], Generation: f.generation,
		From: f.bounds[f.next], To: f.bounds[f.next+1], First: f.next == 0, Last: f.next == len(f.bounds)-2,
	}
	var b batch.Batch
	if sn.First && f.asked != nil {
		b.AddAnswer(sn.DID, true, f.asked)
	}
	at := b.AddSnapshot(&sn)
	for _, path := range slices.Sorted(maps.Keys(st.records)) {
		if k, rkey := n.kind(path); k != 0 && path >= sn.From && (sn.To == "" || path < sn.To) {
			b.AddPut(k, rkey, []byte(st.records[path]))
		}
	}
	if n.killed(n.s.Apply(n.t.Context(), "", &b)) {
		return
	}
	outcome := b.Outcome(at)
	n.do(outcome.String(), f.account, " ", st.rev, " part ", f.next, " of ", len(f.bounds)-1)
	if f.next++; outcome == batch.Placed {
		n.did["part"]++
	} else if after, row := n.account(f.account); row != nil && row.Reason == "many_changes" && row.Generation > f.generation {
		erasing := after.Has(format.FlagErasing)
		if n.did[fmt.Sprint("many changes, erasing=", erasing)]++; erasing && time.Until(row.Due) < 5*time.Second {
			n.t.Fatalf("the repo is fetched while its records are erased: %+v", row)
		}
	}
	if outcome != batch.Placed || sn.Last {
		n.fetches = slices.Delete(n.fetches, i, i+1)
	}
}

// status has somebody who lists repos say whether one is active.
func (n *net) status(a int, active bool) bool {
	var b batch.Batch
	b.AddStatus([]byte(n.accounts[a].did), active)
	return n.killed(n.s.Apply(n.t.Context(), "", &b))
}

// compare begins to compare the index with a list, or, when the stream is as far, ends it.
func (n *net) compare() {
	if n.list == nil {
		l := &netList{at: len(n.stream)}
		l.noted, _ = n.s.Holes()
		l.roster = n.s.Backfill().Roster
		for a, acc := range n.accounts {
			rev := n.now(a).rev
			if acc.gone {
				rev = 0
			}
			st, _ := n.account(a)
			l.revs, l.active, l.index = append(l.revs, rev), append(l.active, acc.active), append(l.index, st.Rev)
		}
		n.list = l
		return
	}
	if l := n.list; n.at < l.at {
		return
	}
	l := n.list
	n.list = nil
	n.do("compare", l.noted)
	roster := n.s.Backfill().Roster
	for a, acc := range n.accounts[:len(l.revs)] {
		if st, _ := n.account(a); l.revs[a] == 0 && !st.Has(format.FlagHasRev) { // it has no repo
			continue
		}
		if n.status(a, l.active[a]) {
			return
		}
		var c batch.Cause
		switch st, row := n.account(a); {
		case !l.active[a] && !st.Has(format.FlagHasRev):
			if !roster.Known() {
				continue
			}
			c = batch.Cause{Reason: "listed_inactive", Told: format.Rev(l.revs[a])}
		case l.active[a] && st.Has(format.FlagHidden):
			c = batch.Cause{Reason: "listed_active"}
		case !st.Has(format.FlagHasRev) && row == nil && !roster.Known():
			continue
		case !st.Has(format.FlagHasRev):
			c = batch.Cause{Reason: "unknown", Told: format.Rev(l.revs[a])}
		case l.revs[a] == 0: // should it come back, it need not be what it was
			c = batch.Cause{Reason: "not_listed"}
		case l.revs[a] > uint64(st.Rev):
			c = batch.Cause{Reason: "rev_differs", Told: format.Rev(l.revs[a])}
		case l.revs[a] < uint64(st.Rev) && st.Rev == l.index[a]:
			c = batch.Cause{Reason: "rev_lower", Back: format.Rev(l.revs[a])}
		default:
			continue
		}
		var b batch.Batch
		b.AddResync([]byte(acc.did), c)
		if n.killed(n.s.Apply(n.t.Context(), "", &b)) {
			return
		}
	}
	if now := n.s.Backfill().Roster; now.Known() && (!l.roster.Known() || now.Unconfirmed && !l.roster.Unconfirmed) {
		return // a list was read meanwhile, which another comparison has to confirm
	}
	if !n.killed(n.s.ChangeBackfill(n.t.Context(), func(b *format.Backfill) { b.Roster.Unconfirmed, b.Roster.Archived = false, false })) {
		n.killed(n.s.SetCompared(n.t.Context(), l.noted))
	}
}

// beginLists begins to read the lists of hosts: of those that the roster lacks, or of all.
func (n *net) beginLists() {
	if n.lists != nil || !n.s.Unbroken() {
		return
	}
	hosts := n.s.Backfill().Roster.Unlisted
	if len(hosts) == 0 {
		hosts = []string{"0", "1"}
	}
	noted, _ := n.s.Holes()
	if n.killed(n.s.ChangeBackfill(n.t.Context(), func(b *format.Backfill) {
		b.Hosts, b.ListingHoles = map[string]format.HostBackfill{}, noted
		for _, host := range hosts {
			b.Hosts[host] = format.HostBackfill{}
		}
	})) {
		return
	}
	n.lists = map[string]bool{}
	for _, host := range hosts {
		n.lists[host] = true
	}
}

// readLists reads the list of a host, if it can, and ends with the last one.
func (n *net) readLists(canFail bool) {
	for _, host := range slices.Sorted(maps.Keys(n.lists)) {
		if !n.lists[host] {
			continue
		}
		n.lists[host] = false
		if canFail && n.rng.IntN(3) == 0 {
			n.failed = append(n.failed, host)
			n.do("unlistable", host)
			return
		}
		var b batch.Batch
		for a, acc := range n.accounts {
			if fmt.Sprint(a%2) != host || n.now(a).rev == 0 || acc.gone {
				continue
			}
			c := batch.Cause{Reason: "backfill", Told: format.Rev(n.now(a).rev)}
			switch st, row := n.account(a); {
			case !acc.active && st.Has(format.FlagHidden), row != nil && row.State == format.ResyncWaiting:
				continue
			case !acc.active:
				c.Reason = "listed_inactive"
			case st.Has(format.FlagHidden):
				c = batch.Cause{Reason: "listed_active"}
			case st.Whole() && row == nil:
				continue
			}
			b.AddResync([]byte(acc.did), c)
		}
		n.do("listed", host)
		n.killed(n.s.Apply(n.t.Context(), "", &b))
		return
	}
	again := n.s.Backfill().Roster.Known()
	for host := range n.lists {
		again = again && slices.Contains(n.s.Backfill().Roster.Unlisted, host)
	}
	failed := n.failed
	slices.Sort(failed)
	n.lists, n.failed = nil, nil
	noted, _ := n.s.Holes()
	n.killed(n.s.ChangeBackfill(n.t.Context(), func(b *format.Backfill) {
		b.Hosts = nil
		if again {
			b.Roster.Unlisted = failed
		} else {
			b.Roster = format.Roster{AsOf: time.Now().UTC(), Source: format.RosterRepos, Unlisted: failed, Unconfirmed: noted > b.ListingHoles, Archived: noted > b.ListingHoles && b.Roster.Archived}
		}
	}))
}

// beginArchive begins to read an archive, which holds all that happened, up to a time after
// the index began to listen. It may lack the last rows of an account, if the stream then brings a commit.
func (n *net) beginArchive() {
	if n.archive || n.at < n.heard {
		return
	}
	n.killed(n.s.ChangeBackfill(n.t.Context(), func(b *format.Backfill) { b.Archive = "x" }))
	if n.s.Backfill().Archive == "" {
		return
	}
	n.archive, n.row, n.rows = true, 0, n.at+n.rng.IntN(len(n.stream)-n.at+1)
	if c, ok := n.s.Cursor("archive x"); ok && c.Seq > 0 {
		if n.killed(n.s.Rewind(n.t.Context(), "archive x", 0, false, nil)) {
			n.row = 0
		}
	}
	n.do("archive", n.rows)
	n.lacking, n.shown = map[int]int{}, 0
	for a, acc := range n.accounts {
		next, _ := slices.BinarySearch(acc.events, n.at)
		if next == 0 || next == len(acc.events) || n.rng.IntN(2) > 0 {
			continue
		}
		if e := &n.stream[acc.events[next]]; e.what == "commit" && e.form == "" && !e.first && !e.lost {
			e.needed = true
			n.lacking[a], n.shown = acc.events[n.rng.IntN(next)], max(n.shown, acc.events[next]+1)
			n.do("lacking", a, " from ", n.lacking[a])
		}
	}
}

// readArchive reads the next rows of the archive, and ends with it.
func (n *net) readArchive(most int) {
	if n.row >= n.rows && n.at < n.shown {
		n.deliver(n.shown - n.at)
		return
	}
	if n.row >= n.rows {
		doubtful, err := n.s.EndArchive(n.t.Context())
		if n.killed(err) {
			return
		}
		var b batch.Batch
		for _, did := range doubtful {
			n.do("doubtful", did)
			b.AddResync([]byte(did), batch.Cause{Reason: "archive_doubtful"})
		}
		open := n.rng.IntN(2) == 0
		if n.killed(n.s.Apply(n.t.Context(), "", &b)) || n.killed(n.s.ChangeBackfill(n.t.Context(), func(b *format.Backfill) {
			b.Archive, b.Roster = "", format.Roster{AsOf: time.Now().UTC(), Source: format.RosterArchive, Unconfirmed: open, Archived: open}
		})) {
			return
		}
		n.archive = false
		n.do("archive ended")
		return
	}
	var b batch.Batch
	to := min(n.row+most, n.rows)
	for i := n.row; i < to; i++ {
		b.Seen(format.Seq(i+1), netEnd)
		n.archiveRow(&b, i)
	}
	if !n.killed(n.s.Apply(n.t.Context(), "archive x", &b)) {
		n.row = to
	}
}

func (n *net) archiveRow(b *batch.Batch, i int) {
	e := &n.stream[i]
	if from, lacks := n.lacking[e.account]; lacks && i >= from {
		return
	}
	acc := n.accounts[e.account]
	st, did := &acc.states[e.state], []byte(acc.did)
	seq := format.Seq(i + 1)
	switch {
	case e.what == "status":
		b.AddArchivedAccount(seq, did, e.active, e.deleted)
	case e.what == "sync" || e.form != "": // the archive has fetched the repo
		b.AddArchivedSync(seq, did, netTID(st.rev))
		b.AddArchived(seq, did, netTID(st.rev))
		n.changes(b, &netState{}, st)
	default:
		b.AddArchived(seq, did, netTID(st.rev))
		n.changes(b, &acc.states[e.before], st)
	}
}

// sweep queues every account, once a kind was added.
func (n *net) sweep() {
	number := n.s.SweepDue()
	if number == 0 {
		return
	}
	var b batch.Batch
	must(n.t, n.s.View(n.t.Context(), func(sn *ask.View) error {
		var ids []dict.ID
		if err := sn.EachAccount(0, func(id dict.ID, _ *format.RepoState) bool { ids = append(ids, id); return true }); err != nil {
			return err
		}
		return sn.Strings(dict.DID, ids, func(_ int, did []byte) error {
			b.AddResync(did, batch.Cause{Reason: format.KindAdded})
			return nil
		})
	}))
	if n.killed(n.s.Apply(n.t.Context(), "", &b)) {
		return
	}
	n.do("sweep", number)
	n.killed(n.s.ChangeBackfill(n.t.Context(), func(b *format.Backfill) { b.Sweep, b.Swept = number, number }))
}

// move exports the store, and goes on with an import of it.
func (n *net) move() {
	n.store.off.Store(true)
	defer func() { n.store.off.Store(false) }()
	var out, again bytes.Buffer
	_, err := export.Write(n.t.Context(), n.store, &out, nil)
	must(n.t, err)
	fresh := n.newStore()
	fresh.off.Store(true)
	s, err := graph.Open(n.t.Context(), fresh, graph.Options{Import: true})
	must(n.t, err)
	_, err = export.Read(n.t.Context(), s, bytes.NewReader(out.Bytes()), nil)
	must(n.t, errors.Join(err, s.Close(n.t.Context())))
	_, err = export.Write(n.t.Context(), fresh, &again, nil)
	must(n.t, err)
	if out.String() != again.String() {
		x, y := strings.Split(out.String(), "\n"), strings.Split(again.String(), "\n")
		for i := range min(len(x), len(y)) {
			if x[i] != y[i] {
				n.t.Fatalf("an export of what was imported is another, in line %d:\n%s\n%s", i+1, x[i], y[i])
			}
		}
	}
	n.store = fresh
	n.do("import")
	n.open()
	n.store.off.Store(false)
}

// step has one thing happen.
func (n *net) step() {
	what := n.rng.IntN(100)
	switch {
	case n.calm && n.rng.IntN(3) == 0: // what is queued is fetched, and lists are read
		switch {
		case len(n.fetches) > 0:
			n.place(0)
		case n.lists != nil:
			n.readLists(n.rng.IntN(4) == 0)
		case n.rng.IntN(40) == 0 || !n.s.Backfill().Roster.Known() || len(n.s.Backfill().Roster.Unlisted) > 0:
			n.beginLists()
		default:
			if noted, compared := n.s.Holes(); noted > compared || n.s.Backfill().Roster.Unconfirmed {
				n.compare()
			}
			n.fetch(n.rng.IntN(len(n.accounts)), false)
		}
		return
	case n.calm && what >= 50 && what < 53 && n.rng.IntN(12) > 0:
		return
	}
	switch {
	case what < 25:
		n.happen()
	case what < 50:
		n.deliver(1 + n.rng.IntN(4))
	case what < 53 && n.at+1 < len(n.stream):
		for i := range min(1+n.rng.IntN(5), len(n.stream)-n.at-1) {
			n.stream[n.at+i].lost = !n.stream[n.at+i].needed
		}
	case what < 56:
		n.redeliver()
	case what < 68:
		n.fetch(n.rng.IntN(len(n.accounts)), n.rng.IntN(2) == 0)
	case what < 82:
		if len(n.fetches) > 0 {
			n.place(n.rng.IntN(len(n.fetches)))
		}
	case what < 88:
		n.compare()
	case what < 90 && n.lists != nil:
		n.readLists(true)
	case what == 90 && n.rng.IntN(4) == 0:
		n.beginLists()
	case what < 94 && n.archive:
		n.readArchive(1 + n.rng.IntN(6+n.rows/30))
	case what == 94 && n.rng.IntN(4) == 0:
		n.beginArchive()
	case what == 95 && n.s.Erasing():
		n.killed(n.s.EraseSlice(n.t.Context()))
	case what == 96:
		var b batch.Batch
		b.AddResync([]byte(n.accounts[n.rng.IntN(len(n.accounts))].did), batch.Cause{Reason: "operator"})
		n.killed(n.s.Apply(n.t.Context(), "", &b))
	case what == 97:
		n.killed(errKilled)
	case what == 98 && n.rng.IntN(6) == 0:
		switch {
		case n.rng.IntN(2) == 0 && !n.archive:
			n.move()
		case !n.hasX && !n.archive:
			n.hasX = true
			n.do("kind added")
			n.open()
		}
	case what == 99 && n.rng.IntN(3) == 0:
		n.sweep()
	case what == 99 && n.rng.IntN(20) == 0:
		n.rest()
	}
}

// newest returns the newest event of an account that the stream delivered or lost.
func (n *net) newest(a int) *netEvent {
	events := n.accounts[a].events
	i, _ := slices.BinarySearch(events, n.at)
	if i == 0 {
		return nil
	}
	return &n.stream[events[i-1]]
}

// index returns what is known of the index.
func (n *net) index() *evidence.Index {
	n.t.Helper()
	x := &evidence.Index{Source: func(k kinds.Kind) string { return fmt.Sprint(k) }}
	must(n.t, n.s.View(n.t.Context(), func(sn *ask.View) error {
		x.Known, x.Lacking = sn.Known(), sn.Lacking()
		return nil
	}))
	return x
}

// check compares what is called complete with the network, and finds out whether anything is not that should be.
func (n *net) check() {
	n.t.Helper()
	if n.t.Failed() {
		return
	}
	x := n.index()
	window := language.Window{From: x.Holes.Unbroken.UnixMicro() + n.rng.Int64N(1<<36), To: math.MaxInt64}
	everybody, within := x.Everybody("", kinds.Hidden, language.Window{}) == nil, x.Everybody("", kinds.Hidden, window) == nil
	each := x.Roster() == nil
	for claim, is := range map[string]bool{"everybody": everybody, "window": within} {
		n.claim(is)
		if is {
			n.did[claim]++
		}
	}
	for a, acc := range n.accounts {
		of := evidence.Account{DID: acc.did}
		must(n.t, n.s.View(n.t.Context(), func(sn *ask.View) (err error) { of.State, of.Known, of.Queued, err = sn.Account(acc.did); return err }))
		own, hidden := x.Account(&of) == evidence.Complete, of.State.Has(format.FlagHidden)
		if n.claim(own); own && !hidden {
			n.same(a, &of, x, language.Window{}, "own")
		}
		each = each && (own || hidden)
		if everybody && !hidden {
			n.same(a, &of, x, language.Window{}, "everybody's")
		}
		if within && !hidden {
			n.same(a, &of, x, window, "everybody's new")
		}
		status := (everybody || within || x.Statuses() == nil) && (!hidden || !of.State.Has(format.FlagResync)) || hidden && x.Own(&of, kinds.Hidden, window) == nil
		if status && of.Known && !of.State.Has(format.FlagErasing) && !n.possible(a, !hidden) {
			n.t.Errorf("account %d is called hidden=%v at %d, and is not: %+v, %+v", a, hidden, n.at, of.State, x.Past)
		}
	}
	if each && !everybody {
		n.t.Errorf("every account is complete and in the roster, and everybody is not: %+v", x)
	}
}

// possible reports whether an account is active, or is not, by its last status at this place of the stream, or by what came later. It was
// active before the index listened if nobody said otherwise.
func (n *net) possible(a int, active bool) bool {
	is := active
	for _, i := range n.accounts[a].events {
		e := &n.stream[i]
		says := e.active == active
		is = says || is && (e.what != "status" || i >= n.at || i < n.heard && active)
	}
	return is
}

// claim counts a claim.
func (n *net) claim(isComplete bool) {
	n.did["claims"]++
	if isComplete {
		n.did["complete"]++
	}
}

// same checks that the records of an account within a window are those of its repo, as of the stream or later.
func (n *net) same(a int, of *evidence.Account, x *evidence.Index, w language.Window, what string) {
	n.t.Helper()
	acc, st := n.accounts[a], &of.State
	newest := n.newest(a)
	if newest != nil && newest.deleted && st.Has(format.FlagHidden) || st.Has(format.FlagErasing) {
		return // in a hole: it is hidden, and to be fetched when it is back
	}
	if newest != nil && newest.dropped {
		return // it was inactive before anybody listened: nothing of it belongs in an answer
	}
	if st.Has(format.FlagHidden) && !st.Has(format.FlagHasRev) {
		return // known by its status alone: its sets are empty while it is hidden, and its repo is fetched when it is back
	}
	from := 0
	if newest != nil {
		from = newest.state
	}
	counts := func(path string) bool {
		k, rkey := n.kind(path)
		tid, isTID := dict.ParseTID(rkey)
		return k != 0 && x.Lacking[k].IsZero() && (w.All() || isTID && int64(tid>>10) >= w.From)
	}
	some := func(of map[string]string) map[string]string {
		of = maps.Clone(of)
		maps.DeleteFunc(of, func(path, _ string) bool { return !counts(path) })
		return of
	}
	got := some(n.records(a))
	if !slices.ContainsFunc(acc.states[from:], func(s netState) bool {
		isBelieved := s.rev < futureRev && st.Rev > 1<<20 // when it was fetched, an event had told the time
		return (!w.All() || s.rev == uint64(st.Rev) || !isBelieved) && maps.Equal(got, some(s.records))
	}) {
		n.t.Errorf("%s records of account %d are called complete at %d, %+v, and are %v; the stream is at %d (state %d), its states since are %v", what, a, st.Rev, st, got, n.at, from, acc.states[from:])
	}
}

// records returns what the index has of an account.
func (n *net) records(a int) map[string]string {
	n.t.Helper()
	have := map[string]string{}
	must(n.t, n.store.View(n.t.Context(), func(r kv.Reader) error {
		var b intern.Batch
		at := b.Add(dict.DID, []byte(n.accounts[a].did))
		if err := intern.Lookup(r, &b); err != nil {
			return err
		}
		for i := range n.s.Kinds().All {
			k := &n.s.Kinds().All[i]
			var ids []dict.ID
			var paths []string
			err := read.Records(r, k.Kind, b.ID(at), func(rec *format.Record) bool {
				ids, paths = append(ids, rec.Subject), append(paths, k.Collection+"/"+string(rec.Path.AppendRkey(nil)))
				return true
			})
			if err != nil {
				return err
			}
			if err := intern.Strings(r, k.To.Is(), ids, func(i int, s []byte) error { have[paths[i]] = string(s); return nil }); err != nil {
				return err
			}
		}
		return nil
	}))
	return have
}

// rest lets everything come to rest, and checks that nothing is left to do.
func (n *net) rest() {
	n.t.Helper()
	n.do("rest")
	n.store.off.Store(true)
	defer func() { n.store.off.Store(false) }()
	for n.archive {
		n.readArchive(10)
	}
	n.sweep()
	for n.lists != nil {
		n.readLists(false)
	}
	for n.beginLists(); n.lists != nil; { // it does nothing where nothing was heard
		n.readLists(false)
	}
	for i := n.at; i < len(n.stream); i++ {
		n.stream[i].lost = false
	}
	for a, acc := range n.accounts { // a last commit reveals restored and damaged repos for certain
		if acc.active && !acc.gone {
			acc.states = append(acc.states, n.commit(a))
			acc.events = append(acc.events, len(n.stream))
			last := len(acc.states) - 1
			n.stream = append(n.stream, netEvent{account: a, what: "commit", before: last - 1, first: acc.states[last-1].rev == 0, state: last, active: true, at: n.clock + 1<<10})
		}
	}
	n.deliver(len(n.stream))
	n.list = nil
	n.compare()
	n.compare()
	n.fetches = nil
	for a, acc := range n.accounts {
		st, row := n.account(a)
		if row == nil && st.Has(format.FlagPartial) {
			var b batch.Batch
			b.AddResync([]byte(acc.did), batch.Cause{Reason: "partial"})
			must(n.t, n.s.Apply(n.t.Context(), "", &b))
		}
		for range 3 { // what was noted, then its stored records, may have been too many
			for n.s.Erasing() {
				must(n.t, n.s.EraseSlice(n.t.Context()))
			}
			n.fetch(a, false)
			for len(n.fetches) > 0 {
				n.place(0)
			}
		}
		st, row = n.account(a)
		if hasRepo := st.Has(format.FlagHasRev) || n.now(a).rev != 0 && !acc.gone; hasRepo && st.Has(format.FlagHidden) == acc.active {
			n.t.Errorf("account %d is active=%v, and hidden=%v in the index, at rest: %+v", a, acc.active, st.Has(format.FlagHidden), st)
		}
		if acc.active && n.now(a).rev != 0 && !st.Complete() {
			n.t.Errorf("account %d is not complete at rest: %+v, queued: %+v; its repo is at %d", a, st, row, n.now(a).rev)
		}
	}
	n.check()
	if missing := n.index().Everybody("", kinds.Hidden, language.Window{}); missing != nil && n.s.Unbroken() {
		n.t.Errorf("everybody is not complete at rest: %+v", missing)
	}
	n.store.off.Store(true)
	must(n.t, check.Store(n.t.Context(), n.store, func(p string) { n.t.Error(p) }, nil))
	if n.t.Failed() {
		n.t.Fatalf("the last steps were %v", n.said)
	}
}
