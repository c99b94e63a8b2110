package backfill

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"skein.blue/consumer/repo"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/kv"
	"skein.blue/internal/say"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/synth"
)

// sameRecord returns the CAR of a repo with n paths that all have the same record.
func sameRecord(did, collection string, n int, record any) []byte {
	block := synth.NewBlock(synth.CBOR(nil, record))
	records := make([]synth.RepoRecord, n)
	for i := range records {
		records[i] = synth.RepoRecord{Path: fmt.Sprintf("%s/%06d", collection, i), Block: block}
	}
	var r synth.Repo
	root := r.Root(records)
	commit := synth.NewBlock(synth.AppendCommitBlock(nil, []byte(did), []byte("3mb2kxx5ts22a"), []byte("sig"), &root))
	return r.AppendCAR(nil, &commit, records[:1])
}

// likesOf returns the CAR of a repo with n likes of one post with a URI of uriLen bytes; all
// likes have the same record.
func likesOf(did string, n, uriLen int) []byte {
	uri := "at://did:web:" + strings.Repeat("a", max(uriLen-60, 1)) + ".example.com/app.bsky.feed.post/x"
	return sameRecord(did, "app.bsky.feed.like", n, synth.Map{{Key: "subject", Value: synth.Map{{Key: "uri", Value: uri}}}})
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
	must(t, x.m.Resync(t.Context(), batch.Cause{Reason: "test"}, did))
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
	must(t, x.g.View(t.Context(), func(s *ask.View) error {
		c, err := s.Counts()
		if c.Records["like"] != int64(n) || c.Strings["uri"] != 1 {
			t.Errorf("%+v", c)
		}
		return err
	}))

	// One of few records in a large CAR waits for no others, which would wait while its large records are parsed.
	r, placed := &fetchedRepo{Reader: &repo.Reader{Kinds: kinds.BuiltIn, Memory: repo.NewMemory(64 << 20)}}, false
	car = likesOf(did, 3, 400)
	for range 5 {
		block := synth.NewBlock(bytes.Repeat([]byte{0}, 1<<20))
		car = synth.AppendSection(car, &block.CID, block.Bytes)
	}
	must(t, r.Read(t.Context(), bytes.NewReader(car), 1<<30))
	(&placer{store: x.g}).place(t.Context(), r, func(batch.Outcome, int, error) { placed = true })
	if !placed {
		t.Error("a repo of a large CAR was gathered with others")
	}
}

// tooLarge checks that a repo is given up as too large, whether its host sends it or a file has it, and that the message
// says why.
func (x *index) tooLarge(t *testing.T, did string, car []byte, why string) {
	t.Helper()
	must(t, x.m.Resync(t.Context(), batch.Cause{Reason: "test"}, did))
	if st := x.settle(t); st.Failed[failTooLarge] != 1 {
		t.Errorf("%+v", st)
	}
	if _, row := x.stateOf(t, did); row == nil || row.State != format.ResyncFailed || !strings.Contains(row.Detail, why) {
		t.Errorf("%+v", row)
	}
	if _, err := x.m.PlaceCAR(t.Context(), bytes.NewReader(car)); err == nil || !strings.Contains(err.Error(), why) {
		t.Error(err)
	}
}

// A repo whose records make too many edges for its bytes is given up.
func TestAbuseRepoOfManyEdges(t *testing.T) {
	w := newWorld(t, 1)
	a := w.add(0, 3)
	var err error
	w.kinds, err = kinds.Parse("app.bsky.feed.post tags[] text tags taggers")
	must(t, err)
	var tags []any
	for i := range kinds.MaxSubjects {
		tags = append(tags, fmt.Sprint(i))
	}
	car := sameRecord(a.did, "app.bsky.feed.post", 500, synth.Map{{Key: "tags", Value: tags}})
	w.hosts[0].wrong = func(rw http.ResponseWriter, _ *http.Request, _ *account) bool {
		_, _ = rw.Write(car)
		return true
	}
	w.index(newStore(), nil).tooLarge(t, a.did, car, "too many edges")
}

// A repo that needs more than --memory allows is given up, and the message names the flag.
func TestAbuseRepoOverMemory(t *testing.T) {
	w := newWorld(t, 1)
	a := w.add(0, 3)
	car := a.car()
	for i := range 100_000 {
		block := synth.NewBlock(fmt.Appendf([]byte("\xa2ae"), "%06d", i))
		car = synth.AppendSection(car, &block.CID, block.Bytes)
	}
	w.hosts[0].wrong = func(rw http.ResponseWriter, _ *http.Request, _ *account) bool {
		_, _ = rw.Write(car)
		return true
	}
	x := w.index(newStore(), func(o *Options) { o.Memory = 2 << 20 })
	x.tooLarge(t, a.did, car, "1.5 MiB (--memory)")
}
