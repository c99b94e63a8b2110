package backfill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/export"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/synth"
)

// world is a network on loopback: accounts with repos, well-behaved and misbehaving hosts, a
// PLC directory, and a relay that lists the hosts.
type world struct {
	kinds []kinds.Info // configured in the store
	deaf  bool         // new indexes do not hear the stream yet
	t     *testing.T
	mu    sync.Mutex
	repos map[string]*account
	hosts []*pds
	dir   *httptest.Server
	relay *httptest.Server
	seq   format.Seq
	clock uint64

	lookedUp   *atomic.Int64     // counts requests for DID documents
	hold       chan struct{}     // the relay lists repos once this is closed
	holdsLater bool              // but for the first page
	held       atomic.Bool       // a request waits for hold
	stale      map[string]uint64 // revs that the relay lists once instead of the repos' own
	hides      map[string]bool   // accounts that the relay says are inactive when it is asked
	dirDown    bool              // the PLC directory answers nobody
	unsure     map[string]int    // how often the relay fails when it is asked about an account
}

type account struct {
	did     string
	host    *pds
	records map[string]string // path → subject
	rev     uint64
	data    [32]byte
	active  bool

	packed    []byte // the CAR file as of packedRev
	packedRev uint64
}

// pds is a host.
type pds struct {
	srv      *httptest.Server
	w        *world
	requests atomic.Int64
	// wrong, if set, may answer a getRepo itself, and then returns true.
	wrong func(w http.ResponseWriter, r *http.Request, a *account) bool
	// left are accounts that have moved away, and endless makes pages of an endless list.
	left    []*account
	endless func() []any
	down    atomic.Bool   // it does not answer
	gate    chan struct{} // it lists its repos once this is closed; nil: at once
}

func newWorld(t *testing.T, hosts int) *world {
	t.Helper()
	w := &world{t: t, repos: map[string]*account{}, clock: uint64(time.Now().Add(-time.Hour).UnixMicro()) << 10}
	for range hosts {
		h := &pds{w: w}
		h.srv = httptest.NewServer(h)
		t.Cleanup(h.srv.Close)
		w.hosts = append(w.hosts, h)
	}
	w.dir = httptest.NewServer(http.HandlerFunc(w.document))
	w.relay = httptest.NewServer(http.HandlerFunc(w.serveRelay))
	t.Cleanup(w.dir.Close)
	t.Cleanup(w.relay.Close)
	return w
}

// change changes what the servers of the world answer.
func (w *world) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

func (w *world) document(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	if w.lookedUp != nil {
		w.lookedUp.Add(1)
	}
	a, down := w.repos[strings.TrimPrefix(r.URL.Path, "/")], w.dirDown
	w.mu.Unlock()
	if down {
		rw.WriteHeader(http.StatusInternalServerError)
		return
	}
	if a == nil {
		http.NotFound(rw, r)
		return
	}
	_ = json.NewEncoder(rw).Encode(map[string]any{
		"id": a.did, "service": []any{map[string]string{"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": a.host.srv.URL}},
		"verificationMethod": []any{map[string]string{"id": "#atproto", "type": "Multikey", "controller": a.did, "publicKeyMultibase": "zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme"}},
	})
}

func (w *world) serveRelay(rw http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "listRepos") {
		w.mu.Lock()
		hold := w.hold
		w.mu.Unlock()
		if hold != nil && (!w.holdsLater || r.URL.Query().Get("cursor") != "") {
			w.held.Store(true)
			<-hold
		}
		w.list(rw, r, nil)
		return
	}
	if did := r.URL.Query().Get("did"); did != "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.unsure[did] > 0 {
			w.unsure[did]--
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		writeJSON(rw, map[string]any{"did": did, "active": w.repos[did] != nil && w.repos[did].active && !w.hides[did]})
		return
	}
	var hosts []any
	for _, h := range w.hosts {
		u, _ := url.Parse(h.srv.URL)
		hosts = append(hosts, map[string]string{"hostname": u.Host, "status": "active"})
	}
	_ = json.NewEncoder(rw).Encode(map[string]any{"hosts": hosts})
}

// list answers listRepos in pages of 7, of one host or of all.
func (w *world) list(rw http.ResponseWriter, r *http.Request, of *pds) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []any
	next := ""
	if of != nil && of.endless != nil {
		writeJSON(rw, map[string]any{"repos": of.endless(), "cursor": fmt.Sprint(rand.Uint64())})
		return
	}
	if of != nil && r.URL.Query().Get("cursor") == "" {
		for _, a := range of.left {
			all = append(all, map[string]any{"did": a.did, "rev": string(dict.AppendTID(nil, a.rev)), "active": false, "status": "deactivated"})
		}
	}
	for _, did := range slices.Sorted(maps.Keys(w.repos)) {
		a := w.repos[did]
		if of != nil && a.host != of || did <= r.URL.Query().Get("cursor") {
			continue
		}
		if len(all) == 7 {
			break
		}
		rev := a.rev
		if old, ok := w.stale[did]; ok && of == nil {
			rev = old
			delete(w.stale, did)
		}
		all = append(all, map[string]any{"did": did, "rev": string(dict.AppendTID(nil, rev)), "active": a.active, "head": "x"})
		next = did
	}
	if len(all) < 7 {
		next = ""
	}
	_ = json.NewEncoder(rw).Encode(map[string]any{"repos": all, "cursor": next})
}

// ServeHTTP implements http.Handler.
func (h *pds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.down.Load() {
		panic(http.ErrAbortHandler)
	}
	if strings.HasSuffix(r.URL.Path, "listRepos") {
		if h.gate != nil {
			<-h.gate
		}
		h.w.list(w, r, h)
		return
	}
	h.requests.Add(1)
	h.w.mu.Lock()
	a := h.w.repos[r.URL.Query().Get("did")]
	var car []byte
	known := a != nil && a.host == h
	hasLeft := a != nil && slices.Contains(h.left, a)
	if known {
		car = a.car()
	}
	h.w.mu.Unlock()
	fail := func(code int, name string) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": name})
	}
	switch {
	case (known || hasLeft) && h.wrong != nil && h.wrong(w, r, a):
	case known && strings.HasSuffix(r.URL.Path, "getRepoStatus"):
		writeJSON(w, map[string]any{"did": a.did, "active": a.active})
	case hasLeft:
		fail(http.StatusBadRequest, "RepoDeactivated")
	case !known:
		fail(http.StatusBadRequest, "RepoNotFound")
	case !a.active:
		fail(http.StatusBadRequest, "RepoDeactivated")
	default:
		_, _ = w.Write(car)
	}
}

// sent is car, for handlers of requests.
func (w *world) sent(a *account) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return a.car()
}

// car exports an account's repo. w.mu is held.
func (a *account) car() []byte {
	if a.packed != nil && a.packedRev == a.rev {
		return slices.Clone(a.packed)
	}
	var records []synth.RepoRecord
	for _, path := range slices.Sorted(maps.Keys(a.records)) {
		collection, _, _ := strings.Cut(path, "/")
		k := slices.IndexFunc(kinds.All, func(k kinds.Info) bool { return k.Collection == collection })
		records = append(records, synth.RepoRecord{Path: path, Block: synth.NewBlock(synth.AppendRecord(nil, &kinds.All[k], []byte(a.records[path]), nil, []byte("2026")))})
	}
	signature := bytes.Repeat([]byte{7}, 64) // by no key
	car, data := new(synth.Repo).Append(nil, []byte(a.did), dict.AppendTID(nil, a.rev), signature, records)
	a.data, a.packed, a.packedRev = data, car, a.rev
	return slices.Clone(car)
}

// add creates an account with a history that the stream has never brought.
func (w *world) add(i, records int) *account {
	rng := rand.New(rand.NewPCG(uint64(i), 9))
	a := &account{did: fmt.Sprintf("did:plc:%024s", strconv.FormatInt(int64(i)+1<<40, 32)), host: w.hosts[i%len(w.hosts)], records: map[string]string{}, active: true}
	a.did = strings.NewReplacer("0", "z", "1", "y", "8", "x", "9", "w", " ", "a").Replace(a.did)
	for range records {
		w.clock += 1 << 12
		k := &kinds.All[rng.IntN(4)]
		a.records[k.Collection+"/"+string(dict.AppendTID(nil, w.clock))] = subject(k, rng.IntN(50))
	}
	w.clock += 1 << 12
	a.rev = w.clock
	a.car()
	w.change(func() { w.repos[a.did] = a })
	return a
}

func subject(k *kinds.Info, n int) string {
	if k.To.Is().String() == "uri" {
		return fmt.Sprintf("at://did:web:s%d.example.com/app.bsky.feed.post/3mb2kxx5ts22a", n)
	}
	return fmt.Sprintf("did:web:s%d.example.com", n)
}

// commit makes a commit of an account, and adds it to b unless b is nil.
func (w *world) commit(rng *rand.Rand, a *account, b *batch.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, prev := a.rev, a.data
	w.clock += 1 << 12
	k := &kinds.All[rng.IntN(4)]
	path := k.Collection + "/" + string(dict.AppendTID(nil, w.clock))
	var gone []string
	if paths := slices.Sorted(maps.Keys(a.records)); len(paths) > 0 && rng.IntN(2) == 0 {
		gone = append(gone, paths[rng.IntN(len(paths))])
		delete(a.records, gone[0])
	}
	a.records[path] = subject(k, rng.IntN(50))
	w.clock += 1 << 12
	a.rev = w.clock
	a.car()
	if b == nil {
		return
	}
	w.seq++
	b.AddCommit(w.seq, &batch.Commit{DID: []byte(a.did), Rev: dict.AppendTID(nil, a.rev), Since: dict.AppendTID(nil, since), Data: a.data[:], PrevData: prev[:]})
	for _, p := range gone {
		collection, rkey, _ := strings.Cut(p, "/")
		i := slices.IndexFunc(kinds.All, func(k kinds.Info) bool { return k.Collection == collection })
		b.AddDelete(kinds.All[i].Kind, []byte(rkey))
	}
	_, rkey, _ := strings.Cut(path, "/")
	b.AddPut(k.Kind, []byte(rkey), []byte(a.records[path]))
	b.Seen(w.seq, []byte(time.Now().UTC().Format(time.RFC3339Nano)))
}

// index is a store with a running Manager.
type index struct {
	store kv.Store
	g     *graph.Store
	m     *Manager
	end   func()
}

func (w *world) index(store kv.Store, change func(*Options)) *index {
	w.t.Helper()
	o := Options{Relay: w.relay.URL, PLC: w.dir.URL, AllowPrivateHosts: true, TrustHosts: true, Settle: time.Millisecond, Patience: Patience{Retry: 5 * time.Millisecond, HostRetry: time.Millisecond, HostTries: 6}, Timeouts: Timeouts{IdleTimeout: time.Second, HeaderTimeout: 2 * time.Second}}
	if testing.Verbose() {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if change != nil {
		change(&o)
	}
	q := NewQueue(o)
	g, err := graph.Open(w.t.Context(), store, graph.Options{Queued: q.Add, Kinds: w.kinds})
	if err == nil && !w.deaf {
		err = g.SetLive(w.t.Context(), "stream", time.Now(), nil)
	}
	must(w.t, err)
	x := &index{store: store, g: g, m: New(g, q)}
	must(w.t, x.m.Enclose(w.t.Context()))
	ctx, cancel := context.WithCancel(w.t.Context())
	began, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if err := x.m.Run(ctx, func() { close(began) }); err != nil {
			w.t.Error(err)
		}
	}()
	<-began
	x.end = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(x.end)
	return x
}

// must ends a test with an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await waits until something is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Since(began) > 40*time.Second {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// uncompared reports whether a hole was noted that no comparison has followed yet.
func (x *index) uncompared() bool {
	noted, compared := x.g.Holes()
	return noted > compared
}

// settle waits until nothing is left to do.
func (x *index) settle(t *testing.T) Status {
	t.Helper()
	var st Status
	await(t, "the end of all work", func() bool { st = x.m.StatusNow(); return !st.Busy })
	return st
}

// has compares the index's records of active accounts with the world, except those of but.
func (x *index) has(t *testing.T, w *world, but ...*account) {
	t.Helper()
	var b strings.Builder
	_, err := export.Write(t.Context(), x.store, &b, nil)
	must(t, err)
	got := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(b.String())); d.More(); {
		var l struct {
			DID, Kind string
			Records   [][2]string
		}
		must(t, d.Decode(&l))
		for _, r := range l.Records {
			got[l.DID+" "+kinds.ByName(l.Kind).Collection+"/"+r[0]] = r[1]
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	want := map[string]string{}
	for _, a := range w.repos {
		if !slices.Contains(but, a) {
			for path, s := range a.records {
				want[a.did+" "+path] = s
			}
		}
	}
	if !maps.Equal(got, want) {
		missing, more := 0, 0
		for p, s := range want {
			if got[p] != s {
				if missing++; missing < 5 {
					_ = x.g.View(t.Context(), func(sn *ask.View) error {
						did, _, _ := strings.Cut(p, " ")
						st, _, row, err := sn.Account(did)
						t.Logf("%s has subject %q, want %q; account %+v, queued %+v", p, got[p], s, st, row)
						return err
					})
				}
			}
		}
		for p := range got {
			if _, ok := want[p]; !ok {
				more++
			}
		}
		t.Fatalf("the index has %d records, want %d: %d missing or wrong, %d extra", len(got), len(want), missing, more)
	}
	must(t, check.Store(t.Context(), x.store, func(p string) { t.Error(p) }, nil))
}

func newStore() kv.Store { return memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}) }

// All repos of a network are fetched while the stream goes on, from hosts that each misbehave
// differently; fetched repos are exact, and all others are reported.
func TestWholeNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 8)
	var all []*account
	for i := range 160 {
		all = append(all, w.add(i, i%30))
	}
	w.add(1000, 30_000).host = w.hosts[0] // takes several writes
	hanging := make(chan struct{})
	t.Cleanup(func() { close(hanging) })
	var busy, broken atomic.Int64
	w.hosts[1].wrong = func(rw http.ResponseWriter, _ *http.Request, _ *account) bool { // busy now and then
		if busy.Add(1)%5 != 1 {
			return false
		}
		rw.Header().Set("Ratelimit-Remaining", "0")
		rw.Header().Set("Ratelimit-Reset", "0")
		rw.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	w.hosts[2].wrong = func(_ http.ResponseWriter, r *http.Request, _ *account) bool { // hangs
		select {
		case <-hanging:
		case <-r.Context().Done():
		}
		return true
	}
	w.hosts[3].wrong = func(rw http.ResponseWriter, _ *http.Request, a *account) bool { // sends another account's repo
		_, _ = rw.Write(w.sent(all[(slices.Index(all, a)+8)%len(all)]))
		return true
	}
	w.hosts[4].wrong = func(rw http.ResponseWriter, _ *http.Request, a *account) bool { // breaks off at first
		if broken.Add(1) > 4 {
			return false
		}
		car := w.sent(a)
		rw.Header().Set("Content-Length", strconv.Itoa(len(car)))
		_, _ = rw.Write(car[:len(car)/2])
		return true
	}
	w.hosts[5].wrong = func(rw http.ResponseWriter, _ *http.Request, a *account) bool { // wrong hashes
		car := w.sent(a)
		car[len(car)-3] ^= 1
		_, _ = rw.Write(car)
		return true
	}
	w.hosts[6].wrong = func(rw http.ResponseWriter, _ *http.Request, a *account) bool { // truncated, without an error
		car := w.sent(a)
		_, _ = rw.Write(car[:len(car)-1])
		return true
	}
	x := w.index(newStore(), func(o *Options) { o.Tries, o.HeaderTimeout = 5, 400*time.Millisecond })
	must(t, x.m.Hosts(t.Context()))
	rng := rand.New(rand.NewPCG(4, 4))
	for n := 0; n < 60 || x.m.StatusNow().Fetched < 60 && n < 2000; n++ {
		var b batch.Batch
		for range 3 {
			w.commit(rng, all[rng.IntN(len(all)/8)*8+[]int{0, 1, 4, 7}[rng.IntN(4)]], &b)
		}
		must(t, x.g.Apply(t.Context(), "stream", &b))
		time.Sleep(2 * time.Millisecond)
	}
	st := x.settle(t)
	var lost []*account
	for i, a := range all {
		if h := i % 8; h == 2 || h == 3 || h == 5 || h == 6 {
			lost = append(lost, a)
		}
	}
	x.has(t, w, lost...)
	// On a busy machine, the last try of a wrong repo may end like those of the host that hangs.
	if hung := st.Failed[failHost]; hung < 20 || st.Failed[failInvalid] != 80-hung || st.Complete != 81 || st.HostsDone != 8 || st.Ended["repos"] != "ok" {
		t.Errorf("%+v", st)
	}
	// Repos that were given up are fetched after an operator has repaired their hosts, even
	// by a later process.
	for _, h := range w.hosts {
		h.wrong = nil
	}
	x.end()
	x = w.index(x.store, nil)
	if again := x.m.StatusNow(); !maps.Equal(again.Failed, st.Failed) {
		t.Errorf("after a restart: %+v, before: %+v", again, st)
	}
	var dids []string
	for _, a := range lost {
		dids = append(dids, a.did)
	}
	must(t, x.m.Resync(t.Context(), batch.Cause{Reason: "operator"}, dids...))
	if st := x.settle(t); st.Complete != 161 || len(st.Failed) > 0 {
		t.Errorf("at the end: %+v", st)
	}
	x.has(t, w)
}

// Several writers of one store each fetch the repos of their own partitions, and so they do of those that one of them queued while it had all.
func TestWriters(t *testing.T) {
	w := newWorld(t, 3)
	for i := range 60 {
		w.add(i, 10)
	}
	store := newStore()
	var managers []*Manager
	open := func() *Manager {
		q := NewQueue(Options{Relay: w.relay.URL, PLC: w.dir.URL, AllowPrivateHosts: true, TrustHosts: true, Patience: Patience{Retry: time.Millisecond}})
		g, err := graph.Open(t.Context(), store, graph.Options{
			Intern: intern.Options{Settings: dict.SharedSettings}, Joins: true, Beat: 20 * time.Millisecond, Queued: q.Add,
		})
		must(t, err)
		managers = append(managers, New(g, q))
		return managers[len(managers)-1]
	}
	must(t, open().Resync(t.Context(), batch.Cause{Reason: "test"}, slices.Sorted(maps.Keys(w.repos))...))
	open()
	for _, m := range managers {
		must(t, m.o.Store.Move(t.Context()))
		_, err := m.queue.load(t.Context(), m.o.Store)
		must(t, err)
		if n := m.queue.waiting(); n == 0 || n >= 60 {
			t.Errorf("one of two writers has %d of 60 repos in its queue", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		began, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			if err := m.Run(ctx, func() { close(began) }); err != nil {
				t.Error(err)
			}
		}()
		<-began
		t.Cleanup(func() { cancel(); <-done })
	}
	x := &index{store: store}
	for _, lists := range []bool{false, true} {
		all := int64(0)
		for _, m := range managers {
			if lists {
				must(t, m.Hosts(t.Context()))
			}
			x.m = m
			st := x.settle(t)
			if all += st.Fetched; st.Fetched == 0 || st.Fetched >= 60 {
				t.Errorf("one of two writers fetched %d of 60 repos", st.Fetched)
			}
		}
		if st := x.m.StatusNow(); st.Complete != 60 || all != 60 {
			t.Errorf("%+v, after %d fetches", st, all)
		}
	}
	x.g = x.m.o.Store
	x.has(t, w)
}

// After a kind was added, all repos are refetched, complete ones too; until then, and no
// longer, records of the kind are lacking.
func TestKindAdded(t *testing.T) {
	w := newWorld(t, 3)
	for i := range 30 {
		w.add(i, 3)
	}
	store := newStore()
	x := w.index(store, nil)
	lacking := func() (n int) {
		must(t, x.g.View(t.Context(), func(sn *ask.View) error {
			n = len(sn.Lacking())
			return nil
		}))
		return n
	}
	fetch := func() int64 {
		before := x.m.StatusNow().Fetched
		must(t, x.m.Hosts(t.Context()))
		st := x.settle(t)
		return st.Fetched - before
	}
	must(t, x.g.ChangeBackfill(t.Context(), func(b *format.Backfill) { // one that broke off, after the lists of all hosts but one
		b.Archive, b.Roster = "http://127.0.0.1:1", format.Roster{AsOf: time.Now(), Source: format.RosterRepos, Unlisted: []string{"http://127.0.0.1:2"}}
	}))
	if n := fetch(); n != 30 || lacking() != 0 || x.g.Backfill().Archive != "" {
		t.Fatalf("first fetched %d repos; %d kinds lack records", n, lacking())
	}
	if n := fetch(); n != 0 {
		t.Errorf("refetched %d complete repos", n)
	}
	x.end()
	var err error
	w.kinds, err = kinds.Parse("a.b.c x did xs ys")
	must(t, err)
	x = w.index(store, nil)
	if lacking() != 1 {
		t.Errorf("%d kinds lack records", lacking())
	}
	if n := fetch(); n != 30 || lacking() != 0 {
		t.Errorf("fetched %d repos; %d kinds lack records", n, lacking())
	}
	x.has(t, w)
}

// afterView is a store that calls a function once, after the next View.
type afterView struct {
	kv.Store
	call atomic.Pointer[func()]
}

func (s *afterView) View(ctx context.Context, fn func(kv.Reader) error) error {
	err := s.Store.View(ctx, fn)
	if call := s.call.Swap(nil); call != nil {
		(*call)()
	}
	return err
}

// A repo that is put in place while a status is made is either queued in it, or complete.
func TestStatusDuringFetch(t *testing.T) {
	w := newWorld(t, 1)
	a := w.add(1, 5)
	s := &afterView{Store: newStore()}
	x := w.index(s, nil)
	release := make(chan struct{})
	a.host.wrong = func(http.ResponseWriter, *http.Request, *account) bool { <-release; return false }
	must(t, x.m.Resync(t.Context(), batch.Cause{Reason: "test"}, a.did))
	await(t, "a fetch", func() bool { return a.host.requests.Load() > 0 })
	end := func() {
		close(release)
		x.settle(t)
	}
	s.call.Store(&end)
	if st := x.m.StatusNow(); !st.Busy && st.Complete == 0 {
		t.Errorf("nothing is queued, and nothing is complete: %+v", st)
	}
	if st := x.settle(t); st.Complete != 1 {
		t.Errorf("%+v", st)
	}
}

// A repo repairs itself after the stream missed a commit while no Manager was running.
func TestRepair(t *testing.T) {
	w := newWorld(t, 2)
	other := w.add(2, 5)
	x := w.index(newStore(), nil)
	w.fetched(x, other)
	x.has(t, w)
	rng := rand.New(rand.NewPCG(5, 5))
	x.end()
	// Without a Manager, nothing is queued.
	g, err := graph.Open(t.Context(), x.store, graph.Options{})
	must(t, err)
	w.commit(rng, other, nil)
	var b batch.Batch
	w.commit(rng, other, &b)
	must(t, errors.Join(g.Apply(t.Context(), "stream", &b), g.Close(t.Context())))
	x = w.index(x.store, nil)
	await(t, "the repair", func() bool { return x.m.StatusNow().Desynchronized == 0 })
	x.has(t, w)
}

// A page of the relay's list that is older than the index proves nothing: its repos are not fetched,
// and count as complete. A repo that was put back in a hole of the stream is listed with a lower rev
// again, and fetched.
func TestStaleList(t *testing.T) {
	w := newWorld(t, 2)
	var all []*account
	for i := range 20 {
		all = append(all, w.add(i, 5))
	}
	x := w.index(newStore(), func(o *Options) { o.Settle = 50 * time.Millisecond })
	w.fetched(x, all...)
	rng := rand.New(rand.NewPCG(6, 6))
	committed, putBack := all[:6], all[6:8]
	type state struct {
		records map[string]string
		rev     uint64
	}
	var before []state
	for _, a := range all[:8] {
		before = append(before, state{maps.Clone(a.records), a.rev})
		x.deliver(t, func(b *batch.Batch) { w.commit(rng, a, b) })
	}
	w.mu.Lock()
	w.stale = map[string]uint64{}
	for i, a := range committed {
		w.stale[a.did] = before[i].rev
	}
	for i, a := range putBack {
		a.records, a.rev, a.packed = before[6+i].records, before[6+i].rev, nil
		a.car()
	}
	w.mu.Unlock()
	fetched := x.m.fetcher.fetched.Load()
	x.deliver(t, func(b *batch.Batch) {
		b.AddGap(format.Gap{Reason: "outdated_cursor", Time: time.Now().UTC(), Suspect: true})
	})
	x.awaitComparison(t)
	x.settle(t)
	x.has(t, w)
	if n := x.m.fetcher.fetched.Load() - fetched; n != int64(len(putBack)) || len(w.stale) > 0 {
		t.Errorf("fetched %d repos, and %d were put back; %d stale revs were not listed", n, len(putBack), len(w.stale))
	}
	for _, a := range all {
		if st, row := x.stateOf(t, a.did); !st.Complete() || uint64(st.Rev) != a.rev || row != nil {
			t.Errorf("%s: %+v, queued: %+v; the repo has rev %d", a.did, st, row, a.rev)
		}
	}
}

// Requests to private addresses fail, even through a redirect.
func TestPrivateHosts(t *testing.T) {
	w := newWorld(t, 2)
	private, redirected := w.add(0, 3), w.add(1, 3)
	w.hosts[1].wrong = func(rw http.ResponseWriter, r *http.Request, _ *account) bool {
		http.Redirect(rw, r, w.hosts[0].srv.URL+r.URL.RequestURI(), http.StatusFound)
		return true
	}
	before := w.hosts[0].requests.Load()
	x := w.index(newStore(), func(o *Options) {
		o.AllowPrivateHosts, o.TrustHosts, o.Relay = false, false, w.hosts[1].srv.URL
	})
	x.m.queue.mu.Lock()
	x.m.queue.named[w.hosts[1].srv.URL] = true
	x.m.queue.mu.Unlock()
	// One repo is on a host that the operator named and configured, and that redirects to a private one. The
	// other was listed by a stranger, which is therefore not asked for the repo; its DID
	// document names an http address, which is valid only in a private network.
	var listed batch.Batch
	for _, a := range []*account{private, redirected} {
		listed.AddResync([]byte(a.did), batch.Cause{Reason: "test", Host: a.host.srv.URL})
	}
	must(t, x.g.Apply(t.Context(), "", &listed))
	if st := x.settle(t); st.Failed[failPrivate] != 1 || st.Failed[failNoPDS] != 1 || w.hosts[0].requests.Load() != before {
		t.Errorf("%+v, and %d requests arrived", st, w.hosts[0].requests.Load()-before)
	}
}

// PlaceCAR accepts a file if the index has less.
func TestCAR(t *testing.T) {
	w := newWorld(t, 1)
	a := w.add(1, 12)
	old := a.car()
	rng := rand.New(rand.NewPCG(5, 5))
	w.commit(rng, a, nil)
	x := w.index(newStore(), func(o *Options) { o.Relay = "" })
	w.hosts[0].wrong = func(rw http.ResponseWriter, _ *http.Request, _ *account) bool {
		rw.WriteHeader(http.StatusNotFound)
		return true
	}
	for _, c := range []struct {
		car  []byte
		want string
	}{{a.car(), "placed"}, {old, "not_newer"}, {a.car(), "not_newer"}} {
		p, err := x.m.PlaceCAR(t.Context(), strings.NewReader(string(c.car)))
		if err != nil || p.Outcome != c.want || p.DID != a.did {
			t.Errorf("%+v, want %s: %v", p, c.want, err)
		}
	}
	x.settle(t)
	x.has(t, w)
	if _, err := x.m.PlaceCAR(t.Context(), strings.NewReader("not a CAR")); err == nil {
		t.Error("a file that is not a CAR was accepted")
	}
}
