package query

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein.blue/graph"
	"skein.blue/graph/write"
	"skein.blue/internal/clients"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query/algebra"
)

// get calls a method of blue.skein.graph.
func (s *Server) get(call string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/xrpc/blue.skein.graph."+call, nil))
	return w
}

// star is an account with five followers. The second is hidden.
const star = "did:web:star.example.com"

func starGraph(t *testing.T) *graph.Store {
	g := oracle.NewGraph(t, 1, 0, write.Limits{})
	g.Crowd(5, func(int) []string { return []string{star} })
	g.Hide(oracle.Account(1), true)
	return g.Store
}

// The same page has the same bytes, its cursor included, and other answers have other tags: caches depend on it, and a client
// would otherwise keep an old answer.
func TestTags(t *testing.T) {
	s := New(starGraph(t), Options{})
	seen := map[string]string{}
	for _, call := range []string{
		"query?limit=2&set=followers(" + star + ")", "query?limit=3&set=followers(" + star + ")", "list?limit=2&set=followers(" + star + ")",
		"rank?limit=1&via=followers&of=members(" + star + ")", "query?set=follows(" + oracle.Account(0) + ")", "query?set=follows(did:web:none.example.com)",
		"query?format=csv&limit=2&set=followers(" + star + ")", "query?format=csv&set=members(" + oracle.Account(0) + "," + oracle.Account(2) + ")", // the same rows
	} {
		first, second := s.get(call), s.get(call)
		tag := first.Header().Get("ETag")
		if other, ok := seen[tag]; ok || tag == "" || tag != second.Header().Get("ETag") || first.Code != http.StatusOK || first.Body.String() != second.Body.String() || strings.Contains(call, "limit") != strings.Contains(first.Body.String()+first.Header().Get("Link"), "cursor") {
			t.Errorf("%s: %d, tag %s, as %q\n%s%s", call, first.Code, tag, other, first.Body, second.Body)
		}
		seen[tag] = call
	}
	long := s.get("query?format=csv&limit=2&set=followers(" + star + ")" + strings.Repeat("+", 1<<10)).Header()
	if long.Get("Link") != "" || long.Get("Skein-Cursor") == "" {
		t.Errorf("the headers of a page of a long query: %v", long)
	}
}

// The follows of a hidden account are empty in an intersection, also if another operand is so small
// that its members are looked up instead.
func TestHiddenActorsAreNotProbed(t *testing.T) {
	s := New(starGraph(t), Options{})
	for i, want := range []string{`"total":1`, `"total":0`, `"total":1`} {
		set := fmt.Sprintf("intersect(follows(%s),members(%s))", oracle.Account(i), star)
		if rec := s.get("query?set=" + set); !strings.Contains(rec.Body.String(), want) {
			t.Errorf("%s: %s, want %s", set, rec.Body, want)
		}
	}
}

// Queries are counted by method and status, while they wait, and by how long they waited.
func TestMetrics(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	s := New(starGraph(t), Options{Metrics: m})
	s.queues.Light = clients.NewQueue(1)
	s.get("query?set=followers(" + star + ")")
	s.get("query?set=nonsense")
	for code, want := range map[string]float64{"200": 1, "400": 1, "500": 0} {
		if n := testutil.ToFloat64(m.Requests.WithLabelValues("blue.skein.graph.query", code)); n != want {
			t.Errorf("%v queries with status %s, want %v", n, code, want)
		}
	}
	if err := s.queues.Light.Enter(t.Context(), "someone"); err != nil { // the only slot
		t.Fatal(err)
	}
	var asked sync.WaitGroup
	asked.Go(func() { s.get("query?set=followers(" + star + ")") })
	for began := time.Now(); s.queues.Light.Waiting() == 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			t.Fatal("no query waits")
		}
	}
	if n := testutil.ToFloat64(m.InFlight); n != 1 {
		t.Errorf("%v queries in flight, want 1", n)
	}
	s.queues.Light.Leave("someone", time.Now())
	asked.Wait()
	if n := testutil.ToFloat64(m.InFlight); n != 0 {
		t.Errorf("%v queries in flight afterwards", n)
	}
	if waits := testutil.CollectAndCount(m.Waits); waits != 3 {
		t.Errorf("%d queues have waits, want 3", waits)
	}
}

// A query that reads much moves to the large queue. Small queries get a slot meanwhile.
func TestLargeQueriesShareASmallQueue(t *testing.T) {
	t.Parallel()
	g := oracle.NewGraph(t, 1, 0, write.Limits{})
	var stars, fans []string
	for i := range 64 {
		stars = append(stars, fmt.Sprintf("did:web:star%d.example", i))
	}
	g.Crowd(1500, func(int) []string { return stars }) // so many that each star's followers fill a row
	for i := range 100 {
		fans = append(fans, oracle.Account(i))
	}
	s := New(g.Store, Options{Timeout: time.Minute})
	s.queues.Light, s.queues.Large = clients.NewQueue(2), clients.NewQueue(1)
	get := func(ctx context.Context, client, path string) int {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodGet, "/xrpc/blue.skein.graph."+path, nil).WithContext(ctx)
		req.RemoteAddr = client + ":1"
		s.ServeHTTP(rec, req)
		return rec.Code
	}
	large := "contains?" + url.Values{"set": {"intersect(followers(" + strings.Join(stars, "),followers(") + "))"}, "member": fans}.Encode()
	// The one large slot is taken: the large query waits for it.
	if err := s.queues.Large.Enter(t.Context(), "someone"); err != nil {
		t.Fatal(err)
	}
	leave := sync.OnceFunc(func() { s.queues.Large.Leave("someone", time.Now()) })
	defer leave()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answered := make(chan int, 8)
	for i := range 8 {
		go func() { answered <- get(ctx, fmt.Sprintf("10.0.0.%d", i), large) }()
	}
	for began := time.Now(); s.queues.Large.Waiting() < 8; time.Sleep(time.Millisecond) {
		if len(answered) > 0 || time.Since(began) > 30*time.Second {
			t.Fatalf("%d answered without a slot of the large queue, %d wait for one, want 8", len(answered), s.queues.Large.Waiting())
		}
	}
	for range 100 {
		if code := get(t.Context(), "10.0.1.1", "query?set=followers(did:web:nobody.example)"); code != 200 {
			t.Fatalf("a small query: %d", code)
		}
	}
	cancel()
	for range 8 {
		<-answered
	}
	leave()
	if code := get(t.Context(), "10.0.0.1", large); code != 200 {
		t.Errorf("with a large slot: %d", code)
	}
}

// Unread answers are bounded in bytes, compressed or not: readers that do not read hold 64 KiB of each answer at least.
func TestBytesAreBounded(t *testing.T) {
	g := oracle.NewGraph(t, 1, 0, write.Limits{})
	var posts []string
	random, name := rand.NewChaCha8([32]byte{}), make([]byte, 1000)
	for range 1000 {
		_, _ = random.Read(name) // never fails
		posts = append(posts, fmt.Sprintf("at://did:web:%x.example/app.bsky.feed.post/1", name))
	}
	g.PutMany(star, "like", posts)
	for _, encoding := range []string{"identity", "gzip", "zstd"} {
		s := New(g.Store, Options{})
		req := httptest.NewRequest(http.MethodGet, "/xrpc/blue.skein.graph.query?limit=1000&set=likes("+star+")", nil)
		req.Header.Set("Accept-Encoding", encoding)
		rec := httptest.NewRecorder()
		s.ServeHTTP(rec, req)
		s.unread = clients.NewPool(int64(rec.Body.Len()) * 5 / 2)
		release := make(chan struct{})
		var wg sync.WaitGroup
		codes := make(chan int, 8)
		for range 8 {
			wg.Go(func() {
				w := &stuck{httptest.NewRecorder(), release, make(chan struct{})}
				s.ServeHTTP(w, req.Clone(t.Context()))
				codes <- w.Code
			})
		}
		for range 6 { // two are on their way, the others are refused
			select {
			case code := <-codes:
				if code != http.StatusServiceUnavailable {
					t.Errorf("%s: %d", encoding, code)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("an answer waits for its client beside two others")
			}
		}
		if rec := s.get("query?limit=5&set=likes(" + star + ")"); rec.Code != 200 {
			t.Errorf("a small answer: %d", rec.Code)
		}
		other, rec := req.Clone(t.Context()), httptest.NewRecorder()
		other.RemoteAddr = "198.51.100.1:1"
		if s.ServeHTTP(rec, other); rec.Code != 200 {
			t.Fatalf("another client: %d", rec.Code)
		}
		<-codes // one of the two is cut off
		close(release)
		wg.Wait()
		if n := testutil.ToFloat64(s.o.Metrics.Errors.WithLabelValues("any", "Busy")); n != 6 || s.unread.Held() != 0 {
			t.Errorf("%s: %v refused; %d bytes are still in flight", encoding, n, s.unread.Held())
		}
	}
}

// All members are no sample, even if a ranking reads more than its budget.
func TestMembersAreNoSample(t *testing.T) {
	g := oracle.NewGraph(t, 1, 0, write.Limits{})
	g.Crowd(algebra.MaxWindowed, func(int) []string { return []string{star} })
	rec := httptest.NewRecorder()
	New(g.Store, Options{}).ServeMembers(rec, httptest.NewRequest(http.MethodGet, "/?set=rank(of=members("+star+"),via=followers,since=2026-03-01T00:00:00.000005Z)", nil))
	if total := rec.Header().Get("Skein-Total"); total != strconv.Itoa(algebra.MaxWindowed-1) { // the first is older
		t.Errorf("%d, %s members", rec.Code, total)
	}
}

// stuck is a client that does not read large answers until it is released.
type stuck struct {
	*httptest.ResponseRecorder
	release, late chan struct{}
}

func (s *stuck) Write(b []byte) (int, error) {
	if len(b) > 1000 {
		select {
		case <-s.release:
		case <-s.late:
			return 0, os.ErrDeadlineExceeded
		}
	}
	return s.ResponseRecorder.Write(b)
}

func (s *stuck) SetWriteDeadline(time.Time) error { close(s.late); return nil }

// A damaged store is an error with a name, and a panic one at all.
func TestDamagedStore(t *testing.T) {
	mem := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
	broken := &brokenStore{Store: mem}
	store, err := graph.Open(t.Context(), broken, graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := New(store, Options{})
	for want, fail := range map[string]func() error{
		"500 StoreDamaged":        func() error { return fmt.Errorf("reading: %w", kv.ErrCorrupt) },
		"503 StoreUnavailable":    func() error { return fmt.Errorf("reading: %w", kv.ErrUnavailable) },
		"504 QueryTimeout":        func() error { return kv.ErrTooOld },
		"500 InternalServerError": func() error { panic("a mistake of ours") },
	} {
		broken.fail = fail
		rec := s.get("query?set=followers(did:web:a.example)")
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
