package write_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
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

// A delete looks up the chunk of its record, however many chunks the actor has, unless the edge may have
// another record.
func TestDeleteReadsOneChunk(t *testing.T) {
	const bucket = 1 << (format.BucketShift - format.ClockBits) // in microseconds
	for name, followers := range map[string]int{"small set": 2, "large set": 30} {
		store := &reading{Store: memory(write.Limits{Row: 8, Chunk: 64})}
		s := open(t, store, graph.Options{})
		c := &commits{t: t, s: s}
		const subjects = 40
		for subject := range subjects { // one record a bucket
			for actor := range followers {
				c.begin(actor)
				c.b.AddPut(kindOf("follow"), rkeyAt(uint64(1000+subject)*bucket+uint64(actor)*1_000_000), fmt.Appendf(nil, "did:web:s%d.example.com", subject))
				if actor == 4 || actor >= followers/2 {
					c.apply() // before, and after the rows of large sets are spilled
				}
			}
			c.apply()
		}
		verify(t, store)
		for _, actor := range []int{0, followers - 1} {
			store.chunks, store.scans = 0, 0
			for subject := range 10 {
				c.begin(actor)
				c.b.AddDelete(kindOf("follow"), rkeyAt(uint64(1000+3*subject)*bucket+uint64(actor)*1_000_000))
			}
			c.apply()
			if store.chunks != 10 || store.scans != 0 {
				t.Errorf("%s: ten deletes of actor %d look up %d chunks and scan %d times", name, actor, store.chunks, store.scans)
			}
		}
		verify(t, store)
		closeAll(t, s, store)
	}
}

// A delete of one of two records of an edge looks for the other one where it is most likely: in the chunk of the first, then in
// the buckets beside it if it is a like, and only then everywhere.
func TestOtherRecordNearby(t *testing.T) {
	const bucket = 1 << (format.BucketShift - format.ClockBits)
	for _, test := range []struct {
		name          string
		kind          string
		other         uint64 // the time of the other record
		alsoRemoved   bool   // by the same write
		chunks, scans int
	}{
		{"in the same chunk", "like", 1020*bucket + 7_000_000, false, 1, 0},
		{"in the bucket before", "like", 1019 * bucket, false, 1, 1},
		{"in the bucket after", "like", 1022*bucket - 1, false, 1, 1},
		{"two buckets after", "like", 1022 * bucket, false, 1, 2},
		{"at the beginning", "like", 1000*bucket + 7_000_000, false, 1, 2},
		{"a follow in the same chunk", "follow", 1020*bucket + 7_000_000, false, 1, 0},
		{"a follow in the bucket before", "follow", 1019 * bucket, false, 1, 1},
		{"in the same chunk, removed as well", "like", 1020*bucket + 7_000_000, true, 1, 2},
	} {
		store := &reading{Store: memory(write.Limits{})}
		s := open(t, store, graph.Options{})
		c := &commits{t: t, s: s}
		put := func(micros uint64, subject string) {
			c.begin(1)
			if subject = "did:web:" + subject + ".example.com"; test.kind == "like" {
				subject = "at://" + subject + "/app.bsky.feed.post/3kabcdefghi2s"
			}
			c.b.AddPut(kindOf(test.kind), rkeyAt(micros), []byte(subject))
			c.apply()
		}
		for n := range uint64(40) {
			put((1000+n)*bucket+1, "others")
		}
		put(test.other, "friend")
		put(1020*bucket, "friend")
		store.chunks, store.scans = 0, 0
		c.begin(1)
		c.b.AddDelete(kindOf(test.kind), rkeyAt(1020*bucket))
		if test.alsoRemoved {
			c.b.AddDelete(kindOf(test.kind), rkeyAt(test.other))
		}
		c.apply()
		if store.chunks != test.chunks || store.scans != test.scans {
			t.Errorf("%s: the delete looks up %d chunks and scans %d times, want %d and %d", test.name, store.chunks, store.scans, test.chunks, test.scans)
		}
		verify(t, store)
		closeAll(t, s, store)
	}
}

// A delete from a chunk that was spilled reads the records of one second: the date in a large set says that there are no others.
func TestDeleteReadsOneSecond(t *testing.T) {
	const bucket = 1 << (format.BucketShift - format.ClockBits)
	store := &reading{Store: memory(write.Limits{Row: 1, Chunk: 16})}
	s := open(t, store, graph.Options{})
	c := &commits{t: t, s: s}
	put := func(actor int, micros uint64, subject string) {
		c.begin(actor)
		c.b.AddPut(kindOf("follow"), rkeyAt(micros), []byte("did:web:"+subject+".example.com"))
		c.apply()
	}
	for actor := range 3 { // the set has containers
		put(actor, 1000*bucket, "friend")
	}
	for i := range uint64(400) {
		put(3, (1000+i%40)*bucket+i, "other")
		put(3, 1050*bucket+i*1_000_000_000, "other")
	}
	put(3, 1050*bucket+77_000_000, "friend")
	for i := range uint64(400) { // moves it down
		put(3, 1050*bucket+(400+i)*1_000_000_000, "other")
	}
	verify(t, store)
	c.begin(3)
	c.b.AddDelete(kindOf("follow"), rkeyAt(1050*bucket+77_000_000))
	store.scans, store.scanned = 0, 0
	c.apply()
	if store.scans > 2 || store.scanned > 4 {
		t.Errorf("the delete scans %d times and reads %d chunks", store.scans, store.scanned)
	}
	verify(t, store)
	closeAll(t, s, store)
}

// An account that names a subject twice and deletes one of the records, again and again, makes each of these commits search
// its records for the other one. Only the first commit reads them all; the second reads little and desynchronizes the repo, and the
// others read nothing until the repo has been fetched.
func TestAbuseSearch(t *testing.T) { synctest.Test(t, testAbuseSearch) }

func testAbuseSearch(t *testing.T) {
	const bucket, subject, did = 1 << (format.BucketShift - format.ClockBits), "did:web:friend.example.com", "did:web:u1.example.com"
	records := harness.Size(80_000, 300_000)
	store := &reading{Store: memory(write.Limits{})}
	s := open(t, store, queues)
	c := &commits{t: t, s: s}
	c.begin(1) // without a since: the repo's first commit
	c.since = c.rev()
	time.Sleep(time.Until(time.UnixMicro(1 << 50))) // the clock here begins in 2000
	at := func(i int) []byte { return rkeyAt(uint64(1000+i%80)*bucket + uint64(i)*3_000_000) }
	for i := range records {
		if i%5000 == 0 {
			c.apply()
			c.begin(1)
		}
		c.b.AddPut(kindOf("follow"), at(i), fmt.Appendf(nil, "did:web:s%d.example.com", i%1000))
	}
	c.begin(1)
	c.b.AddPut(kindOf("follow"), rkeyAt(1081*bucket), []byte(subject))
	c.apply()
	all := 0
	if err := store.View(t.Context(), func(r kv.Reader) error {
		return kv.ScanPrefix(r, []byte{format.KeyRecord}, func(k, v []byte) error { all += len(k) + len(v); return nil })
	}); err != nil {
		t.Fatal(err)
	}
	commit := func() (read int, took time.Duration) {
		c.begin(1)
		c.b.AddPut(kindOf("follow"), rkeyAt(1040*bucket), []byte(subject))
		c.apply()
		store.bytes = 0
		c.begin(1)
		c.b.AddDelete(kindOf("follow"), rkeyAt(1040*bucket))
		start := time.Now()
		c.apply()
		return store.bytes, time.Since(start)
	}
	const most = 256<<10 + 32<<10 // and a chunk
	read, took := commit()
	harness.Figure(t, "the first delete", "reads %d of %d bytes of %d records, %v", read, all, records, took)
	if st, _ := account(t, s, did); read < all || !st.Complete() {
		t.Errorf("the first search reads %d bytes of %d; %+v", read, all, st)
	}
	for fetched := range 3 {
		if fetched == 2 {
			time.Sleep(10 * time.Minute)
			if read, _ := commit(); read < all {
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
		_, row = account(t, s, did)
		sn := batch.Snapshot{DID: []byte(did), Rev: c.rev(), Data: make([]byte, 32), Generation: row.Generation, First: true, Last: true}
		var b batch.Batch
		n := b.AddSnapshot(&sn)
		for i := range records {
			b.AddPut(kindOf("follow"), at(i), fmt.Appendf(nil, "did:web:s%d.example.com", i%1000))
		}
		b.AddPut(kindOf("follow"), rkeyAt(1081*bucket), []byte(subject))
		if err := s.Apply(t.Context(), "", &b); err != nil || b.Outcome(n) != batch.Placed {
			t.Fatal(b.Outcome(n), err)
		}
		if st, row := account(t, s, did); !st.Complete() || row != nil {
			t.Errorf("after the fetch: %+v, queued %+v", st, row)
		}
		verify(t, store)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = open(t, store, graph.Options{}) // without a queue of repos, nothing could repair this one
	c.s = s
	for range 2 {
		read, _ := commit()
		if st, _ := account(t, s, did); read < all || !st.Complete() {
			t.Errorf("without a queue, a search reads %d bytes of %d; %+v", read, all, st)
		}
	}
	closeAll(t, s, store)
}

// Actors name a few subjects with several records each, many of them of one second, and delete them again, in
// sets with and without containers. check compares sets and records after each write.
func TestRepeatedEdges(t *testing.T) {
	const bucket = 1 << (format.BucketShift - format.ClockBits)
	for seed := range uint64(120) {
		rng := rand.New(rand.NewPCG(seed, 25))
		deep := seed%2 == 1 // two actors with one bucket each, whose chunks are spilled
		limits := write.Limits{Row: 3, Chunk: 5}
		if deep {
			limits = write.Limits{Row: 1, Chunk: 2 + int(seed%3)}
		}
		var store kv.Store = memory(limits)
		if seed%8 == 0 { // its readers search the records of several actors side by side
			var err error
			store, err = pebblekv.Open(pebblekv.Options{Dir: t.TempDir(), Create: true, Merger: write.NewMerger(limits), Memory: 16 << 20})
			if err != nil {
				t.Fatal(err)
			}
		}
		s := open(t, store, graph.Options{})
		c := &commits{t: t, s: s}
		key := func() []byte { // around the boundaries of buckets; some boundaries lie within a second
			if deep {
				return rkeyAt(1000*bucket + 1_000_000 + uint64(rng.IntN(8))*20_000)
			}
			return rkeyAt(uint64(1000+rng.IntN(8)*rng.IntN(2))*bucket + uint64(rng.IntN(5))*250_000 - 500_000)
		}
		for range 40 {
			for range 1 + rng.IntN(4) {
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
// are not TIDs are read for each part of their collection.
func TestAbuseParts(t *testing.T) {
	const bucket, did = 1 << (format.BucketShift - format.ClockBits), "did:web:u1.example.com"
	records, parts := harness.Size(8000, 300_000), 16
	for name, at := range map[string]func(i int) []byte{
		"in many buckets": func(i int) []byte { return rkeyAt(uint64(1000+i*80/records)*bucket + uint64(i)*3) },
		"in one minute":   func(i int) []byte { return rkeyAt(1000*bucket + uint64(i)*60_000_000/uint64(records)) },
	} {
		store := &reading{Store: memory(write.Limits{})}
		s := open(t, store, queues)
		place := func() (read int) {
			var b batch.Batch
			b.AddResync([]byte(did), batch.Cause{Reason: "operator"})
			apply(t, s, "", &b)
			_, row := account(t, s, did)
			store.bytes = 0
			from := ""
			for p := range parts {
				b.Reset()
				to := ""
				if p+1 < parts {
					to = "app.bsky.graph.follow/" + string(at((p+1)*records/parts))
				}
				sn := batch.Snapshot{DID: []byte(did), Rev: rkeyAt(bucket << 13 / 8), Data: make([]byte, 32), Generation: row.Generation, From: from, To: to, First: p == 0, Last: to == ""}
				n := b.AddSnapshot(&sn)
				for i := p * records / parts; i < (p+1)*records/parts; i++ {
					b.AddPut(kindOf("follow"), at(i), fmt.Appendf(nil, "did:web:s%d.example.com", i%1000))
				}
				if err := s.Apply(t.Context(), "", &b); err != nil || b.Outcome(n) != batch.Placed {
					t.Fatal(b.Outcome(n), err)
				}
				from = to
			}
			return store.bytes
		}
		place()
		all := 0
		if err := store.View(t.Context(), func(r kv.Reader) error {
			return kv.ScanPrefix(r, []byte{format.KeyRecord}, func(k, v []byte) error { all += len(k) + len(v); return nil })
		}); err != nil {
			t.Fatal(err)
		}
		read := place()
		harness.Figure(t, "placing a repo again, "+name, "%d records in %d parts read %d bytes, of %d stored", records, parts, read, all)
		if read > 3*all {
			t.Errorf("%s: %d parts read %d bytes, of %d stored", name, parts, read, all)
		}
		verify(t, store)
		closeAll(t, s, store)
	}
}
