package query_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/check"
	"skein.blue/graph/write"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
)

var soakFor = flag.Duration("soak.for", 5*time.Second, "how long TestSoak runs: go test ./query -run Soak -v -soak.for 10m -timeout 20m")

// soak is a world that goes on while it is asked. Its truth is a list of
// versions: the sets after each piece of the stream.
type soak struct {
	*world
	mu        sync.Mutex
	versions  []oracle.Views
	first     int // the number of versions[0]
	committed int // the number of the newest that is known to be in the store
	asked     atomic.Int64
	wrong     atomic.Int64
	last      atomic.Value // the newest wrong answer
}

// TestSoak indexes, asks and changes accounts at once. Every answer must be that
// of one of the versions that were there while the query was under way. In
// the end there are no more goroutines than at the beginning, and not more heap
// than after the first fifth of the time.
func TestSoak(t *testing.T) {
	// Small limits, so that sets are spilled all the time.
	store, err := pebblekv.Open(pebblekv.Options{Dir: t.TempDir(), Create: true, Memory: 16 << 20, Merger: write.NewMerger(write.Limits{Row: 12, Chunk: 10})})
	if err != nil {
		t.Fatal(err)
	}
	g, err := graph.Open(t.Context(), store, graph.Options{SetCache: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	api, err := query.New(g, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	srv := httptest.NewServer(api)
	s := &soak{world: &world{t, g, oracle.NewHistory(21, 80), oracle.New(), srv.URL, 0}}
	s.grow(2000)
	s.versions = []oracle.Views{s.model.Views()}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for c := range 6 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 99))
			for {
				select {
				case <-stop:
					return
				default:
					s.question(client, rng)
				}
			}
		})
	}
	var heapEarly uint64
	start := time.Now()
	events := 0
	for time.Since(start) < *soakFor {
		s.step(50)
		events += 50
		if heapEarly == 0 && time.Since(start) > *soakFor/5 {
			heapEarly = s.heap()
		}
		time.Sleep(20 * time.Millisecond)
	}
	close(stop)
	wg.Wait()
	late := s.heap()
	client.CloseIdleConnections()
	srv.Close()
	for range 100 { // connections end in their own time
		if runtime.NumGoroutine() <= before {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%d events, %d answers checked, %d wrong; goroutines %d before, %d after; heap %d KiB early, %d KiB late",
		events, s.asked.Load(), s.wrong.Load(), before, runtime.NumGoroutine(), heapEarly>>10, late>>10)
	if s.wrong.Load() > 0 || s.asked.Load() < 100 {
		t.Error(s.last.Load())
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines are left, there were %d", n, before)
	}
	if late > heapEarly+heapEarly/3+8<<20 {
		t.Errorf("the heap grew from %d to %d bytes", heapEarly, late)
	}
	problems := 0
	if err := check.Store(t.Context(), store, func(p string) { problems++; t.Error(p) }, nil); err != nil || problems > 0 {
		t.Errorf("check: %d problems, %v", problems, err)
	}
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// keptVersions is how far back an answer may lie: seconds.
const keptVersions = 100

// heap returns the bytes in use, with no more of the truth than there must be.
func (s *soak) heap() uint64 {
	s.mu.Lock()
	s.first += len(s.versions) - 1
	s.versions = slices.Clone(s.versions[len(s.versions)-1:])
	s.mu.Unlock()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// step lets events happen, in one commit or several: the version after each.
func (s *soak) step(n int) {
	for range n / 10 {
		var piece []*oracle.Event
		for range 10 {
			e := s.history.Next()
			s.model.Apply(e)
			piece = append(piece, e)
		}
		v := s.model.Views()
		s.mu.Lock()
		s.versions = append(s.versions, v)
		number := s.first + len(s.versions) - 1
		s.mu.Unlock()
		s.apply(piece)
		s.mu.Lock()
		s.committed = number
		if len(s.versions) > 2*keptVersions {
			s.versions = slices.Clone(s.versions[keptVersions:])
			s.first += keptVersions
		}
		s.mu.Unlock()
	}
}

// query asks one query and checks its answer.
func (s *soak) question(client *http.Client, rng *rand.Rand) {
	accounts := s.history.Accounts()
	pick := func() string { return accounts[int(float64(len(accounts))*rng.Float64()*rng.Float64())] }
	a, b, c := pick(), pick(), pick()
	var set string
	var truth func(v *oracle.Views) []string
	switch rng.IntN(5) {
	case 0:
		set = "followers(" + a + ")"
		truth = func(v *oracle.Views) []string { return v.Reverse["follow"][a] }
	case 1:
		set = "intersect(followers(" + a + "),followers(" + b + "),followers(" + c + "))"
		truth = func(v *oracle.Views) []string {
			return intersect(intersect(v.Reverse["follow"][a], v.Reverse["follow"][b]), v.Reverse["follow"][c])
		}
	case 2:
		set = "union(likes(" + a + "),likes(" + b + "))"
		truth = func(v *oracle.Views) []string {
			return append(slices.Clone(v.Forward["like"][a]), v.Forward["like"][b]...)
		}
	case 3:
		set = "except(union(followers(" + a + "),blockers(" + a + ")),follows(" + b + "),blocks(" + c + "))"
		truth = func(v *oracle.Views) []string {
			return slices.DeleteFunc(append(slices.Clone(v.Reverse["follow"][a]), v.Reverse["block"][a]...), func(x string) bool {
				return slices.Contains(v.Forward["follow"][b], x) || slices.Contains(v.Forward["block"][c], x)
			})
		}
	default:
		set = "intersect(follows(" + a + "),followers(" + b + "))"
		truth = func(v *oracle.Views) []string { return intersect(v.Forward["follow"][a], v.Reverse["follow"][b]) }
	}
	s.mu.Lock()
	from := s.committed
	s.mu.Unlock()
	p := url.Values{"set": {set}, "limit": {"1000"}}
	count := rng.IntN(3) == 0
	if count {
		p.Set("count", "true")
	}
	resp, err := client.Get(s.base + "/xrpc/blue.skein.graph.query?" + p.Encode())
	if err != nil {
		s.note("%s: %v", set, err)
		return
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read
	var got answer
	if err != nil || resp.StatusCode != http.StatusOK || json.Unmarshal(body, &got) != nil {
		s.note("%s: %d %s %v", set, resp.StatusCode, body, err)
		return
	}
	slices.Sort(got.Members)
	s.mu.Lock()
	to := s.first + len(s.versions)
	if from < s.first { // it took so long that the truth is forgotten
		s.mu.Unlock()
		return
	}
	s.asked.Add(1)
	versions := slices.Clone(s.versions[from-s.first : to-s.first])
	s.mu.Unlock()
	for i := range versions {
		want := slices.Sorted(maps.Keys(setOf(truth(&versions[i]))))
		if got.Total == len(want) && (count || slices.Equal(got.Members, want)) {
			return
		}
	}
	s.note("%s: %d members %q, which is none of the %d versions from %d on", set, got.Total, got.Members, len(versions), from)
}

func setOf(list []string) map[string]bool {
	set := map[string]bool{}
	for _, x := range list {
		set[x] = true
	}
	return set
}

func (s *soak) note(format string, args ...any) {
	s.wrong.Add(1)
	s.last.Store(fmt.Sprintf(format, args...))
}
