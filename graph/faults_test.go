package graph_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"skein.blue/internal/sim/harness"

	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// A written is a history and the batches that it is applied in.
type written struct {
	events  []*oracle.Event
	batches [][]*oracle.Event
}

func writeHistory(seed uint64, accounts, batches, perBatch int) *written {
	h := oracle.NewHistory(seed, accounts)
	w := &written{}
	for range batches {
		var b []*oracle.Event
		for range perBatch {
			b = append(b, h.Next())
		}
		w.events = append(w.events, b...)
		w.batches = append(w.batches, b)
	}
	return w
}

// upTo returns the model of the events up to a cursor.
func (w *written) upTo(cursor int64) *oracle.Model {
	m := oracle.New()
	for _, e := range w.events {
		if e.Seq <= cursor {
			m.Apply(e)
		}
	}
	return m
}

func applyOnce(ctx context.Context, s *graph.Store, events []*oracle.Event) error {
	var b batch.Batch
	for _, e := range events {
		fill(&b, e)
	}
	return s.Apply(ctx, "relay", &b)
}

func openDisk(fs vfs.FS, fatal func(error)) (*pebblekv.Store, error) {
	return pebblekv.Open(pebblekv.Options{Dir: "s", Create: true, FS: fs, Merger: merger(), Memory: 8 << 20, SyncInterval: time.Hour, Fatal: fatal})
}

// judge opens what a fault left on a disk. The store must be the model at its cursor, which must be
// at least least, must then take the rest of the history, and be the model at the end of it.
func judge(t *testing.T, fs vfs.FS, w *written, least int64) {
	t.Helper()
	store, err := openDisk(fs, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := openGraph(t, store)
	var cursor int64
	if c, ok := s.Cursor("relay"); ok {
		cursor = int64(c.Seq)
	}
	if cursor < least {
		t.Errorf("the cursor is %d, %d was synced", cursor, least)
	}
	compareViews(t, views(t, s), w.upTo(cursor).Views())
	verify(t, store)
	for _, b := range w.batches {
		if b[len(b)-1].Seq <= cursor {
			continue
		}
		if err := applyOnce(t.Context(), s, b); err != nil {
			t.Fatal(err)
		}
	}
	for s.Erasing() {
		if err := s.EraseSlice(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	m := w.upTo(w.events[len(w.events)-1].Seq)
	compareViews(t, views(t, s), m.Views())
	compareCounts(t, s, m)
	verify(t, store)
	if err := errors.Join(s.Close(t.Context()), store.Close()); err != nil {
		t.Fatal(err)
	}
}

// The power fails at every kind of operation on the disk, and a random part of what was not synced
// is lost. The store is then the model at its cursor, which is not before the last sync.
func TestFaultPowerFailure(t *testing.T) {
	want := harness.Times(20)
	failed := harness.NewFault(t, "power failure", want)
	points := map[string]int{}
	for seed := uint64(0); failed.Count() < want; seed++ {
		if seed > 20+uint64(want) {
			t.Fatal("the power failed too rarely")
		}
		rng := rand.New(rand.NewPCG(seed, 8))
		w := writeHistory(seed, 30, 50, 60)
		mem := harness.NewCrashFS()
		disk := harness.NewDisk(mem)
		type cut struct {
			fs    *harness.CrashFS
			least int64
			point string
		}
		var cuts []cut
		var synced atomic.Int64
		var mu sync.Mutex
		share := rng.IntN(101)
		disk.Before(func(o harness.Operation) error {
			mu.Lock()
			defer mu.Unlock()
			// Rare points fail first, so that each has its turn.
			if len(cuts) < 20 && rng.IntN(4+20*points[o.Point()]) == 0 {
				least := synced.Load() // before the copy: what is synced meanwhile may be missing in it
				cuts = append(cuts, cut{mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: share, RNG: rng}), least, o.Point()})
				points[o.Point()]++
			}
			return nil
		})
		store, err := openDisk(disk, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := openGraph(t, store)
		for i, b := range w.batches {
			if err := applyOnce(t.Context(), s, b); err != nil {
				t.Fatal(err)
			}
			if i%7 == 6 {
				if err := store.Sync(); err != nil {
					t.Fatal(err)
				}
				synced.Store(b[len(b)-1].Seq)
			}
			if i%20 == 19 {
				if err := store.Compact(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := errors.Join(s.Close(t.Context()), store.Close()); err != nil {
			t.Fatal(err)
		}
		disk.Before(nil)
		for _, c := range cuts {
			failed.Happened()
			judge(t, c.fs, w, c.least)
			if t.Failed() {
				t.Fatalf("seed %d, power failure at %q", seed, c.point)
			}
		}
	}
	t.Logf("power failures at %v", points)
	if len(points) < 10 {
		t.Errorf("the power failed at %d kinds of operation only: %v", len(points), slices.Sorted(maps.Keys(points)))
	}
}

// A disk that is slow at every operation delays writes. Nothing is lost, and queries do not wait
// for a sync.
func TestFaultSlowDisk(t *testing.T) {
	want := harness.Times(10)
	slow := harness.NewFault(t, "slow disk: a sync that blocks while queries are answered", want)
	w := writeHistory(3, 30, want, 40)
	mem := vfs.NewMem()
	disk := harness.NewDisk(mem)
	store, err := openDisk(disk, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := openGraph(t, store)
	for _, b := range w.batches {
		if err := applyOnce(t.Context(), s, b); err != nil {
			t.Fatal(err)
		}
		blocked, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		disk.Before(func(o harness.Operation) error {
			if o.Point() == "sync log" {
				once.Do(func() { close(blocked) })
				<-release
			}
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- store.Sync() }()
		<-blocked
		compareViews(t, views(t, s), w.upTo(b[len(b)-1].Seq).Views())
		slow.Happened()
		disk.Before(nil)
		close(release)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Close(t.Context()), store.Close()); err != nil {
		t.Fatal(err)
	}
	judge(t, mem, w, w.events[len(w.events)-1].Seq)
}

// Reads of tables fail for a while, in queries, writes and compactions. A query returns an error
// or the truth. A write that failed is repeated. Nothing is lost.
func TestFaultReadErrors(t *testing.T) {
	want := harness.Times(20)
	failed := harness.NewFault(t, "read error", want)
	for seed := uint64(0); failed.Count() < want; seed++ {
		if seed > 30+uint64(want) {
			t.Fatal("too few reads failed")
		}
		readErrors(t, seed, failed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func readErrors(t *testing.T, seed uint64, failed *harness.Fault) {
	t.Helper()
	w := writeHistory(seed, 30, 40, 60)
	mem := vfs.NewMem()
	disk := harness.NewDisk(mem)
	rng := rand.New(rand.NewPCG(seed, 5))
	var mu sync.Mutex
	fail := func(o harness.Operation) error {
		mu.Lock()
		defer mu.Unlock()
		if o.Point() != "read table" || rng.IntN(3) != 0 {
			return nil
		}
		failed.Happened()
		return fmt.Errorf("faults: %w", syscall.EIO)
	}
	open := func() (*pebblekv.Store, *graph.Store) {
		store, err := openDisk(disk, nil)
		if err != nil {
			t.Fatal(err)
		}
		return store, openGraph(t, store)
	}
	store, s := open()
	for i, b := range w.batches {
		if i%10 == 9 { // a new process has read nothing yet
			disk.Before(nil)
			if err := errors.Join(store.Compact(t.Context()), s.Close(t.Context()), store.Close()); err != nil {
				t.Fatal(err)
			}
			store, s = open()
			disk.Before(fail)
		}
		for n := 0; ; n++ {
			err := applyOnce(t.Context(), s, b)
			if err == nil {
				break
			}
			if n == 200 {
				t.Fatalf("after %d attempts: %v", n, err)
			}
			if !strings.Contains(err.Error(), syscall.EIO.Error()) {
				t.Fatalf("a write failed, and not with the disk's error: %v", err)
			}
		}
		if i%10 == 9 {
			_ = store.View(t.Context(), func(r kv.Reader) error { // until an error
				return r.Scan(nil, []byte{0xff}, false, func(_, _ []byte) (bool, error) { return true, nil })
			})
		}
	}
	disk.Before(nil)
	compareViews(t, views(t, s), w.upTo(w.events[len(w.events)-1].Seq).Views())
	if err := errors.Join(s.Close(t.Context()), store.Close()); err != nil {
		t.Fatal(err)
	}
	judge(t, mem, w, w.events[len(w.events)-1].Seq)
}

// A bit flips in a file of a store that is closed, or was killed. The store does not open, or a
// check and queries find the damage, or the bit does not matter: no answer is wrong, and no
// committed write is lost without an error.
func TestFaultFlippedBits(t *testing.T) {
	want := harness.Times(60)
	flipped := harness.NewFault(t, "flipped bit on the disk", want)
	outcomes := map[string]int{}
	for seed := uint64(0); flipped.Count() < want; seed++ {
		w := writeHistory(seed, 30, 30, 60)
		mem := harness.NewCrashFS()
		store, err := openDisk(mem, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := openGraph(t, store)
		for i, b := range w.batches {
			if err := applyOnce(t.Context(), s, b); err != nil {
				t.Fatal(err)
			}
			if i == 10 {
				if err := store.Compact(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := store.Sync(); err != nil {
			t.Fatal(err)
		}
		killed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(seed, 1))})
		if err := errors.Join(s.Close(t.Context()), store.Close()); err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(seed, 2))
		for _, base := range []*harness.CrashFS{mem, killed} {
			names, err := base.List("s")
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(names)
			for _, name := range names {
				flips := 3
				switch {
				case strings.HasPrefix(name, "OPTIONS"):
					flips = 20 // few of its bits matter
				case !strings.HasSuffix(name, ".sst") || harness.Whole():
				case base == killed || name != "000007.sst":
					continue
				default:
					flips = 1 // Pebble looks for the flipped bit at every read of a damaged block, for 0.1 s
				}
				for range flips {
					fs := copyFS(t, base)
					if !flip(t, fs, "s/"+name, rng) {
						continue
					}
					flipped.Happened()
					kind := strings.TrimLeft(strings.TrimLeft(name, "0123456789"), ".")
					kind, _, _ = strings.Cut(kind, "-")
					outcomes[kind+": "+damaged(t, fs, w)]++
					if t.Failed() {
						t.Fatalf("seed %d, a bit of %s", seed, name)
					}
				}
			}
		}
	}
	t.Logf("outcomes: %v", outcomes)
}

// damaged judges a store with a flipped bit: it names the error, or finds the truth.
func damaged(t *testing.T, fs vfs.FS, w *written) (outcome string) {
	t.Helper()
	known := func(err error) bool {
		return errors.Is(err, kv.ErrDamaged) || errors.Is(err, kv.ErrCorrupt) || errors.Is(err, kv.ErrFormat)
	}
	store, err := openDisk(fs, nil)
	if err != nil {
		if !known(err) {
			t.Errorf("opening a damaged store: %v", err)
		}
		return "refused"
	}
	defer func() { _ = store.Close() }()
	found := 0
	if err := check.Store(t.Context(), store, func(string) { found++ }, nil); err != nil && !known(err) {
		t.Errorf("checking a damaged store: %v", err)
	} else if err != nil || found > 0 {
		return "found by a check"
	}
	s := openGraph(t, store)
	defer func() { _ = s.Close(context.WithoutCancel(t.Context())) }()
	compareViews(t, views(t, s), w.upTo(w.events[len(w.events)-1].Seq).Views())
	return "harmless"
}

func copyFS(t *testing.T, from *harness.CrashFS) *harness.CrashFS {
	t.Helper()
	to := harness.NewCrashFS()
	if _, err := vfs.Clone(from, to, "s", "s"); err != nil {
		t.Fatal(err)
	}
	return to
}

// flip flips one bit of a file. It returns false for an empty one.
func flip(t *testing.T, fs vfs.FS, name string, rng *rand.Rand) bool {
	t.Helper()
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		return false
	}
	all[rng.IntN(len(all))] ^= 1 << rng.IntN(8)
	out, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = out.Write(all)
	if err := errors.Join(err, out.Sync(), out.Close()); err != nil {
		t.Fatal(err)
	}
	return true
}

// A log cannot be made, completed, or written to disk, or the folder cannot: the engine ends the
// process with one message, and what was committed is still there.
func TestFaultLogCannotBeCompleted(t *testing.T) {
	for _, point := range []string{"create log", "close log", "sync folder", "write log", "sync log"} {
		for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
			t.Run(fmt.Sprintf("%s/%v", point, cause), func(t *testing.T) {
				ended := harness.NewFault(t, point+" fails: "+cause.Error(), harness.Times(1))
				for seed := range uint64(harness.Times(1)) {
					logFails(t, seed, point, cause, ended)
				}
			})
		}
	}
}

func logFails(t *testing.T, seed uint64, point string, cause error, ended *harness.Fault) {
	t.Helper()
	w := writeHistory(seed, 30, 12, 60)
	mem := harness.NewCrashFS()
	disk := harness.NewDisk(mem)
	var once sync.Once
	fatal := make(chan error, 16)
	store, err := openDisk(disk, func(err error) {
		fatal <- err
		select {} // the process has ended; this goroutine is left behind
	})
	if err != nil {
		t.Fatal(err)
	}
	s := openGraph(t, store)
	for _, b := range w.batches {
		if err := applyOnce(t.Context(), s, b); err != nil {
			t.Fatal(err)
		}
	}
	disk.Before(func(o harness.Operation) error {
		if o.Point() == point {
			once.Do(ended.Happened)
			return fmt.Errorf("faults: %w", cause)
		}
		return nil
	})
	// A compaction begins a new log.
	failed := make(chan error, 1)
	go func() { failed <- errors.Join(store.Compact(context.WithoutCancel(t.Context())), store.Sync()) }()
	select {
	case err := <-fatal:
		if !strings.Contains(err.Error(), cause.Error()) || strings.Contains(err.Error(), "goroutine ") {
			t.Errorf("the message is %v", err)
		}
	case err := <-failed:
		if err == nil || !strings.Contains(err.Error(), cause.Error()) {
			t.Errorf("the error is %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Error("nothing happened")
	}
	judge(t, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), w, w.events[len(w.events)-1].Seq)
}

// A log that cannot be made for want of a file descriptor is made as soon as one is free.
func TestFaultNoDescriptorForLog(t *testing.T) {
	w := writeHistory(7, 30, 12, 60)
	mem := vfs.NewMem()
	disk := harness.NewDisk(mem)
	missing := harness.NewFault(t, "no file descriptor for a log", harness.Times(2))
	store, err := openDisk(disk, func(err error) { t.Errorf("the process ends: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	s := openGraph(t, store)
	left := harness.Times(2)
	disk.Before(func(o harness.Operation) error {
		if o.Point() != "create log" || left == 0 {
			return nil
		}
		left--
		missing.Happened()
		return fmt.Errorf("faults: %w", syscall.EMFILE)
	})
	for _, b := range w.batches {
		if err := applyOnce(t.Context(), s, b); err != nil {
			t.Fatal(err)
		}
		if err := store.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Close(t.Context()), store.Close()); err != nil {
		t.Fatal(err)
	}
	judge(t, mem, w, w.events[len(w.events)-1].Seq)
}

// Commits of a cluster report an unknown outcome, applied or not, and conflict. Each event counts
// once.
func TestFaultUnknownOutcome(t *testing.T) {
	want := harness.Times(20)
	unknown := harness.NewFault(t, "commit with an unknown outcome", want)
	for seed := uint64(0); unknown.Count() < want; seed++ {
		w := writeHistory(seed, 30, 30, 40)
		store := memkv.Open(memkv.Options{Merger: merger(), Faults: memkv.Faults{Seed: seed, Conflict: 0.2, Unknown: 0.3}})
		s := openShare(t, store, sharedSettings, graph.Share{})
		for _, b := range w.batches {
			if err := applyOnce(t.Context(), s, b); err != nil {
				t.Fatal(err)
			}
		}
		for s.Erasing() {
			if err := s.EraseSlice(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		m := w.upTo(w.events[len(w.events)-1].Seq)
		compareViews(t, views(t, s), m.Views())
		compareCounts(t, s, m)
		verify(t, store)
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range store.Counts().Unknown {
			unknown.Happened()
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
