package query

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/query/algebra"
)

// many makes a graph in which others follow very many, all of them one account.
func many(t *testing.T, others, follows int) (s *graph.Store, star string, dids []string) {
	t.Helper()
	s, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{}), Limits: memkv.Limits{Key: 1e4, Value: 1e7, Txn: 1e9, Age: time.Hour}}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	did := func(i int) string {
		b := []byte(fmt.Sprintf("did:plc:%024d", i))
		for j := 8; j < len(b); j++ {
			b[j] += 'a' - '0'
		}
		return string(b)
	}
	star = did(0)
	var b batch.Batch
	seq := format.Seq(0)
	for o := range others {
		dids = append(dids, did(1+o))
		for from := 0; from < follows; from += 1000 {
			seq++
			b.AddCommit(seq, &batch.Commit{DID: []byte(dids[o]), Rev: dict.AppendTID(nil, uint64(seq)<<40), Data: make([]byte, 32)})
			for i := from; i < from+1000; i++ {
				subject := did(1_000_000 + i)
				if i == follows/2 {
					subject = star
				}
				b.AddPut(1, dict.AppendTID(nil, uint64(o*follows+i+1)<<20), []byte(subject))
			}
			b.Seen(seq, nil)
		}
		if err := s.Apply(t.Context(), "test", &b); err != nil {
			t.Fatal(err)
		}
		b.Reset()
	}
	return s, star, dids
}

// Every query that reads much moves to the large queue, whatever its method. Small queries get a
// slot meanwhile.
func TestLargeQueriesShareASmallQueue(t *testing.T) {
	t.Parallel()
	store, star, others := many(t, 22, 60_000)
	s, err := New(store, Options{Concurrent: 2, HeavyConcurrent: 1, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	get := func(ctx context.Context, client, path string) int {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodGet, path, nil).WithContext(ctx)
		req.RemoteAddr = client + ":1"
		s.ServeHTTP(rec, req)
		if rec.Body.Len() > 0 && strings.Contains(path, "getRelationships") && strings.Count(rec.Body.String(), "followedBy") != len(others) {
			t.Errorf("%s", rec.Body)
		}
		return rec.Code
	}
	// Accounts with so many followers that each fills a row.
	var b batch.Batch
	for i := range 1500 {
		seq := format.Seq(1_000_000 + i)
		b.AddCommit(seq, &batch.Commit{DID: fmt.Appendf(nil, "did:web:fan%d.example", i), Rev: dict.AppendTID(nil, uint64(seq)<<40), Data: make([]byte, 32)})
		for j := range 64 {
			b.AddPut(1, dict.AppendTID(nil, uint64(i*64+j+1)<<20), fmt.Appendf(nil, "did:web:star%d.example", j))
		}
		b.Seen(seq, nil)
	}
	if err := store.Apply(t.Context(), "test", &b); err != nil {
		t.Fatal(err)
	}
	leaves := "intersect(" + strings.Join(repeat("followers(did:web:star%d.example)", 64), ",") + ")"
	large := map[string]string{
		"getRelationships": "/xrpc/app.bsky.graph.getRelationships?" + url.Values{"actor": {star}, "others": others}.Encode(),
		"contains":         "/xrpc/blue.skein.graph.contains?" + url.Values{"set": {leaves}, "member": repeat("did:web:fan%d.example", 100)}.Encode(),
		"query":            "/xrpc/blue.skein.graph.query?" + url.Values{"set": {"union(follows(" + strings.Join(others, "),follows(") + "))"}}.Encode(),
	}
	const small = "/xrpc/blue.skein.graph.query?set=followers(did:web:nobody.example)"
	for name, path := range large {
		t.Run(name, func(t *testing.T) {
			// The one large slot is taken: the slow query waits for it.
			if err := s.queues.Large.Enter(t.Context(), "someone"); err != nil {
				t.Fatal(err)
			}
			leave := sync.OnceFunc(func() { s.queues.Large.Leave("someone", time.Now()) })
			defer leave()
			ctx, cancel := context.WithCancel(t.Context())
			answered := make(chan int, 16)
			for i := range 8 {
				go func() { answered <- get(ctx, fmt.Sprintf("10.0.0.%d", i), path) }()
			}
			for began := time.Now(); ; time.Sleep(time.Millisecond) {
				waiting := s.queues.Large.Waiting()
				if waiting == 8 {
					break
				}
				if len(answered) > 0 {
					t.Fatal("answered without a slot of the large queue")
				}
				if time.Since(began) > 30*time.Second {
					t.Fatalf("%d queries wait for a large slot, want 8", waiting)
				}
			}
			for range 100 {
				if code := get(t.Context(), "10.0.1.1", small); code != 200 {
					t.Fatalf("a small query: %d", code)
				}
			}
			cancel()
			for range 8 {
				<-answered
			}
			leave()
			if code := get(t.Context(), "10.0.0.1", path); code != 200 {
				t.Errorf("with a large slot: %d", code)
			}
		})
	}
}

func repeat(format string, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return all
}

// Pages are bounded in bytes, and so are unread answers.
func TestBytesAreBounded(t *testing.T) {
	store, err := graph.Open(t.Context(), memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{}), Limits: memkv.Limits{Key: 1e5, Value: 1e7, Txn: 1e9, Age: time.Hour}}), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const did = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	var b batch.Batch
	b.AddCommit(1, &batch.Commit{DID: []byte(did), Rev: dict.AppendTID(nil, 1<<50), Data: make([]byte, 32)})
	long := "at://did:web:" + strings.Repeat("a", 2000) + ".example/app.bsky.feed.post/"
	for i := range 1000 {
		b.AddPut(2, dict.AppendTID(nil, uint64(i+1)<<20), fmt.Appendf(nil, "%s%d", long, i))
	}
	b.Seen(1, nil)
	if err := store.Apply(t.Context(), "test", &b); err != nil {
		t.Fatal(err)
	}
	s, err := New(store, Options{InFlight: 1 << 20, Metrics: NewMetrics(prometheus.NewRegistry())})
	if err != nil {
		t.Fatal(err)
	}
	seen, pages := map[string]bool{}, 0
	for cursor := ""; ; pages++ {
		q := url.Values{"set": {"likes(" + did + ")"}, "limit": {"1000"}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/xrpc/blue.skein.graph.query?"+q.Encode(), nil))
		page := decodePage(t, rec)
		if rec.Body.Len() > algebra.MaxPageBytes+1000 || page.Total != 1000 {
			t.Errorf("a page of %d bytes, total %d", rec.Body.Len(), page.Total)
		}
		for _, m := range page.Members {
			if seen[m] {
				t.Errorf("%s came twice", m)
			}
			seen[m] = true
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if len(seen) != 1000 || pages < 3 {
		t.Errorf("%d members in %d pages", len(seen), pages+1)
	}
	// Readers that do not read hold 64 KiB of each answer at least.
	release := make(chan struct{})
	var wg sync.WaitGroup
	codes := make(chan int, 8)
	for range 8 {
		wg.Go(func() {
			w := &stuck{ResponseRecorder: httptest.NewRecorder(), release: release}
			s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/xrpc/blue.skein.graph.query?limit=1000&set=likes("+did+")", nil))
			codes <- w.Code
		})
	}
	for range 6 { // two of half a megabyte each are on their way, the others are refused
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("%d", code)
		}
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/xrpc/blue.skein.graph.query?limit=5&set=likes("+did+")", nil))
	if rec.Code != 200 {
		t.Errorf("a small answer: %d", rec.Code)
	}
	close(release)
	wg.Wait()
	if n := testutil.ToFloat64(s.o.Metrics.Errors.WithLabelValues("any", "Busy")); n != 6 || s.inFlight.Load() != 0 {
		t.Errorf("%v refused; %d bytes are still in flight", n, s.inFlight.Load())
	}
}

// stuck is a client that does not read large answers until it is released.
type stuck struct {
	*httptest.ResponseRecorder
	release chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	if len(b) > 1000 {
		<-s.release
	}
	return s.ResponseRecorder.Write(b)
}

func decodePage(t *testing.T, rec *httptest.ResponseRecorder) (p struct {
	Total   int
	Members []string
	Cursor  string
},
) {
	t.Helper()
	if err := json.Unmarshal(rec.Body.Bytes(), &p); err != nil || rec.Code != 200 {
		t.Fatalf("%d, %v", rec.Code, err)
	}
	return p
}

// A damaged store is an error with a name, and a panic one at all.
func TestDamagedStore(t *testing.T) {
	mem := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
	broken := &brokenStore{Store: mem}
	store, err := graph.Open(t.Context(), broken, graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(store, Options{Metrics: NewMetrics(prometheus.NewRegistry())})
	if err != nil {
		t.Fatal(err)
	}
	for want, fail := range map[string]func() error{
		"500 StoreDamaged":        func() error { return fmt.Errorf("reading: %w", kv.ErrCorrupt) },
		"503 StoreUnavailable":    func() error { return fmt.Errorf("reading: %w", kv.ErrUnavailable) },
		"504 QueryTimeout":        func() error { return kv.ErrTooOld },
		"500 InternalServerError": func() error { panic("a mistake of ours") },
	} {
		broken.fail = fail
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/xrpc/blue.skein.graph.query?set=followers(did:web:a.example)", nil))
		status, name, _ := strings.Cut(want, " ")
		if fmt.Sprint(rec.Code) != status || !strings.Contains(rec.Body.String(), `"`+name+`"`) {
			t.Errorf("%d %s, want %s", rec.Code, rec.Body, want)
		}
		if got := rec.Header().Get("Retry-After"); (got != "") != (name == "StoreUnavailable") {
			t.Errorf("%s: Retry-After %q", name, got)
		}
		if n := testutil.ToFloat64(s.o.Metrics.Errors.WithLabelValues("blue.skein.graph.query", name)); n != 1 {
			t.Errorf("%s is counted %v times", name, n)
		}
	}
}

type brokenStore struct {
	kv.Store
	fail func() error
}

func (b *brokenStore) View(ctx context.Context, fn func(kv.Reader) error) error {
	if b.fail != nil {
		if err := b.fail(); err != nil {
			return err
		}
	}
	return b.Store.View(ctx, fn)
}
