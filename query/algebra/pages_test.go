package algebra

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/language"
)

var pageSeeds = flag.Int("pages.seeds", 2, "the number of random stores of TestPagesOfRecords")

// pageKinds are kinds besides the built-in ones: two whose records name several subjects, and a plain one.
const pageKinds = `a.b.c  some[].did    did     mentions  mentioners
a.b.c  tags[]        text    tags      taggers
a.b.c  one           did     ones      onesBy`

const day = 24 * 60 * 60 * 1_000_000 // in microseconds

// A world is a store with random records of three years, and the same in maps.
type world struct {
	t        *testing.T
	rng      *rand.Rand
	s        *graph.Store
	names    *language.Vocabulary
	kinds    []*kinds.Info
	accounts []string
	records  map[recordName][]string // their subjects
	live     []recordName
	hidden   map[string]bool
	revs     map[string][]byte
	seq      format.Seq
	b        batch.Batch
	now      int64 // in microseconds
}

type recordName struct {
	did  string
	kind kinds.Kind
	rkey string
}

// newWorld returns an empty world. Its store has one writer or several, and small rows and chunks or large ones.
func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 4711)), records: map[recordName][]string{}, hidden: map[string]bool{}, revs: map[string][]byte{}, now: oracle.Begin.UnixMicro()}
	limits := []write.Limits{{Row: 6, Chunk: 3}, {Row: 25, Chunk: 6}, {}, {Row: 12}, {Chunk: 2}}[(seed+uint64(w.rng.IntN(2)))%5]
	settings := []dict.Settings{dict.DefaultSettings, {ShardBits: 14, LeaseSize: 64, Partitions: 4}}[seed%2]
	more, err := kinds.Parse(pageKinds)
	must(t, err)
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(limits), Limits: memkv.Limits{Key: 1e4, Value: 1e8, Txn: 1e9, Age: time.Hour}})
	w.s, err = graph.Open(t.Context(), store, graph.Options{Intern: intern.Options{Settings: settings, Owner: "test"}, Kinds: more, Beat: time.Second})
	must(t, err)
	w.names = language.NewVocabulary(w.s.Kinds())
	for i := range w.s.Kinds().All {
		if k := &w.s.Kinds().All[i]; slices.Contains([]string{"follow", "like", "listblock", "mentions", "tags", "ones"}, k.Name) {
			w.kinds = append(w.kinds, k)
		}
	}
	for i := range 40 + w.rng.IntN(80) {
		w.accounts = append(w.accounts, oracle.Account(i))
	}
	return w
}

// micros draws a time, in microseconds: mostly within three years, and often one of few, an end of a bucket or of the times that a TID or
// a date can have.
func (w *world) micros() int64 {
	r := w.rng
	const bucket = 1 << 40
	switch r.IntN(16) {
	case 0: // one of few seconds
		return w.now/1e6*1e6 - int64(r.IntN(5))*day*30 + int64(r.IntN(3))*499_999
	case 1: // one of few microseconds
		return w.now - int64(r.IntN(6))*day*20
	case 2:
		return (w.now/bucket-int64(r.IntN(4)))*bucket + int64(r.IntN(3)) - 1
	case 3: // the future
		return w.now + r.Int64N(4000*day)
	case 4:
		return int64(format.OneRecord-2)*1e6 + r.Int64N(5e6)
	case 5:
		return format.EndOfTime>>format.ClockBits - 1 - r.Int64N(3)
	case 6:
		return r.Int64N(2) * r.Int64N(1_500_000)
	case 7, 8:
		return w.now - r.Int64N(60*day)
	case 9:
		return w.now - r.Int64N(3*1e6)
	default:
		return w.now - r.Int64N(3*365*day)
	}
}

func (w *world) rkey() string {
	r := w.rng
	switch clock := r.Uint64N(3); r.IntN(14) {
	case 0:
		return fmt.Sprintf("odd-%d", r.IntN(50))
	case 1:
		return string(dict.AppendTID(nil, format.EndOfTime|uint64(w.micros())<<format.ClockBits|clock))
	case 2:
		return string("~-20a"[r.IntN(5)]) + fmt.Sprint(r.IntN(20))
	default:
		return string(dict.AppendTID(nil, uint64(w.micros())<<format.ClockBits|clock))
	}
}

// subject draws one of three subjects, with a time and without.
func (w *world) subject(k *kinds.Info) string {
	i := w.rng.IntN(3)
	rkey := []string{"odd", string(dict.AppendTID(nil, uint64(w.now-200*day)<<format.ClockBits)), string(dict.AppendTID(nil, uint64(w.now-day)<<format.ClockBits|5))}[i]
	switch {
	case k.Name == "listblock":
		return "at://" + w.accounts[i] + "/app.bsky.graph.list/" + rkey
	case k.Name == "like":
		return "at://" + w.accounts[i] + "/app.bsky.feed.post/" + rkey
	case k.To.Form == kinds.Text:
		return fmt.Sprintf("tag%d", i)
	}
	return w.accounts[i]
}

func (w *world) flush() {
	w.t.Helper()
	must(w.t, w.s.Apply(w.t.Context(), "test", &w.b))
	w.b.Reset()
}

// grow makes commits of up to four records and deletes, and hides accounts.
func (w *world) grow(commits int) {
	w.t.Helper()
	r := w.rng
	for range commits {
		did := w.accounts[r.IntN(len(w.accounts))]
		w.seq++
		if r.IntN(200) == 0 {
			w.hidden[did] = !w.hidden[did]
			w.b.AddAccount(w.seq, []byte(did), !w.hidden[did], false)
			w.b.Seen(w.seq, nil)
			continue
		}
		data := sha256.Sum256(fmt.Append(nil, did, w.seq))
		c := batch.Commit{DID: []byte(did), Rev: dict.AppendTID(nil, 1<<60+uint64(w.seq)<<20), Data: data[:], Since: w.revs[did]}
		w.b.AddCommit(w.seq, &c)
		w.revs[did] = c.Rev
		changed := map[recordName]bool{}
		for range 1 + r.IntN(4) {
			k := w.kinds[r.IntN(len(w.kinds))]
			name := recordName{did, k.Kind, w.rkey()}
			var old []recordName // some of the account's records
			for _, l := range w.live[max(0, len(w.live)-400):] {
				if l.did == did {
					old = append(old, l)
				}
			}
			deletes := len(old) > 0 && r.IntN(4) == 0
			if deletes {
				name = old[r.IntN(len(old))]
			}
			if changed[name] {
				continue
			}
			changed[name] = true
			if deletes {
				w.b.AddDelete(name.kind, []byte(name.rkey))
				delete(w.records, name)
				continue
			}
			subjects := []string{w.subject(k)}
			if !k.Kind.IsMany() {
				w.b.AddPut(k.Kind, []byte(name.rkey), []byte(subjects[0]))
			} else {
				if other := w.subject(k); other != subjects[0] {
					subjects = append(subjects, other)
				}
				var refs []batch.Span
				for _, s := range subjects {
					refs = append(refs, w.b.Keep([]byte(s)))
				}
				w.b.AddSubjects(k, []byte(name.rkey), refs)
			}
			w.records[name] = subjects
			w.live = append(w.live, name)
		}
		w.b.Seen(w.seq, nil)
		if r.IntN(6) == 0 {
			w.flush()
		}
	}
	w.flush()
}

// window draws a window, often none.
func (w *world) window() language.Window {
	r := w.rng
	from, to := w.micros(), w.micros()
	switch r.IntN(7) {
	case 0, 1, 2:
		return language.Window{}
	case 3:
		from = 0
	case 4:
		to = math.MaxInt64 - 1
	case 5:
		to = from + r.Int64N(70*day)
	default:
		from, to = min(from, to), max(from, to)
	}
	return language.Window{From: from, To: to + 1}
}

// shown returns the record that is shown for each account with a record to subject in the window of the leaf n.
func (w *world) shown(n *language.Node, subject string) map[string]format.Path {
	since := ask.TIDOf(w.s.Kinds().Info(n.Kind).To.Is(), subject)
	best := map[string]*ask.ShownRecord{}
	for name, subjects := range w.records {
		p := format.ParsePath([]byte(name.rkey))
		if name.kind != n.Kind || !slices.Contains(subjects, subject) || !Within(n.Window).Has(p) {
			continue
		}
		if best[name.did] == nil {
			best[name.did] = new(ask.ShownRecord)
		}
		best[name.did].Offer(p, since)
	}
	all := map[string]format.Path{}
	for did, s := range best {
		all[did], _ = s.Path()
	}
	return all
}

// A page of the records of a set, or of a part of it, from any place and in both orders, is the one that the records of all members
// make.
func TestPagesOfRecords(t *testing.T) {
	pages := 0
	for seed := range *pageSeeds {
		w := newWorld(t, uint64(seed))
		for range 2 {
			w.grow(600 + w.rng.IntN(1000))
			for range 100 {
				pages += w.comparePages()
			}
		}
	}
	if pages < 1000 {
		t.Errorf("only %d pages", pages)
	}
}

// comparePages compares pages of a random set, and returns how many.
func (w *world) comparePages() (pages int) {
	t, r := w.t, w.rng
	t.Helper()
	k := w.kinds[r.IntN(len(w.kinds))]
	subject := w.subject(k)
	text, part, window := k.Reverse+"("+subject+")", r.IntN(3) == 0, w.window()
	other := ""
	if part {
		text = "intersect(" + text + "," + text + ")"
	} else if r.IntN(3) == 0 {
		other = w.subject(k)
		text = []string{"union(", "atleast(1,"}[r.IntN(2)] + text + "," + k.Reverse + "(" + other + "))"
	}
	e, err := w.names.Parse(text, language.MaxForm, noon)
	must(t, err)
	for leaf := range e.Root.All() {
		leaf.Window = window
	}
	n := e.Root.Source()
	leaf := n
	if other != "" {
		leaf = &n.Args[0]
	}
	now := time.UnixMicro(w.now + r.Int64N(2)*int64(100*day))
	shown := w.shown(leaf, subject)
	for did, p := range w.shown(leaf, other) { // the newest of the sets'
		if old, both := shown[did]; !both || OrderAt(now, false).Compare(MemberRecord{Path: p}, MemberRecord{Path: old}) < 0 {
			shown[did] = p
		}
	}
	must(t, w.s.View(t.Context(), func(sn *ask.View) error {
		v, err := NewEvaluation(t.Context(), sn, e, free())
		must(t, err)
		v.dateAbove = []uint64{0, 0, 5, sets.ListMax}[r.IntN(4)]
		set, _, err := v.Result()
		must(t, err)
		var literals []language.Literal
		for _, did := range slices.Sorted(maps.Keys(shown)) {
			literals = append(literals, language.Literal{S: did, Is: dict.DID})
		}
		ids, err := Lookup(sn, literals)
		must(t, err)
		var all []MemberRecord // of active accounts
		var members []uint64
		for i, id := range ids {
			if !set.Has(uint64(id)) {
				t.Fatalf("%s in %v lacks %s", e.Source, n.Window, literals[i].S)
			}
			if part && r.IntN(2) == 0 {
				continue
			}
			members = append(members, uint64(id))
			if !w.hidden[literals[i].S] {
				all = append(all, MemberRecord{ID: id, Path: shown[literals[i].S]})
			}
		}
		if set.Len() != uint64(len(ids)) {
			t.Fatalf("%s in %v has %d members, want %d", e.Source, n.Window, set.Len(), len(ids))
		}
		if part {
			set = sets.FromUnsorted(members)
		}
		for _, order := range []Order{OrderAt(now, false), OrderAt(now, true)} {
			slices.SortFunc(all, order.Compare)
			limit := []int{1, 2, 3, 5, 9, 20, 50, 200}[r.IntN(8)]
			places := []*Place{{}}
			for range 3 { // any places
				if len(all) > 0 {
					p := &Place{Begun: true, Sorted: true, Micros: order.timeOf(all[r.IntN(len(all))].Path), ID: all[r.IntN(len(all))].ID, Now: now.UnixMicro()}
					if r.IntN(3) == 0 {
						p.Micros = min(uint64(w.micros()), order.latest)
					}
					places = append(places, p)
				}
			}
			for _, place := range places {
				for range 12 {
					next, want := place.page(all, limit, order, slices.ContainsFunc(all, func(r MemberRecord) bool { return order.IsAhead(r.Path) }))
					got, last, err := v.Records(n, set, place, limit, order)
					must(t, err)
					pages++
					if same := slices.EqualFunc(got, want, func(x, y MemberRecord) bool {
						return x.ID == y.ID && string(x.Path.AppendRkey(nil)) == string(y.Path.AppendRkey(nil))
					}); !same || (last == nil) != (next == nil) || last != nil && *last != *next || !place.Sorted {
						t.Fatalf("%s in %v, order %+v, %d from %+v, dateAbove %d:\n got %v, then %+v\nwant %v, then %+v", e.Source, n.Window, order, limit, place, v.dateAbove, got, last, want, next)
					}
					if place = last; place == nil {
						break
					}
				}
			}
		}
		return nil
	}))
	return pages
}

// page returns the page of sorted records after the place, and the place of the next page.
func (p *Place) page(all []MemberRecord, limit int, order Order, ahead bool) (last *Place, page []MemberRecord) {
	page = all
	for p.Begun && len(page) > 0 && order.compare(order.timeOf(page[0].Path), p.Micros, page[0].ID, p.ID) <= 0 {
		page = page[1:]
	}
	if len(page) > limit {
		end := page[limit-1]
		last = &Place{Begun: true, Sorted: true, Micros: order.timeOf(end.Path), ID: end.ID, Now: p.Now}
		if ahead {
			last.Now = order.now
		}
		return last, page[:limit]
	}
	return nil, page
}

// RecordsAt and RecordsTo show the first record since the subject's time, or else the newest (of a subject without a time, the first), of members whose records are of one
// second: several of them, below heads that were spilled, and in windows that begin or end in that second.
func TestRecordsAt(t *testing.T) {
	g := oracle.NewGraph(t, 4, 80, write.Limits{Row: 50, Chunk: 3})
	key := func() uint64 {
		at := uint64(oracle.Begin.UnixMicro()) + g.Rand.Uint64N(2)*5_000_000 + g.Rand.Uint64N(1_000_000)
		return at<<format.ClockBits | g.Rand.Uint64N(4)
	}
	post := "at://" + g.Accounts[0] + "/app.bsky.feed.post/" + string(dict.AppendTID(nil, uint64(oracle.Begin.UnixMicro()+5_500_000)<<format.ClockBits))
	odd := "at://" + g.Accounts[0] + "/app.bsky.feed.post/odd"
	tids := map[string][]uint64{}
	second := func(tid uint64) uint32 { return format.DateOf(format.Path{TID: tid}) }
	for range 260 {
		did, subject, tid := g.Any(g.Accounts), g.Any([]string{post, odd}), key()
		g.Commit(did, oracle.Op{Kind: "like", Rkey: string(dict.AppendTID(nil, tid)), Subject: subject})
		tids[did+subject] = append(tids[did+subject], tid)
	}
	compared, several := 0, 0
	for _, subject := range []string{post, odd} {
		e := parsed(t, "likers("+subject+")")
		must(t, g.Store.View(t.Context(), func(sn *ask.View) error {
			v, err := NewEvaluation(t.Context(), sn, e, free())
			must(t, err)
			since := (&leafRecords{v, &e.Root, LeafOf(&e.Root, v.IDs), sets.Set{}}).subjectTID()
			var members []ask.Dated
			var ids []dict.ID
			var records [][]uint64
			for _, did := range g.Accounts {
				all := tids[did+subject]
				slices.Sort(all)
				id, err := Lookup(sn, []language.Literal{{S: did, Is: dict.DID}})
				must(t, err)
				if len(all) > 0 && second(all[0]) == second(all[len(all)-1]) {
					members, ids = append(members, ask.Dated{Actor: id[0], Date: second(all[0])}), append(ids, id[0])
					records = append(records, all)
					if len(all) > 1 {
						several++
					}
				}
			}
			for range 200 {
				w := read.WindowOf(int64(key()>>format.ClockBits), int64(key()>>format.ClockBits))
				if g.Rand.IntN(5) == 0 {
					w = ask.Window{}
				}
				at, to, want := map[int]uint64{}, map[int]uint64{}, map[int]uint64{}
				into := func(m map[int]uint64) func(int, format.Path) error {
					return func(i int, p format.Path) error { m[i] = p.TID; return nil }
				}
				for i, all := range records {
					for _, tid := range all {
						if shown, found := want[i]; w.Has(format.Path{TID: tid}) && (!found || shown < since && since != ask.Timeless) {
							want[i] = tid
						}
					}
				}
				must(t, sn.RecordsAt(e.Root.Kind, v.IDs[e.Root.Of], since, w, members, into(at)))
				must(t, sn.RecordsTo(e.Root.Kind, v.IDs[e.Root.Of], since, w, ids, into(to)))
				if !maps.Equal(at, want) || !maps.Equal(to, want) {
					t.Fatalf("%s in %v: %v and %v, want %v", subject, w, at, to, want)
				}
				compared += len(want)
			}
			return nil
		}))
	}
	if compared < 500 || several < 5 {
		t.Errorf("%d records, %d members with several", compared, several)
	}
}

// The order of a large set does not depend on the size of pages, and has every member once, also if many members are
// of one second, and are ordered by id there.
func TestCrowdedSeconds(t *testing.T) {
	g := oracle.NewGraph(t, 5, 1, write.Limits{Row: 20})
	star := g.Accounts[0]
	const members = 400
	for i := range members {
		at := oracle.Begin.Add(time.Duration(g.Rand.IntN(3)*g.Rand.IntN(2)) * time.Second).Add(time.Duration(g.Rand.IntN(1e6)) * time.Microsecond)
		rkey := string(dict.AppendTID(nil, uint64(at.UnixMicro())<<format.ClockBits))
		switch g.Rand.IntN(12) {
		case 0:
			rkey = fmt.Sprint("odd", i)
		case 1:
			rkey = string(dict.AppendTID(nil, uint64(at.AddDate(70, 0, 0).UnixMicro())<<format.ClockBits))
		}
		g.Commit(oracle.Account(10+i), oracle.Op{Kind: "follow", Rkey: rkey, Subject: star})
		if g.Rand.IntN(9) == 0 { // without a date
			g.Commit(oracle.Account(10+i), oracle.Op{Kind: "follow", Rkey: string(dict.AppendTID(nil, uint64(at.UnixMicro()+2e6)<<format.ClockBits)), Subject: star})
		}
	}
	e := parsed(t, "followers("+star+")")
	for _, order := range []Order{OrderAt(noon, false), OrderAt(noon, true)} {
		secondOf := func(r MemberRecord) uint64 {
			at := order.timeOf(r.Path)
			if at != ask.Timeless {
				at /= second
			}
			return at
		}
		for _, most := range []int{0, 40, 150, MaxWindowed} {
			var first []dict.ID
			for _, limit := range []int{members, 3, 17, 100} {
				var all []dict.ID
				last := MemberRecord{}
				for place := new(Place); place != nil; {
					must(t, g.Store.View(t.Context(), func(sn *ask.View) error {
						v, err := NewEvaluation(t.Context(), sn, e, free())
						must(t, err)
						v.dateAbove, v.maxOfSecond = 0, most
						set, _, err := v.Result()
						must(t, err)
						page, next, err := v.Records(&e.Root, set, place, limit, order)
						must(t, err)
						for _, r := range page {
							if x, y := secondOf(last), secondOf(r); len(all) > 0 && order.compare(x, y, 0, 0) > 0 {
								t.Fatalf("%+v, %d, %d: second %d comes after %d", order, most, limit, y, x)
							}
							last = r
							all = append(all, r.ID)
						}
						place = next
						return nil
					}))
				}
				if first == nil {
					first = slices.Clone(all)
				}
				if !slices.Equal(all, first) || len(all) != members {
					t.Fatalf("%+v: with pages of %d, and up to %d of a second by time: %d members, the same order: %v", order, limit, most, len(all), slices.Equal(all, first))
				}
				if slices.Sort(all); len(slices.Compact(all)) != members {
					t.Fatalf("%+v, %d, %d: a member comes twice", order, most, limit)
				}
			}
		}
	}
}

// Records of the first second of 1970 have a time, and come before those whose keys name none, whether dates or records are read.
func TestFirstSecond(t *testing.T) {
	g := oracle.NewGraph(t, 3, 2, write.Limits{Row: 20})
	e := parsed(t, "followers("+g.Accounts[1]+")")
	for i := range 300 {
		rkey := "self"
		if i%3 > 0 {
			rkey = string(dict.AppendTID(nil, uint64(i%3-1)*500_000<<format.ClockBits))
		}
		g.Commit(oracle.Account(10+i), oracle.Op{Kind: "follow", Rkey: rkey, Subject: g.Accounts[1]})
	}
	for _, dateAbove := range []uint64{0, format.RowMax} {
		must(t, on(t, g, e, free(), func(v *Evaluation) error {
			v.dateAbove = dateAbove
			set, _, err := v.Result()
			must(t, err)
			page, _, err := v.Records(&e.Root, set, &Place{}, 300, OrderAt(noon, false))
			must(t, err)
			times, err := v.Times(set, language.Window{}, noon)
			if n := slices.Index(times, ask.Timeless); n != 200 || len(page) != 300 {
				t.Errorf("dates above %d: %d of %d records have a time", dateAbove, n, len(page))
			}
			for i, r := range page {
				if r.Path.HasTime() != (i < 200) {
					t.Fatalf("dates above %d: record %d is %v", dateAbove, i, r.Path)
				}
			}
			return err
		}))
	}
}

// Keys at both ends of time: the key of TID 0 names the first microsecond of 1970, and one with the top bit set names no
// time, neither of a subject nor of a record, also of a subject in the last days that a TID can name.
func TestEndsOfTime(t *testing.T) {
	tid := func(n uint64) string { return string(dict.AppendTID(nil, n)) }
	post := func(n uint64) string { return "at://did:web:a.example.com/app.bsky.feed.post/" + tid(n) }
	for s, want := range map[string]uint64{
		post(0): 0, post(7): 7, post(format.EndOfTime - 1): format.EndOfTime - 1, post(format.EndOfTime): ask.Timeless, post(math.MaxUint64): ask.Timeless,
		"at://did:web:a.example.com/app.bsky.feed.post/odd": ask.Timeless, tid(7): ask.Timeless, "tags/" + tid(7): ask.Timeless,
	} {
		if got := ask.TIDOf(dict.URI, s); got != want {
			t.Errorf("%s is of %d, want %d", s, got, want)
		}
	}
	if got := ask.TIDOf(dict.DID, "did:web:"+tid(7)); got != ask.Timeless {
		t.Errorf("a DID is of %d", got)
	}
	g := oracle.NewGraph(t, 6, 2, write.Limits{})
	early, noTime := tid(1<<60), tid(format.EndOfTime|1<<20)
	for _, subject := range []string{post(format.EndOfTime - 1<<40), post(format.EndOfTime - 1<<51)} {
		for _, rkey := range []string{early, noTime} {
			g.Commit(g.Accounts[0], oracle.Op{Kind: "like", Rkey: rkey, Subject: subject})
		}
		listed(t, g, parsed(t, "likers("+subject+")"), 3, OrderAt(noon, false), map[string]string{g.Accounts[0]: early}, bySource)
		g.Commit(g.Accounts[0], oracle.Op{Kind: "like", Rkey: early, Delete: true})
		g.Commit(g.Accounts[0], oracle.Op{Kind: "like", Rkey: noTime, Delete: true})
	}
}
