package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
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
	"skein.blue/graph/read"
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
	if err != nil {
		t.Fatal(err)
	}
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
	c, err := consumer.New(g, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func follows(t *testing.T, g *graph.Store) (n int64) {
	t.Helper()
	err := g.View(t.Context(), func(s *ask.View) error {
		c, err := s.Counts()
		n = c.Records["follow"]
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func cursor(g *graph.Store, source string) int64 {
	c, _ := g.Cursor(source)
	return int64(c.Seq)
}

// Sequence numbers only grow: repeated and older events are dropped, holes lose nothing,
// and a damaged number far ahead does not drop the events after it.
func TestSequence(t *testing.T) {
	g, _ := open(t)
	run(t, g, consumer.Options{}, follow(10, "a"), follow(10, "b"), follow(9, "c"), follow(20, "d"), follow(15, "e"), follow(21, "f"))
	if n := follows(t, g); n != 3 || cursor(g, "memory") != 21 {
		t.Errorf("%d follows, cursor %d, want 3 and 21", n, cursor(g, "memory"))
	}
	// The next run starts after the stored cursor, so 21 itself is dropped.
	run(t, g, consumer.Options{}, follow(21, "g"), follow(22, "h"), follow(1<<62, "i"), follow(23, "j"), follow(24, "k"))
	if n := follows(t, g); n != 3+3 || cursor(g, "memory") != 24 { // i is refuted by j
		t.Errorf("%d follows, cursor %d", n, cursor(g, "memory"))
	}
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
	err := store.View(t.Context(), func(r kv.Reader) error {
		letters, err := read.DeadLetters(r)
		if len(letters) != 1 || letters[0].Seq != 2*far || letters[0].Reason != "seq_jump" {
			t.Errorf("dead letters: %+v", letters)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// Over a socket, silence confirms nothing.
	srv := httptest.NewServer(relay.NewRecorded([][]byte{follow(far, "b"), follow(10, "a")}))
	defer srv.Close()
	defer srv.CloseClientConnections()
	g, _ = open(t)
	zero := int64(0)
	c, err := consumer.New(g, consumer.Options{Relay: srv.URL, Cursor: &zero, MinBackoff: time.Millisecond, Idle: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Both events are applied, and neither becomes the cursor.
	if n := follows(t, g); n != 2 || cursor(g, strings.TrimPrefix(srv.URL, "http://")) != 0 {
		t.Errorf("%d follows, cursor %d", n, cursor(g, strings.TrimPrefix(srv.URL, "http://")))
	}
}

// Until a source has applied an event, it has no cursor but a given one.
func TestNoEventNoCursor(t *testing.T) {
	t.Parallel()
	outdated, err := wire.ReadFile("../testdata/pds/info-outdatedcursor.frames")
	if err != nil {
		t.Fatal(err)
	}
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
			srv := httptest.NewServer(r)
			defer srv.Close()
			defer srv.CloseClientConnections()
			g, _ := open(t)
			cons, err := consumer.New(g, consumer.Options{Relay: srv.URL, Cursor: c.cursor, MinBackoff: time.Millisecond, MaxBackoff: 50 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := cons.Run(ctx); err != nil {
				t.Fatal(err)
			}
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
	srv := httptest.NewServer(relay.NewRecorded(all))
	defer srv.Close()
	defer srv.CloseClientConnections()
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
	if err != nil {
		t.Fatal(err)
	}
	zero := int64(0)
	c, err := consumer.New(g, consumer.Options{Relay: srv.URL, Cursor: &zero, Idle: 400 * time.Millisecond, Watchdog: 800 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := follows(t, g); got != n {
		t.Errorf("%d follows, want %d", got, n)
	}
}

// The stream continues after anything unreadable, which is counted and stored.
func TestGarbage(t *testing.T) {
	g, store := open(t)
	reg := prometheus.NewRegistry()
	damaged := follow(4, "c")
	damaged[bytes.Index(damaged, []byte("did:plc:subject"))+10] ^= 1
	run(t, g, consumer.Options{Metrics: consumer.NewMetrics(reg, nil)},
		follow(1, "a"), []byte("garbage"), nil, follow(2, "b"), follow(3, "b2")[:100], damaged, synth.Message("#novel", synth.Map{{Key: "seq", Value: 5}}), follow(6, "d"))
	if n := follows(t, g); n != 4 || cursor(g, "memory") != 6 {
		t.Errorf("%d follows, cursor %d", n, cursor(g, "memory"))
	}
	err := store.View(t.Context(), func(r kv.Reader) error {
		letters, err := read.DeadLetters(r)
		var got []string
		for _, l := range letters {
			got = append(got, l.Source, l.Reason, l.DID, l.Path)
		}
		want := "memory frame   memory frame   memory block_hash did:plc:c app.bsky.graph.follow/c"
		if s := strings.Join(got, " "); s != want {
			t.Errorf("dead letters %q, want %q", s, want)
		}
		gaps, err2 := read.Gaps(r)
		if len(gaps) != 2 || gaps[0].After != 1 || gaps[1].After != 2 {
			t.Errorf("gaps %+v", gaps)
		}
		return errors.Join(err, err2)
	})
	if err != nil {
		t.Fatal(err)
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
	run(t, g, consumer.Options{Metrics: metrics}, commit(1, now), commit(2, now+uint64(time.Hour.Microseconds())<<10), commit(3, now+1))
	if n := testutil.ToFloat64(metrics.Dropped.WithLabelValues("future_rev")); n != 1 || follows(t, g) != 2 {
		t.Errorf("counted %v future revs and %d follows, want 1 and 2", n, follows(t, g))
	}
	if err := store.View(t.Context(), func(r kv.Reader) error {
		letters, err := read.DeadLetters(r)
		if len(letters) != 1 || letters[0].Reason != "future_rev" || letters[0].Seq != 2 {
			t.Errorf("dead letters %+v", letters)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := g.View(t.Context(), func(s *ask.View) error {
		c, err := s.Counts()
		if c.Desynchronized != 1 {
			t.Errorf("counts %+v", c)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A subject in a space is counted, but is not a dead letter, because nothing is wrong with
// it. Its record names no subject.
func TestSpaceSubject(t *testing.T) {
	g, store := open(t)
	reg := prometheus.NewRegistry()
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
	metrics := consumer.NewMetrics(reg, nil)
	run(t, g, consumer.Options{Metrics: metrics}, like(1, "at://did:web:b.example.com/space/com.example.forum/self"))
	if n := testutil.ToFloat64(metrics.Dropped.WithLabelValues("space_subject")); n != 1 {
		t.Errorf("counted %v subjects in spaces, want 1", n)
	}
	err := store.View(t.Context(), func(r kv.Reader) error {
		letters, err := read.DeadLetters(r)
		if len(letters) > 0 {
			t.Errorf("dead letters %+v", letters)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.View(t.Context(), func(s *ask.View) error {
		c, err := s.Counts()
		if c.Records["like"] != 1 || c.Strings["uri"] != 0 || c.Desynchronized != 0 {
			t.Errorf("counts %+v", c)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// The number of dead letters is bounded, and the newest stay.
func TestDeadLettersAreBounded(t *testing.T) {
	g, store := open(t)
	bad := func(seq int64) []byte {
		f := follow(seq, "a")
		f[bytes.Index(f, []byte("did:plc:subject"))+10] ^= 1
		return f
	}
	const n = read.MaxDeadLetters + 2000
	for from := int64(1); from <= n; from += 500 {
		var all [][]byte
		for seq := from; seq < from+500; seq++ {
			all = append(all, bad(seq))
		}
		run(t, g, consumer.Options{}, all...)
	}
	err := store.View(t.Context(), func(r kv.Reader) error {
		letters, err := read.DeadLetters(r)
		if len(letters) < read.MaxDeadLetters || len(letters) > read.MaxDeadLetters+1100 || letters[len(letters)-1].Seq != n || letters[0].Seq < 500 {
			t.Errorf("%d letters, from %d to %d", len(letters), letters[0].Seq, letters[len(letters)-1].Seq)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestParseRelay(t *testing.T) {
	for relay, want := range map[string]string{
		"wss://relay1.us-west.example.com":                     "relay1.us-west.example.com wss://relay1.us-west.example.com/xrpc/com.atproto.sync.subscribeRepos",
		"https://Relay.example.com/":                           "relay.example.com wss://Relay.example.com/xrpc/com.atproto.sync.subscribeRepos",
		"http://localhost:2583":                                "localhost:2583 ws://localhost:2583/xrpc/com.atproto.sync.subscribeRepos",
		"ws://h/xrpc/com.atproto.sync.subscribeRepos?cursor=7": "h ws://h/xrpc/com.atproto.sync.subscribeRepos",
		"ws://h/a/b":        "h ws://h/a/b",
		"relay.example.com": "", "": "", "ftp://h": "", "ws://": "", "ws://\x00": "",
	} {
		source, address, err := consumer.ParseRelay(relay)
		if got := source + " " + address; err == nil && got != want || err != nil && want != "" {
			t.Errorf("%q: %q, %v, want %q", relay, got, err, want)
		}
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
			srv := httptest.NewServer(r)
			defer srv.Close()
			g, _ := open(t)
			c.o.Relay, c.o.Cursor, c.o.MinBackoff = srv.URL, &zero, time.Millisecond
			cons, err := consumer.New(g, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if err := cons.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
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
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var connections, pings atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if connections.Add(1) == 2 {
					cancel()
				}
				var up websocket.Upgrader
				conn, err := up.Upgrade(w, r, nil)
				if err != nil {
					return
				}
				defer func() { _ = conn.Close() }()
				if !answers {
					<-ctx.Done()
					return
				}
				pong := conn.PingHandler()
				conn.SetPingHandler(func(data string) error {
					if pings.Add(1) == 12 { // one and a half times the watchdog
						cancel()
					}
					return pong(data)
				})
				_, _, _ = conn.NextReader()
			}))
			defer srv.CloseClientConnections()
			watchdog := 400 * time.Millisecond
			if answers {
				watchdog = 2 * time.Second // a busy machine may stand still for as long as a pong takes
			}
			g, _ := open(t)
			log := &lockedBuffer{}
			c, err := consumer.New(g, consumer.Options{
				Relay: srv.URL, Watchdog: watchdog, MinBackoff: time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Run(ctx); err != nil {
				t.Fatal(err)
			}
			if n := connections.Load(); answers && (n != 1 || pings.Load() < 12) || !answers && n < 2 {
				t.Errorf("%d connections, %d pings:\n%s", n, pings.Load(), log)
			}
		})
	}
}

// Files of frames with wrong lengths, and truncated ones.
func TestFiles(t *testing.T) {
	good := wire.Append(wire.Append(nil, follow(1, "a")), follow(2, "b"))
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
		"oversized":  {append(wire.Append(nil, make([]byte, wire.MaxFrame+1)), good...), 2, ""},
		"zero bytes": {append([]byte{0, 0, 0, 0}, good...), 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.frames")
			if err := os.WriteFile(path, c.file, 0o600); err != nil {
				t.Fatal(err)
			}
			g, _ := open(t)
			cons, err := consumer.New(g, consumer.Options{Frames: path})
			if err != nil {
				t.Fatal(err)
			}
			err = cons.Run(t.Context())
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, want %q", err, c.err)
			}
			if n := follows(t, g); n != c.follows {
				t.Errorf("%d follows, want %d", n, c.follows)
			}
		})
	}
}
