package backfill

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/kv"
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

// writes counts the writes of a store.
type writes struct {
	kv.Store
	n atomic.Int64
}

func (s *writes) Update(ctx context.Context, fn func(kv.Txn) error) error {
	s.n.Add(1)
	return s.Store.Update(ctx, fn)
}

// Thousands of likes may share one record with a long URI: a small CAR that makes a large
// batch. Writes are bounded by bytes, too, and all records are put in place.
func TestAbusePlacedBytes(t *testing.T) {
	n := harness.Size(12_000, 19_000)
	did := "did:web:a.example.com"
	car := likesOf(did, n, 400)
	w := newWorld(t, 1)
	store := &writes{Store: newStore()}
	x := w.index(store, func(o *Options) { o.Relay = "" })
	if err := x.m.Resync(t.Context(), "test", did); err != nil {
		t.Fatal(err)
	}
	before := store.n.Load()
	p, err := x.m.PlaceCAR(t.Context(), bytes.NewReader(car))
	if err != nil || p.Outcome != "placed" || p.Records != n {
		t.Fatalf("%+v: %v", p, err)
	}
	parts := store.n.Load() - before
	harness.Figure(t, "batch", "a CAR of %s with %s of subjects is written in %d parts", say.Bytes(len(car)), say.Bytes(n*400), parts)
	if parts < 2 {
		t.Errorf("%d writes", parts)
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
