package write_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/harness"
)

// commits applies commits of accounts, each with a rev above the one before.
type commits struct {
	t *testing.T
	s *graph.Store
	n int
	b batch.Batch

	since []byte // the rev of the commit before, if begin is to name it
}

func (c *commits) rev() []byte {
	return rkeyAt(1<<50 - 1<<30 + uint64(c.n))
}

func (c *commits) begin(actor int) {
	c.n++
	rev := c.rev()
	c.b.AddCommit(format.Seq(c.n), &batch.Commit{DID: fmt.Appendf(nil, "did:web:u%d.example.com", actor), Rev: rev, Data: make([]byte, 32), Since: c.since})
	c.b.Seen(format.Seq(c.n), nil)
	if c.since != nil {
		c.since = rev
	}
}

func (c *commits) apply() {
	c.t.Helper()
	apply(c.t, c.s, "relay", &c.b)
	c.b.Reset()
}

// A delete looks up the head of its actor, and the leaf of its record if there are leaves, unless the edge may have another record.
func TestDeleteReadsOneLeaf(t *testing.T) {
	const step = 1 << 40 // in microseconds
	for _, test := range []struct {
		name      string
		followers int
		chunk     int // the limit
		scans     int // at most
	}{{"small set", 2, 64, 0}, {"large set", 30, 64, 0}, {"small set, leaves", 2, 12, 3}, {"large set, leaves", 30, 12, 3 + 6}} { // of a large set, perhaps also the second of each

		store := &reading{Store: memory(write.Limits{Row: 8, Chunk: test.chunk})}
		s := open(t, store, graph.Options{})
		c := &commits{t: t, s: s}
		const subjects = 40
		for subject := range subjects {
			for actor := range test.followers {
				c.begin(actor)
				c.b.AddPut(kindOf("follow"), rkeyAt(uint64(1000+subject)*step+uint64(actor)*1_000_000), fmt.Appendf(nil, "did:web:s%d.example.com", subject))
				if actor == 4 || actor >= test.followers/2 {
					c.apply() // before, and after the rows of large sets are spilled
				}
			}
			c.apply()
		}
		verify(t, store)
		for _, actor := range []int{0, test.followers - 1} {
			store.chunks, store.scans, store.scanned = 0, 0, 0
			for subject := range 6 {
				c.begin(actor)
				c.b.AddDelete(kindOf("follow"), rkeyAt(uint64(1000+5*subject)*step+uint64(actor)*1_000_000))
			}
			c.apply()
			if store.chunks != 1 || store.scans > test.scans || (store.scans == 0) != (test.scans == 0) || store.scanned != store.scans {
				t.Errorf("%s: six deletes of actor %d look up %d heads, and %d leaves in %d scans", test.name, actor, store.chunks, store.scanned, store.scans)
			}
		}
		verify(t, store)
		closeAll(t, s, store)
	}
}

// A delete of one of two records of an edge finds the other one in the head, which it reads anyway, then around the time of the first, and only
// then everywhere. If the head has all records, it knows whether there is another one.
func TestOtherRecordNearby(t *testing.T) {
	const step = 1 << 40
	for _, test := range []struct {
		name        string
		chunk       int    // the limit
		this, other uint64 // the times of both, in steps
		alsoRemoved bool   // by the same write
		scans       int
	}{
		{"no leaves", 64, 1020, 1005, false, 0},
		{"no leaves, removed as well", 64, 1020, 1005, true, 0},
		{"in the head, like the other", 12, 2000, 2001, false, 0},
		{"in the head, like the other, removed as well", 12, 2000, 2001, true, 1},
		{"in the head, the other is in a leaf", 12, 2000, 1020, false, 1},
		{"in a leaf, the other is in the head", 12, 1020, 2000, false, 3},
		{"in a leaf, like the other", 12, 1020, 1005, false, 3},
		{"in a leaf, the other is near", 12, 1020, 1021, false, 2},
		{"in a leaf, the other is a bit older", 12, 1020, 1018, false, 2},
	} {
		store := &reading{Store: memory(write.Limits{Row: 64, Chunk: test.chunk})}
		s := open(t, store, graph.Options{})
		c := &commits{t: t, s: s}
		put := func(at uint64, subject string) {
			c.begin(1)
			c.b.AddPut(kindOf("like"), rkeyAt(at*step), []byte("at://did:web:"+subject+".example.com/app.bsky.feed.post/3kabcdefghi2s"))
			c.apply()
		}
		times := []uint64{test.this, test.other}
		for n := range uint64(40) {
			times = append(times, 1000+n)
		}
		slices.Sort(times)
		for _, at := range slices.Compact(times) {
			subject := "others"
			if at == test.this || at == test.other {
				subject = "friend"
			}
			put(at, subject)
		}
		store.chunks, store.scans = 0, 0
		c.begin(1)
		c.b.AddDelete(kindOf("like"), rkeyAt(test.this*step))
		if test.alsoRemoved {
			c.b.AddDelete(kindOf("like"), rkeyAt(test.other*step))
		}
		c.apply()
		if store.chunks != 1 || store.scans != test.scans {
			t.Errorf("%s: the delete looks up %d heads and scans %d times, want %d", test.name, store.chunks, store.scans, test.scans)
		}
		verify(t, store)
		closeAll(t, s, store)
	}
}

// A delete from a leaf reads the records of one second: the date in a large set says that there are no others.
func TestDeleteReadsOneSecond(t *testing.T) {
	const step = 1 << 40
	store := &reading{Store: memory(write.Limits{Row: 1, Chunk: 16})}
	s := open(t, store, graph.Options{})
	c := &commits{t: t, s: s}
	put := func(actor int, micros uint64, subject string) {
		c.begin(actor)
		c.b.AddPut(kindOf("follow"), rkeyAt(micros), []byte("did:web:"+subject+".example.com"))
		c.apply()
	}
	for actor := range 3 { // the set has leaves
		put(actor, 1000*step, "friend")
	}
	for i := range uint64(400) {
		put(3, (1000+i%40)*step+i, "other")
		put(3, 1050*step+i*1_000_000_000, "other")
	}
	put(3, 1050*step+77_000_000, "friend")
	for i := range uint64(400) { // moves it into a leaf
		put(3, 1050*step+(400+i)*1_000_000_000, "other")
	}
	verify(t, store)
	c.begin(3)
	c.b.AddDelete(kindOf("follow"), rkeyAt(1050*step+77_000_000))
	store.scans, store.scanned = 0, 0
	c.apply()
	if store.scans > 2 || store.scanned > 4 {
		t.Errorf("the delete scans %d times and reads %d chunks", store.scans, store.scanned)
	}
	verify(t, store)
	closeAll(t, s, store)
}

// An account that names a subject twice and deletes one of the records, again and again, makes each of these commits search
// its records for the other one, and all of those with arrays. Only the first commit reads them all; the second reads little and desynchronizes the repo, and the
// others read nothing until the repo has been fetched. Commits that need no search apply meanwhile, and void no fetch.
func TestAbuseSearch(t *testing.T) { synctest.Test(t, testAbuseSearch) }

func testAbuseSearch(t *testing.T) {
	const step, subject, did = 1 << 40, "did:web:friend.example.com", "did:web:u1.example.com"
	records := harness.Size(80_000, 300_000)
	store := &reading{Store: memory(write.Limits{})}
	o := queues
	var err error
	o.Kinds, err = kinds.Parse("a.b.c tags[] text tags taggers")
	must(t, err)
	s := open(t, store, o)
	tags := &s.Kinds().Configured()[0]
	c := &commits{t: t, s: s}
	c.begin(1) // without a since: the repo's first commit
	c.since = c.rev()
	time.Sleep(time.Until(time.UnixMicro(1 << 50))) // the clock here begins in 2000
	at := func(i int) []byte { return rkeyAt(uint64(1000+i%80)*step + uint64(i)*3_000_000) }
	put := func(b *batch.Batch, i int) {
		if i%2 == 0 {
			b.AddPut(kindOf("follow"), at(i), fmt.Appendf(nil, "did:web:s%d.example.com", i%1000))
		} else {
			b.AddSubjects(tags, at(i), []batch.Span{b.Keep(fmt.Appendf(nil, "tag %d", i%1000))})
		}
	}
	for i := range records {
		if i%5000 == 0 {
			c.apply()
			c.begin(1)
		}
		put(&c.b, i)
	}
	c.begin(1)
	c.b.AddPut(kindOf("follow"), rkeyAt(1079*step+1), []byte(subject))
	c.apply()
	all := 0
	must(t, store.View(t.Context(), func(r kv.Reader) error {
		return kv.ScanPrefix(r, []byte{format.KeyRecord}, func(k, v []byte) error { all += len(k) + len(v); return nil })
	}))
	commit := func() (read int, took time.Duration) {
		c.begin(1)
		c.b.AddPut(kindOf("follow"), rkeyAt(1040*step), []byte(subject))
		c.apply()
		store.bytes = 0
		c.begin(1)
		c.b.AddDelete(kindOf("follow"), rkeyAt(1040*step))
		c.b.AddDelete(tags.Kind, at(2*c.n+1))
		start := time.Now()
		c.apply()
		return store.bytes, time.Since(start)
	}
	create := func() *format.Resync {
		c.begin(1)
		c.b.AddPut(kindOf("follow"), rkeyAt(1100*step+uint64(c.n)), []byte("did:web:new.example.com"))
		c.apply()
		_, row := account(t, s, did)
		return row
	}
	const most = 256<<10 + 32<<10 // and a leaf
	read, took := commit()
	harness.Figure(t, "the first delete", "reads %d of %d bytes of %d records, %v", read, all, records, took)
	if st, _ := account(t, s, did); read < all-all/16 || !st.Complete() {
		t.Errorf("the first search reads %d bytes of %d; %+v", read, all, st)
	}
	for fetched := range 3 {
		if fetched == 2 {
			time.Sleep(10 * time.Minute)
			if read, _ := commit(); read < all-all/16 {
				t.Errorf("the first search after ten minutes reads %d bytes of %d", read, all)
			}
		}
		read, took := commit()
		harness.Figure(t, "the next delete", "reads %d bytes, %v", read, took)
		st, row := account(t, s, did)
		if read > most || read == 0 || st.Complete() || row == nil {
			t.Errorf("the search reads %d bytes of %d; %+v, queued %+v", read, all, st, row)
		}
		for range 3 {
			if read, _ := commit(); read > 0 {
				t.Errorf("before its repo was fetched, another search reads %d bytes", read)
			}
		}
		verify(t, store)
		row = create() // its chain is broken
		sn := batch.Snapshot{DID: []byte(did), Rev: c.rev(), Data: make([]byte, 32), Generation: row.Generation, First: true, Last: true}
		for range 2 {
			create()
		}
		var b batch.Batch
		n := b.AddSnapshot(&sn)
		for i := range records {
			put(&b, i)
		}
		b.AddPut(kindOf("follow"), rkeyAt(1079*step+1), []byte(subject))
		if err := s.Apply(t.Context(), "", &b); err != nil || b.Outcome(n) != batch.Placed {
			t.Fatal(b.Outcome(n), err)
		}
		if st, row := account(t, s, did); !st.Complete() || row != nil || st.Top>>format.ClockBits != 1100*step+uint64(c.n) {
			t.Errorf("after the fetch: %+v, queued %+v", st, row)
		}
		verify(t, store)
	}
	must(t, s.Close(t.Context()))
	s = open(t, store, graph.Options{}) // without a queue of repos, nothing could repair this one
	c.s = s
	for range 2 {
		read, _ := commit()
		if st, _ := account(t, s, did); read < all-all/16 || !st.Complete() {
			t.Errorf("without a queue, a search reads %d bytes of %d; %+v", read, all, st)
		}
	}
	closeAll(t, s, store)
}

// A search that was too far is the one that an account has in ten minutes.
func TestFailedSearchCounts(t *testing.T) {
	store := &reading{Store: memory(write.Limits{Search: 1 << 10})}
	c := &commits{t: t, s: open(t, store, queues)}
	fill := func(b *batch.Batch) {
		for i := range 20_000 {
			b.AddPut(kindOf("follow"), rkeyAt(uint64(i+1)<<34), fmt.Appendf(nil, "did:web:s%d.example.com", i%10_000))
		}
	}
	c.begin(1)
	fill(&c.b)
	c.apply()
	for i, most := range []int{64 << 10, 8 << 10} {
		store.bytes = 0
		c.begin(1)
		c.b.AddDelete(kindOf("follow"), rkeyAt(10_000<<34))
		c.apply()
		st, row := account(t, c.s, "did:web:u1.example.com")
		if read := store.bytes; !st.Has(format.FlagBehind) || read > most || read < most/2*(1-i) {
			t.Errorf("a search that is too far reads %d bytes, want up to %d; %+v", read, most, st)
		}
		var b batch.Batch
		b.AddSnapshot(&batch.Snapshot{DID: []byte("did:web:u1.example.com"), Rev: c.rev(), Data: make([]byte, 32), Generation: row.Generation, First: true, Last: true})
		fill(&b)
		apply(t, c.s, "", &b)
	}
}

// Actors name a few subjects with several records each, many of them of one second, and delete them again, in
// sets with and without leaves. check compares sets and records after each write.
func TestRepeatedEdges(t *testing.T) {
	const step = 1 << 40
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 25))
		deep := seed%2 == 1 // two actors, with records of one second each
		limits := write.Limits{Row: 3, Chunk: 5}
		if deep {
			limits = write.Limits{Row: 1, Chunk: 2 + int(seed%3)}
		}
		var store kv.Store = memory(limits)
		if seed%8 == 0 { // its readers search the records of several actors side by side
			var err error
			store, err = pebblekv.Open(pebblekv.Options{Dir: t.TempDir(), Create: true, Merger: write.NewMerger(limits), Memory: 16 << 20})
			must(t, err)
		}
		s := open(t, store, graph.Options{})
		c := &commits{t: t, s: s}
		key := func() []byte { // around the beginnings of seconds
			if deep {
				return rkeyAt(1000*step + 1_000_000 + uint64(rng.IntN(8))*20_000)
			}
			return rkeyAt(uint64(1000+rng.IntN(8)*rng.IntN(2))*step + uint64(rng.IntN(5))*250_000 - 500_000)
		}
		for range 40 {
			for range 1 + rng.IntN(9) {
				actor := rng.IntN(3) + rng.IntN(2)*rng.IntN(5)
				if deep {
					actor %= 2
				}
				c.begin(actor)
				for range 1 + rng.IntN(2) {
					kind, subject := "follow", fmt.Appendf(nil, "did:web:s%d.example.com", rng.IntN(2))
					if rng.IntN(2) == 0 {
						kind, subject = "like", fmt.Appendf(nil, "at://did:web:s1.example.com/app.bsky.feed.post/3kabcdefghi2%d", 3+rng.IntN(2))
					}
					if rng.IntN(5) < 2 {
						c.b.AddDelete(kindOf(kind), key())
					} else {
						c.b.AddPut(kindOf(kind), key(), subject)
					}
				}
			}
			c.apply()
			verify(t, store)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
		closeAll(t, s, store)
	}
}

// A repo that is placed in parts reads each stored record about once, however its keys lie, and not once for each part. Keys that
// are not TIDs are read for each part of their collection. Of a repo that lacks most of the stored records, no write removes very many.
func TestAbuseParts(t *testing.T) {
	const step, did = 1 << 40, "did:web:u1.example.com"
	records, parts := harness.Size(8000, 300_000), 16
	for name, at := range map[string]func(i int) []byte{
		"far apart":     func(i int) []byte { return rkeyAt(uint64(1000+i*80/records)*step + uint64(i)*3) },
		"in one minute": func(i int) []byte { return rkeyAt(1000*step + uint64(i)*60_000_000/uint64(records)) },
	} {
		store := &reading{Store: memory(write.Limits{Row: 64, Chunk: 128, Placing: records / parts / 2})}
		s := open(t, store, queues)
		place := func(has int) (read int, o batch.Outcome) {
			var b batch.Batch
			b.AddResync([]byte(did), batch.Cause{Reason: "operator"})
			apply(t, s, "", &b)
			_, row := account(t, s, did)
			store.bytes = 0
			from := ""
			for p := 0; p < parts && o == batch.Placed; p++ {
				b.Reset()
				to := ""
				if p+1 < parts {
					to = "app.bsky.graph.follow/" + string(at((p+1)*records/parts))
				}
				sn := batch.Snapshot{DID: []byte(did), Rev: rkeyAt(step << 13 / 8), Data: make([]byte, 32), Generation: row.Generation, From: from, To: to, First: p == 0, Last: to == ""}
				n := b.AddSnapshot(&sn)
				for i := p * records / parts; i < min((p+1)*records/parts, has); i++ {
					b.AddPut(kindOf("follow"), at(i), fmt.Appendf(nil, "did:web:s%d.example.com", i%1000))
				}
				apply(t, s, "", &b)
				from, o = to, b.Outcome(n)
			}
			return store.bytes, o
		}
		place(records)
		all := 0
		must(t, store.View(t.Context(), func(r kv.Reader) error {
			return kv.ScanPrefix(r, []byte{format.KeyRecord}, func(k, v []byte) error { all += len(k) + len(v); return nil })
		}))
		read, o := place(records)
		harness.Figure(t, "placing a repo again, "+name, "%d records in %d parts read %d bytes, of %d stored", records, parts, read, all)
		if read > 3*all || o != batch.Placed {
			t.Errorf("%s: %d parts read %d bytes, of %d stored, and are %v", name, parts, read, all, o)
		}
		for _, want := range []batch.Outcome{batch.Superseded, batch.Placed} {
			read, o := place(1)
			if erase(t, s); o != want || read > all/8 {
				t.Errorf("%s: a repo of one record is %v, want %v, and reads %d bytes of %d stored", name, o, want, read, all)
			}
		}
		verify(t, store)
		closeAll(t, s, store)
	}
}
