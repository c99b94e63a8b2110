package oracle

// Small graphs of random records together with their truth, for tests of the packages under query
// that need a store, but no server and no stream.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// Begin is the time of the earliest record.
var Begin = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// Step is the largest time between two records.
const Step = 10 * time.Minute

// Graph is a store, and what it must contain.
type Graph struct {
	Store    *graph.Store
	Model    *Model
	Accounts []string
	Posts    []string
	Lists    []string
	Rand     *rand.Rand

	tb    testing.TB
	seq   format.Seq
	clock int64 // microseconds since 1970, of the last record
	revs  uint64
	live  []Path
	b     batch.Batch
	views map[window]Views // of the present state

	labels      map[labelKey]int64 // the times of the labels, in microseconds
	labelDraw   *rand.Rand
	labelStates map[string]format.Labeler
}

// Labelers are the labelers of every graph.
var Labelers = []string{"did:plc:llllllllllllllllllllllll", "did:web:labels.example.com"}

// LabelValues are the values of their labels.
var LabelValues = []string{"spam", "!hide", "two words"}

type labelKey struct{ labeler, value, subject string }

type window struct {
	windowed     bool
	since, until int64
}

// NewGraph returns an empty graph with names for some accounts. Equal seeds give equal graphs.
func NewGraph(tb testing.TB, seed uint64, accounts int, l write.Limits) *Graph {
	tb.Helper()
	return GraphOn(tb, seed, accounts, memkv.Open(memkv.Options{Merger: write.NewMerger(l), Limits: memkv.Limits{Key: 1e4, Value: 1e8, Txn: 1e9, Age: time.Hour}}))
}

// GraphOn is NewGraph on a store of keys and values, with more kinds.
func GraphOn(tb testing.TB, seed uint64, accounts int, store kv.Store, more ...kinds.Info) *Graph {
	tb.Helper()
	s, err := graph.Open(tb.Context(), store, graph.Options{Kinds: more})
	if err != nil {
		tb.Fatal(err)
	}
	g := &Graph{Store: s, Model: New(), Rand: rand.New(rand.NewPCG(seed, 99)), tb: tb, clock: Begin.UnixMicro(), views: map[window]Views{}, labels: map[labelKey]int64{}, labelDraw: rand.New(rand.NewPCG(seed, 26)), labelStates: map[string]format.Labeler{}}
	for i := range accounts {
		g.Accounts = append(g.Accounts, Account(i))
	}
	for i, did := range g.Accounts {
		g.Lists = append(g.Lists, "at://"+did+"/app.bsky.graph.list/first", "at://"+did+"/app.bsky.graph.list/"+g.Key())
		post := "at://" + did + "/app.bsky.feed.post/" + g.Key()
		if i%7 == 6 { // a key that is not a time
			post = fmt.Sprintf("at://%s/app.bsky.feed.post/odd-%d", did, i)
		}
		g.Posts = append(g.Posts, post)
	}
	return g
}

// Account returns the DID of an account: mostly a did:plc.
func Account(n int) string {
	if n%5 == 4 {
		return fmt.Sprintf("did:web:n%d.example.com", n)
	}
	var b [24]byte
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz234567"[(n>>(5*min(i, 6)))&31]
	}
	return "did:plc:" + string(b[:])
}

// Key returns a record key later than all before.
func (g *Graph) Key() string {
	g.clock += 1 + g.Rand.Int64N(Step.Microseconds())
	return string(dict.AppendTID(nil, uint64(g.clock)<<format.ClockBits|g.Rand.Uint64N(1<<format.ClockBits)))
}

// Now returns the time of the latest key.
func (g *Graph) Now() time.Time { return time.UnixMicro(g.clock).UTC() }

// Any returns one of a list.
func (g *Graph) Any(list []string) string { return list[g.Rand.IntN(len(list))] }

// Put makes a record of an account, with a new key.
func (g *Graph) Put(did, kind, subject string) (rkey string) {
	g.tb.Helper()
	rkey = g.Key()
	g.Commit(did, Op{Kind: kind, Rkey: rkey, Subject: subject})
	return rkey
}

// PutListItem puts an account on a list.
func (g *Graph) PutListItem(did, list, member string) {
	g.tb.Helper()
	g.Commit(did, Op{Kind: ListItem, Rkey: g.Key(), Subject: member, List: list})
}

// Commit makes a commit of an account.
func (g *Graph) Commit(did string, ops ...Op) {
	g.tb.Helper()
	g.add(did, ops)
	g.flush()
}

// PutMany makes a record for each subject, in one commit.
func (g *Graph) PutMany(did, kind string, subjects []string) {
	g.tb.Helper()
	var ops []Op
	for _, s := range subjects {
		ops = append(ops, Op{Kind: kind, Rkey: g.Key(), Subject: s})
	}
	g.Commit(did, ops...)
}

func (g *Graph) add(did string, ops []Op) {
	g.seq++
	clear(g.views)
	g.revs += 1 << 20
	rev := string(dict.AppendTID(nil, 1<<60+g.revs))
	g.Model.Apply(&Event{Type: CommitEvent, Seq: int64(g.seq), DID: did, Rev: rev, Ops: ops})
	g.b.AddCommit(g.seq, &batch.Commit{DID: []byte(did), Rev: []byte(rev), Data: make([]byte, 32)})
	for _, record := range ops {
		if !record.Delete {
			g.live = append(g.live, Path{DID: did, Kind: record.Kind, Rkey: record.Rkey})
		}
		for _, o := range record.Edges() {
			if k := g.kindOf(o.Kind); o.Delete {
				g.b.AddDelete(k, []byte(o.Rkey))
			} else {
				g.b.AddPut(k, []byte(o.Rkey), []byte(o.Subject))
			}
		}
	}
	g.b.Seen(g.seq, nil)
}

func (g *Graph) kindOf(name string) kinds.Kind {
	switch name {
	case ListItem:
		return kinds.ListMember
	case ListItemOf:
		return kinds.ListItem
	}
	return g.Store.Kinds().ByName(name).Kind
}

// Hide hides an account, or shows it again.
func (g *Graph) Hide(did string, hidden bool) {
	g.tb.Helper()
	g.seq++
	clear(g.views)
	g.Model.Apply(&Event{Type: AccountEvent, Seq: int64(g.seq), DID: did, Active: !hidden})
	g.b.AddAccount(g.seq, []byte(did), !hidden, false)
	g.flush()
}

func (g *Graph) flush() {
	g.tb.Helper()
	g.b.Seen(g.seq, nil)
	if err := g.Store.Apply(g.tb.Context(), "test", &g.b); err != nil {
		g.tb.Fatal(err)
	}
	g.b.Reset()
}

// Grow makes random changes: records of every kind, second records of an edge, keys that are not
// times, deletes, accounts that disappear and return, and labels that are given and taken back.
func (g *Graph) Grow(changes int) {
	g.tb.Helper()
	for range changes {
		switch n := g.Rand.IntN(100); {
		case n < 3:
			g.flush()
			did := g.Any(g.Accounts)
			g.Hide(did, !g.Model.Hidden[did] && g.Rand.IntN(3) == 0)
		case n < 20 && len(g.live) > 0:
			i := g.Rand.IntN(len(g.live))
			p := g.live[i]
			g.live = slices.Delete(g.live, i, i+1)
			g.add(p.DID, []Op{{Kind: p.Kind, Delete: true, Rkey: p.Rkey}})
		default:
			g.add(g.Any(g.Accounts), []Op{g.record()})
		}
	}
	g.flush()
	g.relabel(1 + changes/10)
}

// relabel gives and takes back labels.
func (g *Graph) relabel(n int) {
	g.tb.Helper()
	for _, labeler := range Labelers {
		var labels []batch.Label
		for range n {
			list := [][]string{g.Accounts, g.Posts, g.Lists}[g.labelDraw.IntN(3)]
			g.clock++
			l := batch.Label{Labeler: labeler, Value: LabelValues[g.labelDraw.IntN(len(LabelValues))], Subject: list[g.labelDraw.IntN(len(list))]}
			l.Time, l.Negated = g.clock, g.labelDraw.IntN(4) == 0
			if labels = append(labels, l); l.Negated {
				delete(g.labels, labelKey{labeler, l.Value, l.Subject})
			} else {
				g.labels[labelKey{labeler, l.Value, l.Subject}] = l.Time
			}
		}
		before := g.labelStates[labeler]
		after := format.Labeler{Name: labeler, DID: labeler, Seq: before.Seq + 1, Current: true}
		if err := g.Store.ApplyLabels(g.tb.Context(), time.UnixMicro(g.clock), labels, before, after); err != nil {
			g.tb.Fatal(err)
		}
		g.labelStates[labeler] = after
	}
}

// LabeledAt returns the time of a label, as a record key.
func (g *Graph) LabeledAt(labeler, value, subject string) string {
	return string(dict.AppendTID(nil, uint64(g.labels[labelKey{labeler, value, subject}])<<format.ClockBits))
}

// Labeled returns the accounts, or the records, with a label from a window of time.
func (g *Graph) Labeled(labeler, value string, records, windowed bool, since, until int64) (all []string) {
	for l, at := range g.labels {
		if l.labeler == labeler && l.value == value && strings.HasPrefix(l.subject, "at://") == records && (!windowed || at >= since && at < until) {
			all = append(all, l.subject)
		}
	}
	return all
}

// Kinds are the kinds of the random records.
func Kinds() []kinds.Info {
	return slices.DeleteFunc(slices.Clone(kinds.All), func(k kinds.Info) bool { return !k.HasSets() })
}

func (g *Graph) record() (o Op) {
	all := Kinds()
	n := g.Rand.IntN(len(all) + 2)
	o.Rkey = g.Key()
	if g.Rand.IntN(12) == 0 {
		o.Rkey = fmt.Sprint("self", g.Rand.IntN(3))
	}
	if n >= len(all) {
		o.Kind, o.Subject, o.List = ListItem, g.Any(g.Accounts), g.Any(g.Lists)
		return o
	}
	k := all[n]
	switch o.Kind, o.Subject = k.Name, g.Any(g.Accounts); {
	case k.Name == "listblock":
		o.Subject = g.Any(g.Lists)
	case k.To.Is() == dict.URI:
		o.Subject = g.Any(g.Posts)
	}
	return o
}

// Between returns the sets of the records in a window of time, in microseconds: [since, until).
// windowed is false for all records.
func (g *Graph) Between(windowed bool, since, until int64) Views {
	w := window{windowed, since, until}
	if v, ok := g.views[w]; ok {
		return v
	}
	g.views[w] = ViewsOf(func(yield func(Edge) bool) {
		for p, subject := range g.Model.Records {
			if windowed && !InWindow(p.Rkey, since, until) {
				continue
			}
			if !yield(Edge{Kind: p.Kind, Actor: p.DID, Subject: subject}) {
				return
			}
		}
	}, func(did string) bool { return g.Model.Hidden[did] })
	return g.views[w]
}

// InWindow reports whether a record key is a time in [since, until), in microseconds.
func InWindow(rkey string, since, until int64) bool {
	at, ok := Micros(rkey)
	return ok && at >= since && at < until
}

// Micros returns the time that a record key names, in microseconds. It does not use the decoder
// of the store.
func Micros(rkey string) (at int64, ok bool) {
	if len(rkey) != 13 {
		return 0, false
	}
	var n uint64
	for i := range len(rkey) {
		v := strings.IndexByte("234567abcdefghijklmnopqrstuvwxyz", rkey[i])
		if v < 0 || i == 0 && v > 7 {
			return 0, false
		}
		n = n<<5 | uint64(v)
	}
	return int64(n >> 10), true
}

// Listed returns the members of a list, and ListsOf the lists of an account, from the records in a
// window of time.
func (g *Graph) Listed(list string, windowed bool, since, until int64) []string {
	return g.listings(windowed, since, until, func(l Listing) (string, bool) { return l.Member, l.List == list && !g.Model.Hidden[l.Member] })
}

// ListsOf returns the lists that an account is on.
func (g *Graph) ListsOf(member string, windowed bool, since, until int64) []string {
	return g.listings(windowed, since, until, func(l Listing) (string, bool) { return l.List, l.Member == member })
}

func (g *Graph) listings(windowed bool, since, until int64, of func(Listing) (string, bool)) (all []string) {
	for _, l := range g.Model.Listings() {
		if s, ok := of(l); ok && (!windowed || InWindow(l.Rkey, since, until)) {
			all = append(all, s)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Crowd makes n more accounts, and what each follows. They are not in Accounts.
func (g *Graph) Crowd(n int, follows func(i int) []string) {
	g.tb.Helper()
	for i := range n {
		var ops []Op
		for j, subject := range follows(i) {
			ops = append(ops, Op{Kind: "follow", Rkey: crowdKey(i, j), Subject: subject})
		}
		if g.add(Account(i), ops); i%10_000 == 9999 {
			g.flush()
		}
	}
	g.flush()
}

// Uncrowd deletes the first follow of an account of the crowd.
func (g *Graph) Uncrowd(i int) {
	g.tb.Helper()
	g.Commit(Account(i), Op{Kind: "follow", Delete: true, Rkey: crowdKey(i, 0)})
}

func crowdKey(i, j int) string {
	return string(dict.AppendTID(nil, (uint64(Begin.UnixMicro())+uint64(i*10+j))<<format.ClockBits))
}
