package labels

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/labeling"
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// must ends a test at an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// locked calls change with mu held.
func locked(mu *sync.Mutex, change func()) {
	mu.Lock()
	defer mu.Unlock()
	change()
}

const labelerDID = "did:plc:llllllllllllllllllllllll"

// fake is a labeler that keeps all of its messages.
type fake struct {
	*httptest.Server

	did string

	mu       sync.Mutex
	key      atcrypto.PrivateKey // it signs with
	shown    atcrypto.PrivateKey // whose public key its DID document has
	messages [][]byte            // a message's index plus one is its sequence number
	ignores  bool                // it ignores the cursor
	holds    int64               // a connection that has had no more messages than that waits after them
	asked    []int64             // the cursors that were asked for
	refuses  bool
	wake     chan struct{}
	conns    []*websocket.Conn
}

func newFake(t *testing.T, did string) *fake {
	t.Helper()
	key, err := atcrypto.GeneratePrivateKeyK256()
	must(t, err)
	f := &fake{did: did, key: key, shown: key, holds: -1, wake: make(chan struct{})}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(func() { f.cut(); f.Close() })
	return f
}

func (f *fake) serve(w http.ResponseWriter, r *http.Request) {
	cursor, _ := strconv.ParseInt(r.URL.Query().Get("cursor"), 10, 64)
	f.mu.Lock()
	f.asked = append(f.asked, cursor)
	refuses := f.refuses
	if f.ignores {
		cursor = 0
	}
	f.mu.Unlock()
	if refuses || r.URL.Path != "/xrpc/com.atproto.label.subscribeLabels" {
		http.Error(w, "no", http.StatusServiceUnavailable)
		return
	}
	conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	f.mu.Lock()
	f.conns = append(f.conns, conn)
	f.mu.Unlock()
	go func() {
		for {
			if _, _, err := conn.ReadMessage(); err != nil {
				return
			}
		}
	}()
	for at := cursor; ; {
		f.mu.Lock()
		if at > int64(len(f.messages)) {
			f.mu.Unlock()
			_ = conn.WriteMessage(websocket.BinaryMessage, frame(-1, "", map[string]any{"error": "FutureCursor", "message": "that is not yet"}))
			return
		}
		end, wake := int64(len(f.messages)), f.wake
		if at <= f.holds {
			end = min(end, f.holds)
		}
		waiting := f.messages[at:end]
		f.mu.Unlock()
		for _, m := range waiting {
			if conn.WriteMessage(websocket.BinaryMessage, m) != nil {
				return
			}
			at++
		}
		select {
		case <-wake:
		case <-r.Context().Done():
			return
		}
	}
}

// cut ends all connections.
func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
	close(f.wake)
	f.wake = make(chan struct{})
}

// say sends a message with labels, signed by the labeler.
func (f *fake) say(t *testing.T, labels ...labeling.Label) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []any
	for i := range labels {
		l := &labels[i]
		if l.SourceDID == "" {
			l.SourceDID = f.did
		}
		if l.CreatedAt == "" {
			l.CreatedAt = time.Now().UTC().Format(time.RFC3339Nano)
		}
		l.Version = 1
		if l.Sig == nil {
			must(t, l.Sign(f.key))
		}
		list = append(list, l)
	}
	f.send(frame(1, "#labels", map[string]any{"seq": int64(len(f.messages) + 1), "labels": list}))
}

// send appends a message. mu is held.
func (f *fake) send(m []byte) {
	f.messages = append(f.messages, m)
	close(f.wake)
	f.wake = make(chan struct{})
}

// frame is a frame of the stream.
func frame(op int64, kind string, body map[string]any) []byte {
	head := map[string]any{"op": op}
	if kind != "" {
		head["t"] = kind
	}
	return append(encode(nil, head), encode(nil, body)...)
}

// encode appends v in CBOR.
func encode(dst []byte, v any) []byte {
	head := func(major byte, n uint64) { dst = wire.AppendHead(dst, major, n) }
	switch v := v.(type) {
	case string:
		head(3, uint64(len(v)))
		return append(dst, v...)
	case int64:
		if v < 0 {
			head(1, uint64(-1-v))
		} else {
			head(0, uint64(v))
		}
		return dst
	case []any:
		head(4, uint64(len(v)))
		for _, x := range v {
			dst = encode(dst, x)
		}
		return dst
	case map[string]any:
		head(5, uint64(len(v)))
		for k, x := range v {
			dst = encode(encode(dst, k), x)
		}
		return dst
	case *labeling.Label:
		var b bytes.Buffer
		if err := v.MarshalCBOR(&b); err != nil {
			panic(err)
		}
		return append(dst, b.Bytes()...)
	}
	panic(fmt.Sprintf("%T", v))
}

// people are the DID documents of labelers.
type people struct {
	mu     sync.Mutex
	of     map[string]*fake
	asked  map[string]int
	broken bool
}

func (p *people) Labeler(_ context.Context, did string) (string, atcrypto.PublicKey, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[did]++
	f := p.of[did]
	if f == nil || p.broken {
		return "", nil, errors.New("there is no such DID document")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key, err := f.shown.PublicKey()
	return f.URL, key, err
}

// world is an index that reads labelers.
type world struct {
	t       *testing.T
	kv      kv.Store
	store   *graph.Store
	people  *people
	metrics *Metrics
	log     *slog.Logger
	quiet   time.Duration
	reads   Store // what the Consumer writes to; nil: store
	names   []string
	stop    func()
}

func newWorld(t *testing.T, names []string, of ...*fake) *world {
	t.Helper()
	w := &world{t: t, quiet: 300 * time.Millisecond, kv: memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{Row: 6, Chunk: 5})}), people: &people{of: map[string]*fake{}, asked: map[string]int{}}, names: names}
	for _, f := range of {
		w.people.of[f.did] = f
	}
	s, err := graph.Open(t.Context(), w.kv, graph.Options{Intern: intern.Options{Owner: "test"}})
	must(t, err)
	w.store = s
	w.start()
	t.Cleanup(func() {
		w.stop()
		if err := check.Store(context.Background(), w.kv, func(p string) { t.Errorf("check: %s", p) }, nil); err != nil {
			t.Error(err)
		}
	})
	return w
}

// start starts a Consumer.
func (w *world) start() {
	w.t.Helper()
	w.metrics = NewMetrics(prometheus.NewRegistry())
	if w.reads == nil {
		w.reads = w.store
	}
	c := New(w.reads, Options{Labelers: w.names, Identities: w.people, Dial: new(net.Dialer).DialContext, Retry: 10 * time.Millisecond, RetryMost: 20 * time.Millisecond, Quiet: w.quiet, Metrics: w.metrics, Logger: w.log})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
}

// members returns how many accounts and records have a label.
func (w *world) members(labeler, value string) (accounts, records uint64) {
	w.t.Helper()
	err := w.store.View(context.Background(), func(sn *ask.View) error {
		var b intern.Batch
		i := b.Add(dict.URI, []byte(kinds.LabelSet(labeler, value)))
		if err := sn.Lookup(&b); err != nil {
			return err
		}
		for k, n := range map[kinds.Kind]*uint64{kinds.LabeledAccount: &accounts, kinds.LabeledRecord: &records} {
			a, err := sn.Actors(k, b.ID(i))
			if err != nil {
				return err
			}
			all, err := a.All()
			if err != nil {
				return err
			}
			*n = all.Len()
		}
		return nil
	})
	must(w.t, err)
	return accounts, records
}

// await waits until a label has so many members.
func (w *world) await(labeler, value string, accounts, records uint64) {
	w.t.Helper()
	var a, r uint64
	for range 6000 {
		if a, r = w.members(labeler, value); a == accounts && r == records {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("%s has %d accounts and %d records, want %d and %d", value, a, r, accounts, records)
}

// awaitState waits for a state of a labeler.
func (w *world) awaitState(name string, is func(format.Labeler) bool) {
	w.t.Helper()
	var last []format.Labeler
	for range 6000 {
		all, err := w.store.Labelers(context.Background())
		must(w.t, err)
		for _, l := range all {
			if l.Name == name && is(l) {
				return
			}
		}
		last = all
		time.Sleep(10 * time.Millisecond)
	}
	w.t.Fatalf("the labelers are %+v", last)
}

func did(i int) string {
	return "did:plc:" + strings.Repeat("a", 22) + string(rune('a'+i/26)) + string(rune('a'+i%26))
}

func post(i int) string {
	return "at://" + did(i) + "/app.bsky.feed.post/3kkkkkkkkkk2" + string(rune('a'+i%26))
}

func label(uri, value string) labeling.Label { return labeling.Label{URI: uri, Val: value} }

func negated(uri, value string) labeling.Label {
	yes := true
	return labeling.Label{URI: uri, Val: value, Negated: &yes}
}

// A labeler's labels are read from its beginning, then as they come; after a restart from the cursor.
func TestLabeler(t *testing.T) {
	f := newFake(t, labelerDID)
	for i := range 20 {
		f.say(t, label(did(i), "spam"), label(post(i), "spam"), label(post(i), "rude"))
	}
	w := newWorld(t, []string{labelerDID}, f)
	w.await(labelerDID, "spam", 20, 20)
	w.awaitState(labelerDID, func(l format.Labeler) bool { return l.Current && l.Seq == 20 && l.DID == labelerDID })
	f.say(t, negated(did(3), "spam"), negated(post(4), "rude"))
	w.await(labelerDID, "spam", 19, 20)
	w.await(labelerDID, "rude", 0, 19)
	f.cut() // it connects again
	f.say(t, label(did(3), "spam"))
	w.await(labelerDID, "spam", 20, 20)
	w.stop()
	f.say(t, negated(did(0), "spam"))
	w.start()
	w.await(labelerDID, "spam", 19, 20)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.asked[0] != 0 || !slices.Contains(f.asked, 22) {
		t.Errorf("the cursors %v were asked for", f.asked)
	}
}

// A label leaves its set when it expires.
func TestExpiry(t *testing.T) {
	t.Parallel()
	f := newFake(t, labelerDID)
	w := newWorld(t, []string{labelerDID}, f)
	soon, past := time.Now().Add(5*time.Second).UTC().Format(time.RFC3339Nano), "2020-01-01T00:00:00Z"
	f.say(t, labeling.Label{URI: did(0), Val: "spam", ExpiresAt: &soon}, labeling.Label{URI: did(1), Val: "spam", ExpiresAt: &past}, label(did(2), "spam"))
	w.await(labelerDID, "spam", 2, 0)
	w.await(labelerDID, "spam", 1, 0)
}

// Labels that a labeler may not give are dropped and counted, and the others are read.
func TestBadLabels(t *testing.T) {
	f := newFake(t, labelerDID)
	other, err := atcrypto.GeneratePrivateKeyP256()
	must(t, err)
	forged := label(did(0), "spam")
	forged.SourceDID, forged.CreatedAt, forged.Version = labelerDID, "2025-01-01T00:00:00Z", 1
	must(t, forged.Sign(other))
	wrongTime, wrongCID, long := label(did(1), "spam"), label(did(2), "spam"), label(did(3), strings.Repeat("x", 129))
	wrongTime.CreatedAt = "yesterday"
	bad := "not a cid"
	wrongCID.CID = &bad
	foreign := label(did(4), "spam")
	foreign.SourceDID = "did:plc:mmmmmmmmmmmmmmmmmmmmmmmm"
	f.say(t, forged, wrongTime, wrongCID, long, foreign, label("https://example.com", "spam"), label("at://a.example.com/x.y.z/k", "spam"), label(did(5), "spam"))
	f.mu.Lock()
	unsigned := label(did(6), "spam")
	unsigned.SourceDID, unsigned.CreatedAt, unsigned.Version = labelerDID, "2025-01-01T00:00:00Z", 1
	f.send(frame(1, "#labels", map[string]any{"seq": int64(2), "labels": []any{&unsigned}}))
	f.send([]byte("junk"))
	f.send(frame(1, "#labels", map[string]any{"labels": []any{}}))
	f.send(frame(1, "#labels", map[string]any{"seq": int64(5), "labels": []any{"a label"}}))
	f.send(frame(1, "#labels", map[string]any{"seq": int64(6), "labels": []any{&labeling.Label{}}}))
	signed := func(i int) labeling.Label {
		l := label(did(i), "spam")
		l.SourceDID, l.CreatedAt, l.Version = labelerDID, "2025-01-01T00:00:00Z", 1
		must(t, l.Sign(f.key))
		return l
	}
	twice, between := signed(8), []labeling.Label{signed(9), signed(10), signed(11)}
	f.send(frame(1, "#labels", map[string]any{"seq": int64(8), "labels": []any{&between[0], "a label", &labeling.Label{}, &between[1]}}))
	f.send(append(append(encode(nil, map[string]any{"op": int64(1), "t": "#labels"}), 0xa3), slices.Concat(encode(encode(nil, "labels"), []any{&twice}), encode(encode(nil, "labels"), []any{&twice}), encode(encode(nil, "seq"), int64(7)))...))
	cut := append(append(encode(nil, map[string]any{"op": int64(1), "t": "#labels"}), 0xa2), slices.Concat(encode(encode(nil, "seq"), int64(9)), encode(encode(nil, "labels"), []any{&between[2], &twice}))...)
	f.send(cut[:len(cut)-1])
	f.send(frame(1, "#news", map[string]any{"anything": int64(1)}))
	f.mu.Unlock()
	f.say(t, label(did(7), "spam"))
	w := newWorld(t, []string{labelerDID}, f)
	w.await(labelerDID, "spam", 6, 0) // 5, 7, 8 (once), and 9 to 11
	for why, want := range map[string]float64{"signature": 2, "time": 1, "cid": 1, "value": 1, "source": 1, "subject": 2, "frame": 4, "label": 4, "version": 0} {
		if got := testutil.ToFloat64(w.metrics.Dropped.WithLabelValues(labelerDID, why)); got != want {
			t.Errorf("%s: %v were dropped, want %v", why, got, want)
		}
	}
}

// A labeler with a new key is read on with it. While its DID document cannot be read, nothing is dropped.
func TestNewKey(t *testing.T) {
	f := newFake(t, labelerDID)
	f.say(t, label(did(0), "spam"))
	w := newWorld(t, []string{labelerDID}, f)
	w.await(labelerDID, "spam", 1, 0)
	key, err := atcrypto.GeneratePrivateKeyP256()
	must(t, err)
	locked(&w.people.mu, func() { w.people.broken = true })
	locked(&f.mu, func() { f.key, f.shown = key, key })
	f.cut()
	f.say(t, label(did(1), "spam"))
	time.Sleep(100 * time.Millisecond)
	locked(&w.people.mu, func() { w.people.broken = false })
	w.await(labelerDID, "spam", 2, 0)
	if n := testutil.ToFloat64(w.metrics.Dropped.WithLabelValues(labelerDID, "signature")); n != 0 {
		t.Errorf("%v labels were dropped", n)
	}
}

// The first label that is signed with a new key counts, however recently the old key was looked up, and if the directory shows the
// new one later than the label.
func TestNewKeyOfALiveConnection(t *testing.T) {
	t.Parallel()
	f := newFake(t, labelerDID)
	w := newWorld(t, []string{labelerDID}, f)
	f.say(t, label(did(0), "spam"))
	w.await(labelerDID, "spam", 1, 0)
	key, err := atcrypto.GeneratePrivateKeyK256()
	must(t, err)
	locked(&f.mu, func() { f.key = key })
	ahead := label(did(1), "spam")
	ahead.CreatedAt = time.Now().Add(time.Minute).UTC().Format(time.RFC3339) // by its clock
	f.say(t, ahead)
	w.awaitState(labelerDID, func(l format.Labeler) bool { return !l.Current && l.Problem != "" }) // after two look-ups
	locked(&f.mu, func() { f.shown = key })
	w.await(labelerDID, "spam", 2, 0)
}

// A labeler that restarts its sequence, or ignores the cursor, is read from its beginning; what comes
// again changes nothing.
func TestSequenceAnew(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		f := newFake(t, labelerDID)
		f.ignores = ignores
		for i := range 10 {
			f.say(t, label(did(i), "spam"))
		}
		f.say(t, negated(did(0), "spam"))
		w := newWorld(t, []string{labelerDID}, f)
		w.await(labelerDID, "spam", 9, 0)
		locked(&f.mu, func() { f.messages = f.messages[:5] }) // it has lost some
		f.say(t, label(did(20), "spam"))
		f.cut()
		w.await(labelerDID, "spam", 10, 0)
		w.awaitState(labelerDID, func(l format.Labeler) bool { return l.Seq == 6 && !l.Restarted.IsZero() && l.Missed.IsZero() })
	}
}

// A labeler that ends each stream with an error of a hundred kilobytes, or says again and again that the
// cursor is in its future, is tried less and less often, and neither the store nor the log grows.
func TestEndlessErrors(t *testing.T) {
	t.Parallel()
	f := newFake(t, labelerDID)
	f.mu.Lock()
	f.send(frame(-1, "", map[string]any{"error": "Broken", "message": strings.Repeat("é", 50_000)}))
	f.mu.Unlock()
	g := newFake(t, "did:plc:gggggggggggggggggggggggg")
	g.mu.Lock()
	for range 1000 {
		g.send(frame(1, "#info", map[string]any{"name": "OutdatedCursor", "message": strings.Repeat("x", 10_000)}))
	}
	g.send(frame(-1, "", map[string]any{"error": "FutureCursor", "message": "again"}))
	g.mu.Unlock()
	var log bytes.Buffer
	w := newWorld(t, nil, f, g)
	w.stop()
	w.names, w.log = []string{labelerDID, g.did}, slog.New(slog.NewTextHandler(&log, nil))
	w.start()
	w.awaitState(labelerDID, func(l format.Labeler) bool {
		return l.Problem != "" && len(l.Problem) < 500 && utf8.ValidString(l.Problem)
	})
	w.awaitState(g.did, func(l format.Labeler) bool { return l.Problem != "" && !l.Missed.IsZero() })
	w.stop()
	if log.Len() > 9_000 {
		t.Errorf("the log has %d bytes", log.Len())
	}
}

// A labeler that stops in the middle of its past is not at its end, however long it is silent. It is at its end when
// it says that it has nothing beyond the last number, or sends a label that is younger than the connection.
func TestSilenceIsNoEnd(t *testing.T) {
	for _, ignores := range []bool{false, true} { // one that ignores the cursor never says so
		f := newFake(t, labelerDID)
		f.ignores, f.holds = ignores, 9
		for i := range 20 {
			l := label(did(i), "spam")
			l.CreatedAt = time.Now().Add(-time.Minute).UTC().Format(time.RFC3339Nano)
			if i%2 == 0 {
				l.CreatedAt = "2024-01-01T00:00:00.000Z"
			}
			f.say(t, l)
		}
		w := newWorld(t, nil, f)
		w.stop()
		w.names, w.quiet = []string{labelerDID}, time.Millisecond
		end := int64(20)
		if ignores {
			end++
		}
		states := &statesStore{Store: w.store, end: end}
		w.reads = states
		w.start()
		asks := func(cursor int64) { // until it was asked whether there is more
			t.Helper()
			for range 6000 {
				f.mu.Lock()
				asked := slices.Contains(f.asked, cursor)
				f.mu.Unlock()
				if asked || states.early.Load() > 0 {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Fatalf("it was never asked for what follows %d", cursor)
		}
		asks(10)
		f.mu.Lock()
		f.holds = -1
		close(f.wake)
		f.wake = make(chan struct{})
		f.mu.Unlock()
		if ignores {
			asks(21)
			f.say(t, label(did(20), "spam"))
		}
		w.awaitState(labelerDID, func(l format.Labeler) bool { return l.Current && l.Seq == end && !l.Seen.IsZero() })
		if n := states.early.Load(); n > 0 {
			t.Errorf("ignores the cursor %v: it was current %d times before its end", ignores, n)
		}
	}
}

// A labeler that has shown its end shows it again and again. If it no longer answers, it was seen when it last did.
func TestSeen(t *testing.T) {
	f := newFake(t, labelerDID)
	f.say(t, label(did(1), "spam"))
	w := newWorld(t, nil, f)
	w.stop()
	w.names, w.quiet = []string{labelerDID}, 5*time.Millisecond
	w.start()
	var seen time.Time
	later := func(l format.Labeler) bool {
		is := l.Current && l.Seen.After(seen)
		if is {
			seen = l.Seen
		}
		return is
	}
	asked := func(times int) { // more times
		f.mu.Lock()
		from := len(f.asked)
		f.mu.Unlock()
		for n := from; n < from+times; {
			time.Sleep(time.Millisecond)
			locked(&f.mu, func() { n = len(f.asked) })
		}
	}
	for range 3 {
		w.awaitState(labelerDID, later)
	}
	locked(&f.mu, func() { f.refuses = true }) // what is connected stays so
	asked(2)                                   // the first may have been answered
	w.awaitState(labelerDID, func(l format.Labeler) bool { seen = l.Seen; return l.Current && l.Seq == 1 })
	asked(5)
	if all, err := w.store.Labelers(t.Context()); err != nil || !all[0].Current || !all[0].Seen.Equal(seen) {
		t.Fatalf("seen at %v: %+v, %v", seen, all, err)
	}
	locked(&f.mu, func() { f.refuses = false })
	w.awaitState(labelerDID, later)
}

// statesStore counts the states that are current before the last number.
type statesStore struct {
	Store

	end   int64
	early atomic.Int64
}

func (s *statesStore) ApplyLabels(ctx context.Context, at time.Time, labels []batch.Label, before, after format.Labeler) error {
	if after.Current && after.Seq < s.end {
		s.early.Add(1)
	}
	return s.Store.ApplyLabels(ctx, at, labels, before, after)
}

// A store that does not answer for a while ends nothing.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	f := newFake(t, labelerDID)
	f.say(t, label(did(0), "spam"))
	w := newWorld(t, []string{labelerDID}, f)
	w.await(labelerDID, "spam", 1, 0)
	w.stop()
	w.reads = awayStore{w.store}
	w.start()
	f.say(t, label(did(1), "spam"))
	w.await(labelerDID, "spam", 2, 0)
}

type awayStore struct{ Store }

func (awayStore) ExpireLabels(context.Context, time.Time) (bool, error) {
	return false, fmt.Errorf("test: %w", kv.ErrUnavailable)
}

// Labelers that are down, lie or flood do not keep another one from being read, nor the store from being
// written. A labeler that is given by its address is known by its first label.
func TestBadLabelers(t *testing.T) {
	good, down := newFake(t, labelerDID), newFake(t, "did:plc:dddddddddddddddddddddddd")
	flood, liar := newFake(t, "did:plc:ffffffffffffffffffffffff"), newFake(t, "did:plc:nnnnnnnnnnnnnnnnnnnnnnnn")
	down.refuses = true
	key, err := atcrypto.GeneratePrivateKeyK256()
	must(t, err)
	liar.key = key // its DID document has another
	for i := range 3000 {
		if i < 300 {
			liar.say(t, label(did(i%600), "spam"))
		}
		var many []labeling.Label
		for range 3 {
			l := label(did(i%600), "v"+strconv.Itoa(i))
			l.Sig, l.CreatedAt = make([]byte, 64), "2025-01-01T00:00:00Z"
			many = append(many, l)
		}
		flood.say(t, many...)
	}
	flood.say(t, label(did(0), "spam"))
	good.say(t, labeling.Label{SourceDID: flood.did, URI: did(0), Val: "spam"}) // another's, which does not show who it is
	w := newWorld(t, []string{good.URL, down.did, flood.did, liar.did, "did:plc:zzzzzzzzzzzzzzzzzzzzzzzz"}, good, down, flood, liar)
	for i := range 20 {
		good.say(t, label(did(i), "spam"))
		start := time.Now()
		w.await(labelerDID, "spam", uint64(i+1), 0)
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("a label took %v", took)
		}
	}
	w.awaitState(good.URL, func(l format.Labeler) bool { return l.DID == labelerDID && l.Current })
	w.await(flood.did, "spam", 1, 0)
	w.await(liar.did, "spam", 0, 0)
	if n := testutil.ToFloat64(w.metrics.Dropped.WithLabelValues(flood.did, "signature")); n != 9000 {
		t.Errorf("%v forged labels were dropped, want 9000", n)
	}
	w.people.mu.Lock()
	defer w.people.mu.Unlock()
	for _, did := range []string{flood.did, liar.did} {
		if n := w.people.asked[did]; n > 100 { // some for each connection, not one for each label
			t.Errorf("the DID document of %s was asked for %d times", did, n)
		}
	}
}

func TestCheckLabelers(t *testing.T) {
	for _, all := range []string{labelerDID, "did:web:labels.example.com", "https://labels.example.com", "wss://labels.example.com/xrpc/com.atproto.label.subscribeLabels", "http://127.0.0.1:1"} {
		if err := CheckLabelers([]string{all}); err != nil {
			t.Error(err)
		}
	}
	for _, all := range [][]string{{"labels.example.com"}, {"did:key:zabc"}, {"ftp://x"}, {""}, {labelerDID, labelerDID}, {"https://a:b@example.com"}, {"https://example.com?x=y"}} {
		if err := CheckLabelers(all); !errors.Is(err, ErrLabeler) {
			t.Errorf("%q: %v", all, err)
		}
	}
	u, err := addressOf("wss://http.example.com/xrpc/com.atproto.label.subscribeLabels")
	if err != nil || u.String() != "wss://http.example.com/xrpc/com.atproto.label.subscribeLabels" {
		t.Errorf("%v, %v", u, err)
	}
}

// Whatever the bytes, decode does not panic.
func FuzzDecode(f *testing.F) {
	l := label(did(0), "spam")
	l.SourceDID, l.CreatedAt, l.Version, l.Sig = labelerDID, "2025-01-01T00:00:00Z", 1, []byte{1}
	f.Add(frame(1, "#labels", map[string]any{"seq": int64(2), "labels": []any{&l}}))
	f.Add(frame(-1, "", map[string]any{"error": "FutureCursor"}))
	f.Add([]byte{0xa2, 0x61})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err == nil && len(m.labels) > mostLabels {
			t.Errorf("%+v", m)
		}
		for i := range m.labels {
			if out, why := stored(&m.labels[i]); (out == nil) == (why == "") {
				t.Errorf("%+v: %v, %q", m.labels[i], out, why)
			}
		}
		// Among valid labels, nothing takes them along.
		good := encode(nil, &l)
		mixed := slices.Concat(encode(nil, map[string]any{"op": int64(1), "t": "#labels"}), []byte{0xa2}, encode(encode(nil, "seq"), int64(2)), encode(nil, "labels"), []byte{0x83}, good, b, good)
		want, item := 1, wire.Cursor{B: b}
		if item.Skip(); !item.Bad && item.I == len(b) { // one item
			want = 2
		}
		if m, err := decode(mixed); len(m.labels) < want || m.seq != 2 || want == 2 && err != nil {
			t.Errorf("%x between two labels: %d of them, %v", b, len(m.labels), err)
		}
	})
}
