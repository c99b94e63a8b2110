package app

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
)

var hookKey = []byte("a key of 24 bytes or more")

// mortal is a store of a process that may be killed.
type mortal struct {
	kv.Store

	dead   atomic.Bool
	mu     sync.Mutex
	synced map[string][]byte // what a power failure leaves, by key
}

func (m *mortal) Update(ctx context.Context, fn func(kv.Txn) error) error {
	if m.dead.Load() {
		<-ctx.Done() // as on a full disk
		return errors.New("killed")
	}
	return m.Store.Update(ctx, fn)
}

// Sync implements kv.Store.
func (m *mortal) Sync() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.View(context.Background(), func(tx kv.Reader) error {
		return kv.ScanPrefix(tx, format.WatchKey(""), func(key, place []byte) error {
			m.synced[string(key)] = slices.Clone(place)
			return nil
		})
	})
}

// watchWorld is a graph with watches, and what their receiver has learned.
type watchWorld struct {
	t     *testing.T
	disk  kv.Store
	rng   *rand.Rand
	store *mortal // of the process that runs

	mu    sync.Mutex // guards the fields below
	g     *oracle.Graph
	truth map[string]func() []string // by set
	moody bool                       // the receiver fails at random
	moods *rand.Rand
	got   map[string]*received // by watch
	again int                  // messages that came again
	says  map[string]string    // what each id stands for, over restores
}

// received is what a receiver knows of a watch.
type received struct {
	members map[string]bool
	at      map[string]int // place of a message in the order of arrival, by id
	last    int            // place of the last message

	lost     bool // the store was restored: changes come again, in another order
	restored bool // it has read the set since: what it has may be newer than a message
}

// ServeHTTP receives a message. A moody receiver may not take it, or take it and not say so, or the sender is killed meanwhile.
func (w *watchWorld) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	mood := 9
	if w.moody {
		mood = w.moods.IntN(8)
	}
	if mood == 0 {
		rw.WriteHeader(http.StatusBadGateway)
		return
	}
	body, err := io.ReadAll(r.Body)
	mac := hmac.New(sha256.New, hookKey)
	fmt.Fprintf(mac, "%s.%s.%s", r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); r.Header.Get("webhook-signature") != want || err != nil {
		w.t.Errorf("signature %s, want %s", r.Header.Get("webhook-signature"), want)
	}
	var m message
	if err := json.Unmarshal(body, &m); err != nil || m.ID != "" || m.Time.IsZero() {
		w.t.Errorf("%s: %v", body, err)
	}
	w.take(r.Header.Get("webhook-id"), &m)
	switch mood {
	case 1:
		rw.WriteHeader(http.StatusInternalServerError)
	case 2:
		w.store.dead.Store(true)
	}
}

func (w *watchWorld) take(id string, m *message) {
	k := w.got[m.Data.Watch]
	is := fmt.Sprint(m.Data, m.Type, m.Time)
	if was, again := w.says[id]; again && was != is {
		w.t.Errorf("id %s: %s, and again: %s", id, was, is)
	}
	w.says[id] = is
	if m.Type == "restored" {
		*k = received{members: w.members(m.Data.Set), at: map[string]int{}, last: -1, restored: true}
		return
	}
	at, isAgain := k.at[id]
	if isAgain {
		if at > k.last+1 && !k.lost {
			w.t.Errorf("%s: message %d comes after %d", m.Data.Watch, at, k.last)
		}
		w.again++
	} else {
		at = len(k.at)
		if !k.lost && (k.last != at-1 || !k.restored && k.members[m.Data.Member] == (m.Type == "entered")) {
			w.t.Errorf("%s: the new message %d, %s %s, comes after %d", m.Data.Watch, at, m.Data.Member, m.Type, k.last)
		}
		k.at[id], k.members[m.Data.Member] = at, m.Type == "entered"
	}
	k.last = at
}

func (w *watchWorld) members(set string) map[string]bool {
	all := map[string]bool{}
	for _, member := range w.truth[set]() {
		all[member] = !strings.HasPrefix(member, "did:") || !w.g.Model.Hidden[member]
	}
	maps.DeleteFunc(all, func(_ string, in bool) bool { return !in })
	return all
}

func (w *watchWorld) grow(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.g.Grow(w.rng.IntN(n))
}

// live runs a process for a while, and kills it, or stops it.
func (w *watchWorld) live(restored time.Time, then func()) {
	api := query.New(w.g.Store, query.Options{Subscribers: 100})
	w.store = &mortal{Store: w.disk, synced: map[string][]byte{}}
	must(w.t, w.store.Sync())
	address, _ := url.Parse("https://example.com/hook")
	x := &Index{KV: w.store, Graph: w.g.Store, Registry: prometheus.NewRegistry(), log: slog.New(slog.DiscardHandler)}
	r := &watches{
		server: &server{Index: x, api: api, o: ServeOptions{Network: new(Network)}}, hooks: &http.Client{Transport: local{w}}, backup: restored,
		failing: prometheus.NewGauge(prometheus.GaugeOpts{}),
	}
	ctx, stop := context.WithCancel(w.t.Context())
	var running sync.WaitGroup
	for set := range w.truth {
		running.Go(func() { _ = r.run(ctx, Watch{name: "w " + set, set: set, url: address, secret: hookKey}) })
	}
	then()
	if w.rng.IntN(4) > 0 {
		w.store.dead.Store(true)
	}
	stop()
	running.Wait()
	api.Close()
	synctest.Wait()
}

// Whatever is killed, and however often, and while no process runs, and if the power fails: the receiver of a watch ends with the set, gets each change of it once, by the
// messages' ids, and in order. After a restore of the store, it reads the set once.
func TestWatchesLoseNothing(t *testing.T) {
	for seed := range uint64(harness.Size(2, 40)) {
		synctest.Test(t, func(t *testing.T) {
			disk := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{}), Limits: memkv.Limits{Key: 1e4, Value: 1e8, Txn: 1e9, Age: time.Hour}})
			w := &watchWorld{t: t, disk: disk, rng: rand.New(rand.NewPCG(seed, 6)), moods: rand.New(rand.NewPCG(seed, 7)), g: oracle.GraphOn(t, seed, 9, disk), got: map[string]*received{}, says: map[string]string{}}
			w.g.Grow(300)
			a := w.g.Accounts
			w.truth = map[string]func() []string{
				"followers(" + a[0] + ")": func() []string { return w.g.Between(false, 0, 0).Reverse["follow"][a[0]] },
				"likes(" + a[1] + ")":     func() []string { return w.g.Between(false, 0, 0).Forward["like"][a[1]] },
				"lists(" + a[2] + ")":     func() []string { return w.g.ListsOf(a[2], false, 0, 0) },
				"blockedBy(" + a[3] + ")": func() (all []string) {
					v := w.g.Between(false, 0, 0)
					all = slices.Clone(v.Reverse["block"][a[3]])
					for _, list := range w.g.ListsOf(a[3], false, 0, 0) {
						all = append(all, v.Reverse["listblock"][list]...)
					}
					return all
				},
			}
			for set := range w.truth {
				w.got["w "+set] = &received{members: w.members(set), at: map[string]int{}, last: -1}
			}
			w.live(time.Time{}, func() { time.Sleep(5 * time.Second) })
			var restored time.Time
			old := map[string][]byte{}
			for n := range 50 {
				w.mu.Lock()
				w.moody = n < 49
				w.mu.Unlock()
				w.grow(5) // while no process runs
				w.live(restored, func() {
					for range w.rng.IntN(5) {
						w.grow(12)
						time.Sleep(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
					}
					if !w.moody {
						time.Sleep(20 * time.Minute)
					}
				})
				powerless := n%4 == 1
				for set := range w.truth { // a power failure, a backup, and its restore
					key := format.WatchKey("w " + set)
					_ = disk.Update(t.Context(), func(tx kv.Txn) error {
						place, _, err := tx.Get(key)
						if powerless {
							place = w.store.synced[string(key)]
							tx.Set(key, place)
						}
						switch n {
						case 20:
							old[set] = slices.Clone(place)
						case 30:
							restored = time.Now()
							tx.Set(key, old[set])
							w.got["w "+set].lost = true
						}
						return err
					})
				}
			}
			for set := range w.truth {
				k := w.got["w "+set]
				maps.DeleteFunc(k.members, func(_ string, in bool) bool { return !in })
				if want := w.members(set); !maps.Equal(k.members, want) || !k.restored {
					t.Errorf("seed %d: %s: the receiver has %q after %d messages, want %q", seed, set, slices.Sorted(maps.Keys(k.members)), len(k.at), slices.Sorted(maps.Keys(want)))
				}
			}
			if w.again < 3 {
				t.Errorf("seed %d: only %d messages came again", seed, w.again)
			}
			must(t, w.g.Store.Close(t.Context()))
		})
	}
}

// A watch that lasts ends when its set has become too large, before it tells of the member that is too many.
func TestLastingWatchIsBounded(t *testing.T) {
	told := 0
	w := &LastingWatch{Save: func(context.Context, []byte) error { return nil }, Tell: func(context.Context, Told) error { told++; return nil }}
	w.at.Members = map[string]bool{}
	for i := range maxWatched - 1 {
		w.at.Members[fmt.Sprint(i)] = true
	}
	must(t, w.change(t.Context(), "1", []string{"0", "left"}, nil)) // the first is known already
	must(t, w.change(t.Context(), "2", []string{"new"}, []string{"1"}))
	if _, is := errors.AsType[stopError](w.change(t.Context(), "3", []string{"1"}, []string{"1000000"})); !is || told != 3 || w.at.Cursor != "" {
		t.Errorf("one member too many: %d changes told, cursor %s", told, w.at.Cursor)
	}
	w.Client = &http.Client{Transport: local{http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, `{"members":["m"],"sample":"1 of 2"}`)
	})}}
	if all, err := w.members(t.Context()); err == nil {
		t.Errorf("a sample is the set: %v", all)
	}
}

// A server that falls silent, in a stream or in an answer, fails a watch, which then tries again.
func TestLastingWatchDoesNotHang(t *testing.T) {
	for _, begin := range []string{": ping\n\n", `data: {"cursor":"1"}` + "\n\n"} {
		synctest.Test(t, func(t *testing.T) {
			w := &LastingWatch{Failed: func(error, time.Duration) {}, Asker: Asker{Client: &http.Client{Transport: local{http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "subscribe") {
					rw.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(rw, begin)
				}
				<-r.Context().Done()
			})}}}}
			if err := w.follow(t.Context()); err == nil {
				t.Errorf("after %q: %v", begin, err)
			}
			synctest.Wait()
		})
	}
}

// A watch begins although a proxy answers while its server restarts, and the server limits its rate to less than the set's pages.
func TestLastingWatchBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, failed := 0, ""
		ctx, begun := context.WithTimeout(t.Context(), time.Hour)
		w := &LastingWatch{
			Load:   func(context.Context) ([]byte, error) { return nil, nil },
			Save:   func(context.Context, []byte) error { begun(); return nil },
			Failed: func(err error, _ time.Duration) { failed = cmp.Or(failed, fmt.Sprint(err)) },
		}
		w.Client = &http.Client{Transport: local{http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if asked++; asked == 1 {
				rw.WriteHeader(http.StatusBadGateway)
			} else if strings.HasSuffix(r.URL.Path, "subscribe") {
				rw.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(rw, `data: {"cursor":"1"}`+"\n\n")
				<-r.Context().Done()
			} else if asked%2 == 0 {
				rw.Header().Set("Retry-After", "30")
				rw.WriteHeader(http.StatusTooManyRequests) // a proxy's
			} else {
				fmt.Fprintf(rw, `{"members":["m%d"],"cursor":"%.*s"}`, asked, max(0, 50-asked), strings.Repeat("x", 50))
			}
		})}}
		if err := w.Run(ctx); err != nil || len(w.at.Members) != 25 || failed != "HTTP 502 Bad Gateway" {
			t.Errorf("%v: %d members, after %s", err, len(w.at.Members), failed)
		}
	})
}

// A line of the file of watches that is wrong is an error that names it.
func TestWatchFile(t *testing.T) {
	const hook = "whsec_" + "YSBrZXkgb2YgMjQgYnl0ZXMgb3IgbW9yZQ=="
	for text, want := range map[string]string{
		"a = followers(did:web:a.example) -> https://example.com/x":                                 "",
		"# none\n\n a=lists(did:web:a.example)->file:x y.jsonl\nb = likes(@c.example) -> out.jsonl": "",
		"a = follows(did:web:a.example) -> https://example.com/ secret=whsec_eA==":                  "needs a secret",
		"a = follows(did:web:a.example)":                                                            "line 1: \"a = follows(did:web:a.example)\" is not a watch",
		"\na b = follows(did:web:a.example) -> x":                                                   "line 2: ",
		"a = folows(did:web:a.example) -> x":                                                        "did you mean follows",
		"a = follows(did:web:a.example, since=1d) -> x":                                             "cannot be watched",
		"a = follows(did:web:a.example) -> x\na = likes(did:web:a.example) -> y":                    "line 2: the watch a is already defined on line 1",
		"a = follows(did:web:a.example) -> file:":                                                   "needs a path",
		"a = follows(did:web:a.example) -> ftp://example.com":                                       "is not a URL",
		"a = follows(did:web:a.example) -> http://example.com/":                                     "--allow-private-hosts",
		"a = follows(did:web:a.example) -> https://10.0.0.1/":                                       "--allow-private-hosts",
	} {
		file := filepath.Join(t.TempDir(), "watches")
		must(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := new(Network).ReadWatches(file, hook, kinds.BuiltIn)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !errors.Is(err, ErrUsage)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
