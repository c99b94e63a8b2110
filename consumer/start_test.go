package consumer_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"skein.blue/consumer"
	"skein.blue/graph"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/relay"
	"skein.blue/internal/sim/synth"
)

// consume runs a consumer for a while, or until done reports true.
func consume(t *testing.T, g *graph.Store, o consumer.Options, most time.Duration, done func(*consumer.Consumer) bool) {
	t.Helper()
	if o.MinBackoff == 0 {
		o.MinBackoff = time.Millisecond
	}
	c, err := consumer.New(g, o)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	if done != nil {
		go func() {
			for ctx.Err() == nil && !done(c) {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
	}
	must(t, c.Run(ctx))
}

func gaps(t *testing.T, store kv.Store) (all []format.Gap) {
	t.Helper()
	must(t, store.View(t.Context(), func(r kv.Reader) (err error) { all, err = read.Gaps(r); return err }))
	return all
}

// websocketServer calls each with each connection.
func websocketServer(t *testing.T, each func(n int64, conn *websocket.Conn)) (url string, connections *atomic.Int64) {
	t.Helper()
	connections = new(atomic.Int64)
	return serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := new(websocket.Upgrader).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		each(connections.Add(1), conn)
		_ = conn.Close()
	})), connections
}

// serve starts a server, and returns its address.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return srv.URL
}

// A start is a gap if a stream was followed before that left no cursor.
func TestLiveAfterAnother(t *testing.T) {
	g, store := open(t)
	url, _ := websocketServer(t, func(_ int64, conn *websocket.Conn) { _, _, _ = conn.NextReader() })
	for n, source := range []string{"one.example.com", "other.example.com"} {
		consume(t, g, consumer.Options{Relay: url, Source: source}, 5*time.Second, func(*consumer.Consumer) bool { _, ok := g.LiveSince(source); return ok })
		if all := gaps(t, store); len(all) != n {
			t.Errorf("after %s: %+v", source, all)
		}
	}
	run(t, g, consumer.Options{Source: "third.example.com", Cursor: new(int64(7))}, follow(8, "a"))
	if all := gaps(t, store); len(all) != 2 || all[1].Reason != "live_start_cut" || !all[1].Suspect {
		t.Errorf("after a start at a cursor: %+v", all)
	}
}

// A live start that is cut before its first event is a gap, whether the connection or the
// process ended. Nothing is missing before the first start, nor if the connection lasts until
// an event comes.
func TestLiveStartCut(t *testing.T) {
	g, store := open(t)
	log := &lockedBuffer{}
	o := consumer.Options{Logger: slog.New(slog.NewTextHandler(log, nil))}
	var cut atomic.Int64
	cut.Store(3)
	url, n := websocketServer(t, func(n int64, conn *websocket.Conn) {
		if n <= cut.Load() {
			return
		}
		if n > 4 {
			for seq := range int64(4) {
				_ = conn.WriteMessage(websocket.BinaryMessage, follow(100+seq, fmt.Sprint("a", seq)))
			}
		}
		_, _, _ = conn.NextReader()
	})
	o.Relay = url
	consume(t, g, o, 5*time.Second, func(*consumer.Consumer) bool {
		return n.Load() == 4 && len(gaps(t, store)) == 3 // the consumer learns of a connection after the server
	})
	all := gaps(t, store)
	if len(all) != 3 { // between four connections
		t.Fatalf("gaps: %+v", all)
	}
	for _, gap := range all {
		if gap.Reason != "live_start_cut" || !gap.Suspect || gap.Since.IsZero() || gap.Since.After(gap.Time) {
			t.Errorf("gap: %+v", gap)
		}
	}
	// The process ends before the first event: one more gap. Then events come.
	consume(t, g, o, 5*time.Second, func(c *consumer.Consumer) bool { return c.Status().Cursor == 103 })
	if all := gaps(t, store); len(all) != 4 {
		t.Fatalf("gaps: %+v", all)
	}
	if log := log.String(); strings.Contains(log, "a gap in the stream") || !strings.Contains(log, "nothing is indexed yet") {
		t.Errorf("of a store without accounts:\n%s", log)
	}
	consume(t, g, consumer.Options{Relay: url}, 300*time.Millisecond, nil)
	if all := gaps(t, store); len(all) != 4 {
		t.Errorf("gaps: %+v", all)
	}
}

// After a change of source, events since the last one of the previous source are a gap, unless
// the events of the new source begin before that.
func TestSourceChanged(t *testing.T) {
	at := func(seq int64) time.Time {
		t.Helper()
		when, err := time.Parse(time.RFC3339, synth.Time(seq))
		must(t, err)
		return when
	}
	zero := int64(0)
	for name, c := range map[string]struct {
		cursor *int64
		first  int64 // of the new source's events
		time   int64 // of the first one
		gap    bool
	}{
		"live":                     {nil, 200, 200, true},
		"from an older":            {&zero, 90, 90, false},
		"from a younger":           {&zero, 150, 150, true},
		"a host's clock is behind": {&zero, 150, 90, true},
	} {
		t.Run(name, func(t *testing.T) {
			g, store := open(t)
			run(t, g, consumer.Options{Relay: "ws://first.example.com"}, follow(99, "a"), follow(100, "b"))
			run(t, g, consumer.Options{Source: "archive https://archive.example.com"}, follow(299, "z"), follow(300, "y")) // newer, and no stream
			four := func(seq int64) (all [][]byte) {
				for i := range int64(4) {
					all = append(all, follow(seq+i, fmt.Sprint("c", seq+i)))
				}
				return all
			}
			events := four(c.first)
			events[0] = bytes.ReplaceAll(events[0], []byte(synth.Time(c.first)), []byte(synth.Time(c.time)))
			r := relay.NewRecorded(events)
			srv := serve(t, r)
			log := &lockedBuffer{}
			o := consumer.Options{Relay: srv, Cursor: c.cursor, Logger: slog.New(slog.NewTextHandler(log, nil))}
			consume(t, g, o, 5*time.Second, func(k *consumer.Consumer) bool {
				if n, _ := r.Connections(); n == 1 && c.cursor == nil && k.Status().State == consumer.Live && k.Progress().Events == 0 {
					r.Append(four(c.first + 4)...)
				}
				return k.Status().Cursor >= c.first+3
			})
			all := gaps(t, store)
			if !c.gap {
				if len(all) != 0 {
					t.Errorf("gaps: %+v", all)
				}
				return
			}
			if len(all) != 1 || all[0].Reason != "source_changed" || !all[0].Since.Equal(at(100)) || !all[0].Suspect {
				t.Errorf("gaps: %+v, want one since %v", all, at(100))
			}
			if c.cursor == nil && !strings.Contains(log.String(), "--cursor 0 --force-cursor") {
				t.Errorf("the log does not say how to close the gap:\n%s", log)
			}
		})
	}
}

// The consumer soon reconnects to a relay that sends little and ends each connection: one
// event shows that the relay works.
func TestBackoffOnAQuietStream(t *testing.T) {
	t.Parallel()
	g, _ := open(t)
	zero := int64(0)
	url, n := websocketServer(t, func(n int64, conn *websocket.Conn) {
		_ = conn.WriteMessage(websocket.BinaryMessage, follow(n, fmt.Sprint("a", n)))
		time.Sleep(5 * time.Millisecond)
	})
	// With the wait doubled each time, ten connections would take minutes.
	consume(t, g, consumer.Options{Relay: url, Cursor: &zero, MinBackoff: 200 * time.Millisecond, MaxBackoff: time.Minute}, 6*time.Second,
		func(*consumer.Consumer) bool { return n.Load() >= 10 })
	if n.Load() < 10 {
		t.Errorf("%d connections", n.Load())
	}
}

// A relay's answer is bounded until there is a connection.
func TestHandshakeIsBounded(t *testing.T) {
	var sent atomic.Int64
	srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nX-Endless: ")
		for err == nil {
			_, err = io.WriteString(conn, strings.Repeat("a", 64<<10))
			sent.Add(64 << 10)
		}
	}))
	g, _ := open(t)
	log := &lockedBuffer{}
	o := consumer.Options{Relay: srv, MinBackoff: time.Minute, Logger: slog.New(slog.NewTextHandler(log, nil))}
	consume(t, g, o, 20*time.Second, func(*consumer.Consumer) bool { return strings.Contains(log.String(), "retry_in") })
	if !strings.Contains(log.String(), "handshake was complete") {
		t.Errorf("log: %s", log)
	}
	if n := sent.Load(); n > 64<<20 { // including the system's buffers
		t.Errorf("read %d bytes", n)
	}
}

// The consumer respects Retry-After, and keeps foreign pages out of the log.
func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status       int
		header, body string
		want, not    string
		again        bool // within a second
	}{
		"too many":  {429, "2", `{"error":"RateLimitExceeded","message":"slow down"}`, "slow down", "", false},
		"not found": {404, "2", "<!doctype html><html>a page</html>", "404 Not Found", "page", true},
	} {
		t.Run(name, func(t *testing.T) {
			var n atomic.Int64
			srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n.Add(1)
				w.Header().Set("Retry-After", c.header)
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			g, _ := open(t)
			log := &lockedBuffer{}
			o := consumer.Options{Relay: srv, MaxBackoff: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(log, nil))}
			consume(t, g, o, time.Second, func(*consumer.Consumer) bool { return n.Load() > 1 })
			if !strings.Contains(log.String(), c.want) || c.not != "" && strings.Contains(log.String(), c.not) {
				t.Errorf("log: %s", log)
			}
			if again := n.Load() > 1; again != c.again {
				t.Errorf("%d requests", n.Load())
			}
		})
	}
}

// A message that arrives in drips counts as silence, although the relay answers pings; and it
// does not end a replay.
func TestDrippedMessage(t *testing.T) {
	t.Parallel()
	url, n := websocketServer(t, func(_ int64, conn *websocket.Conn) {
		go func() { _, _, _ = conn.NextReader() }() // answers pings
		w, err := conn.NextWriter(websocket.BinaryMessage)
		for err == nil {
			if _, err = w.Write(make([]byte, 5000)); err == nil {
				time.Sleep(20 * time.Millisecond)
			}
		}
	})
	g, _ := open(t)
	consume(t, g, consumer.Options{Relay: url, Watchdog: 300 * time.Millisecond}, 10*time.Second, func(*consumer.Consumer) bool { return n.Load() >= 2 })
	if n.Load() < 2 {
		t.Error("no reconnect")
	}
	n.Store(0)
	zero := int64(0)
	began := time.Now()
	consume(t, g, consumer.Options{Relay: url, Cursor: &zero, Idle: 100 * time.Millisecond, Watchdog: time.Second}, 10*time.Second, func(*consumer.Consumer) bool { return n.Load() >= 2 })
	if n.Load() < 2 {
		t.Errorf("the replay ended after %v, within a message", time.Since(began))
	}
}

const catchingUp = 10 * time.Second

// identity encodes an event with the given time.
func identity(seq int64, at time.Time) []byte {
	return synth.Message("#identity", synth.Map{
		{Key: "did", Value: "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"}, {Key: "seq", Value: seq}, {Key: "time", Value: at.UTC().Format(time.RFC3339Nano)},
	})
}

// Not every relay says FutureCursor after it has restarted its sequence: it sends newer events
// under older numbers. The consumer notices, and waits for an operator; if too few such events
// come before the numbers have passed the cursor, it records a gap.
func TestRestartedSequence(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		first   int64 // number after the restart; the cursor is 103
		apart   time.Duration
		blocked bool
		gaps    int
		older   int64 // every nth event is older
	}{
		"many": {50, time.Second, true, 0, 1000},
		// The event with the number of the cursor is another one, which alone is enough.
		"few":      {102, time.Hour, true, 0, 1000},
		"another":  {103, time.Hour, true, 0, 1000},
		"repeated": {50, -time.Hour, false, 0, 1000},
		// A repeated part of the stream, mostly from hosts whose clocks are ahead: not a
		// restarted sequence.
		"clocks ahead": {51, time.Second, false, 0, 3},
		// A relay that was killed has reused the numbers of its last events: they are applied,
		// and the lost ones are a gap.
		"reused": {102, time.Millisecond, false, 1, 102},
		// The event of the cursor is gone, as when a PDS erases the events of a deleted
		// account: nobody can tell whether the sequence is the same.
		"erased": {104, time.Second, false, 1, 1000},
		// The relay's oldest event is far above the cursor, and it says nothing of that.
		"far": {2_000_104, time.Microsecond, false, 1, 1000},
		// The time of the event of the cursor was not credible, and the event is gone.
		"inexact": {104, time.Second, false, 1, 1000},
		// An operator has set an older cursor. The events that come were applied before, or the relay no longer has the newest of these.
		"rewound":                             {2_000_104, -time.Millisecond, false, 0, 1000},
		"rewound too late":                    {104, time.Second, false, 1, 1000},
		"rewound too late, as the relay says": {104, time.Second, false, 2, 1000},
		"rewound to the start":                {2_000_104, -time.Millisecond, false, 0, 1000},
		"rewound to the start, too late":      {104, time.Second, false, 1, 1000},
		"rewound to the start, far too late":  {2_000_104, time.Microsecond, false, 1, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			g, store := open(t)
			newest := now.Add(-time.Minute)
			if name == "inexact" {
				newest = now.Add(-1000 * time.Hour)
			}
			end, rewound := max(109, c.first+5), strings.HasPrefix(name, "rewound")
			r := relay.NewRecorded([][]byte{identity(100, now.Add(-time.Minute)), identity(101, now.Add(-time.Minute)), identity(102, now.Add(-time.Minute)), identity(103, newest)})
			srv := serve(t, r)
			zero := int64(0)
			consume(t, g, consumer.Options{Relay: srv, Cursor: &zero}, 5*time.Second, func(k *consumer.Consumer) bool { return k.Status().Cursor == 103 })
			at := func(seq int64) time.Time {
				if seq == 103 && !c.blocked && name != "reused" { // the unchanged event
					return now.Add(-time.Minute)
				}
				if seq%c.older == 0 && seq < 104 {
					return now.Add(-time.Hour)
				}
				return now.Add(time.Duration(seq) * c.apart)
			}
			url, _ := websocketServer(t, func(_ int64, conn *websocket.Conn) {
				if strings.Contains(name, " the ") {
					_ = conn.WriteMessage(websocket.BinaryMessage, synth.Message("#info", synth.Map{{Key: "name", Value: "OutdatedCursor"}}))
				}
				for seq := c.first; seq <= end; seq++ {
					_ = conn.WriteMessage(websocket.BinaryMessage, identity(seq, at(seq)))
				}
				_, _, _ = conn.NextReader()
			})
			source := strings.TrimPrefix(srv, "http://")
			if rewound {
				to := map[bool]format.Seq{true: 0, false: 50}[strings.Contains(name, "start")]
				must(t, g.Rewind(t.Context(), source, to, false, nil))
			}
			var last consumer.Status
			consume(t, g, consumer.Options{Relay: url, Source: source}, 2*time.Second, func(k *consumer.Consumer) bool {
				last = k.Status()
				return last.State == consumer.Blocked || last.Cursor == end
			})
			if (last.State == consumer.Blocked) != c.blocked || c.blocked && cursor(g, source) != 103 || !c.blocked && cursor(g, source) != end {
				t.Errorf("%+v, cursor %d", last, cursor(g, source))
			}
			if all := gaps(t, store); len(all) != c.gaps || c.gaps > 0 && (all[c.gaps-1].Reason != map[bool]string{true: "sequence_restarted", false: "sequence_unverified"}[name == "reused"] || !all[0].Suspect || rewound && int64(all[c.gaps-1].After) != c.first-1) {
				t.Errorf("gaps: %+v", all)
			}
		})
	}
}

// An operator's decision where to continue is one gap: the first event after it says nothing more.
func TestDecidedStart(t *testing.T) {
	g, store := open(t)
	run(t, g, consumer.Options{}, follow(100, "a"))
	must(t, g.SetFuture(t.Context(), "memory"))
	url := serve(t, relay.NewRecorded([][]byte{follow(101, "b"), follow(102, "c")}))
	o := consumer.Options{Relay: url, Source: "memory", Cursor: new(int64), ForceCursor: true}
	consume(t, g, o, 5*time.Second, func(k *consumer.Consumer) bool { return k.Status().Cursor == 102 })
	if all := gaps(t, store); len(all) != 1 || all[0].Reason != "future_cursor" {
		t.Errorf("gaps: %+v", all)
	}
}

// A change of source is a gap even if the first start with it ends before its first event.
func TestSourceChangedAndCut(t *testing.T) {
	g, store := open(t)
	run(t, g, consumer.Options{Relay: "ws://first.example.com"}, follow(99, "a"), follow(100, "b"))
	r := relay.NewRecorded(nil)
	srv := serve(t, r)
	zero := int64(0)
	consume(t, g, consumer.Options{Relay: srv, Cursor: &zero}, 5*time.Second, func(*consumer.Consumer) bool { n, _ := r.Connections(); return n > 0 })
	r.Append(follow(150, "c"), follow(151, "d"), follow(152, "e"), follow(153, "f"))
	consume(t, g, consumer.Options{Relay: srv, Cursor: &zero}, 5*time.Second, func(k *consumer.Consumer) bool { return k.Status().Cursor == 153 })
	if all := gaps(t, store); len(all) != 1 || all[0].Reason != "source_changed" {
		t.Errorf("gaps: %+v", all)
	}
}

// On a live start, an absurd first number drops no other event, even after a long silence.
func TestAbsurdFirstNumber(t *testing.T) {
	g, _ := open(t)
	url, _ := websocketServer(t, func(_ int64, conn *websocket.Conn) {
		_ = conn.WriteMessage(websocket.BinaryMessage, follow(1<<52, "z"))
		time.Sleep(1500 * time.Millisecond)
		for seq := range int64(10) {
			_ = conn.WriteMessage(websocket.BinaryMessage, follow(1000+seq, fmt.Sprint("a", seq)))
		}
		_, _, _ = conn.NextReader()
	})
	consume(t, g, consumer.Options{Relay: url}, 10*time.Second, func(k *consumer.Consumer) bool { return k.Status().Cursor == 1009 })
	if n := follows(t, g); n != 11 || cursor(g, strings.TrimPrefix(url, "http://")) != 1009 {
		t.Errorf("%d follows, want 11", n)
	}
}

// The consumer waits longer and longer for a relay that accepts connections but never
// completes one.
func TestBackoffGrows(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer func() { _ = l.Close() }()
	var n atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n.Add(1)
			time.AfterFunc(60*time.Millisecond, func() { _ = conn.Close() })
		}
	}()
	g, _ := open(t)
	consume(t, g, consumer.Options{Relay: "ws://" + l.Addr().String(), MinBackoff: 20 * time.Millisecond, MaxBackoff: time.Minute}, 2*time.Second, nil)
	if n.Load() > 9 { // with a wait of 20 ms there would be 25
		t.Errorf("%d requests", n.Load())
	}
}

// must ends a test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
