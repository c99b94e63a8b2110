package scale

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/app"
	"skein.blue/internal/sim/kvtest"
	"skein.blue/internal/sim/network"
	"skein.blue/query"
)

// shared is the store that the benchmarks query.
var shared struct {
	once sync.Once
	dir  string
	x    *app.Index
}

// asked opens the store in -scale.dir, or makes a small one.
func asked(b *testing.B) *app.Index {
	b.Helper()
	shared.once.Do(func() {
		shared.dir = *dir
		if shared.dir == "" {
			var err error
			if shared.dir, err = os.MkdirTemp("", "skein-scale"); err != nil {
				b.Fatal(err)
			}
		}
		if !exists(shared.dir) {
			build(b, shared.dir)
		}
		shared.x = open(b, shared.dir)
	})
	return shared.x
}

func TestMain(m *testing.M) {
	code := kvtest.Main(m)
	if shared.x != nil {
		if err := shared.x.KV.Close(); err != nil {
			fmt.Println(err)
		}
	}
	if *dir == "" && shared.dir != "" {
		_ = os.RemoveAll(shared.dir) // a temporary folder
	}
	os.Exit(code)
}

func did(account int) string {
	o, _ := population()
	o.Accounts, o.Lurkers = 1, 0 // DIDs do not depend on them
	return string(network.New(o).AppendDID(nil, account))
}

// get sends a request within this process, without a network.
func get(b testing.TB, s http.Handler, method string, p url.Values) []byte {
	b.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/xrpc/"+method+"?"+p.Encode(), nil))
	if w.Code != http.StatusOK {
		b.Fatalf("%s %v: %d %s", method, p, w.Code, w.Body)
	}
	return w.Body.Bytes()
}

const askQuery, askKnown, askRank = "blue.skein.graph.query", "blue.skein.graph.known", "blue.skein.graph.rank"

func followersOf(star int) string { return "followers(" + did(star) + ")" }

// setOf reads a set of followers as a bitmap.
func setOf(b *testing.B, x *app.Index, account int) (set *roaring64.Bitmap) {
	b.Helper()
	err := x.Graph.View(b.Context(), func(s *ask.View) error {
		var batch intern.Batch
		i := batch.Add(dict.DID, []byte(did(account)))
		if err := s.Lookup(&batch); err != nil {
			return err
		}
		t, err := s.Actors(1, batch.ID(i))
		if err != nil {
			return err
		}
		all, err := t.All()
		set = roaring64.New()
		for id := range all.All() {
			set.Add(id)
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return set
}

// BenchmarkIntersect asks for the followers of B who follow C too, with a
// million followers each at full size. roaring is the library's And of the two
// sets, in memory as bitmaps. page is the whole query with its first 100
// members, count the same with count=true, cold the page as the first query to
// an index that was just opened.
func BenchmarkIntersect(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	set := "intersect(" + followersOf(stars[1]) + "," + followersOf(stars[2]) + ")"
	p, q := setOf(b, x, stars[1]), setOf(b, x, stars[2])
	b.Run("roaring", func(b *testing.B) {
		for b.Loop() {
			roaring64.And(p, q)
		}
		b.ReportMetric(float64(p.GetCardinality()), "members")
	})
	b.Run("page", func(b *testing.B) {
		for b.Loop() {
			get(b, s, askQuery, url.Values{"set": {set}})
		}
	})
	b.Run("count", func(b *testing.B) {
		for b.Loop() {
			get(b, s, askQuery, url.Values{"set": {set}, "count": {"true"}})
		}
	})
	b.Run("cold", func(b *testing.B) {
		if err := shared.x.KV.Close(); err != nil {
			b.Fatal(err)
		}
		defer func() { shared.x = open(b, shared.dir) }()
		var times []time.Duration
		for b.Loop() {
			x := open(b, shared.dir)
			s := query.New(x.Graph, query.Options{})
			start := time.Now()
			get(b, s, askQuery, url.Values{"set": {set}})
			times = append(times, time.Since(start))
			if err := x.KV.Close(); err != nil {
				b.Fatal(err)
			}
		}
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "query-ns/median")
	})
}

// median runs f many times, and reports the median.
func median(b *testing.B, f func()) {
	b.Helper()
	var times []time.Duration
	for b.Loop() {
		start := time.Now()
		f()
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "ms/p99")
}

// BenchmarkKnown asks which of the 300 people that the reader follows also
// follow A, who has ten million followers at full size.
func BenchmarkKnown(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	p := url.Values{"actor": {did(reader)}, "edge": {"followers"}, "subject": {did(stars[0])}}
	b.Logf("of %d followers: %.200s", setOf(b, x, stars[0]).GetCardinality(), get(b, s, askKnown, p))
	median(b, func() { get(b, s, askKnown, p) })
}

// BenchmarkRank ranks what the 300 people that the reader follows follow, and
// what they like.
func BenchmarkRank(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	for _, via := range []string{"follows", "likes"} {
		b.Run(via, func(b *testing.B) {
			p := url.Values{"of": {"follows(" + did(reader) + ")"}, "via": {via}, "limit": {"100"}}
			expanded := 0
			err := x.Graph.View(b.Context(), func(s *ask.View) error {
				var batch intern.Batch
				kind := map[string]kinds.Kind{"follows": 1, "likes": 2}[via]
				var at []int
				for i := range 300 {
					at = append(at, batch.Add(dict.DID, []byte(did(i*network.Liveliest))))
				}
				if err := s.Lookup(&batch); err != nil {
					return err
				}
				for _, i := range at {
					ids, err := s.AppendSubjects(nil, kind, batch.ID(i), ask.Window{})
					if err != nil {
						return err
					}
					expanded += len(ids)
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
			median(b, func() { get(b, s, askRank, p) })
			b.ReportMetric(float64(expanded), "expanded")
		})
	}
}

// BenchmarkServe sends many small queries over loopback, from 64 clients at a
// time: half contains, half intersections of two everyday sets with a count or
// up to ten members. beside indexes 20,000 events a second at the same time.
// heavy does so, too, and asks for the largest sets and for rankings of half a
// million likes.
func BenchmarkServe(b *testing.B) {
	b.Run("alone", func(b *testing.B) { serve(b, 0, smallQuestions, 2500) })
	b.Run("beside", func(b *testing.B) { serve(b, 20_000, smallQuestions, 2500) })
	b.Run("heavy", func(b *testing.B) { serve(b, 20_000, largeQuestions, 5) })
}

const clients = 64

// besideSeed is the seed of the network indexed beside; 0: a new one each time.
var besideSeed uint64

// serve makes every client send that many of the requests.
func serve(b *testing.B, rate int, questions func(*testing.B, *httptest.Server) [][]byte, asks int) {
	x := asked(b)
	srv := httptest.NewServer(query.New(x.Graph, query.Options{}))
	defer srv.Close()
	requests := questions(b, srv)
	stop := make(chan struct{})
	indexed := make(chan int64, 1)
	if rate > 0 {
		go func() { indexed <- index(b, x, rate, stop) }()
	}
	times := make([][]time.Duration, clients)
	var wg sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for range b.N {
		for c := range clients {
			wg.Go(func() {
				got, err := client(srv.Listener.Addr().String(), requests, uint64(c), asks)
				if err != nil {
					b.Error(err)
				}
				times[c] = append(times[c], got...)
			})
		}
		wg.Wait()
	}
	took := time.Since(start)
	all := slices.Concat(times...)
	slices.Sort(all)
	b.ReportMetric(float64(len(all))/took.Seconds(), "queries/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "ms/p99")
	if rate > 0 {
		close(stop)
		b.ReportMetric(float64(<-indexed)/time.Since(start).Seconds(), "events/s")
	}
	b.ReportMetric(float64(peakMemory()>>20), "peakMiB")
}

// client sends requests over one connection, as simply as possible, because the
// server is what is measured.
func client(addr string, requests [][]byte, seed uint64, n int) (times []time.Duration, err error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	rng := rand.New(rand.NewPCG(seed, 9))
	r := bufio.NewReaderSize(conn, 16<<10)
	for range n {
		q := requests[rng.IntN(len(requests))]
		start := time.Now()
		if _, err := conn.Write(q); err != nil {
			return nil, err
		}
		length := -1
		for first := true; ; first = false {
			line, err := r.ReadSlice('\n')
			if err != nil {
				return nil, err
			}
			if first && !strings.HasPrefix(string(line), "HTTP/1.1 200") {
				return nil, fmt.Errorf("%s: %s", q, line)
			}
			if len(line) == 2 {
				break
			}
			if v, ok := strings.CutPrefix(string(line), "Content-Length: "); ok {
				if length, err = strconv.Atoi(strings.TrimSpace(v)); err != nil {
					return nil, err
				}
			}
		}
		if _, err := io.CopyN(io.Discard, r, int64(length)); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start))
	}
	return times, nil
}

// largeQuestions makes requests for large sets.
func largeQuestions(*testing.B, *httptest.Server) (requests [][]byte) {
	a, c := followersOf(stars[0]), followersOf(stars[2])
	for _, q := range []string{
		askQuery + "?limit=1000&set=" + url.QueryEscape("union("+a+","+followersOf(stars[1])+","+c+")"),
		askQuery + "?limit=1000&set=" + url.QueryEscape("except("+a+","+c+")"),
		askQuery + "?count=true&set=" + url.QueryEscape("intersect("+a+","+c+")"),
		askRank + "?limit=1000&via=likes&of=" + url.QueryEscape("follows("+did(reader)+")"),
	} {
		requests = append(requests, []byte("GET /xrpc/"+q+" HTTP/1.1\r\nHost: skein\r\n\r\n"))
	}
	return requests
}

// smallQuestions makes requests for small sets, and sends each once.
func smallQuestions(b *testing.B, srv *httptest.Server) (requests [][]byte) {
	b.Helper()
	rng := rand.New(rand.NewPCG(1, 8))
	o, _ := population()
	o.Lurkers = 0
	n := network.New(o)
	account := func() string { return string(n.AppendDID(nil, rng.IntN(o.Accounts))) }
	lively := func() string {
		return string(n.AppendDID(nil, rng.IntN(o.Accounts/network.Liveliest)*network.Liveliest))
	}
	for len(requests) < 4000 {
		var p url.Values
		method := askQuery
		switch rng.IntN(4) {
		case 0:
			method = "blue.skein.graph.contains"
			p = url.Values{"set": {"follows(" + lively() + ")"}, "member": {account(), account()}}
		case 1:
			method = "blue.skein.graph.contains"
			p = url.Values{"set": {"followers(" + account() + ")"}, "member": {lively()}}
		case 2:
			p = url.Values{"set": {"intersect(follows(" + lively() + "),follows(" + lively() + "))"}, "count": {"true"}}
		default:
			p = url.Values{"set": {"intersect(follows(" + lively() + "),followers(" + account() + "))"}, "limit": {"10"}}
		}
		path := "/xrpc/" + method + "?" + p.Encode()
		resp, err := http.Get(srv.URL + path)
		if err != nil {
			b.Fatal(err)
		}
		var v any
		if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || resp.StatusCode != 200 || resp.Body.Close() != nil {
			b.Fatalf("%s: %d %v %v", path, resp.StatusCode, v, err)
		}
		requests = append(requests, []byte("GET "+path+" HTTP/1.1\r\nHost: skein\r\n\r\n"))
	}
	return requests
}

// index applies events at a rate until stop is closed. They are of new accounts,
// so that the rest of the store does not change.
func index(b *testing.B, x *app.Index, rate int, stop chan struct{}) int64 {
	o, _ := population()
	o.Seed, o.Lurkers = uint64(time.Now().UnixNano()), 0
	if besideSeed != 0 {
		o.Seed = besideSeed
	}
	f := newFeed(o, x, "beside")
	var seq format.Seq
	if c, ok := x.Graph.Cursor("beside"); ok {
		seq = c.Seq
	}
	f.offset = int64(seq)
	const slice = 50 // batches per second
	tick := time.NewTicker(time.Second / slice)
	defer tick.Stop()
	var e network.Event
	for {
		select {
		case <-stop:
			return f.events
		case <-tick.C:
			for range rate / slice {
				f.n.Next(&e)
				f.add(b, &e)
			}
			f.flush(b)
		}
	}
}

// BenchmarkMembers streams all followers of A over loopback, as the admin listener does.
func BenchmarkMembers(b *testing.B) {
	x := asked(b)
	srv := httptest.NewServer(http.HandlerFunc(query.New(x.Graph, query.Options{}).ServeMembers))
	defer srv.Close()
	n := int64(0)
	b.ResetTimer()
	for range b.N {
		resp, err := http.Get(srv.URL + "?" + url.Values{"set": {followersOf(stars[0])}}.Encode())
		if err != nil {
			b.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		n = 0
		for lines.Scan() {
			n++
		}
		if err := errors.Join(lines.Err(), resp.Body.Close()); err != nil || strconv.FormatInt(n, 10) != resp.Header.Get("Skein-Total") {
			b.Fatal(n, resp.Header, err)
		}
	}
	b.ReportMetric(float64(n), "members")
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "members/s")
	b.ReportMetric(float64(peakMemory()>>20), "peakMiB")
}
