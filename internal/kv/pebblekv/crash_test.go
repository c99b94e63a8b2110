package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/internal/sim/harness"

	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// A past has the states of a store after each of its transactions, while it is written and compacted.
type past struct {
	mu     sync.Mutex // guards the fields below
	all    []kvtest.State
	synced int // this state was synced
}

func (p *past) len() int { p.mu.Lock(); defer p.mu.Unlock(); return len(p.all) }

func (p *past) at(i int) kvtest.State { p.mu.Lock(); defer p.mu.Unlock(); return p.all[i] }

func (p *past) isSynced() int { p.mu.Lock(); defer p.mu.Unlock(); return p.synced }

// write writes a random history into a store, and compacts it, until stop is called.
func (p *past) write(t *testing.T, s *Store, seed uint64) (stop func()) {
	p.all = []kvtest.State{{}}
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	busy.Go(func() {
		h := kvtest.NewHistory(seed)
		for n := 1; ctx.Err() == nil; n++ {
			h.Write(t, s, 60)
			sync := n%37 == 0
			if sync {
				must(t, s.Sync())
			}
			p.mu.Lock()
			if p.all = append(p.all, h.State()); sync {
				p.synced = n
			}
			p.mu.Unlock()
		}
	})
	busy.Go(func() {
		for ctx.Err() == nil {
			<-time.After(5 * time.Millisecond)
			must(t, s.Compact(t.Context()))
		}
	})
	return func() { cancel(); busy.Wait() }
}

// holds checks that a store has the state after one of the transactions, and returns that.
func (p *past) holds(t *testing.T, s *Store, least int) (w kvtest.State) {
	t.Helper()
	n := 0
	if round := get(t, s, kvtest.Round); round != "" {
		_, err := fmt.Sscan(round, &n)
		must(t, err)
	}
	if n < least || n >= p.len() {
		t.Fatalf("%d transactions of %d, want at least %d", n, p.len()-1, least)
	}
	must(t, s.View(t.Context(), func(r kv.Reader) error { p.at(n).Equal(t, r); return nil }))
	return p.at(n)
}

// A crash at any moment, during writes, flushes, compactions and syncs, leaves the state
// after one of the transactions. That state is at least as new as the last sync; after a
// SIGKILL, which the system's buffers survive, it is at least as new as the last commit.
// The store then works as before.
func TestCrash(t *testing.T) {
	for seed := range uint64(2) {
		rng := rand.New(rand.NewPCG(seed, 7))
		mem := harness.NewCrashFS()
		o := Options{Dir: "s", Create: true, FS: mem, SyncInterval: 3 * time.Millisecond, Memory: 8 << 20}
		s := openForTest(t, o)
		var was past
		stop := was.write(t, s, seed)
		type crash struct {
			fs    *harness.CrashFS
			least int
		}
		var crashes []crash
		for i := range 8 {
			<-time.After(time.Duration(rng.IntN(10_000)) * time.Microsecond)
			share, least := rng.IntN(100), was.isSynced()
			if i%2 == 0 {
				share, least = 100, was.len()-1
			}
			crashes = append(crashes, crash{mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: share, RNG: rand.New(rand.NewPCG(seed, uint64(i)))}), least})
		}
		stop()
		for _, c := range crashes {
			o.FS = c.fs
			after := openForTest(t, o)
			state := was.holds(t, after, c.least)
			// The store can be written, closed and opened again.
			err := after.Update(t.Context(), func(tx kv.Txn) error { tx.DeleteRange(nil, []byte{0xff}); tx.Set([]byte("new"), nil); return nil })
			must(t, err, after.Close())
			want := kvtest.State{"new": ""}
			for k, v := range state {
				if k >= "\xff" {
					want[k] = v
				}
			}
			again := openForTest(t, o)
			must(t, again.View(t.Context(), func(r kv.Reader) error { want.Equal(t, r); return nil }), again.Close())
		}
	}
}

// A commit reaches the disk soon, even without a call of Sync.
func TestSyncInterval(t *testing.T) {
	mem := harness.NewCrashFS()
	o := Options{Dir: "s", Create: true, FS: mem, SyncInterval: 5 * time.Millisecond, Memory: 8 << 20}
	s := openForTest(t, o)
	set(t, s, "a", "1")
	for began := time.Now(); ; <-time.After(5 * time.Millisecond) {
		after := o
		after.FS = mem.CrashClone(vfs.CrashCloneCfg{})
		if get(t, openForTest(t, after), "a") == "1" {
			return
		}
		if time.Since(began) > 5*time.Second {
			t.Fatal("the write is not synced")
		}
	}
}

var errSync = errors.New("the disk does not answer")

// After a failed sync, the content of the disk is unknown: every later call fails with the
// error of that sync.
func TestSyncFails(t *testing.T) {
	var fail atomic.Bool
	fs := hooked(vfs.NewMem(), func(op errorfs.Op) error {
		if fail.Load() && strings.HasSuffix(op.Path, logSuffix) && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
			return errSync
		}
		return nil
	})
	s, err := Open(Options{
		Dir: "s", Create: true, FS: fs, SyncInterval: time.Hour, Memory: 8 << 20, Merger: kvtest.LastByte{},
	})
	must(t, err)
	write := func() error {
		return s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("a"), nil); return nil })
	}
	must(t, write(), s.Sync(), s.Healthy())
	fail.Store(true)
	if err := s.Sync(); err != nil {
		t.Errorf("a sync without writes failed: %v", err)
	}
	must(t, write())
	for what, err := range map[string]error{
		"Sync": s.Sync(), "Sync again": s.Sync(), "Update": write(), "Healthy": s.Healthy(),
		"View": s.View(t.Context(), func(kv.Reader) error { return nil }),
	} {
		if !errors.Is(err, errSync) {
			t.Errorf("%s: %v", what, err)
		}
	}
	fail.Store(false) // a sync would succeed now, but earlier writes may be lost
	if err := write(); !errors.Is(err, errSync) {
		t.Errorf("Update, later: %v", err)
	}
	if err := s.Close(); !errors.Is(err, errSync) {
		t.Errorf("Close: %v", err)
	}
}

// ReadOnly opens a store that was not closed, and changes none of its files.
func TestReadOnly(t *testing.T) {
	mem := harness.NewCrashFS()
	o := Options{Dir: "s", Create: true, FS: mem, Memory: 8 << 20}
	s := openForTest(t, o)
	h := kvtest.NewHistory(4)
	for range 20 {
		h.Write(t, s, 60)
	}
	must(t, s.Compact(t.Context()))
	for range 20 {
		h.Write(t, s, 60)
	}
	after := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
	list := func() (all []string) {
		names, err := after.List("s")
		must(t, err)
		for _, name := range names {
			st, err := after.Stat(after.PathJoin("s", name))
			must(t, err)
			if name != "LOCK" {
				all = append(all, fmt.Sprintf("%s %d %v", name, st.Size(), st.ModTime()))
			}
		}
		slices.Sort(all)
		return all
	}
	before := list()
	for _, create := range []bool{false, true} {
		ro := Options{Dir: "s", FS: after, ReadOnly: true, Create: create, Memory: 8 << 20}
		r := openForTest(t, ro)
		must(t, r.View(t.Context(), func(r kv.Reader) error { h.State().Equal(t, r); h.Check(t, r, 30); return nil }))
		if err := r.Update(t.Context(), func(tx kv.Txn) error { tx.Delete([]byte(kvtest.Round)); return nil }); err == nil {
			t.Error("a read-only store accepted a write")
		}
		must(t, r.Sync(), r.Healthy(), r.Close())
		if now := list(); strings.Join(now, "\n") != strings.Join(before, "\n") {
			t.Errorf("the files changed: %v\n%v", before, now)
		}
	}
	// ReadOnly wins over Create: it does not make a store.
	dir := t.TempDir()
	for _, name := range []string{"none", "."} {
		_, err := Open(Options{Dir: dir + "/" + name, ReadOnly: true, Create: true, Merger: kvtest.LastByte{}})
		if !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("Open left %v, %v", left, err)
	}
}
