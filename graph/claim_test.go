package graph

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// writer returns a claim of all of four partitions that is not taken yet.
// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func writer(store kv.Store, owner string, every time.Duration) *claim {
	return &claim{
		watch: &watch{store: store, beat: every, log: slog.New(slog.DiscardHandler)}, all: format.AllPartitions(4), row: format.ClaimRow{Owner: owner},
	}
}

// joining returns such a claim that joins others.
func joining(store kv.Store, owner string, every time.Duration) *claim {
	c := writer(store, owner, every)
	c.joins = true
	return c
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
	must(t, c.take(t.Context()))
	t.Cleanup(func() { must(t, c.close(context.Background())) })
	return c
}

// refused checks that the partitions cannot be claimed, and the error.
func refused(t *testing.T, c *claim, says ...string) {
	t.Helper()
	err := c.take(t.Context())
	if !errors.Is(err, ErrClaimed) {
		t.Errorf("%s takes the partitions: %v", c.row.Owner, err)
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
	must(t, store.View(t.Context(), func(r kv.Reader) error {
		return kv.ScanPrefix(r, []byte{keyspace}, func(k, v []byte) error { all[string(k[1:])] = string(v); return nil })
	}))
	return all
}

// owned checks the writers with their partitions, as in "a3 bc", and the number of heartbeats.
func owned(t *testing.T, store kv.Store, want string) {
	t.Helper()
	var all []string
	for token, v := range rows(t, store, format.KeyClaim) {
		var row format.ClaimRow
		must(t, json.Unmarshal([]byte(v), &row))
		all = append(all, fmt.Sprintf("%s%x", row.Owner, uint64(row.Parts)))
		if _, ok := rows(t, store, format.KeyHeartbeat)[token]; !ok {
			t.Errorf("%s has no heartbeat", row.Owner)
		}
	}
	slices.Sort(all)
	if got := strings.Join(all, " "); got != want || len(rows(t, store, format.KeyHeartbeat)) != len(all) {
		t.Errorf("owners %s, want %s; heartbeats %q", got, want, rows(t, store, format.KeyHeartbeat))
	}
}

// Settle makes writers move partitions until each has as many as the others.
func Settle(t *testing.T, writers ...*Store) {
	t.Helper()
	for changed := true; changed; {
		changed = false
		for _, s := range writers {
			had := s.parts.Load()
			must(t, s.Move(t.Context()))
			changed = changed || s.parts.Load() != had
		}
	}
}

// moved makes a claim move, and checks what it has then.
func moved(t *testing.T, c *claim, want format.Partitions) {
	t.Helper()
	if err := c.move(t.Context(), splitRows); err != nil || c.row.Parts != want {
		t.Errorf("%s has %x, want %x: %v", c.row.Owner, c.row.Parts, want, err)
	}
}

// bubble runs a test with synthetic time.
func bubble(t *testing.T, test func(t *testing.T, store *memkv.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, open(memkv.Faults{})) })
}

// TestTakeClaim: while its writer runs, a claim has a row and a heartbeat, whatever the store does. After it, nothing is left, and it
// cannot write.
func TestTakeClaim(t *testing.T) {
	for _, faults := range []memkv.Faults{{}, {Seed: 3, Conflict: 0.3, Unknown: 0.3}} {
		synctest.Test(t, func(t *testing.T) {
			store := open(faults)
			for _, c := range []*claim{writer(store, "w", time.Second), joining(store, "j", time.Second)} {
				for range 30 {
					must(t, c.take(t.Context()))
					time.Sleep(10 * time.Second)
					owned(t, store, c.row.Owner+"f")
					must(t, errors.Join(checked(t, store, c), c.close(t.Context())))
					owned(t, store, "")
					if err := checked(t, store, c); !errors.Is(err, ErrClaimed) || !strings.Contains(err.Error(), "was taken over") {
						t.Errorf("a write after close: %v", err)
					}
				}
			}
		})
	}
}

// TestClaimRefused: while a writer has partitions and beats, no other can claim all for itself. One that waits for some does not prevent that.
func TestClaimRefused(t *testing.T) {
	bubble(t, func(t *testing.T, store *memkv.Store) {
		one, standby := take(t, joining(store, "one", time.Second)), take(t, joining(store, "standby", time.Second))
		owned(t, store, "onef standby0")
		refused(t, writer(store, "two", time.Second), "4 partitions are written by one since ", "and it is alive")
		owned(t, store, "onef standby0")
		must(t, checked(t, store, one))
		moved(t, one, 3)
		moved(t, standby, 12)
		refused(t, writer(store, "two", time.Second), "2 partitions are written by ", "and it is alive")
	})
	bubble(t, func(t *testing.T, store *memkv.Store) {
		take(t, writer(store, "one", time.Second))
		standby := take(t, joining(store, "standby", time.Second))
		moved(t, standby, 0)
		owned(t, store, "onef standby0")
	})
	bubble(t, func(t *testing.T, store *memkv.Store) {
		one := take(t, joining(store, "one", time.Second))
		standby := take(t, joining(store, "standby", time.Second))
		must(t, one.close(t.Context()))
		take(t, writer(store, "two", time.Second))
		moved(t, standby, 0)
		owned(t, store, "standby0 twof")
	})
}

// TestTakeOver: after four silent beats, a writer loses all of its partitions, to one that wants all or to those that share them. It can
// no longer write, whatever they took.
func TestTakeOver(t *testing.T) {
	bubble(t, func(t *testing.T, store *memkv.Store) {
		old := take(t, writer(store, "old", 24*time.Hour))
		var log bytes.Buffer
		start := time.Now()
		c := logging(writer(store, "new", time.Second), &log)
		take(t, c)
		if took := time.Since(start); took < 4*time.Second || took > 5*time.Second {
			t.Errorf("taken over after %v", took)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "watching whether another writer is alive: 4 partitions are written by old since ") {
			t.Errorf("the log says %q", text)
		}
		if err := checked(t, store, old); !errors.Is(err, ErrClaimed) {
			t.Errorf("a write of the old writer: %v", err)
		}
		must(t, checked(t, store, c))
		owned(t, store, "newf")
	})
	bubble(t, func(t *testing.T, store *memkv.Store) {
		old, a, b := joining(store, "old", 24*time.Hour), joining(store, "a", time.Second), joining(store, "b", time.Second)
		for _, c := range []*claim{old, a, b} {
			take(t, c)
		}
		start := time.Now()
		for ; !a.isDue() && !b.isDue(); time.Sleep(time.Second) {
			for _, c := range []*claim{a, b} {
				must(t, c.look(t.Context()))
			}
			must(t, checked(t, store, old))
		}
		if took := time.Since(start); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("it is due after %v", took)
		}
		if err := a.move(t.Context(), splitRows); err != nil || a.row.Parts.Len() != 2 {
			t.Errorf("a has %x: %v", a.row.Parts, err)
		}
		if err := checked(t, store, old); !errors.Is(err, ErrClaimed) {
			t.Errorf("a write of the old writer: %v", err)
		}
		moved(t, b, 15&^a.row.Parts)
		owned(t, store, fmt.Sprintf("a%x b%x", a.row.Parts, b.row.Parts))
	})
}

// TestShare: whatever writers have, each of them is to have as many partitions as the others or one more, all of them together all, and none
// moves without need. All compute the same.
func TestShare(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		n := uint8(1 << rng.IntN(7))
		all, rows := format.AllPartitions(n), map[string]format.ClaimRow{}
		for i := range 1 + rng.IntN(int(n)+3) {
			rows[fmt.Sprint("w", i)] = format.ClaimRow{}
		}
		for part := range all.Each {
			if i := rng.IntN(len(rows) + 1 + rng.IntN(3)); i < len(rows) {
				at := fmt.Sprint("w", rng.IntN(i+1)) // some have many
				rows[at] = format.ClaimRow{Parts: rows[at].Parts | 1<<part}
			}
		}
		for step := 0; ; step++ {
			sum, changed, least := format.Partitions(0), false, int(n)/len(rows)
			next, full := map[string]format.ClaimRow{}, 0
			for _, row := range rows {
				if row.Parts.Len() == least+1 {
					full++
				}
			}
			for token, row := range rows {
				parts := share(all, rows, token)
				if sum&parts != 0 || parts&^row.Parts != 0 && row.Parts&^parts != 0 {
					t.Fatalf("seed %d: %s goes from %x to %x beside %x", seed, token, row.Parts, parts, sum)
				}
				if had := row.Parts.Len(); had == least && parts.Len() < least || had == least+1 && full <= int(n)%len(rows) && parts.Len() != had {
					t.Fatalf("seed %d: %s goes from %x to %x", seed, token, row.Parts, parts)
				}
				sum |= parts
				changed = changed || parts != row.Parts
				next[token] = format.ClaimRow{Parts: parts}
			}
			for token, row := range next { // only one at a time
				if rows[token] != row && rng.IntN(2) == 0 {
					rows[token] = row
					break
				}
			}
			if !changed {
				for token, row := range rows {
					if got := row.Parts.Len(); got != least && got != least+1 || sum != all {
						t.Fatalf("seed %d: %s has %x of %x", seed, token, row.Parts, sum)
					}
				}
				break
			}
			if step > 1000 {
				t.Fatalf("seed %d: it does not end", seed)
			}
		}
	}
}

// racing is a store in which something happens before the first write.
type racing struct {
	kv.Store

	before atomic.Pointer[func()]
}

func (r *racing) first(happens func()) { r.before.Store(&happens) }

func (r *racing) Update(ctx context.Context, fn func(kv.Txn) error) error {
	if happens := r.before.Swap(nil); happens != nil {
		(*happens)()
	}
	return r.Store.Update(ctx, fn)
}

// TestLastMoment: between the last look and the write that claims, another writer takes the free partitions, or the watched one
// beats. Either is alive.
func TestLastMoment(t *testing.T) {
	bubble(t, func(t *testing.T, store *memkv.Store) {
		ours := &racing{Store: store}
		ours.first(func() { take(t, writer(store, "quick", time.Second)) })
		refused(t, writer(ours, "second", time.Second), "are written by quick since ", "and it is alive")
		ours.first(func() { take(t, joining(store, "quick", time.Second)) })
		second := take(t, joining(ours, "second", time.Second))
		if err := checked(t, store, second); err != nil || second.row.Parts != 0 {
			t.Errorf("it has %x: %v", second.row.Parts, err)
		}
	})
	bubble(t, func(t *testing.T, store *memkv.Store) {
		old := take(t, joining(store, "old", 24*time.Hour))
		ours := &racing{Store: store}
		second := take(t, joining(ours, "second", time.Second))
		for range 5 {
			must(t, second.look(t.Context()))
			time.Sleep(time.Second)
		}
		ours.first(func() {
			if err := store.Update(t.Context(), func(tx kv.Txn) error { old.writeBeat(tx); return nil }); err != nil {
				t.Error(err)
			}
		})
		moved(t, second, 0)
		must(t, checked(t, store, old))
	})
}

// TestLastBeat: a beat that was on its way to the store when its writer died does not keep others out.
func TestLastBeat(t *testing.T) {
	bubble(t, func(t *testing.T, store *memkv.Store) {
		old := take(t, writer(store, "old", 24*time.Hour))
		time.AfterFunc(1700*time.Millisecond, func() {
			if err := store.Update(t.Context(), func(tx kv.Txn) error { old.writeBeat(tx); return nil }); err != nil {
				t.Error(err)
			}
		})
		take(t, writer(store, "second", time.Second))
		owned(t, store, "secondf")
	})
}

// TestMalformedClaims: every reader of a malformed row returns an error, and does not take the
// partitions for free.
func TestMalformedClaims(t *testing.T) {
	for name, value := range map[string]string{"no JSON": "{", "another type": `{"parts":"x"}`, "empty": "", "an invalid time": `{"since":"yesterday"}`} {
		store := open(memkv.Faults{})
		c := joining(store, "a", time.Hour)
		must(t, c.take(t.Context()))
		c.stop()
		must(t, store.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("p\x01"), []byte(value)); return nil }))
		for i, err := range []error{
			writer(store, "b", time.Second).take(t.Context()), joining(store, "b", time.Second).take(t.Context()), c.move(t.Context(), splitRows),
		} {
			if err == nil || !strings.Contains(err.Error(), "claim 7001 is malformed") {
				t.Errorf("%s: %d: %v", name, i, err)
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
				live := take(t, writer(theirs, "live", time.Second))
				time.AfterFunc(after, func() {
					ours.stall(stall, stall)
					theirs.stall(stall+500*time.Millisecond, stall+500*time.Millisecond) // the live writer reaches the store later
				})
				refused(t, writer(ours, "second", time.Second), "are written by live since ", "and it is alive")
				if err := checked(t, store, live); err != nil {
					t.Errorf("%v after the start, a stall of %v: %v", after, stall, err)
				}
			})
		}
	}
}

// TestStallOnlyDelaysTakingOver: after a stall of reads, a silent writer is watched for four beats more. One that was dead, before a stall of the
// write that takes over, is taken over after it.
func TestStallOnlyDelaysTakingOver(t *testing.T) {
	for after, reads := range map[time.Duration]time.Duration{1100 * time.Millisecond: 12 * time.Second, 3900 * time.Millisecond: 0} {
		bubble(t, func(t *testing.T, store *memkv.Store) {
			take(t, writer(store, "gone", 24*time.Hour))
			ours := &connection{Store: store}
			time.AfterFunc(after, func() { ours.stall(reads, 12*time.Second) })
			begun := time.Now()
			take(t, writer(ours, "second", time.Second))
			least := 11 * time.Second
			if reads > 0 {
				least += 4 * time.Second // it was not dead yet
			}
			if took := time.Since(begun) - after; took < least || took > least+2*time.Second {
				t.Errorf("it took %v", took+after)
			}
		})
	}
}

// TestTakeAwaitsTheStore: taking a claim waits for a store that does not answer, logs that once, and
// stops with its context.
func TestTakeAwaitsTheStore(t *testing.T) {
	for _, begins := range []time.Duration{0, 700 * time.Millisecond} { // from the beginning, and while it watches
		bubble(t, func(t *testing.T, store *memkv.Store) {
			take(t, writer(store, "gone", 24*time.Hour))
			ours := &connection{Store: store, away: begins == 0}
			time.AfterFunc(begins+time.Millisecond, func() { ours.setAway(true) })
			time.AfterFunc(30*time.Second, func() { ours.setAway(false) })
			var log bytes.Buffer
			begun := time.Now()
			take(t, logging(writer(ours, "second", time.Second), &log))
			if took := time.Since(begun); took < 33*time.Second || took > 36*time.Second {
				t.Errorf("it took %v", took)
			}
			if n := strings.Count(log.String(), "the cluster is away"); n != 1 {
				t.Errorf("logged %d times:\n%s", n, &log)
			}
			ours.setAway(true)
			why := errors.New("told to stop")
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Minute, func() { cancel(why) })
			if err := writer(ours, "third", time.Second).take(ctx); !errors.Is(err, why) {
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
		c := writer(theirs, "stopped", time.Second)
		c.lost = func(err error) { lost <- err }
		take(t, c)
		theirs.stall(12*time.Second, 12*time.Second)
		begun := time.Now()
		take(t, writer(store, "second", time.Second))
		err := <-lost
		if took := time.Since(begun); took > 14*time.Second || !errors.Is(err, ErrClaimed) || !strings.Contains(err.Error(), "was taken over") {
			t.Errorf("after %v: %v", took, err)
		}
		time.Sleep(10 * time.Second)
		owned(t, store, "secondf")
	})
}
