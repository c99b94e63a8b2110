package graph

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// writer returns a claim that is not taken yet.
func writer(store kv.Store, owner string, first, end uint8, every time.Duration) *claim {
	return &claim{store: store, first: first, end: end, row: format.ClaimRow{Owner: owner}, beat: every, log: slog.New(slog.DiscardHandler)}
}

// logging makes a claim log into a buffer.
func logging(c *claim, b *bytes.Buffer) *claim {
	c.log = slog.New(slog.NewTextHandler(b, nil))
	return c
}

func open(faults memkv.Faults) *memkv.Store {
	return memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{}), Faults: faults})
}

// take claims partitions, and gives them up at the end of the test.
func take(t *testing.T, c *claim) *claim {
	t.Helper()
	if err := c.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// refused checks that partitions cannot be claimed, and the error.
func refused(t *testing.T, c *claim, says ...string) {
	t.Helper()
	err := c.take(t.Context())
	if !errors.Is(err, ErrClaimed) {
		t.Errorf("%s takes %d to %d: %v", c.row.Owner, c.first, c.end, err)
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
	return store.Update(t.Context(), c.check)
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

// owned checks the partitions with their owners, as in "a0 a1 b2", and the number of heartbeats.
func owned(t *testing.T, store kv.Store, want string, heartbeats int) {
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
	if got := strings.Join(all, " "); got != want || len(rows(t, store, format.KeyHeartbeat)) != heartbeats {
		t.Errorf("owners %s, want %s; heartbeats %q, want %d", got, want, rows(t, store, format.KeyHeartbeat), heartbeats)
	}
}

// bubble runs a test with synthetic time.
func bubble(t *testing.T, test func(t *testing.T, store *memkv.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, open(memkv.Faults{})) })
}

// TestTakeClaim: while its writer runs, a claim has a row for each partition and one heartbeat,
// whatever the store does. Neighbouring claims do not interfere.
func TestTakeClaim(t *testing.T) {
	for _, faults := range []memkv.Faults{{}, {Seed: 3, Conflict: 0.3, Unknown: 0.3}} {
		synctest.Test(t, func(t *testing.T) {
			store := open(faults)
			var claims []*claim
			for i, ends := range [][2]uint8{{0, 1}, {1, 4}, {4, 5}, {62, 64}} {
				c := writer(store, string(rune('a'+i)), ends[0], ends[1], time.Second)
				if err := c.take(t.Context()); err != nil {
					t.Fatal(err)
				}
				claims = append(claims, c)
			}
			owned(t, store, "a0 b1 b2 b3 c4 d62 d63", 4)
			for i, want := range []string{"b1 b2 b3 c4 d62 d63", "c4 d62 d63", "d62 d63", ""} {
				for _, c := range claims[i:] {
					if err := checked(t, store, c); err != nil {
						t.Error(err)
					}
				}
				if err := claims[i].close(t.Context()); err != nil {
					t.Error(err)
				}
				owned(t, store, want, 3-i)
				if err := checked(t, store, claims[i]); !errors.Is(err, ErrClaimed) || !strings.Contains(err.Error(), "claims of this writer are gone") {
					t.Errorf("a write after close: %v", err)
				}
			}
		})
	}
}

// TestHeartbeats: a writer renews its heartbeat, also when the context ends that it was opened with, and during a write,
// with which that does not conflict.
func TestHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T, store *memkv.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		c := writer(store, "a", 0, 64, time.Second)
		if err := c.take(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		for range 3 {
			before, attempts := rows(t, store, format.KeyHeartbeat), 0
			err := store.Update(t.Context(), func(tx kv.Txn) error {
				attempts++
				if err := c.check(tx); err != nil {
					return err
				}
				time.Sleep(1500 * time.Millisecond)
				tx.Set([]byte("written"), nil)
				return nil
			})
			after := rows(t, store, format.KeyHeartbeat)
			for token, at := range after {
				if since := time.Since(time.UnixMilli(int64(binary.BigEndian.Uint64([]byte(at))))); at <= before[token] || since > time.Second {
					t.Errorf("the heartbeat is of %v ago", since)
				}
			}
			if err != nil || attempts != 1 || len(after) != 1 {
				t.Errorf("%d attempts, %d heartbeats: %v", attempts, len(after), err)
			}
		}
		if err := c.close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestClaimRefused: while a writer beats, no other can claim any of its partitions, nor others with shards that overlap its own.
func TestClaimRefused(t *testing.T) {
	ranges := func(first, last uint32) *dict.ShardRange { return &dict.ShardRange{First: first, Last: last} }
	for name, test := range map[string]struct {
		first, end uint8
		one, two   *dict.ShardRange
		says       string // "" if it is taken
	}{
		"the same partitions":       {8, 16, nil, nil, "partition 8 is written by one since "},
		"all":                       {0, 64, nil, nil, "partition 8 is written by one since "},
		"from below":                {0, 9, nil, nil, "partition 8 is written by one since "},
		"the last":                  {15, 16, nil, nil, "partition 15 is written by one since "},
		"within":                    {10, 12, nil, nil, "partition 10 is written by one since "},
		"below":                     {0, 8, nil, nil, ""},
		"above":                     {16, 64, nil, nil, ""},
		"all shards and some":       {16, 18, nil, ranges(0, 9), ""},
		"some shards and all":       {16, 18, ranges(0, 9), nil, ""},
		"the same shards":           {16, 18, ranges(0, 9), ranges(0, 9), ""},
		"neighbouring shards":       {16, 18, ranges(0, 9), ranges(10, 19), ""},
		"disjoint shards, swapped":  {16, 18, ranges(10, 19), ranges(0, 9), ""},
		"one shared shard":          {16, 18, ranges(0, 10), ranges(10, 19), "the shards 10-19 overlap those of one, 0-10"},
		"shards from below":         {16, 18, ranges(10, 19), ranges(0, 10), "the shards 0-10 overlap those of one, 10-19"},
		"shards within":             {16, 18, ranges(0, 99), ranges(10, 19), "overlap"},
		"shards around":             {16, 18, ranges(10, 19), ranges(0, 99), "overlap"},
		"shards with the same last": {16, 18, ranges(0, 99), ranges(10, 99), "overlap"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memkv.Store) {
				one, two := writer(store, "one", 8, 16, time.Second), writer(store, "two", test.first, test.end, time.Second)
				one.row.Shards, two.row.Shards = test.one, test.two
				take(t, one)
				if test.says == "" {
					take(t, two)
				} else {
					refused(t, two, test.says, "and it is alive")
					owned(t, store, "one8 one9 one10 one11 one12 one13 one14 one15", 1)
				}
				if err := checked(t, store, one); err != nil {
					t.Error(err)
				}
			})
		})
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
			bubble(t, func(t *testing.T, store *memkv.Store) {
				old, second := writer(store, "old", 2, 6, 24*time.Hour), writer(store, "new", test.first, test.end, time.Second)
				if err := old.take(t.Context()); err != nil {
					t.Fatal(err)
				}
				var log bytes.Buffer
				start := time.Now()
				take(t, logging(second, &log))
				if took := time.Since(start); took < 4*time.Second || took > 5*time.Second {
					t.Errorf("taken over after %v", took)
				}
				if text := log.String(); !strings.Contains(text, `watching whether it is alive" claim="partition `) || !strings.Contains(text, "written by old") || !strings.Contains(text, "for=4s") {
					t.Errorf("the log says %q", text)
				}
				if err := checked(t, store, old); !errors.Is(err, ErrClaimed) || !strings.Contains(err.Error(), "was taken over by new at ") {
					t.Errorf("a write of the old writer: %v", err)
				}
				if err := old.close(t.Context()); err != nil {
					t.Fatal(err)
				}
				owned(t, store, test.after, 1)
				if err := checked(t, store, second); err != nil {
					t.Errorf("after the old writer closed: %v", err)
				}
			})
		})
	}
}

// TestNumberOfWriters: the number of writers changes from run to run, while those of earlier runs are dead, closed or alive. All of a
// run begin within seconds of each other. One is refused if and only if a living writer has any of its partitions, and takes all
// of them otherwise. A dead writer that lost any can no longer write.
func TestNumberOfWriters(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 0))
			store := open(memkv.Faults{Seed: seed, Conflict: 0.1 * float64(seed%3), Unknown: 0.1 * float64(seed%3)})
			var living, dead []*claim
			owners := map[uint8]*claim{}
			for run := range 6 {
				n := 1 + rng.IntN(6)
				errs := make([]error, n)
				var began sync.WaitGroup
				claims := make([]*claim, n)
				for i := range n {
					first, end, err := (Share{i, n}).partitions(64)
					if err != nil {
						t.Fatal(err)
					}
					claims[i] = writer(store, fmt.Sprintf("%d-%d/%d-", run, i, n), first, end, time.Second)
					delay := time.Duration(rng.Int64N(int64(7 * time.Second)))
					began.Go(func() {
						time.Sleep(delay)
						errs[i] = claims[i].take(t.Context())
					})
				}
				began.Wait()
				before := slices.Clone(living)
				for i, c := range claims {
					at := slices.IndexFunc(before, func(l *claim) bool { return c.first < l.end && l.first < c.end })
					if at >= 0 != errors.Is(errs[i], ErrClaimed) || at < 0 && errs[i] != nil {
						t.Fatalf("seed %d: %s: %v", seed, c.row.Owner, errs[i])
					}
					if at >= 0 {
						continue
					}
					living = append(living, c)
					for part := c.first; part < c.end; part++ {
						owners[part] = c
					}
				}
				heartbeats := 0
				for _, c := range slices.Concat(living, dead) {
					lost := false
					for part := c.first; part < c.end; part++ {
						lost = lost || owners[part] != c
					}
					if err := checked(t, store, c); lost != errors.Is(err, ErrClaimed) || !lost && err != nil {
						t.Fatalf("seed %d: %s writes: %v", seed, c.row.Owner, err)
					}
					if !lost {
						heartbeats++
					}
				}
				var all []string
				for _, part := range slices.Sorted(maps.Keys(owners)) {
					all = append(all, fmt.Sprintf("%s%d", owners[part].row.Owner, part))
				}
				owned(t, store, strings.Join(all, " "), heartbeats)
				living = slices.DeleteFunc(living, func(c *claim) bool {
					fate := rng.IntN(3)
					switch fate {
					case 0: // killed
						c.stop()
						c.stopped.Wait()
						dead = append(dead, c)
					case 1:
						if err := c.close(t.Context()); err != nil {
							t.Fatal(err)
						}
						maps.DeleteFunc(owners, func(_ uint8, by *claim) bool { return by == c })
					}
					return fate < 2
				})
			}
			for _, c := range living {
				if err := c.close(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestWhileWatched: while a silent writer is watched, it gives its claim up, another writer appears, which is alive, or the one
// that watches is stopped, and claims nothing.
func TestWhileWatched(t *testing.T) {
	why := errors.New("told to stop")
	for name, test := range map[string]struct {
		happens func(t *testing.T, silent, third *claim, stop context.CancelCauseFunc) error
		want    error
		says    string
		owners  string
		writers int
	}{
		"given up": {func(t *testing.T, silent, _ *claim, _ context.CancelCauseFunc) error {
			return silent.close(t.Context())
		}, nil, "", "second0 second1 second2 second3", 1},
		"another": {func(t *testing.T, _, third *claim, _ context.CancelCauseFunc) error { return third.take(t.Context()) }, ErrClaimed, "partition 2 is written by third since ", "silent0 third2", 2},
		"stopped": {func(_ *testing.T, _, _ *claim, stop context.CancelCauseFunc) error { stop(why); return nil }, why, "", "silent0", 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memkv.Store) {
				silent, third, second := writer(store, "silent", 0, 1, 24*time.Hour), writer(store, "third", 2, 3, time.Hour), writer(store, "second", 0, 4, time.Second)
				if err := silent.take(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancelCause(t.Context())
				happened := make(chan error, 1)
				time.AfterFunc(1200*time.Millisecond, func() { happened <- test.happens(t, silent, third, stop) })
				start := time.Now()
				err := second.take(ctx)
				if !errors.Is(err, test.want) || err != nil && !strings.Contains(err.Error(), test.says) || time.Since(start) > 2*time.Second {
					t.Errorf("after %v: %v", time.Since(start), err)
				}
				if err := <-happened; err != nil {
					t.Error(err)
				}
				owned(t, store, test.owners, test.writers)
				for _, c := range []*claim{silent, third, second} {
					if c.stop == nil {
						continue
					}
					if err := c.close(context.WithoutCancel(ctx)); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// racing is a store in which something happens before the first write.
type racing struct {
	kv.Store

	before func()
}

func (r *racing) Update(ctx context.Context, fn func(kv.Txn) error) error {
	if before := r.before; before != nil {
		r.before = nil
		before()
	}
	return r.Store.Update(ctx, fn)
}

// TestLastMoment: between the last look and the write that claims, another writer takes free partitions, or the watched one
// beats. Either is alive.
func TestLastMoment(t *testing.T) {
	bubble(t, func(t *testing.T, store *memkv.Store) {
		ours := &racing{store, func() { take(t, writer(store, "quick", 5, 7, time.Second)) }}
		refused(t, writer(ours, "slow", 0, 8, time.Second), "partition 5 was just taken by quick")
		owned(t, store, "quick5 quick6", 1)
	})
	bubble(t, func(t *testing.T, store *memkv.Store) {
		old := take(t, writer(store, "old", 0, 4, 24*time.Hour))
		ours := &racing{store, func() {
			if err := store.Update(t.Context(), func(tx kv.Txn) error { old.writeBeat(tx); return nil }); err != nil {
				t.Error(err)
			}
		}}
		refused(t, writer(ours, "second", 0, 4, time.Second), "is written by old since ", "and it is alive")
		if err := checked(t, store, old); err != nil {
			t.Error(err)
		}
	})
}

// TestClaimsGone: a writer that lost some of its claims cannot write. The error has their
// number.
func TestClaimsGone(t *testing.T) {
	store := open(memkv.Faults{})
	c := take(t, writer(store, "a", 4, 8, time.Hour))
	for n := 1; n <= 4; n++ {
		if err := store.Update(t.Context(), func(tx kv.Txn) error { tx.Delete(format.ClaimKey(uint8(8 - n))); return nil }); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprint(n, " of the 4 claims of this writer are gone")
		if err := checked(t, store, c); !errors.Is(err, ErrClaimed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestWriteUnderWay: a takeover conflicts with a write that is under way. The write fails with
// ErrClaimed and changes nothing.
func TestWriteUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, store *memkv.Store) {
		old := take(t, writer(store, "old", 0, 4, 24*time.Hour))
		attempts := 0
		err := store.Update(t.Context(), func(tx kv.Txn) error {
			if err := old.check(tx); err != nil {
				return err
			}
			if attempts++; attempts == 1 {
				take(t, writer(store, "new", 3, 4, time.Second))
			}
			tx.Set([]byte("written"), nil)
			return nil
		})
		if !errors.Is(err, ErrClaimed) || attempts != 1 || len(rows(t, store, 'w')) != 0 {
			t.Errorf("%v, after %d attempts", err, attempts)
		}
	})
}

// TestMalformedClaims: every reader of a malformed row returns an error, and does not take the
// partition for free.
func TestMalformedClaims(t *testing.T) {
	good, err := json.Marshal(format.ClaimRow{Token: []byte("t"), Owner: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ key, value, says string }{
		"no JSON":         {"p\x01", "{", "claim 7001 is malformed"},
		"another type":    {"p\x01", `{"token":5}`, "claim 7001 is malformed"},
		"empty":           {"p\x01", "", "claim 7001 is malformed"},
		"a key too long":  {"p\x01\x02", string(good), "the key of claim 700102 is malformed"},
		"an invalid time": {"p\x02", `{"since":"yesterday"}`, "claim 7002 is malformed"},
	} {
		store := open(memkv.Faults{})
		c := writer(store, "a", 0, 4, time.Hour)
		if err := c.take(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.stop()
		if err := store.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte(test.key), []byte(test.value)); return nil }); err != nil {
			t.Fatal(err)
		}
		for i, err := range []error{
			writer(store, "b", 0, 4, time.Second).take(t.Context()), writer(store, "b", 8, 9, time.Second).take(t.Context()), checked(t, store, c),
		} {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %d: %v, want %q", name, i, err, test.says)
			}
		}
	}
}

// A connection is one process's connection to a store. It can stall, or report that the store
// does not answer.
type connection struct {
	kv.Store

	mu            sync.Mutex
	reads, writes time.Time // when their stalls end
	away          bool      // View fails at once
}

// stall stalls reads and writes for some time.
func (c *connection) stall(reads, writes time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads, c.writes = time.Now().Add(reads), time.Now().Add(writes)
}

func (c *connection) setAway(away bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = away
}

func (c *connection) View(ctx context.Context, fn func(kv.Reader) error) error {
	c.mu.Lock()
	until, away := c.reads, c.away
	c.mu.Unlock()
	if away {
		return fmt.Errorf("the cluster is away: %w", kv.ErrUnavailable)
	}
	time.Sleep(time.Until(until))
	return c.Store.View(ctx, fn)
}

func (c *connection) Update(ctx context.Context, fn func(kv.Txn) error) error {
	c.mu.Lock()
	until := c.writes
	c.mu.Unlock()
	time.Sleep(time.Until(until))
	return c.Store.Update(ctx, fn)
}

// TestStallDoesNotFenceALiveWriter: while the store stalls, a healthy writer cannot renew its
// heartbeat. It keeps its partitions, whenever the stall begins and whichever writer reaches
// the store first.
func TestStallDoesNotFenceALiveWriter(t *testing.T) {
	for _, after := range []time.Duration{100 * time.Millisecond, 600 * time.Millisecond, 900 * time.Millisecond} {
		for _, stall := range []time.Duration{3 * time.Second, 12 * time.Second, time.Minute} {
			bubble(t, func(t *testing.T, store *memkv.Store) {
				ours, theirs := &connection{Store: store}, &connection{Store: store}
				live := take(t, writer(theirs, "live", 0, 4, time.Second))
				time.AfterFunc(after, func() {
					ours.stall(stall, stall)
					theirs.stall(stall+500*time.Millisecond, stall+500*time.Millisecond) // the live writer reaches the store later
				})
				refused(t, writer(ours, "second", 0, 4, time.Second), "is written by live since ", "and it is alive")
				if err := checked(t, store, live); err != nil {
					t.Errorf("%v after the start, a stall of %v: %v", after, stall, err)
				}
			})
		}
	}
}

// TestStallOnlyDelaysTakingOver: after a stall of reads, or of the write that takes over, a dead writer is taken over four beats
// later, and the log explains the delay.
func TestStallOnlyDelaysTakingOver(t *testing.T) {
	for after, reads := range map[time.Duration]time.Duration{1100 * time.Millisecond: 12 * time.Second, 3900 * time.Millisecond: 0} {
		bubble(t, func(t *testing.T, store *memkv.Store) {
			take(t, writer(store, "gone", 0, 4, 24*time.Hour))
			ours := &connection{Store: store}
			time.AfterFunc(after, func() { ours.stall(reads, 12*time.Second) })
			var log bytes.Buffer
			begun := time.Now()
			take(t, logging(writer(ours, "second", 0, 4, time.Second), &log))
			if took := time.Since(begun) - after; took < 15*time.Second || took > 17*time.Second {
				t.Errorf("it took %v", took+after)
			}
			if s := log.String(); strings.Count(s, "stood still, and the other writer may be alive: watching it begins again") != 1 || !strings.Contains(s, "stood_still=1") {
				t.Errorf("the log:\n%s", s)
			}
		})
	}
}

// TestTakeAwaitsTheStore: taking a claim waits for a store that does not answer, logs that once, and
// stops with its context.
func TestTakeAwaitsTheStore(t *testing.T) {
	for _, begins := range []time.Duration{0, 700 * time.Millisecond} { // from the beginning, and while it watches
		bubble(t, func(t *testing.T, store *memkv.Store) {
			take(t, writer(store, "gone", 0, 4, 24*time.Hour))
			ours := &connection{Store: store, away: begins == 0}
			time.AfterFunc(begins+time.Millisecond, func() { ours.setAway(true) })
			time.AfterFunc(30*time.Second, func() { ours.setAway(false) })
			var log bytes.Buffer
			begun := time.Now()
			take(t, logging(writer(ours, "second", 0, 4, time.Second), &log))
			if took := time.Since(begun); took < 34*time.Second || took > 36*time.Second {
				t.Errorf("it took %v", took)
			}
			if n := strings.Count(log.String(), "the store does not answer; waiting to claim the partitions"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, &log)
			}
			ours.setAway(true)
			why := errors.New("told to stop")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Minute, func() { cancel(why) })
			if err := writer(ours, "third", 0, 4, time.Second).take(ctx); !errors.Is(err, why) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestClaimLost: a suspended writer is taken over. It learns that within a beat after it continues,
// even with nothing to write, and leaves no heartbeat.
func TestClaimLost(t *testing.T) {
	bubble(t, func(t *testing.T, store *memkv.Store) {
		theirs := &connection{Store: store}
		lost := make(chan error, 1)
		c := writer(theirs, "stopped", 0, 4, time.Second)
		c.lost = func(err error) { lost <- err }
		take(t, c)
		theirs.stall(12*time.Second, 12*time.Second)
		begun := time.Now()
		take(t, writer(store, "second", 2, 3, time.Second))
		err := <-lost
		if took := time.Since(begun); took > 14*time.Second || !errors.Is(err, ErrClaimed) || !strings.Contains(err.Error(), "was taken over by second") {
			t.Errorf("after %v: %v", took, err)
		}
		time.Sleep(10 * time.Second)
		owned(t, store, "stopped0 stopped1 second2 stopped3", 1)
	})
}
