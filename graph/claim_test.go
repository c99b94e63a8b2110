package graph

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// patient is for tests that must find a writer alive. It is far longer than the writer needs,
// because the machine may be busy.
const (
	beat    = 5 * time.Millisecond
	patient = 12 * beat
)

// messages is a log handler that sends messages and their attributes to a channel.
type messages chan string

func (messages) Enabled(context.Context, slog.Level) bool { return true }

func (s messages) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	select {
	case s <- text:
	default: // no test reads so many
	}
	return nil
}

func (s messages) WithAttrs([]slog.Attr) slog.Handler { return s }

func (s messages) WithGroup(string) slog.Handler { return s }

// options are the options of a writer.
func options(owner string, first, end uint8, every time.Duration) claimOptions {
	return claimOptions{First: first, End: end, Owner: owner, Beat: every, Logger: slog.New(slog.DiscardHandler)}
}

func open(faults memkv.Faults) *memkv.Store {
	return memkv.Open(memkv.Options{Merger: dict.Merger{}, Faults: faults})
}

// take claims partitions, and gives them up at the end of the test.
func take(t *testing.T, store kv.Store, o claimOptions) *claim {
	t.Helper()
	c, err := takeClaim(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(context.Background()); err != nil && !errors.Is(err, kv.ErrClosed) {
			t.Error(err)
		}
	})
	return c
}

// refused checks that partitions cannot be claimed, and the error.
func refused(t *testing.T, store kv.Store, o claimOptions, says ...string) {
	t.Helper()
	_, err := takeClaim(t.Context(), store, o)
	if !errors.Is(err, ErrClaimed) {
		t.Errorf("%s takes %d to %d: %v", o.Owner, o.First, o.End, err)
		return
	}
	for _, want := range says {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}

// checked returns the error of a write by the claim's owner.
func checked(t *testing.T, store kv.Store, c *claim) error {
	t.Helper()
	return store.Update(t.Context(), func(tx kv.Txn) error { return c.check(tx) })
}

// rows reads the keys of a keyspace.
func rows(t *testing.T, store kv.Store, keyspace byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	if err := store.View(t.Context(), func(r kv.Reader) error {
		return kv.ScanPrefix(r, []byte{keyspace}, func(k, v []byte) error { all[string(k[1:])] = string(v); return nil })
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// owners lists the partitions with their owners, as in "a0 a1 b2".
func owners(t *testing.T, store kv.Store) string {
	t.Helper()
	var all []string
	claims := rows(t, store, format.KeyClaim)
	for _, part := range slices.Sorted(maps.Keys(claims)) {
		var row format.ClaimRow
		if err := json.Unmarshal([]byte(claims[part]), &row); err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s%d", row.Owner, part[0]))
	}
	return strings.Join(all, " ")
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.After(5 * time.Second); !is(); {
		select {
		case <-time.After(time.Millisecond):
		case <-end:
			t.Fatalf("after 5 seconds, %s still", what)
		}
	}
}

// TestTakeClaim: while its writer runs, a claim has a row for each partition and one heartbeat,
// whatever the store does. Neighbouring claims do not interfere.
func TestTakeClaim(t *testing.T) {
	for name, faults := range map[string]memkv.Faults{"calm": {}, "faulty": {Seed: 3, Conflict: 0.3, Unknown: 0.3}} {
		t.Run(name, func(t *testing.T) {
			store := open(faults)
			var claims []*claim
			for i, ends := range [][2]uint8{{0, 1}, {1, 4}, {4, 5}, {62, 64}} {
				c, err := takeClaim(t.Context(), store, options(string(rune('a'+i)), ends[0], ends[1], beat))
				if err != nil {
					t.Fatal(err)
				}
				claims = append(claims, c)
			}
			if got := owners(t, store); got != "a0 b1 b2 b3 c4 d62 d63" {
				t.Errorf("owners: %s", got)
			}
			if n := len(rows(t, store, format.KeyHeartbeat)); n != 4 {
				t.Errorf("%d heartbeats", n)
			}
			for i, want := range []string{"b1 b2 b3 c4 d62 d63", "c4 d62 d63", "d62 d63", ""} {
				for _, c := range claims[i:] {
					if err := checked(t, store, c); err != nil {
						t.Error(err)
					}
				}
				if err := claims[i].close(t.Context()); err != nil {
					t.Error(err)
				}
				if got := owners(t, store); got != want {
					t.Errorf("after %d closed: %s, want %s", i+1, got, want)
				}
				if err := checked(t, store, claims[i]); !errors.Is(err, ErrClaimed) || !strings.Contains(err.Error(), "claims of this writer are gone") {
					t.Errorf("a write after close: %v", err)
				}
			}
			if n := len(rows(t, store, format.KeyHeartbeat)); n != 0 {
				t.Errorf("%d heartbeats are left", n)
			}
		})
	}
}

// TestHeartbeats: a writer renews its heartbeat.
func TestHeartbeats(t *testing.T) {
	store := open(memkv.Faults{})
	take(t, store, options("a", 0, 2, beat))
	first := rows(t, store, format.KeyHeartbeat)
	for token, at := range first {
		if since := time.Since(time.UnixMilli(int64(binary.BigEndian.Uint64([]byte(at))))); since < -time.Second || since > time.Minute {
			t.Errorf("the last heartbeat was %v ago", since)
		}
		for range 3 {
			eventually(t, "it has not beaten", func() bool { return rows(t, store, format.KeyHeartbeat)[token] > at })
			at = rows(t, store, format.KeyHeartbeat)[token]
		}
	}
	if len(first) != 1 {
		t.Errorf("heartbeats %q", first)
	}
}

// TestClaimRefused: while a writer beats, no other can claim any of its partitions.
func TestClaimRefused(t *testing.T) {
	store := open(memkv.Faults{})
	first := take(t, store, options("first", 8, 16, beat))
	for _, ends := range [][2]uint8{{8, 16}, {0, 64}, {0, 9}, {15, 16}, {10, 12}} {
		refused(t, store, options("second", ends[0], ends[1], patient), "is written by first since ", "and it is alive", fmt.Sprintf("partition %d ", max(8, ends[0])))
		if err := checked(t, store, first); err != nil {
			t.Error(err)
		}
	}
	for _, ends := range [][2]uint8{{0, 8}, {16, 64}} {
		take(t, store, options("other", ends[0], ends[1], beat))
	}
	if n := len(rows(t, store, format.KeyHeartbeat)); n != 3 {
		t.Errorf("%d heartbeats: a refused writer left its own", n)
	}
}

// TestTakeOver: after four silent beats, a writer loses its partitions. It can no longer write,
// even if others took only some of them.
func TestTakeOver(t *testing.T) {
	for name, test := range map[string]struct {
		first, end uint8
		after      string // the owners after the old writer has closed
	}{
		"all":      {2, 6, "new2 new3 new4 new5"},
		"more":     {0, 8, "new0 new1 new2 new3 new4 new5 new6 new7"},
		"the low":  {0, 3, "new0 new1 new2"},
		"the last": {5, 6, "new5"},
		"within":   {3, 4, "new3"},
	} {
		t.Run(name, func(t *testing.T) {
			store := open(memkv.Faults{})
			silent := options("old", 2, 6, time.Hour)
			old, err := takeClaim(t.Context(), store, silent)
			if err != nil {
				t.Fatal(err)
			}
			log := make(messages, 100)
			o := options("new", test.first, test.end, beat)
			o.Logger = slog.New(log)
			start := time.Now()
			second := take(t, store, o)
			if took := time.Since(start); took < 4*beat {
				t.Errorf("taken over after %v, want %v", took, 4*beat)
			}
			if text := <-log; !strings.Contains(text, "watching whether it is alive claim=partition ") || !strings.Contains(text, "written by old") || !strings.Contains(text, "for=20ms") {
				t.Errorf("the log says %q", text)
			}
			if err := checked(t, store, old); !errors.Is(err, ErrClaimed) || !strings.Contains(err.Error(), "was taken over by new at ") {
				t.Errorf("a write of the old writer: %v", err)
			}
			if err := checked(t, store, second); err != nil {
				t.Errorf("a write of the new writer: %v", err)
			}
			if n := len(rows(t, store, format.KeyHeartbeat)); n != 1 {
				t.Errorf("%d heartbeats", n)
			}
			if err := old.close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := owners(t, store); got != test.after {
				t.Errorf("owners %s, want %s", got, test.after)
			}
			if err := checked(t, store, second); err != nil {
				t.Errorf("after the old writer closed: %v", err)
			}
		})
	}
}

// TestClaimAfterCrash: after a crash, the claim remains and the heartbeat stops.
func TestClaimAfterCrash(t *testing.T) {
	store := open(memkv.Faults{})
	log := make(messages, 1)
	o := options("crashed", 0, 64, beat)
	o.Logger = slog.New(log)
	crashed, err := takeClaim(t.Context(), store, o)
	if err != nil {
		t.Fatal(err)
	}
	after := store.Reopen(memkv.Options{Merger: dict.Merger{}}) // this closes the old store
	if text := <-log; !strings.Contains(text, "the heartbeat failed; trying again error=") {
		t.Errorf("the log says %q", text)
	}
	if err := crashed.close(t.Context()); !errors.Is(err, kv.ErrClosed) || !strings.Contains(err.Error(), "giving up the claim") {
		t.Errorf("close without a store: %v", err)
	}
	if n := len(rows(t, after, format.KeyClaim)); n != 64 {
		t.Errorf("%d claims are left", n)
	}
	second := take(t, after, options("second", 0, 64, beat))
	if err := checked(t, after, second); err != nil {
		t.Error(err)
	}
}
