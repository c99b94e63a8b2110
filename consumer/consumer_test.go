package consumer_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein.blue/consumer"
	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/relay"
	"skein.blue/internal/sim/synth"
)

func open(t *testing.T) (*graph.Store, kv.Store) {
	t.Helper()
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
	g, err := graph.Open(t.Context(), store, graph.Options{})
	must(t, err)
	return g, store
}

// follow encodes a commit of a new account, its only one.
func follow(seq int64, rkey string) []byte {
	return oracle.Frame(&oracle.Event{
		Type: oracle.CommitEvent, Seq: seq, DID: "did:plc:" + rkey, Rev: oracle.TID(1<<50 + uint64(seq)),
		Ops: []oracle.Op{{Kind: "follow", Rkey: rkey, Subject: "did:plc:subject"}},
	})
}

func run(t *testing.T, g *graph.Store, o consumer.Options, frames ...[]byte) {
	t.Helper()
	if o.Relay == "" {
		o.Relay = "ws://memory"
	}
	o.Read = slices.Values(frames)
	runTo(t, g, o)
}

// runTo runs a consumer to its end.
func runTo(t *testing.T, g *graph.Store, o consumer.Options) *consumer.Consumer {
	t.Helper()
	c, err := consumer.New(g, o)
	if err == nil {
		err = c.Run(t.Context())
	}
	must(t, err)
	return c
}

func counts(t *testing.T, g *graph.Store) (c format.Counts) {
	t.Helper()
	must(t, g.View(t.Context(), func(s *ask.View) (err error) { c, err = s.Counts(); return err }))
	return c
}

func follows(t *testing.T, g *graph.Store) int64 {
	t.Helper()
	return counts(t, g).Records["follow"]
}

func cursor(g *graph.Store, source string) int64 {
	c, _ := g.Cursor(source)
	return int64(c.Seq)
}

// A jump that enough events confirm is accepted; one that nothing confirms is dropped, and
// stored as a dead letter. The same holds for a first event.
func TestJump(t *testing.T) {
	t.Parallel()
	g, store := open(t)
	const far = 1 << 40
	run(t, g, consumer.Options{}, follow(10, "a"), follow(far, "b"), follow(far, "b2"), follow(far+1, "c"), follow(far+2, "d"), follow(far+3, "e"), follow(2*far, "f"))
	if n := follows(t, g); n != 5 || cursor(g, "memory") != far+3 {
		t.Errorf("%d follows, cursor %d", n, cursor(g, "memory"))
	}
	if letters := deadLetters(t, store); len(letters) != 1 || letters[0].Seq != 2*far || letters[0].Reason != "seq_jump" {
		t.Errorf("dead letters: %+v", letters)
	}
	// Over a socket, silence confirms nothing.
	srv := serve(t, relay.NewRecorded([][]byte{follow(far, "b"), follow(10, "a")}))
	g, _ = open(t)
	zero := int64(0)
	runTo(t, g, consumer.Options{Relay: srv, Cursor: &zero, MinBackoff: time.Millisecond, Idle: 3 * time.Second})
	// Both events are applied, and neither becomes the cursor.
	if n := follows(t, g); n != 2 || cursor(g, strings.TrimPrefix(srv, "http://")) != 0 {
		t.Errorf("%d follows, cursor %d", n, cursor(g, strings.TrimPrefix(srv, "http://")))
	}
}

// Until a source has applied an event, it has no cursor but a given one.
func TestNoEventNoCursor(t *testing.T) {
	t.Parallel()
	outdated, err := synth.ReadFrames("../testdata/pds/info-outdatedcursor.frames")
	must(t, err)
	zero, high := int64(0), int64(999_999_999)
	for name, c := range map[string]struct {
		cursor *int64
		first  []byte
		want   string
	}{
		"live, info message first": {nil, outdated[0], ""},
		"cursor in the future":     {&high, nil, "999999999"},
		"from zero":                {&zero, outdated[0], "0"},
	} {
		t.Run(name, func(t *testing.T) {
			r := relay.NewRecorded([][]byte{follow(1, "a"), follow(2, "b")})
			r.First, r.FirstOnce = c.first, c.first != nil
			srv := serve(t, r)
			g, _ := open(t)
			consume(t, g, consumer.Options{Relay: srv, Cursor: c.cursor, MaxBackoff: 50 * time.Millisecond}, time.Second, nil)
			n, cursors := r.Connections()
			least := 2
			if name == "cursor in the future" { // waits for an operator
				least = 1
			}
			if n < least || cursors[0] != c.want || cursors[least-1] != c.want {
				t.Errorf("%d connections, cursors %q, want %q each time", n, cursors[:min(n, 4)], c.want)
			}
		})
	}
}

// A slow store does not count as silence of the relay.
func TestSlowStoreIsNotSilence(t *testing.T) {
	t.Parallel()
	const n = 40_000
	all := make([][]byte, 0, n)
	for i := range int64(n) {
		all = append(all, follow(i+1, "r"+oracle.TID(uint64(i))))
	}
	srv := serve(t, relay.NewRecorded(all))
	store := memkv.Open(memkv.Options{
		Merger: write.NewMerger(write.Limits{}), Limits: memkv.Limits{Key: 1e4, Value: 1e6, Txn: 1e9, Age: time.Hour},
		OnCommit: func(i int) error {
			if i > 5 {
				time.Sleep(time.Second)
			}
			return nil
		},
	})
	g, err := graph.Open(t.Context(), store, graph.Options{})
	must(t, err)
	zero := int64(0)
	runTo(t, g, consumer.Options{Relay: srv, Cursor: &zero, Idle: 400 * time.Millisecond, Watchdog: 800 * time.Millisecond})
	if got := follows(t, g); got != n {
		t.Errorf("%d follows, want %d", got, n)
	}
}

// The stream continues after anything unreadable, which is counted and stored.
func TestGarbage(t *testing.T) {
	g, store := open(t)
	damaged := follow(4, "c")
	damaged[bytes.Index(damaged, []byte("did:plc:subject"))+10] ^= 1
	run(t, g, consumer.Options{},
		follow(1, "a"), []byte("garbage"), nil, follow(2, "b"), follow(3, "b2")[:100], damaged, synth.Message("#novel", synth.Map{{Key: "seq", Value: 5}}), follow(6, "d"))
	if n := follows(t, g); n != 4 || cursor(g, "memory") != 6 {
		t.Errorf("%d follows, cursor %d", n, cursor(g, "memory"))
	}
	var got []string
	for _, l := range deadLetters(t, store) {
		got = append(got, l.Source, l.Reason, l.DID, l.Path)
	}
	want := "memory frame   memory frame   memory block_hash did:plc:c app.bsky.graph.follow/c"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("dead letters %q, want %q", s, want)
	}
	if gaps := gaps(t, store); len(gaps) != 2 || gaps[0].After != 1 || gaps[1].After != 2 {
		t.Errorf("gaps %+v", gaps)
	}
}

// A commit whose rev is of the far future is refused, counted and stored; its repo has missed something. It orders
// nothing: the commits after it apply, and are no replays.
func TestFutureRevIsRefused(t *testing.T) {
	g, store := open(t)
	commit := func(seq int64, rev uint64) []byte {
		return oracle.Frame(&oracle.Event{
			Type: oracle.CommitEvent, Seq: seq, DID: "did:plc:a", Rev: oracle.TID(rev),
			Ops: []oracle.Op{{Kind: "follow", Rkey: oracle.TID(rev), Subject: "did:plc:subject"}},
		})
	}
	now := uint64(time.Now().UnixMicro()) << 10
	metrics := consumer.NewMetrics(prometheus.NewRegistry(), nil)
	run(t, g, consumer.Options{Metrics: metrics}, commit(1, now), commit(2, now+uint64(time.Hour.Microseconds())<<10), commit(3, now+1), commit(2, now+2))
	if n := testutil.ToFloat64(metrics.Dropped.WithLabelValues("old_seq")); n != 1 {
		t.Errorf("counted %v old numbers, want 1", n)
	}
	if n := testutil.ToFloat64(metrics.Dropped.WithLabelValues("future_rev")); n != 1 || follows(t, g) != 2 {
		t.Errorf("counted %v future revs and %d follows, want 1 and 2", n, follows(t, g))
	}
	if letters, c := deadLetters(t, store), counts(t, g); len(letters) != 1 || letters[0].Reason != "future_rev" || letters[0].Seq != 2 || c.Desynchronized != 1 {
		t.Errorf("dead letters %+v, counts %+v", letters, c)
	}
}

// A subject in a space is counted, but is not a dead letter, because nothing is wrong with
// it. Its record names no subject.
func TestSpaceSubject(t *testing.T) {
	g, store := open(t)
	like := func(seq int64, uri string) []byte {
		b := synth.NewBlock(synth.CBOR(nil, synth.Map{{Key: "subject", Value: synth.Map{{Key: "uri", Value: uri}}}}))
		const did, rev = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", "3kaaaaaaaaaaa"
		root := synth.CommitBlock(did, rev, [32]byte{7})
		return synth.Message("#commit", synth.Map{
			{Key: "ops", Value: []any{synth.Map{{Key: "cid", Value: b.CID}, {Key: "path", Value: "app.bsky.feed.like/a"}, {Key: "action", Value: "create"}}}},
			{Key: "rev", Value: rev},
			{Key: "seq", Value: int(seq)},
			{Key: "repo", Value: did},
			{Key: "time", Value: "2026-01-01T00:00:00Z"},
			{Key: "since", Value: nil},
			{Key: "blocks", Value: synth.CAR(root.CID, b, root)},
			{Key: "commit", Value: root.CID},
			{Key: "tooBig", Value: false},
		})
	}
	metrics := consumer.NewMetrics(prometheus.NewRegistry(), nil)
	run(t, g, consumer.Options{Metrics: metrics}, like(1, "at://did:web:b.example.com/space/com.example.forum/self"))
	if n := testutil.ToFloat64(metrics.Dropped.WithLabelValues("space_subject")); n != 1 {
		t.Errorf("counted %v subjects in spaces, want 1", n)
	}
	if letters, c := deadLetters(t, store), counts(t, g); len(letters) > 0 || c.Records["like"] != 1 || c.Strings["uri"] != 0 || c.Desynchronized != 0 {
		t.Errorf("dead letters %+v, counts %+v", letters, c)
	}
}

// A replay over a socket, from a relay that drops connections, ends automatically: at
// silence, at an event newer than its start, or at --until.
func TestReplayFromRelay(t *testing.T) {
	var all [][]byte
	for i := range int64(500) {
		all = append(all, follow(i+1, "r"+oracle.TID(uint64(i))))
	}
	zero := int64(0)
	for name, c := range map[string]struct {
		o    consumer.Options
		more int // events newer than the start
		want int64
	}{
		"silence":   {consumer.Options{Idle: 300 * time.Millisecond, CatchUp: true}, 0, 500},
		"until":     {consumer.Options{Idle: time.Minute, Until: 321}, 0, 321},
		"caught up": {consumer.Options{Idle: time.Minute, CatchUp: true}, 4, 500},
		// Too few agree, so the replay ends at silence.
		"one clock ahead": {consumer.Options{Idle: 300 * time.Millisecond, CatchUp: true}, 1, 501},
	} {
		t.Run(name, func(t *testing.T) {
			r := relay.NewRecorded(all)
			for i := range c.more {
				r.Append(synth.Message("#identity", synth.Map{
					{Key: "did", Value: "did:plc:a"}, {Key: "seq", Value: 501 + i}, {Key: "time", Value: time.Now().Add(40 * time.Second).UTC().Format(time.RFC3339)},
				}))
			}
			if c.more == 1 { // the stream continues after it
				r.Append(follow(502, "r"+oracle.TID(501)))
			}
			var n atomic.Int64
			r.DropAfter = func() int {
				if n.Add(1) > 4 {
					return 0
				}
				return 100
			}
			srv := serve(t, r)
			g, _ := open(t)
			c.o.Relay, c.o.Cursor, c.o.MinBackoff = srv, &zero, time.Millisecond
			runTo(t, g, c.o)
			if n := follows(t, g); n != c.want {
				t.Errorf("%d follows, want %d", n, c.want)
			}
			connections, cursors := r.Connections()
			if connections < 4 || cursors[0] != "0" || cursors[1] != "99" {
				t.Errorf("%d connections, cursors %q", connections, cursors)
			}
		})
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// The consumer keeps the connection to an idle relay that answers pings for longer than the watchdog
// waits, and reconnects to one that does not.
func TestWatchdog(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]bool{"idle": true, "dead": false} {
		t.Run(name, func(t *testing.T) {
			var pings atomic.Int64
			url, connections := websocketServer(t, func(_ int64, conn *websocket.Conn) {
				if !answers {
					<-t.Context().Done()
					return
				}
				pong := conn.PingHandler()
				conn.SetPingHandler(func(data string) error { pings.Add(1); return pong(data) })
				_, _, _ = conn.NextReader()
			})
			watchdog := 400 * time.Millisecond
			if answers {
				watchdog = 2 * time.Second // a busy machine may stand still for as long as a pong takes
			}
			g, _ := open(t)
			consume(t, g, consumer.Options{Relay: url, Watchdog: watchdog}, time.Minute, func(*consumer.Consumer) bool {
				return pings.Load() == 12 || connections.Load() == 2 // 12 pings: one and a half times the watchdog
			})
			if n := connections.Load(); answers != (n == 1) {
				t.Errorf("%d connections, %d pings", n, pings.Load())
			}
		})
	}
}

// Files of frames with wrong lengths, and truncated ones.
func TestFiles(t *testing.T) {
	good := synth.AppendFrame(synth.AppendFrame(nil, follow(1, "a")), follow(2, "b"))
	for name, c := range map[string]struct {
		file    []byte
		follows int64
		err     string
	}{
		"good":       {good, 2, ""},
		"empty":      {nil, 0, ""},
		"truncated":  {good[:len(good)-3], 1, "ends within a message"},
		"half head":  {append(bytes.Clone(good), 0, 0), 2, "ends within a message"},
		"huge":       {append(bytes.Clone(good), 0xff, 0xff, 0xff, 0xff, 1), 2, "ends within a message"},
		"oversized":  {append(synth.AppendFrame(nil, make([]byte, wire.MaxFrame+1)), good...), 2, ""},
		"zero bytes": {append([]byte{0, 0, 0, 0}, good...), 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.frames")
			must(t, os.WriteFile(path, c.file, 0o600))
			g, _ := open(t)
			cons, err := consumer.New(g, consumer.Options{Frames: path})
			if err == nil {
				err = cons.Run(t.Context())
			}
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, want %q", err, c.err)
			}
			if n := follows(t, g); n != c.follows {
				t.Errorf("%d follows, want %d", n, c.follows)
			}
		})
	}
}
