package write_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/harness"
)

// seamRev returns the rev of the n-th commit of a history; 0 is none.
func seamRev(n int) uint64 { return uint64(1<<60) + uint64(n)<<30 }

// A seamOp is one operation: on a record key, "" deletes.
type seamOp struct {
	kind    kinds.Kind
	rkey    string
	subject string
}

// seamTID is a record key that is made in the n-th commit.
func seamTID(n int) string { return string(dict.AppendTID(nil, seamRev(n)-5)) }

// seamHistory is a small history with everything in it that a snapshot and the stream may
// disagree about: records written, rewritten, moved to another subject, deleted, created again.
var seamHistory = [][]seamOp{
	1: {{1, seamTID(1), "did:plc:a"}, {1, "self", "did:plc:b"}, {2, seamTID(1), "at://did:plc:a/app.bsky.feed.post/1"}},
	2: {{1, seamTID(2), "did:plc:a"}, {1, "self", "did:plc:c"}, {4, "gone", "did:plc:d"}},
	3: {{1, seamTID(1), ""}, {2, seamTID(3), "at://did:plc:a/app.bsky.feed.post/2"}, {4, "gone", ""}},
	4: {{1, "self", ""}, {1, seamTID(1), "did:plc:e"}, {2, seamTID(1), ""}},
	5: {{4, "gone", "did:plc:b"}, {1, seamTID(5), "did:plc:e"}, {2, seamTID(3), ""}},
}

// seamTruth returns what a repo holds after n commits, without those of lost.
func seamTruth(n int) map[string]string {
	have := map[string]string{}
	for _, ops := range seamHistory[:n+1] {
		for _, o := range ops {
			if name := pathName(o.kind, []byte(o.rkey)); o.subject == "" {
				delete(have, name)
			} else {
				have[name] = o.subject
			}
		}
	}
	return have
}

func seamRoot(n int) [32]byte { return sha256.Sum256([]byte{byte(n)}) }

// seam is one account's way through an index.
type seam struct {
	t   *testing.T
	s   *graph.Store
	did string
	seq *format.Seq

	store kv.Store
}

func (m *seam) apply(source string, b *batch.Batch) {
	m.t.Helper()
	apply(m.t, m.s, source, b)
}

// event delivers the n-th commit of the stream.
func (m *seam) event(n int) {
	m.t.Helper()
	var b batch.Batch
	data, prev := seamRoot(n), seamRoot(n-1)
	*m.seq++
	c := &batch.Commit{DID: []byte(m.did), Rev: dict.AppendTID(nil, seamRev(n)), Data: data[:]}
	if n > 1 {
		c.Since, c.PrevData = dict.AppendTID(nil, seamRev(n-1)), prev[:]
	}
	b.AddCommit(*m.seq, c)
	addSeam(&b, n)
	b.Seen(*m.seq, nil)
	m.apply("stream", &b)
}

// addSeam adds the operations of the n-th commit.
func addSeam(b *batch.Batch, n int) {
	for _, o := range seamHistory[n] {
		if o.subject == "" {
			b.AddDelete(o.kind, []byte(o.rkey))
		} else {
			b.AddPut(o.kind, []byte(o.rkey), []byte(o.subject))
		}
	}
}

func (m *seam) queue(trust bool) {
	m.t.Helper()
	var b batch.Batch
	b.AddResync([]byte(m.did), batch.Cause{Reason: "test", Trust: trust})
	m.apply("", &b)
}

// row returns the account's state, and its row in the queue.
func (m *seam) row() (st format.RepoState, row *format.Resync) {
	m.t.Helper()
	return account(m.t, m.s, m.did)
}

// part puts a part of the snapshot of the n-th commit in place: all, or the first or the
// second half.
func (m *seam) part(n int, generation uint64, first, last bool) batch.Outcome {
	m.t.Helper()
	const middle = "app.bsky.graph.follow/"
	data := seamRoot(n)
	sn := batch.Snapshot{DID: []byte(m.did), Rev: dict.AppendTID(nil, seamRev(n)), Data: data[:], Generation: generation, First: first, Last: last}
	if !last {
		sn.To = middle
	} else if !first {
		sn.From = middle
	}
	var b batch.Batch
	at := b.AddSnapshot(&sn)
	truth := seamTruth(n)
	for _, name := range slices.Sorted(maps.Keys(truth)) {
		k, rkey := kinds.Kind(name[0]), name[1:]
		if b.Part(0).Holds([]byte(k.Info().Collection + "/" + rkey)) {
			b.AddPut(k, []byte(rkey), []byte(truth[name]))
		}
	}
	m.apply("", &b)
	return b.Outcome(at)
}

// fetched puts the whole snapshot of the n-th commit in place, as it is fetched now.
func (m *seam) fetched(n int) batch.Outcome {
	m.t.Helper()
	_, row := m.row()
	if row == nil {
		return batch.NotQueued
	}
	return m.part(n, row.Generation, true, true)
}

// records returns what the index has of the account.
func (m *seam) records() map[string]string {
	m.t.Helper()
	have := map[string]string{}
	must(m.t, m.store.View(m.t.Context(), func(r kv.Reader) error {
		id, err := ask.AccountID(r, m.did)
		if err != nil || id == dict.None {
			return err
		}
		for _, k := range kinds.All {
			var ids []dict.ID
			var names []string
			err := read.Records(r, k.Kind, id, func(rec *format.Record) bool {
				ids, names = append(ids, rec.Subject), append(names, pathName(k.Kind, rec.Path.AppendRkey(nil)))
				return true
			})
			if err != nil {
				return err
			}
			if err := intern.Strings(r, k.To.Is(), ids, func(i int, s []byte) error { have[names[i]] = string(s); return nil }); err != nil {
				return err
			}
		}
		return nil
	}))
	return have
}

func (m *seam) want(n int, what string) {
	m.t.Helper()
	if got, want := m.records(), seamTruth(n); !maps.Equal(got, want) {
		m.t.Fatalf("%s: %s: the index has %v, want %v", m.did, what, got, want)
	}
}

// complete makes sure that the account is known to be complete, at a commit.
func (m *seam) complete(n int, what string) {
	m.t.Helper()
	m.want(n, what)
	if st, row := m.row(); !st.Complete() || row != nil || uint64(st.Rev) != seamRev(n) {
		m.t.Fatalf("%s: %s: %+v, queued: %+v", m.did, what, st, row)
	}
}

// seams calls each with an account of its own, all of one store, and checks that.
func seams(t *testing.T, each func(next func(name string, args ...int) *seam)) {
	t.Helper()
	store := memory(write.Limits{})
	s := open(t, store, queues)
	var seq format.Seq
	ways := 0
	each(func(name string, args ...int) *seam {
		ways++
		did := "did:web:" + name
		for _, a := range args {
			did += fmt.Sprintf("-%d", a)
		}
		return &seam{t, s, did + ".example.com", &seq, store}
	})
	verify(t, store)
	left := 0
	if err := store.View(t.Context(), func(r kv.Reader) error {
		return kv.ScanPrefix(r, []byte{format.KeyTouched}, func(_, _ []byte) error { left++; return nil })
	}); err != nil || left > 0 {
		t.Errorf("%d touched paths are left: %v", left, err)
	}
	t.Logf("%d ways", ways)
}

const seamEnd = 5

// Every way in which a snapshot and the stream can meet: the stream is heard from commit
// begin on, misses one (or none), the repo is queued after commit queued, fetched in the
// state of commit version, which is at least what the stream has told and may be older,
// and put in place in two parts, after commits first and second. In the end, when the
// repo has been fetched as often as it is queued, the index has what the repo holds; and
// as soon as a snapshot is in place, and the stream is as far, what it held then.
func TestSeams(t *testing.T) {
	ways := 0
	seams(t, func(next func(string, ...int) *seam) {
		for begin := 1; begin <= seamEnd; begin++ {
			for missed := 0; missed <= seamEnd; missed++ {
				if missed > 0 && missed < begin {
					continue
				}
				for queued := begin - 1; queued <= seamEnd; queued++ {
					for version := max(queued-2, 0); version <= seamEnd; version++ {
						for first := queued; first <= seamEnd; first++ {
							for second := first; second <= seamEnd; second++ {
								if ways++; ways%3 == 0 || harness.Full() { // a third of them, unless -abuse
									next("s", begin, missed, queued, version, first, second).way(begin, missed, queued, version, first, second)
								}
							}
						}
					}
				}
			}
		}
	})
}

func (m *seam) way(begin, missed, queued, version, first, second int) {
	m.t.Helper()
	var generation uint64
	began, placed := false, false
	for at := begin - 1; at <= seamEnd; at++ {
		if at >= begin && at != missed {
			m.event(at)
		}
		if at == queued {
			m.queue(false)
			_, row := m.row()
			generation = row.Generation
		}
		if at == first {
			began = m.part(version, generation, true, false) == batch.Placed
		}
		if at == second && began {
			placed = m.part(version, generation, false, true) == batch.Placed
		}
		if st, _ := m.row(); placed && st.Complete() && at >= version && missed != at {
			told := version // all that anybody has told
			if at >= begin {
				told = at
			}
			m.want(told, fmt.Sprintf("in place, after commit %d", at))
		}
	}
	for range 3 { // what is still queued, is fetched
		if _, row := m.row(); row == nil {
			break
		}
		m.fetched(seamEnd)
	}
	if missed == seamEnd { // nothing has told of it
		if st, _ := m.row(); uint64(st.Rev) < seamRev(seamEnd) {
			return
		}
	}
	m.complete(seamEnd, "in the end")
}

// TestSnapshotsAndMessages plays scripts: what the stream announces of a repo, besides commits, and what its host sends. A step is
//
//	3           the third commit of the stream
//	back2       a #sync that puts the repo back to the state of the second commit
//	refuted     a message that failed verification
//	sync2       a #sync with the rev of the second commit, whose commit cannot be read
//	deleted     the account is deleted, and its records are erased; active: it is there again
//	queue       the repo is queued; trust: because an operator trusts its host
//	hold        parts that come later were fetched now
//	fetch2=OUTCOME, first2=OUTCOME, last2=OUTCOME   the snapshot of the second commit, whole or in parts
//	missed      the repo has missed something, and is queued
//	~2          the index has the state of the second commit; =2: and is complete; gone: it has nothing, and the account is hidden
func TestSnapshotsAndMessages(t *testing.T) {
	seams(t, func(next func(string, ...int) *seam) {
		for i, script := range []string{
			// A refuted message proves nothing: neither a newer state, so that the state that the index has is accepted from the host, nor
			// an older one. It may come again after the repair under a new number, from a relay that lost its newest events.
			"1 refuted missed fetch1=placed =1 refuted missed fetch1=placed =1 refuted 2 3 4 5 fetch5=placed =5",
			"1 2 3 refuted missed fetch2=older fetch3=placed =3 refuted missed fetch3=placed =3 refuted 4 5 fetch5=placed =5",
			"1 2 3 4 5 refuted missed fetch4=older fetch5=placed =5 refuted missed fetch5=placed =5 refuted fetch5=placed =5",
			// A #sync whose commit cannot be read, with a rev that is not above the index's, announces nothing newer: the state that the
			// index has is placed, however often the repo was queued.
			"1 2 3 4 5 sync1 missed queue fetch5=placed =5",
			"1 2 3 4 5 sync5 missed queue fetch5=placed =5",
			// An older state is not believed, however often it is sent: a cache repeats itself.
			"1 2 3 4 5 queue fetch2=older ~5 fetch2=older ~5 fetch4=older fetch5=placed =5",
			"1 2 3 4 queue fetch2=older 5 fetch2=older fetch5=placed =5",
			// But if the stream announces by a #sync that the repo was put back to it, or an operator knows.
			"1 2 3 4 5 back2 fetch1=older fetch3=older fetch4=older fetch5=older fetch2=placed =2",
			"1 2 3 4 5 back4 fetch3=older fetch5=older fetch4=placed =4",
			"1 2 3 4 5 trust fetch1=placed =1",
			// A relay that was killed sends both again, as if the repo had been put back before the last one.
			"1 back2 sync4 back2 sync4 fetch2=older fetch3=older fetch4=placed =4 5 =5",
			// In two parts: what the stream had told before is void in both.
			"1 2 3 queue 4 5 back2 hold first2=placed last2=placed =2",
			// A host that is behind, and a commit that was missed since what it sends.
			"1 2 queue 3 5 fetch2=older fetch5=placed =5",
			// A snapshot does not restore an account that was deleted during the fetch. If the account returns, it is fetched again.
			"2 queue hold deleted first3=not_queued last3=not_queued gone active queue fetch4=placed =4",
			"2 queue hold first3=placed deleted last3=not_queued gone active queue fetch4=placed =4",
			"2 queue hold first3=placed last3=placed deleted gone active queue fetch4=placed =4",
		} {
			next("script", i).play(script)
		}
	})
}

func (m *seam) play(script string) {
	m.t.Helper()
	var generation uint64
	stream := func(add func(b *batch.Batch)) {
		var b batch.Batch
		*m.seq++
		add(&b)
		b.Seen(*m.seq, nil)
		m.apply("stream", &b)
	}
	for step := range strings.FieldsSeq(script) {
		what, outcome, _ := strings.Cut(step, "=")
		word := strings.TrimRight(what, "12345")
		n, _ := strconv.Atoi(what[len(word):])
		got := batch.Placed
		switch st, row := m.row(); word {
		case "":
			if what == "" { // =n
				at, _ := strconv.Atoi(outcome)
				m.complete(at, script)
			} else {
				m.event(n)
			}
			continue
		case "~":
			m.want(n, script)
		case "gone":
			if m.want(0, script); row != nil || !st.Has(format.FlagHidden) {
				m.t.Fatalf("%s: %+v, queued: %+v", script, st, row)
			}
		case "missed":
			if !st.Has(format.FlagDesync) || row == nil || row.State != format.ResyncWaiting {
				m.t.Fatalf("%s: %+v, queued: %+v", script, st, row)
			}
		case "hold":
			generation = row.Generation
		case "back": // its commit is signed under the older rev, and its message names a new one
			data := seamRoot(n)
			stream(func(b *batch.Batch) {
				b.AddSync(*m.seq, &batch.Commit{DID: []byte(m.did), Rev: dict.AppendTID(nil, seamRev(n)), Data: data[:], OtherRev: true})
			})
		case "sync":
			stream(func(b *batch.Batch) {
				b.AddSync(*m.seq, &batch.Commit{DID: []byte(m.did), Rev: dict.AppendTID(nil, seamRev(n))})
			})
		case "refuted":
			stream(func(b *batch.Batch) { b.AddCommit(*m.seq, &batch.Commit{DID: []byte(m.did), Refuted: true}) })
		case "deleted", "active":
			stream(func(b *batch.Batch) { b.AddAccount(*m.seq, []byte(m.did), what == "active", what == "deleted") })
			erase(m.t, m.s)
		case "queue", "trust":
			m.queue(what == "trust")
		case "fetch":
			got = m.part(n, row.Generation, true, true)
		case "first", "last":
			got = m.part(n, generation, word == "first", word == "last")
		default:
			m.t.Fatalf("%s: %s is not a step", script, step)
		}
		if outcome != "" && got.String() != outcome {
			m.t.Fatalf("%s: %s is %v", script, step, got)
		}
	}
}

// Archived rows and the stream: an archive is read from its beginning to a commit that
// is at least what the stream had told when it was begun, in every order with the stream.
func TestArchiveSeams(t *testing.T) {
	store := memory(write.Limits{})
	s := open(t, store, queues)
	var seq, rows format.Seq
	var all []*seam
	must(t, s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive = "archive" }))
	row := func(m *seam, n int) {
		var b batch.Batch
		rows++
		b.AddArchived(rows, []byte(m.did), dict.AppendTID(nil, seamRev(n)))
		addSeam(&b, n)
		b.Seen(rows, nil)
		m.apply("archive", &b)
	}
	// A way: the stream begins at commit begin; the archive holds commits 1 to tip, of
	// which those up to folded lie in it as one state; and how many of its rows come
	// before each commit of the stream.
	for begin := 1; begin <= seamEnd; begin++ {
		for tip := begin - 1; tip <= seamEnd; tip++ {
			events := seamEnd - begin + 1
			for order := range 1 << (events + tip) {
				if bits.OnesCount(uint(order)) != events {
					continue
				}
				m := &seam{t, s, fmt.Sprintf("did:web:a-%d-%d-%d.example.com", begin, tip, order), &seq, store}
				nextEvent, nextRow := begin, 1
				for bit := range events + tip {
					if order>>bit&1 != 0 {
						m.event(nextEvent)
						nextEvent++
					} else {
						row(m, nextRow)
						nextRow++
					}
				}
				all = append(all, m)
			}
		}
	}
	doubtful, err := s.EndArchive(t.Context())
	if err != nil || len(doubtful) > 0 {
		t.Fatalf("doubtful: %v: %v", doubtful, err)
	}
	must(t, s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive = "" }))
	for _, m := range all {
		m.want(seamEnd, "in the end")
		if st, queued := m.row(); !st.Complete() || queued != nil {
			t.Fatalf("%s: %+v, queued: %+v", m.did, st, queued)
		}
	}
	t.Logf("%d ways", len(all))
	verify(t, store)
}

// The status that the stream announced stands against the markers of an archive; after a commit of the stream, a #sync of the archive
// queues the repo. TestArchiveInAnyWrites has an archive's markers alone.
func TestArchivedMarkers(t *testing.T) {
	store := memory(write.Limits{})
	s := open(t, store, queues)
	must(t, s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive = "archive" }))
	var seq format.Seq
	for _, name := range []string{"away", "told", "heard"} {
		m := &seam{t, s, "did:web:" + name + ".example.com", &seq, store}
		switch name {
		case "told":
			m.play("active")
		case "heard":
			m.play("2")
		}
		var b batch.Batch
		b.AddArchived(1, []byte(m.did), dict.AppendTID(nil, seamRev(1)))
		b.AddPut(1, []byte("self"), []byte("did:plc:b"))
		if name == "heard" {
			b.AddArchivedSync(2, []byte(m.did), dict.AppendTID(nil, seamRev(2)))
		} else {
			b.AddArchivedAccount(2, []byte(m.did), false, false)
		}
		m.apply("archive", &b)
		st, queued := m.row()
		if st.Has(format.FlagHidden) != (name == "away") || (queued != nil && queued.Reason == "archived_sync") != (name == "heard") {
			t.Errorf("%s: %+v, queued %+v", name, st, queued)
		}
		if got := m.records(); name == "away" && len(got) != 1 {
			t.Errorf("deactivated: %v", got)
		}
	}
	verify(t, store)
}

// pathName names a record of an account.
func pathName(k kinds.Kind, rkey []byte) string { return string(byte(k)) + string(rkey) }
