package scale

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/app"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/network"
	"skein.blue/query"
)

// newest returns the time of the newest like of the reader's 300 people, from its key: ages
// count from there, as if the store had just been made.
func newest(b testing.TB, x *app.Index) time.Time {
	b.Helper()
	s := query.New(x.Graph, query.Options{})
	at := time.Time{}
	for _, follow := range []int{0, 1, 2} {
		var got struct{ Items []struct{ Time time.Time } }
		p := url.Values{"set": {"likes(" + did(follow*131) + ")"}, "limit": {"1"}}
		if err := json.Unmarshal(get(b, s, "blue.skein.graph.list", p), &got); err != nil {
			b.Fatal(err)
		}
		if len(got.Items) > 0 && got.Items[0].Time.After(at) {
			at = got.Items[0].Time
		}
	}
	return at
}

// accountWith finds an account with a set of about that size, other than those in not.
func accountWith(b testing.TB, x *app.Index, reverse bool, kind string, about int, not ...int) (account, size int) {
	b.Helper()
	k := kinds.ByName(kind).Kind
	err := x.Graph.View(b.Context(), func(s *ask.View) error {
		for i := 5; i < 60_000; i++ {
			var batch intern.Batch
			n := batch.Add(dict.DID, []byte(did(i)))
			if err := s.Lookup(&batch); err != nil {
				return err
			}
			if batch.ID(n) == dict.None || slices.Contains(not, i) {
				continue
			}
			take := func(_ int, total uint64) error {
				if near(int(total), about) < near(size, about) {
					account, size = i, int(total)
				}
				return nil
			}
			ids := []dict.ID{batch.ID(n)}
			var err error
			if reverse {
				err = s.ActorCounts(k, ids, nil, take)
			} else {
				err = s.SubjectCounts(k, ids, take)
			}
			if err != nil || near(size, about)*20 < about {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return account, size
}

func near(n, about int) int { return max(n-about, about-n) }

// BenchmarkLately ranks the likes of the 300 people that the reader follows, of the last
// day, the last seven days, and ever.
func BenchmarkLately(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	now := newest(b, x)
	for name, age := range map[string]time.Duration{"day": 24 * time.Hour, "week": 7 * 24 * time.Hour, "ever": 0} {
		b.Run(name, func(b *testing.B) {
			p := url.Values{"of": {"follows(" + did(reader) + ")"}, "via": {"likes"}, "limit": {"50"}}
			if age > 0 {
				p.Set("since", now.Add(-age).UTC().Format(time.RFC3339))
			}
			median(b, func() { get(b, s, askRank, p) })
		})
	}
}

// BenchmarkForYou walks the second degree of an account with some three hundred likes: those who
// liked the same, damped by how much they like, and what they liked on the last day. Each half-life
// ends at the newest like of the store.
func BenchmarkForYou(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	now := newest(b, x)
	account, size := accountWith(b, x, false, "like", 300)
	of := fmt.Sprintf("rank(of=likes(%s),via=likers,damp=0.5,top=300,except=members(%[1]s))", did(account))
	for name, p := range map[string]url.Values{
		"neighbours": {"of": {"likes(" + did(account) + ")"}, "via": {"likers"}, "damp": {"0.5"}, "limit": {"300"}},
		"unweighted": {"of": {fmt.Sprintf("rank(of=likes(%s),via=likers,top=300)", did(account))}, "via": {"likes"}, "since": {now.Add(-24 * time.Hour).Format(time.RFC3339)}},
		"whole":      {"of": {of}, "via": {"likes"}, "weigh": {"score"}, "damp": {"0.3"}, "decay": {"6h"}, "since": {now.Add(-24 * time.Hour).Format(time.RFC3339)}, "except": {"likes(" + did(account) + ")"}},
	} {
		b.Run(name, func(b *testing.B) {
			median(b, func() { get(b, s, askRank, p) })
			b.ReportMetric(float64(size), "likes")
		})
	}
}

// BenchmarkSecondDegree counts whom 1,182 accounts follow, and what they like, as a feed of the second degree
// does: all results are ranked, and the first hundred returned. It reports how many results there are.
func BenchmarkSecondDegree(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	var ids []dict.ID // the first accounts of the store are its most active ones
	var names []string
	err := x.KV.View(b.Context(), func(r kv.Reader) error {
		h, err := read.Header(r)
		if err != nil {
			return err
		}
		first := []byte{format.KeyAccount}
		return r.Scan(first, kv.PrefixEnd(first), false, func(k, v []byte) (bool, error) {
			err := format.Layout{Settings: h.Settings}.EachState(k, v, func(id dict.ID, st format.RepoState) error {
				if len(ids) < 1182 && !st.Has(format.FlagHidden) {
					ids = append(ids, id)
				}
				return nil
			})
			return err == nil && len(ids) < 1182, err
		})
	})
	if err != nil {
		b.Fatal(err)
	}
	err = x.Graph.View(b.Context(), func(sn *ask.View) (err error) {
		slices.Sort(ids)
		return sn.Strings(dict.DID, ids, func(_ int, did []byte) error { names = append(names, string(did)); return nil })
	})
	if err != nil {
		b.Fatal(err)
	}
	of := "members(" + strings.Join(names, ",") + ")"
	for _, via := range []string{"follows", "likes"} {
		b.Run(via, func(b *testing.B) {
			var counted struct{ Total int }
			if err := json.Unmarshal(post(b, s, askQuery, url.Values{"set": {"rank(of=" + of + ",via=" + via + ")"}, "count": {"true"}}), &counted); err != nil {
				b.Fatal(err)
			}
			p := url.Values{"of": {of}, "via": {via}, "limit": {"100"}}
			median(b, func() { post(b, s, askRank, p) })
			b.ReportMetric(float64(counted.Total), "results")
		})
	}
}

// BenchmarkBetween asks what is between an account with some three hundred likes and others: whose records it likes, who likes the
// same (both directions of a circle, with the two kinds of records that this network has), how it is related to thirty
// accounts, and chains of follows to them.
func BenchmarkBetween(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	account, _ := accountWith(b, x, false, "like", 300)
	me := did(account)
	var follows struct{ Members []string }
	if err := json.Unmarshal(get(b, s, askQuery, url.Values{"set": {"rank(of=follows(" + me + "), via=follows, top=30)"}}), &follows); err != nil {
		b.Fatal(err)
	}
	inward := fmt.Sprintf("blend(3, rank(of=likes(%s), via=likers), 2, rank(of=likes(%[1]s), via=reposters), 1, rank(of=reposts(%[1]s), via=likers))", me)
	outward := fmt.Sprintf("blend(2, rank(of=likes(%s), via=authors), 1, rank(of=reposts(%[1]s), via=authors))", me)
	for name, ask := range map[string]func(){
		"authors": func() { get(b, s, askRank, url.Values{"of": {"likes(" + me + ")"}, "via": {"authors"}}) },
		"inward":  func() { get(b, s, askRank, url.Values{"set": {inward}}) },
		"outward": func() { get(b, s, askRank, url.Values{"set": {outward}}) },
		"relationships": func() {
			get(b, s, "app.bsky.graph.getRelationships", url.Values{"actor": {me}, "others": follows.Members})
		},
	} {
		b.Run(name, func(b *testing.B) { median(b, ask) })
	}
	b.Run("path", func(b *testing.B) {
		n := 0
		median(b, func() {
			get(b, s, "blue.skein.graph.path", url.Values{"from": {follows.Members[n%len(follows.Members)]}, "to": {me}})
			n++
		})
	})
}

// post is get with a form.
func post(b testing.TB, s http.Handler, method string, p url.Values) []byte {
	b.Helper()
	r := httptest.NewRequest(http.MethodPost, "/xrpc/"+method, strings.NewReader(p.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		b.Fatalf("%s: %d %s", method, w.Code, w.Body)
	}
	return w.Body.Bytes()
}

// BenchmarkCounts counts the likers and the reposters of a hundred posts.
func BenchmarkCounts(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	var ranked struct{ Items []struct{ Member string } }
	if err := json.Unmarshal(get(b, s, askRank, url.Values{"of": {"follows(" + did(reader) + ")"}, "via": {"likes"}, "limit": {"100"}}), &ranked); err != nil {
		b.Fatal(err)
	}
	p := url.Values{"edge": {"likers", "reposters", "listblockers"}}
	for _, item := range ranked.Items {
		p.Add("subject", item.Member)
	}
	median(b, func() { get(b, s, "blue.skein.graph.counts", p) })
}

// BenchmarkHistogram counts an account's followers, some hundred thousand, by day.
func BenchmarkHistogram(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	account, size := accountWith(b, x, true, "follow", 100_000)
	p := url.Values{"set": {"followers(" + did(account) + ")"}, "bucket": {"1d"}}
	median(b, func() { get(b, s, "blue.skein.graph.histogram", p) })
	b.ReportMetric(float64(size), "followers")
}

// BenchmarkLargestFirst sorts an account's followers, some ten thousand, by how many followers they
// have, and returns the first 50.
func BenchmarkLargestFirst(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	account, size := accountWith(b, x, true, "follow", 10_000)
	p := url.Values{"set": {"followers(" + did(account) + ")"}, "order": {"size(followers)"}, "limit": {"50"}}
	median(b, func() { get(b, s, "blue.skein.graph.list", p) })
	b.ReportMetric(float64(size), "followers")
}

// BenchmarkLift ranks the accounts that the followers of an account with some ten thousand
// followers follow unusually often.
func BenchmarkLift(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	account, size := accountWith(b, x, true, "follow", 10_000)
	b.Logf("%d followers", size)
	p := url.Values{"of": {"followers(" + did(account) + ")"}, "via": {"follows"}, "by": {"lift"}, "limit": {"50"}}
	median(b, func() { get(b, s, askRank, p) })
	b.ReportMetric(float64(size), "followers")
}

// BenchmarkList lists the newest 50 likers of a post with some five thousand.
func BenchmarkList(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	var ranked struct{ Items []struct{ Member string } }
	if err := json.Unmarshal(get(b, s, askRank, url.Values{"of": {"follows(" + did(reader) + ")"}, "via": {"likes"}, "limit": {"1000"}}), &ranked); err != nil {
		b.Fatal(err)
	}
	post, size := "", 0
	for _, item := range ranked.Items {
		var got struct{ Total int }
		if err := json.Unmarshal(get(b, s, askQuery, url.Values{"set": {"likers(" + item.Member + ")"}, "count": {"true"}}), &got); err != nil {
			b.Fatal(err)
		}
		if near(got.Total, 5000) < near(size, 5000) {
			post, size = item.Member, got.Total
		}
	}
	p := url.Values{"set": {"likers(" + post + ")"}, "limit": {"50"}}
	median(b, func() { get(b, s, "blue.skein.graph.list", p) })
	b.ReportMetric(float64(size), "likers")
}

// BenchmarkBacklinks requests the first hundred of a million followers through
// Constellation's method.
func BenchmarkBacklinks(b *testing.B) {
	x := asked(b)
	s := query.New(x.Graph, query.Options{})
	p := url.Values{"subject": {did(stars[1])}, "source": {"app.bsky.graph.follow:subject"}}
	median(b, func() { get(b, s, "blue.microcosm.links.getBacklinks", p) })
}

// BenchmarkFeed requests the first page of a feed for a viewer with some thousand follows,
// of what these liked in the last day, with 16 clients, while 20,000 events a second are
// indexed.
func BenchmarkFeed(b *testing.B) {
	x := asked(b)
	account, size := accountWith(b, x, false, "follow", 1000)
	p := url.Values{
		"of": {"follows(" + did(account) + ")"}, "via": {"likes"}, "limit": {"50"}, "except": {"likes(" + did(account) + ")"},
		"since": {newest(b, x).Add(-24 * time.Hour).UTC().Format(time.RFC3339)},
	}
	s := query.New(x.Graph, query.Options{})
	get(b, s, askRank, p) // the first request reads everything that is not cached
	stop, indexed := make(chan struct{}), make(chan int64, 1)
	go func() { indexed <- index(b, x, 20_000, stop) }()
	var times []time.Duration
	var mu sync.Mutex
	b.ResetTimer()
	for range b.N {
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 50 {
					start := time.Now()
					get(b, s, askRank, p)
					took := time.Since(start)
					mu.Lock()
					times = append(times, took)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	}
	close(stop)
	<-indexed
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, "ms/median")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, "ms/p99")
	b.ReportMetric(float64(size), "follows")
}

// BenchmarkSubscribers indexes at full speed for some seconds, alternately without
// subscribers and with a thousand subscribers to sets of accounts in the indexed network.
func BenchmarkSubscribers(b *testing.B) {
	x := asked(b)
	rate := func() float64 {
		stop, indexed := make(chan struct{}), make(chan int64, 1)
		start := time.Now()
		go func() { indexed <- index(b, x, 1_000_000, stop) }()
		time.Sleep(5 * time.Second)
		close(stop)
		return float64(<-indexed) / time.Since(start).Seconds()
	}
	defer func() { besideSeed = 0 }()
	another := func() (did func(account int) string) { // switches to a new network
		besideSeed = uint64(time.Now().UnixNano())
		o, _ := population()
		o.Seed, o.Accounts, o.Lurkers = besideSeed, 1, 0
		n := network.New(o)
		return func(account int) string { return string(n.AppendDID(nil, account)) }
	}
	var alone, beside []float64
	var changes atomic.Int64
	for range b.N {
		for range 3 {
			another()
			alone = append(alone, rate())
			did := another()
			s := query.New(x.Graph, query.Options{})
			srv := httptest.NewServer(s)
			var conns []*websocket.Conn
			for i := range 1000 {
				set := "union(followers(" + did(i) + "),intersect(follows(" + did(i+1) + "),followers(" + did(i+2) + ")))"
				conn, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(srv.URL, "http")+"/xrpc/blue.skein.graph.subscribe?"+url.Values{"set": {set}}.Encode(), nil)
				if err != nil {
					b.Fatal(err)
				}
				_ = resp.Body.Close()
				conns = append(conns, conn)
				go func() {
					for {
						var m struct{ Entered, Left []string }
						if conn.ReadJSON(&m) != nil {
							return
						}
						changes.Add(int64(len(m.Entered) + len(m.Left)))
					}
				}()
			}
			time.Sleep(2 * time.Second)
			beside = append(beside, rate())
			for _, c := range conns {
				_ = c.Close()
			}
			s.Close()
			srv.Close()
		}
	}
	slices.Sort(alone)
	slices.Sort(beside)
	b.ReportMetric(alone[len(alone)/2], "events/s-alone")
	b.ReportMetric(beside[len(beside)/2], "events/s-beside")
	b.ReportMetric(beside[len(beside)/2]/alone[len(alone)/2], "ratio")
	b.ReportMetric(float64(changes.Load()), "changes")
}

// TestSamplesAgree ranks what the followers of an account with a million, and those who like what an
// account with some three hundred likes likes, follow and like: once from a sample, and once exactly. Of
// the first ten results, eight or more are the same.
func TestSamplesAgree(t *testing.T) {
	if *dir == "" || !exists(*dir) {
		t.Skip("needs a store of real size in -scale.dir")
	}
	x := open(t, *dir)
	s := query.New(x.Graph, query.Options{})
	account, size := accountWith(t, x, true, "follow", 100_000)
	liker, likes := accountWith(t, x, false, "like", 300)
	for what, p := range map[string]url.Values{
		fmt.Sprintf("follows of %d followers", size):           {"of": {"followers(" + did(account) + ")"}, "via": {"follows"}},
		fmt.Sprintf("likes of %d followers", size):             {"of": {"followers(" + did(account) + ")"}, "via": {"likes"}},
		fmt.Sprintf("likes of those who like %d posts", likes): {"of": {"rank(of=likes(" + did(liker) + "),via=likers,top=10000)"}, "via": {"likes"}},
	} {
		p.Set("limit", "10")
		ranked := func(exact string) (top map[string]uint32, sample string, took time.Duration) {
			p.Set("exact", exact)
			var got struct {
				Sample string
				Items  []struct {
					Member string
					Count  uint32
				}
			}
			begin := time.Now()
			if err := json.Unmarshal(get(t, s, askRank, p), &got); err != nil {
				t.Fatal(err)
			}
			took, top = time.Since(begin), map[string]uint32{}
			for _, item := range got.Items {
				top[item.Member] = item.Count
			}
			return top, got.Sample, took
		}
		sampled, sample, fast := ranked("false")
		whole, none, slow := ranked("true")
		same, off := 0, 0.0
		for member, count := range sampled {
			if exact, ok := whole[member]; ok {
				same++
				off = max(off, math.Abs(float64(count)/float64(exact)-1))
			}
		}
		t.Logf("%s: %d of the first %d agree, counts within %.1f %%; %v instead of %v; %s", what, same, len(whole), 100*off, fast.Round(time.Millisecond), slow.Round(time.Millisecond), sample)
		if none != "" || same < 8 {
			t.Errorf("%s: %d of the first ten agree; exact=true says %q", what, same, none)
		}
	}
}
