package write_test

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math/bits"
	"slices"
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
	for _, o := range seamHistory[n] {
		if o.subject == "" {
			b.AddDelete(o.kind, []byte(o.rkey))
		} else {
			b.AddPut(o.kind, []byte(o.rkey), []byte(o.subject))
		}
	}
	b.Seen(*m.seq, nil)
	m.apply("stream", &b)
}

// account delivers an #account.
func (m *seam) account(isActive, erase bool) {
	m.t.Helper()
	var b batch.Batch
	*m.seq++
	b.AddAccount(*m.seq, []byte(m.did), isActive, erase)
	b.Seen(*m.seq, nil)
	m.apply("stream", &b)
}

// putBack delivers the #sync of an import of the n-th commit: its commit is signed under the
// older rev, and its message names a new one.
func (m *seam) putBack(n int) {
	m.t.Helper()
	var b batch.Batch
	data := seamRoot(n)
	*m.seq++
	b.AddSync(*m.seq, &batch.Commit{DID: []byte(m.did), Rev: dict.AppendTID(nil, seamRev(n)), Data: data[:], OtherRev: true})
	b.Seen(*m.seq, nil)
	m.apply("stream", &b)
}

func (m *seam) queue() {
	m.t.Helper()
	var b batch.Batch
	b.AddResync([]byte(m.did), batch.Cause{Reason: "test"})
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
	err := m.store.View(m.t.Context(), func(r kv.Reader) error {
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
	})
	if err != nil {
		m.t.Fatal(err)
	}
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
								m := next("s", begin, missed, queued, version, first, second)
								m.way(begin, missed, queued, version, first, second)
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
			m.queue()
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

// A refuted message proves nothing: neither a newer state, so that the state that the index has is
// accepted from the host, nor an older one. It may come again after the repair under a new number,
// from a relay that lost its newest events.
func TestRefutedCommit(t *testing.T) {
	seams(t, func(next func(string, ...int) *seam) {
		for at := 1; at <= seamEnd; at++ {
			m := next("refuted", at)
			refute := func() {
				t.Helper()
				var b batch.Batch
				*m.seq++
				b.AddCommit(*m.seq, &batch.Commit{DID: []byte(m.did), Refuted: true})
				b.Seen(*m.seq, nil)
				m.apply("stream", &b)
				if st, row := m.row(); !st.Has(format.FlagDesync) || row == nil || row.State != format.ResyncWaiting {
					t.Fatalf("a refuted commit: %+v, %+v", st, row)
				}
			}
			for n := 1; n <= at; n++ {
				m.event(n)
			}
			refute()
			if at > 1 {
				if got := m.fetched(at - 1); got != batch.Older {
					t.Fatalf("an older snapshot: %v", got)
				}
			}
			for range 2 {
				if got := m.fetched(at); got != batch.Placed {
					t.Fatalf("the same state: %v", got)
				}
				m.complete(at, "after the same state")
				refute() // again, under a new number
			}
			for n := at + 1; n <= seamEnd; n++ {
				m.event(n)
			}
			m.fetched(seamEnd)
			m.complete(seamEnd, "in the end")
		}
	})
}

// A #sync whose commit cannot be read, with a rev that is not above the index's, announces nothing newer:
// the state that the index has is placed, however often the repo was queued.
func TestUnreadableSync(t *testing.T) {
	seams(t, func(next func(string, ...int) *seam) {
		for rev := 1; rev <= seamEnd; rev++ {
			m := next("unreadable", rev)
			for n := 1; n <= seamEnd; n++ {
				m.event(n)
			}
			var b batch.Batch
			*m.seq++
			b.AddSync(*m.seq, &batch.Commit{DID: []byte(m.did), Rev: dict.AppendTID(nil, seamRev(rev))})
			b.Seen(*m.seq, nil)
			m.apply("stream", &b)
			if st, row := m.row(); !st.Has(format.FlagDesync) || row == nil {
				t.Fatalf("an unreadable #sync: %+v, %+v", st, row)
			}
			m.queue()
			if got := m.fetched(seamEnd); got != batch.Placed {
				t.Fatalf("the same state, after an unreadable #sync of rev %d: %v", rev, got)
			}
			m.complete(seamEnd, "in the end")
		}
	})
}

// A repo that was put back to an older state, which the stream announces by a #sync, or an
// operator knows. Without that an older state is not believed, however often it is sent: a
// cache repeats itself.
func TestPutBack(t *testing.T) {
	seams(t, func(next func(string, ...int) *seam) {
		for back := 1; back < seamEnd; back++ {
			m := next("cached", back)
			for n := 1; n <= seamEnd; n++ {
				m.event(n)
			}
			m.queue()
			for range 5 {
				if got := m.fetched(back); got != batch.Older {
					t.Fatalf("an older snapshot: %v", got)
				}
				m.want(seamEnd, "an older snapshot was sent")
			}
			m.fetched(seamEnd)
			m.complete(seamEnd, "in the end")

			m = next("announced", back)
			for n := 1; n <= seamEnd; n++ {
				m.event(n)
			}
			m.putBack(back)
			for n := 1; n <= seamEnd; n++ {
				if n == back {
					continue
				}
				if got := m.fetched(n); got != batch.Older {
					t.Fatalf("put back to %d, a snapshot of %d: %v", back, n, got)
				}
			}
			if got := m.fetched(back); got != batch.Placed {
				t.Fatalf("the state that was announced: %v", got)
			}
			m.complete(back, "announced")

			m = next("trusted", back)
			for n := 1; n <= seamEnd; n++ {
				m.event(n)
			}
			var b batch.Batch
			b.AddResync([]byte(m.did), batch.Cause{Reason: "operator", Trust: true})
			m.apply("", &b)
			if got := m.fetched(back); got != batch.Placed {
				t.Fatalf("a host that an operator trusts: %v", got)
			}
			m.complete(back, "trusted")
		}
		// In two parts: what the stream had told before is void in both.
		m := next("parts")
		for n := 1; n <= 3; n++ {
			m.event(n)
		}
		m.queue()
		m.event(4)
		m.event(seamEnd)
		m.putBack(2)
		_, row := m.row()
		for _, first := range []bool{true, false} {
			if got := m.part(2, row.Generation, first, !first); got != batch.Placed {
				t.Fatalf("what was announced, in parts: %v", got)
			}
		}
		m.complete(2, "put back, in parts")

		// A host that is behind, and a commit that was missed since what it sends.
		m = next("behind")
		m.event(1)
		m.event(2)
		m.queue()
		m.event(3)
		m.event(seamEnd) // 4 is missed
		if got := m.fetched(2); got != batch.Older {
			t.Fatalf("a snapshot after which the chain is broken: %v", got)
		}
		m.fetched(seamEnd)
		m.complete(seamEnd, "in the end")

		m = next("stale")
		for n := 1; n < seamEnd; n++ {
			m.event(n)
		}
		m.queue()
		if got := m.fetched(2); got != batch.Older {
			t.Fatalf("an older snapshot: %v", got)
		}
		m.event(seamEnd) // the stream goes on: the host was behind
		if got := m.fetched(2); got != batch.Older {
			t.Fatalf("an older snapshot, after a commit: %v", got)
		}
		m.fetched(seamEnd)
		m.complete(seamEnd, "in the end")
	})
}

// A snapshot does not restore an account that was deleted during the fetch. If the account
// returns, it is fetched again.
func TestDeletedWhileFetched(t *testing.T) {
	seams(t, func(next func(string, ...int) *seam) {
		for at := 0; at <= 2; at++ { // before the first part, between, behind the last
			m := next("deleted", at)
			m.event(2)
			m.queue()
			_, row := m.row()
			steps := []func(){
				func() { m.part(3, row.Generation, true, false) },
				func() { m.part(3, row.Generation, false, true) },
			}
			steps = slices.Insert(steps, at, func() { m.account(false, true) })
			for _, step := range steps {
				step()
			}
			erase(t, m.s)
			m.want(0, "deleted")
			if st, row := m.row(); row != nil || !st.Has(format.FlagHidden) {
				t.Fatalf("%d: %+v, queued: %+v", at, st, row)
			}
			m.account(true, false)
			m.queue()
			m.fetched(4)
			m.complete(4, "back again")
		}
	})
}

// Archived rows and the stream: an archive is read from its beginning to a commit that
// is at least what the stream had told when it was begun, in every order with the stream.
func TestArchiveSeams(t *testing.T) {
	store := memory(write.Limits{})
	s := open(t, store, queues)
	var seq, rows format.Seq
	var all []*seam
	if err := s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive = "archive" }); err != nil {
		t.Fatal(err)
	}
	row := func(m *seam, n int) {
		var b batch.Batch
		rows++
		b.AddArchived(rows, []byte(m.did), dict.AppendTID(nil, seamRev(n)))
		for _, o := range seamHistory[n] {
			if o.subject == "" {
				b.AddDelete(o.kind, []byte(o.rkey))
			} else {
				b.AddPut(o.kind, []byte(o.rkey), []byte(o.subject))
			}
		}
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
	if err := s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive = "" }); err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		m.want(seamEnd, "in the end")
		if st, queued := m.row(); !st.Complete() || queued != nil {
			t.Fatalf("%s: %+v, queued: %+v", m.did, st, queued)
		}
	}
	t.Logf("%d ways", len(all))
	verify(t, store)
}

// A deletion, and a #sync, in an archive take away what came before them in it, and what
// the stream has told of the account since stands, or has it fetched.
func TestArchivedMarkers(t *testing.T) {
	store := memory(write.Limits{})
	s := open(t, store, queues)
	if err := s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Archive = "archive" }); err != nil {
		t.Fatal(err)
	}
	var seq, rows format.Seq
	read := func(fill func(b *batch.Batch)) {
		t.Helper()
		var b batch.Batch
		fill(&b)
		b.Seen(rows, nil)
		if err := s.Apply(t.Context(), "archive", &b); err != nil {
			t.Fatal(err)
		}
	}
	row := func(b *batch.Batch, m *seam, n int) {
		rows++
		b.AddArchived(rows, []byte(m.did), dict.AppendTID(nil, seamRev(n)))
		for _, o := range seamHistory[n] {
			if o.subject != "" {
				b.AddPut(o.kind, []byte(o.rkey), []byte(o.subject))
			}
		}
	}
	next := func(name string) *seam { return &seam{t, s, "did:web:" + name + ".example.com", &seq, store} }
	marker := func(b *batch.Batch, m *seam, what string) {
		rows++
		switch what {
		case "sync":
			b.AddArchivedSync(rows, []byte(m.did), dict.AppendTID(nil, seamRev(2)))
		default:
			b.AddArchivedAccount(rows, []byte(m.did), what == "active", what == "deleted")
		}
	}
	only := func(n int) map[string]string {
		have := map[string]string{}
		for _, o := range seamHistory[n] {
			if o.subject != "" {
				have[pathName(o.kind, []byte(o.rkey))] = o.subject
			}
		}
		return have
	}
	hidden := func(m *seam) bool { st, _ := m.row(); return st.Has(format.FlagHidden) }
	for _, what := range []string{"deleted", "sync"} {
		for _, together := range []bool{true, false} { // in one batch, or each in its own
			m := next(fmt.Sprintf("%s-%v", what, together))
			steps := []func(b *batch.Batch){
				func(b *batch.Batch) { row(b, m, 1) }, func(b *batch.Batch) { marker(b, m, what) },
				func(b *batch.Batch) { marker(b, m, "active"); row(b, m, 5) },
			}
			if together {
				read(func(b *batch.Batch) {
					for _, step := range steps {
						step(b)
					}
				})
			} else {
				for _, step := range steps {
					read(step)
				}
			}
			if got := m.records(); !maps.Equal(got, only(5)) || hidden(m) {
				t.Errorf("%s: %v, hidden %v", m.did, got, hidden(m))
			}
		}
	}
	m := next("away")
	read(func(b *batch.Batch) { row(b, m, 1); marker(b, m, "deactivated") })
	if got := m.records(); !maps.Equal(got, only(1)) || !hidden(m) {
		t.Errorf("deactivated: %v, hidden %v", got, hidden(m))
	}
	m = next("told")
	m.account(true, false)
	read(func(b *batch.Batch) { row(b, m, 1); marker(b, m, "deactivated") })
	if hidden(m) {
		t.Error("what the stream says of an account does not stand")
	}
	m = next("heard")
	m.event(2)
	read(func(b *batch.Batch) { row(b, m, 1); marker(b, m, "sync") })
	if _, queued := m.row(); queued == nil || queued.Reason != "archived_sync" {
		t.Errorf("after a #sync, with commits of the stream: %+v", queued)
	}
	m = next("gone")
	m.event(1)
	m.account(false, true)
	erase(t, s)
	read(func(b *batch.Batch) { row(b, m, 1) })
	if got := m.records(); len(got) > 0 {
		t.Errorf("an archive brings back what was deleted: %v", got)
	}
	verify(t, store)
}

// pathName names a record of an account.
func pathName(k kinds.Kind, rkey []byte) string { return string(byte(k)) + string(rkey) }
