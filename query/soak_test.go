package query_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/check"
	"skein.blue/graph/write"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/oracle"
)

var soakFor = flag.Duration("soak.for", 2*time.Second, "how long TestSoak runs: go test ./query -run Soak -v -soak.for 10m -timeout 20m")

// soak is a world that goes on while it is asked. Its truth is a list of
// versions: the sets after each piece of the stream.
type soak struct {
	*world
	mu        sync.Mutex // guards what follows
	versions  []oracle.Views
	first     int // the number of versions[0]
	committed int // the number of the newest that is known to be in the store
	asked     int
	wrong     []string
}

// TestSoak indexes, asks and changes accounts at once. Every answer must be that
// of one of the versions that were there while the query was under way. In
// the end there are no more goroutines than at the beginning, and not more heap
// than after the first fifth of the time.
func TestSoak(t *testing.T) {
	// Small limits, so that sets are spilled all the time.
	store, err := pebblekv.Open(pebblekv.Options{Dir: t.TempDir(), Create: true, Memory: 16 << 20, Merger: write.NewMerger(write.Limits{Row: 12, Chunk: 10})})
	must(t, err)
	s := &soak{world: newWorldOn(t, oracle.NewHistory(21, 80), store, graph.Options{SetCache: 256 << 10})}
	s.grow(2000)
	s.versions = []oracle.Views{s.model.Views()}
	http.DefaultClient.CloseIdleConnections()
	before := runtime.NumGoroutine()
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
					s.question(rng)
				}
			}
		})
	}
	var heapEarly uint64
	start := time.Now()
	events := 0
	for ; time.Since(start) < *soakFor; events += 10 {
		s.step()
		if heapEarly == 0 && time.Since(start) > *soakFor/5 {
			heapEarly = s.heap()
		}
	}
	close(stop)
	wg.Wait()
	late := s.heap()
	http.DefaultClient.CloseIdleConnections()
	for range 100 { // connections end in their own time
		if runtime.NumGoroutine() <= before {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("%d events, %d answers checked; goroutines %d before, %d after; heap %d KiB early, %d KiB late",
		events, s.asked, before, runtime.NumGoroutine(), heapEarly>>10, late>>10)
	if len(s.wrong) > 0 || s.asked < 100 {
		t.Errorf("%d of %d answers are wrong: %s", len(s.wrong), s.asked, slices.Concat(s.wrong, []string{""})[0])
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines are left, there were %d", n, before)
	}
	if late > heapEarly+heapEarly/3+8<<20 {
		t.Errorf("the heap grew from %d to %d bytes", heapEarly, late)
	}
	if err := check.Store(t.Context(), store, func(p string) { t.Error(p) }, nil); err != nil {
		t.Error(err)
	}
	if err := s.store.Close(t.Context()); err != nil {
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
	s.forget(len(s.versions) - 1)
	s.mu.Unlock()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (s *soak) forget(versions int) {
	s.versions = slices.Clone(s.versions[versions:])
	s.first += versions
}

// step lets events happen: a version.
func (s *soak) step() {
	var frames [][]byte
	for range 10 {
		e := s.history.Next()
		s.model.Apply(e)
		frames = append(frames, oracle.Frame(e))
	}
	v := s.model.Views()
	s.mu.Lock()
	s.versions = append(s.versions, v)
	number := s.first + len(s.versions) - 1
	s.mu.Unlock()
	s.index(frames)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.committed = number; len(s.versions) > 2*keptVersions {
		s.forget(keptVersions)
	}
}

// question asks one query and checks its answer.
func (s *soak) question(rng *rand.Rand) {
	accounts := s.history.Accounts()
	pick := func() string { return accounts[int(float64(len(accounts))*rng.Float64()*rng.Float64())] }
	a, b, c := pick(), pick(), pick()
	var set string
	var truth func(f, r map[string]map[string][]string) []string
	switch rng.IntN(4) {
	case 0:
		set = "intersect(followers(" + a + "),followers(" + b + "),followers(" + c + "))"
		truth = func(_, r map[string]map[string][]string) []string {
			return intersect(intersect(r["follow"][a], r["follow"][b]), r["follow"][c])
		}
	case 1:
		set = "union(likes(" + a + "),likes(" + b + "))"
		truth = func(f, _ map[string]map[string][]string) []string { return slices.Concat(f["like"][a], f["like"][b]) }
	case 2:
		set = "except(union(followers(" + a + "),blockers(" + a + ")),follows(" + b + "),blocks(" + c + "))"
		truth = func(f, r map[string]map[string][]string) []string {
			return slices.DeleteFunc(slices.Concat(r["follow"][a], r["block"][a]), func(x string) bool { return slices.Contains(f["follow"][b], x) || slices.Contains(f["block"][c], x) })
		}
	default:
		set = "intersect(follows(" + a + "),followers(" + b + "))"
		truth = func(f, r map[string]map[string][]string) []string { return intersect(f["follow"][a], r["follow"][b]) }
	}
	s.mu.Lock()
	from := s.committed
	s.mu.Unlock()
	count := rng.IntN(3) == 0
	got := s.answer("query", url.Values{"set": {set}, "limit": {"1000"}, "count": {fmt.Sprint(count)}})
	slices.Sort(got.Members)
	s.mu.Lock()
	defer s.mu.Unlock()
	if from < s.first { // it took so long that the truth is forgotten
		return
	}
	s.asked++
	for _, v := range s.versions[from-s.first:] {
		want := map[string]bool{}
		for _, m := range truth(v.Forward, v.Reverse) {
			want[m] = true
		}
		if got.Total == len(want) && (count || slices.Equal(got.Members, slices.Sorted(maps.Keys(want)))) {
			return
		}
	}
	s.wrong = append(s.wrong, fmt.Sprintf("%s: %d members %q, which is none of the versions from %d on", set, got.Total, got.Members, from))
}
