package backfill

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein.blue/graph/batch"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
)

// auditors counts the outcomes of audits in w.
func auditors(w *world) (x *index, outcomes func() map[string]float64) {
	metrics := NewMetrics(prometheus.NewRegistry(), func() Status { return Status{} })
	x = w.index(newStore(), func(o *Options) { o.Relay, o.Metrics = "", metrics })
	return x, func() map[string]float64 {
		a, _ := x.m.Audits()
		all := map[string]float64{"records": float64(a.Records), "differences": testutil.ToFloat64(metrics.AuditDifference)}
		for _, outcome := range []string{auditSame, auditDifferent, auditUnfetched, auditMoved} {
			all[outcome] = testutil.ToFloat64(metrics.Audited.WithLabelValues(outcome))
		}
		maps.DeleteFunc(all, func(_ string, n float64) bool { return n == 0 })
		return all
	}
}

// An audit finds every difference between the index and a repo at the same rev, keeps them for an
// operator, and repairs the index.
func TestAudit(t *testing.T) {
	w := newWorld(t, 2)
	a, b := w.add(1, 40), w.add(2, 7)
	x, outcomes := auditors(w)
	w.fetched(x, a, b)
	for _, one := range []*account{a, b} {
		must(t, x.m.auditor.one(t.Context(), one.did))
	}
	if got, want := outcomes(), (map[string]float64{"records": 47, auditSame: 2}); !maps.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	// Its host says something else at the same rev.
	w.mu.Lock()
	paths := slices.Sorted(maps.Keys(a.records))
	delete(a.records, paths[0])
	a.records[paths[1]] += "x"
	a.records["app.bsky.graph.follow/3zzzzzzzzzz2a"] = "did:web:new.example.com"
	a.packedRev = 0
	w.mu.Unlock()
	must(t, x.m.auditor.one(t.Context(), a.did))
	if got := outcomes(); got[auditDifferent] != 1 || got["differences"] != 4 { // the root, too
		t.Errorf("%v, want 4 differences of one repo", got)
	}
	var kept []string
	err := x.store.View(t.Context(), func(r kv.Reader) error {
		letters, err := read.DeadLetters(r)
		for _, l := range letters {
			if l.Reason == "audit" && l.DID == a.did {
				kept = append(kept, l.Path)
			}
		}
		return err
	})
	slices.Sort(kept)
	if all := strings.Join(kept, "\n"); err != nil || len(kept) != 4 || !strings.Contains(all, "another root") || !strings.Contains(all, paths[0]+": the index has it") ||
		!strings.Contains(all, paths[1]+": the index has") || !strings.Contains(all, "3zzzzzzzzzz2a: its host has it (did:web:new.example.com)") {
		t.Errorf("kept:\n%s (%v)", all, err)
	}
	x.settle(t)
	x.has(t, w)
	if err := x.m.auditor.one(t.Context(), a.did); err != nil || outcomes()[auditSame] != 3 {
		t.Errorf("after the repair: %v, %v", outcomes(), err)
	}
}

// A repo that its host changes meanwhile is compared once the stream has brought the change; one
// that the index has in a newer state cannot be compared, nor one that its host does not send.
func TestAuditOfMovingRepos(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2)
	a, b := w.add(1, 10), w.add(2, 10)
	x, outcomes := auditors(w)
	w.fetched(x, a, b)
	rng := rand.New(rand.NewPCG(3, 3))
	var late batch.Batch
	w.commit(rng, a, &late) // the host has it, the stream will bring it
	time.AfterFunc(200*time.Millisecond, func() {
		if err := x.g.Apply(t.Context(), "stream", &late); err != nil {
			t.Error(err)
		}
	})
	if err := x.m.auditor.one(t.Context(), a.did); err != nil || outcomes()[auditSame] != 1 {
		t.Errorf("%v, %v", outcomes(), err)
	}
	before := b.car()
	x.deliver(t, func(fresh *batch.Batch) { w.commit(rng, b, fresh) })
	w.change(func() { b.packed = before }) // a cache
	if err := x.m.auditor.one(t.Context(), b.did); err != nil || outcomes()[auditMoved] != 1 {
		t.Errorf("an older state: %v, %v", outcomes(), err)
	}
	if err := x.m.auditor.one(t.Context(), "did:plc:zzzzzzzzzzzzzzzzzzzzzzzz"); err != nil || outcomes()[auditUnfetched] != 1 {
		t.Errorf("an unknown account: %v, %v", outcomes(), err)
	}
}

// The choice of accounts reaches all of them, and none that is incomplete.
func TestAuditedAccounts(t *testing.T) {
	w := newWorld(t, 1)
	x, _ := auditors(w)
	if did, err := x.m.auditor.someAccount(t.Context()); err != nil || did != "" {
		t.Errorf("of an empty index: %q, %v", did, err)
	}
	var all []*account
	for i := range 20 {
		all = append(all, w.add(i, 3))
	}
	w.fetched(x, all...)
	x.deliver(t, func(b *batch.Batch) {
		b.AddCommit(1, &batch.Commit{DID: []byte("did:web:partial.example.com"), Rev: []byte("3mb2kxx5ts22a"), Since: []byte("3mb2kxx5ts222"), Data: make([]byte, 32)})
	})
	chosen := map[string]int{}
	for range 2000 {
		did, err := x.m.auditor.someAccount(t.Context())
		must(t, err)
		chosen[did]++
	}
	if len(chosen) != len(all) || chosen["did:web:partial.example.com"] > 0 {
		t.Errorf("%d accounts were chosen, want %d: %v", len(chosen), len(all), chosen)
	}
}
