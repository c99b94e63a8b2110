package backfill

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"skein.blue/consumer/repo"
	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/say"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/synth"
)

// likesOf returns the CAR of a repo with n likes of one post with a URI of uriLen bytes; all
// likes have the same record.
func likesOf(did string, n, uriLen int) []byte {
	uri := "at://did:web:a.example.com/app.bsky.feed.post/x"
	if more := uriLen - len(uri); more > 0 {
		uri = "at://did:web:" + strings.Repeat("a", min(more, 1900)) + ".example.com/app.bsky.feed.post/" + strings.Repeat("x", min(512, max(1, more-1900)))
	}
	record := synth.NewBlock(synth.CBOR(nil, synth.Map{{Key: "subject", Value: synth.Map{{Key: "uri", Value: uri}}}}))
	records := make([]synth.RepoRecord, n)
	for i := range records {
		records[i] = synth.RepoRecord{Path: fmt.Sprintf("app.bsky.feed.like/%06d", i), Block: record}
	}
	var r synth.Repo
	root := r.Root(records)
	commit := synth.NewBlock(synth.AppendCommitBlock(nil, []byte(did), []byte("3mb2kxx5ts22a"), []byte("sig"), &root))
	return r.AppendCAR(nil, &commit, records[:1])
}

func readOf(t *testing.T, car []byte) *repo.Reader {
	t.Helper()
	r := new(repo.Reader)
	if err := r.Read(t.Context(), bytes.NewReader(car), 1<<30); err != nil {
		t.Fatal(err)
	}
	return r
}

// A repo is walked before the placer locks: a walk does not wait for another repo's write,
// and a malformed repo fails without the lock.
func TestPlaceWalksWithoutTheLock(t *testing.T) {
	w := newWorld(t, 1)
	x := w.index(newStore(), nil)
	p := newPlacer(x.g)
	p.mu.Lock()
	defer p.mu.Unlock()
	leaf := synth.NewBlock([]byte("\xa2ae\x80al\xf6"))
	commit := synth.NewBlock(synth.AppendCommitBlock(nil, []byte("did:web:a.example.com"), []byte("3mb2kxx5ts22a"), nil, &synth.Link{1}))
	r := readOf(t, synth.CAR(commit.CID, commit, leaf))
	called := false
	p.place(t.Context(), r, 1, true, nil, func(_ batch.Outcome, _ int, err error) {
		if called = true; !errors.Is(err, repo.ErrMissing) {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p.place(ctx, readOf(t, likesOf("did:web:a.example.com", 5000, 0)), 1, true, nil, func(_ batch.Outcome, _ int, err error) {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	if !called || len(p.parts) != cap(p.parts) {
		t.Errorf("called %v; %d of %d parts free", called, len(p.parts), cap(p.parts))
	}
}

// Thousands of likes may share one record with a long URI: a small CAR that makes a large
// batch. Writes are bounded by bytes, too, and all records are put in place.
func TestAbusePlacedBytes(t *testing.T) {
	n := harness.Size(6_000, 19_000)
	did := "did:web:a.example.com"
	car := likesOf(did, n, 1000)
	w := newWorld(t, 1)
	x := w.index(newStore(), func(o *Options) { o.Relay = "" })
	one := part{sn: batch.Snapshot{}}
	most := 0
	uri := []byte(strings.Repeat("u", 1000))
	for range n {
		if one.isFull() {
			one.next("")
		}
		one.put(1, []byte("000000"), uri)
		most = max(most, one.bytes)
	}
	if most > placeBytes+len(uri)+6 {
		t.Errorf("a part has %d bytes, want at most %d", most, placeBytes+len(uri)+6)
	}
	harness.Figure(t, "batch", "a CAR of %s with %s of subjects is written in parts of %s", say.Bytes(len(car)), say.Bytes(n*1000), say.Bytes(most))
	p, err := x.m.PlaceCAR(t.Context(), bytes.NewReader(car))
	if err != nil || p.Outcome != "placed" || p.Records != n {
		t.Fatalf("%+v: %v", p, err)
	}
	if err := x.g.View(t.Context(), func(s *ask.View) error {
		c, err := s.Counts()
		if c.Records["like"] != int64(n) || c.Strings["uri"] != 1 {
			t.Errorf("%+v", c)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A repo whose records make too many edges for its bytes is given up as too large, from a host and from a file, and the message says so.
func TestAbuseRepoOfManyEdges(t *testing.T) {
	more, err := kinds.Parse("app.bsky.feed.post tags[] text tags taggers")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, 1)
	a := w.add(0, 3)
	var tags []any
	for i := range kinds.MaxSubjects {
		tags = append(tags, fmt.Sprint(i))
	}
	record := synth.NewBlock(synth.CBOR(nil, synth.Map{{Key: "tags", Value: tags}}))
	records := make([]synth.RepoRecord, 500)
	for i := range records {
		records[i] = synth.RepoRecord{Path: fmt.Sprintf("app.bsky.feed.post/%06d", i), Block: record}
	}
	var r synth.Repo
	root := r.Root(records)
	commit := synth.NewBlock(synth.AppendCommitBlock(nil, []byte(a.did), []byte("3mb2kxx5ts22a"), []byte("sig"), &root))
	car := r.AppendCAR(nil, &commit, records[:1])
	w.hosts[0].wrong = func(rw http.ResponseWriter, _ *http.Request, _ *account) bool {
		_, _ = rw.Write(car)
		return true
	}
	store := newStore()
	g, err := graph.Open(t.Context(), store, graph.Options{Kinds: more})
	if err == nil {
		err = g.Close(t.Context()) // the kind stays
	}
	if err != nil {
		t.Fatal(err)
	}
	x := w.index(store, nil)
	if err := x.m.Resync(t.Context(), "test", a.did); err != nil {
		t.Fatal(err)
	}
	if st := x.settle(t); st.Failed[failTooLarge] != 1 || st.Fetched != 0 {
		t.Errorf("%+v", st)
	}
	if err := x.g.View(t.Context(), func(s *ask.View) error {
		_, _, row, err := s.Account(a.did)
		if row == nil || row.State != format.ResyncFailed || !strings.Contains(row.Detail, "too many edges") {
			t.Errorf("%+v", row)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := x.m.PlaceCAR(t.Context(), bytes.NewReader(car)); err == nil || !strings.Contains(err.Error(), "too many edges") {
		t.Error(err)
	}
}

// A repo that needs more than --memory allows is given up, from a host and from a file, and
// the message names the flag. The memory is free again.
func TestAbuseRepoOverMemory(t *testing.T) {
	w := newWorld(t, 2)
	large, small := w.add(0, 3), w.add(1, 3)
	car := func(a *account) []byte {
		b := a.car()
		for i := range 100_000 {
			block := synth.NewBlock(fmt.Appendf([]byte("\xa2ae"), "%06d", i))
			link := synth.Link(sha256.Sum256(block.Bytes))
			b = synth.AppendSection(b, &link, block.Bytes)
		}
		return b
	}
	w.hosts[0].wrong = func(rw http.ResponseWriter, _ *http.Request, a *account) bool {
		_, _ = rw.Write(car(a))
		return true
	}
	x := w.index(newStore(), func(o *Options) { o.Memory = 2 << 20 })
	if err := x.m.Resync(t.Context(), "test", large.did, small.did); err != nil {
		t.Fatal(err)
	}
	if st := x.settle(t); st.Failed[failTooLarge] != 1 || st.Fetched != 1 {
		t.Errorf("%+v", st)
	}
	if err := x.g.View(t.Context(), func(s *ask.View) error {
		_, _, row, err := s.Account(large.did)
		if row == nil || row.State != format.ResyncFailed || !strings.Contains(row.Detail, "1.5 MiB (--memory)") {
			t.Errorf("%+v", row)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := x.m.PlaceCAR(t.Context(), bytes.NewReader(car(large))); err == nil || !strings.Contains(err.Error(), "1.5 MiB (--memory)") {
		t.Error(err)
	}
	if n := x.m.fetcher.memory.InUse(); n != 0 {
		t.Errorf("%d bytes still in use", n)
	}
}
