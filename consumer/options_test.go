package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"skein.blue/consumer"
	"skein.blue/graph"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/synth"
)

// A run that is stopped at once, as by a move of partitions, has set the cursor that an operator chose: the next one has no options.
func TestCursorOfAStoppedRun(t *testing.T) {
	g, _ := open(t)
	run(t, g, consumer.Options{}, follow(1, "a"), follow(2, "b"), follow(3, "c"), follow(4, "d"))
	one := int64(1)
	c, err := consumer.New(g, consumer.Options{Relay: "ws://memory", Cursor: &one, ForceCursor: true})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ctx); err != nil || cursor(g, "memory") != 1 {
		t.Errorf("cursor %d: %v", cursor(g, "memory"), err)
	}
}

// The cursor of the options and the stored one decide where a run starts. One that would skip events
// needs --force-cursor, and is a gap; one that reads events again is not.
func TestCursorOptions(t *testing.T) {
	at := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		name   string
		stored int64 // -1: none
		future bool  // the relay never reached the stored cursor
		cursor *int64
		force  bool
		err    string // of New
		reason string // of the gap
		reads  int64  // the first event of the source that is indexed, if the source sends 1 to 30
	}{
		{"a new source", -1, false, nil, false, "", "", 1},
		{"a new source, from the oldest event", -1, false, at(0), false, "", "", 1},
		{"a new source, from a number", -1, false, at(10), false, "", "", 11},
		{"a negative number", -1, false, at(-1), false, "negative", "", 0},
		{"the stored one", 20, false, nil, false, "", "", 21},
		{"the stored one, named", 20, false, at(20), false, "", "", 21},
		{"an older one", 20, false, at(10), false, "add --force-cursor to start after 10", "", 0},
		{"an older one, forced", 20, false, at(10), true, "", "", 21}, // events that were applied change nothing
		{"a newer one", 20, false, at(25), false, "add --force-cursor to start after 25", "", 0},
		{"a newer one, forced", 20, false, at(25), true, "", "cursor_skipped", 26},
		{"in the relay's future", 20, true, at(5), false, "leave --cursor out to keep that cursor", "", 0},
		{"in the relay's future, forced", 20, true, at(5), true, "", "future_cursor", 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, store := open(t)
			var before [][]byte
			for seq := int64(1); seq <= c.stored; seq++ {
				before = append(before, follow(seq, "r"+oracle.TID(uint64(seq))))
			}
			if len(before) > 0 {
				run(t, g, consumer.Options{}, before...)
			}
			if c.future {
				must(t, g.SetFuture(t.Context(), "memory"))
			}
			o := consumer.Options{Relay: "ws://memory", Cursor: c.cursor, ForceCursor: c.force}
			if c.err != "" {
				if _, err := consumer.New(g, o); err == nil || !strings.Contains(err.Error(), c.err) || c.stored >= 0 && !errors.Is(err, consumer.ErrCursorStored) {
					t.Fatalf("%v, want %q", err, c.err)
				}
				return
			}
			var after [][]byte
			from := int64(1)
			if c.cursor != nil {
				from = *c.cursor + 1
			} else if c.stored > 0 {
				from = c.stored + 1
			}
			for seq := from; seq <= 30; seq++ {
				name := oracle.TID(uint64(seq))
				if c.future {
					name = "again" + name // another sequence
				}
				after = append(after, follow(seq, "r"+name))
			}
			run(t, g, o, after...)
			want := 30 - c.reads + 1 + max(c.stored, 0)
			if n := follows(t, g); n != want || cursor(g, "memory") != 30 {
				t.Errorf("%d follows, want %d; cursor %d", n, want, cursor(g, "memory"))
			}
			all := gaps(t, store)
			if c.reason == "" {
				if len(all) != 0 {
					t.Errorf("gaps: %+v", all)
				}
				return
			}
			if len(all) != 1 || all[0].Reason != c.reason || !all[0].Suspect || int64(all[0].After) != c.stored || !strings.Contains(all[0].Detail, fmt.Sprint(*c.cursor)) {
				t.Errorf("gaps: %+v, want %s after %d", all, c.reason, c.stored)
			}
		})
	}
}

// Sources that cannot be one are errors that name them.
func TestBadSources(t *testing.T) {
	g, _ := open(t)
	if _, err := consumer.New(g, consumer.Options{}); err == nil {
		t.Error("no source is accepted")
	}
	missing := filepath.Join(t.TempDir(), "missing.frames")
	c, err := consumer.New(g, consumer.Options{Frames: missing})
	must(t, err)
	if err := c.Run(t.Context()); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("a file that is missing: %v", err)
	}
	named, err := consumer.New(g, consumer.Options{Frames: missing, Source: "a name"})
	if err != nil || named.Source() != "a name" || c.Source() != missing {
		t.Errorf("sources %q and %q: %v", named.Source(), c.Source(), err)
	}
}

// A file is read at the rate of the options, and no slower than that.
func TestRateOfFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.frames")
	var file []byte
	for seq := range int64(60) {
		file = synth.AppendFrame(file, follow(seq+1, "r"+oracle.TID(uint64(seq))))
	}
	must(t, os.WriteFile(path, file, 0o600))
	for _, rate := range []float64{100, 0} {
		g, _ := open(t)
		began := time.Now()
		c := runTo(t, g, consumer.Options{Frames: path, Rate: rate})
		took := time.Since(began)
		if n := follows(t, g); n != 60 || rate > 0 && took < 550*time.Millisecond {
			t.Errorf("%d follows in %v at %v a second", n, took, rate)
		}
		p := c.Progress()
		if p.Events != 60 || p.Bytes != p.Size-4*60 || p.Size != int64(len(file)) || p.Applied != 60 || p.Seq != 60 || c.Ops() != 60 || p.Outdated || p.Time.IsZero() {
			t.Errorf("%+v, %d operations", p, c.Ops())
		}
	}
}

// The records of deleted accounts are erased while nothing is read.
func TestErasesWhileIdle(t *testing.T) {
	g, _ := open(t)
	url, _ := websocketServer(t, func(_ int64, conn *websocket.Conn) {
		send := func(frame []byte) { _ = conn.WriteMessage(websocket.BinaryMessage, frame) }
		for seq := range int64(2000) {
			send(follow(seq+1, "r"+oracle.TID(uint64(seq))))
		}
		for seq := range int64(2000) {
			if seq%4 == 0 {
				send(synth.Message("#account", synth.Map{
					{Key: "did", Value: "did:plc:r" + oracle.TID(uint64(seq))},
					{Key: "seq", Value: 2001 + seq},
					{Key: "time", Value: synth.Time(2001 + seq)},
					{Key: "active", Value: false},
					{Key: "status", Value: "deleted"},
				}))
			}
		}
		_, _, _ = conn.NextReader()
	})
	var erasing atomic.Bool
	consume(t, g, consumer.Options{Relay: url}, 20*time.Second, func(c *consumer.Consumer) bool {
		if g.Erasing() {
			erasing.Store(true)
		}
		return c.Status().Cursor == 3997 && !g.Erasing()
	})
	if n := follows(t, g); n != 1500 || g.Erasing() {
		t.Errorf("%d follows, still erasing: %v", n, g.Erasing())
	}
}

// An #info message is logged once. One that says that the relay no longer has the events after the
// cursor is a gap, unless the run asked for the oldest event.
func TestInfoMessages(t *testing.T) {
	info := func(name, message string) []byte {
		return synth.Message("#info", synth.Map{{Key: "name", Value: name}, {Key: "message", Value: message}})
	}
	g, store := open(t)
	run(t, g, consumer.Options{}, info("OutdatedCursor", "the oldest event is 10"), follow(10, "a"), follow(11, "b"))
	if all := gaps(t, store); len(all) != 0 {
		t.Errorf("asked for the oldest event: %+v", all)
	}
	run(t, g, consumer.Options{}, info("Welcome", strings.Repeat("x", 100_000)), follow(12, "c"))
	if all := gaps(t, store); len(all) != 0 {
		t.Errorf("a greeting: %+v", all)
	}
	run(t, g, consumer.Options{}, info("OutdatedCursor", "the oldest event is 50"), follow(50, "d"), follow(51, "e"))
	all := gaps(t, store)
	if len(all) != 1 || all[0].Reason != "outdated_cursor" || !all[0].Suspect || int64(all[0].After) != 12 {
		t.Fatalf("gaps: %+v", all)
	}
	want, err := time.Parse(time.RFC3339, synth.Time(12))
	if err != nil || !all[0].Since.Equal(want) {
		t.Errorf("since %v, want %v", all[0].Since, want)
	}
}

// A run knows when it began to hear the stream once enough events agree on the time. If this machine's clock is behind, so
// does the index, also after a hole, whatever a few hosts say; a run without a hole changes nothing.
func TestHeardSince(t *testing.T) {
	g, store := open(t)
	seq, now := int64(0), time.Now().Truncate(time.Microsecond)
	hear := func(before, after, unbroken time.Duration) { // a hole
		t.Helper()
		var frames [][]byte
		for n := range 100 {
			at := before
			if n >= 50 {
				at = after
			}
			if n == 50 && before != after {
				frames = append(frames, synth.Message("#info", synth.Map{{Key: "name", Value: "OutdatedCursor"}}))
			}
			seq++
			frames = append(frames, identity(seq, now.Add(at).AddDate(70*max(0, 2-n), 0, 0)))
		}
		c := runTo(t, g, consumer.Options{Relay: "ws://memory", Read: slices.Values(frames)})
		if at, known := c.HeardSince(); !known || !at.Equal(now.Add(before)) {
			t.Errorf("%v, known: %v", at, known)
		}
		if err := store.View(t.Context(), func(r kv.Reader) error {
			h, err := read.Holes(r, 1)
			if at := h.Unbroken.Sub(now); (at - unbroken).Abs() > 20*time.Second {
				t.Errorf("unbroken since %v after the start, want %v", at, unbroken)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	const day = 24 * time.Hour
	hear(-day, -day, 0)
	g, store = open(t)
	hear(3*day, 3*day, 3*day)
	g, err := graph.Open(t.Context(), store, graph.Options{})
	must(t, err)
	hear(5*day, 5*day, 3*day)
	hear(6*day, 7*day, 7*day)
	seq++ // a run that ends at once after a hole: the next one knows when
	hole := synth.Message("#info", synth.Map{{Key: "name", Value: "OutdatedCursor"}})
	runTo(t, g, consumer.Options{Relay: "ws://memory", Read: slices.Values([][]byte{hole, identity(seq, now)})})
	if g, err = graph.Open(t.Context(), store, graph.Options{}); err != nil {
		t.Fatal(err)
	}
	hear(9*day, 9*day, 9*day)
}
