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

// last is the number of the last event.
func (w *written) last() int64 { return w.events[len(w.events)-1].Seq }

// finish applies the events after a cursor. The store must then be the model.
func (w *written) finish(t *testing.T, s *graph.Store, store kv.Store, cursor int64) {
	t.Helper()
	for _, b := range w.batches {
		if b[len(b)-1].Seq > cursor {
			must(t, applyOnce(t.Context(), s, b))
		}
	}
	eraseAll(t, s)
	m := w.upTo(w.last())
	compareViews(t, views(t, s), m.Views())
	compareCounts(t, s, m)
	verify(t, store)
	must(t, errors.Join(s.Close(t.Context()), store.Close()))
}

func openDisk(fs vfs.FS, fatal func(error)) (*pebblekv.Store, error) {
	return pebblekv.Open(pebblekv.Options{Dir: "s", Create: true, FS: fs, Merger: merger(), Memory: 8 << 20, SyncInterval: time.Hour, Fatal: fatal})
}

// writing is a store on a disk with faults, to which a history is written.
type writing struct {
	*written

	t     *testing.T
	disk  *harness.Disk
	store *pebblekv.Store
	s     *graph.Store
}

func newWriting(t *testing.T, w *written, fs vfs.FS, fatal func(error)) *writing {
	t.Helper()
	d := &writing{written: w, t: t, disk: harness.NewDisk(fs)}
	d.open(fatal)
	return d
}

func (d *writing) open(fatal func(error)) {
	d.t.Helper()
	var err error
	d.store, err = openDisk(d.disk, fatal)
	must(d.t, err)
	d.s = openGraph(d.t, d.store)
}

// apply applies all batches, and calls then after each.
func (d *writing) apply(then func(i int, seq int64) error) {
	d.t.Helper()
	for i, b := range d.batches {
		must(d.t, applyOnce(d.t.Context(), d.s, b))
		if then == nil {
			continue
		}
		must(d.t, then(i, b[len(b)-1].Seq))
	}
}

func (d *writing) close() {
	d.t.Helper()
	must(d.t, errors.Join(d.s.Close(d.t.Context()), d.store.Close()))
}

// judge opens what a fault left on a disk. The store must be the model at its cursor, which must be
// at least least, must then take the rest of the history, and be the model at the end of it.
func judge(t *testing.T, fs vfs.FS, w *written, least int64) {
	t.Helper()
	store, err := openDisk(fs, nil)
	must(t, err)
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
	w.finish(t, s, store, cursor)
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
		d := newWriting(t, w, disk, nil)
		d.apply(func(i int, seq int64) (err error) {
			if i%7 == 6 {
				if err = d.store.Sync(); err == nil {
					synced.Store(seq)
				}
			}
			if i%20 == 19 {
				err = errors.Join(err, d.store.Compact(t.Context()))
			}
			return err
		})
		d.close()
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
	mem := vfs.NewMem()
	d := newWriting(t, writeHistory(3, 30, want, 40), mem, nil)
	d.apply(func(_ int, seq int64) error {
		blocked, release := make(chan struct{}), make(chan struct{})
		var once sync.Once
		d.disk.Before(func(o harness.Operation) error {
			if o.Point() == "sync log" {
				once.Do(func() { close(blocked) })
				<-release
			}
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- d.store.Sync() }()
		<-blocked
		compareViews(t, views(t, d.s), d.upTo(seq).Views())
		slow.Happened()
		d.disk.Before(nil)
		close(release)
		return <-done
	})
	d.close()
	judge(t, mem, d.written, d.last())
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
	mem := vfs.NewMem()
	d := newWriting(t, writeHistory(seed, 30, 40, 60), mem, nil)
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
	for i, b := range d.batches {
		if i%10 == 9 { // a new process has read nothing yet
			d.disk.Before(nil)
			must(t, d.store.Compact(t.Context()))
			d.close()
			d.open(nil)
			d.disk.Before(fail)
		}
		for n := 0; ; n++ {
			err := applyOnce(t.Context(), d.s, b)
			if err == nil {
				break
			}
			if n == 200 || !strings.Contains(err.Error(), syscall.EIO.Error()) {
				t.Fatalf("a write failed, %d times, or not with the disk's error: %v", n+1, err)
			}
		}
		if i%10 == 9 {
			_ = d.store.View(t.Context(), func(r kv.Reader) error { // until an error
				return r.Scan(nil, []byte{0xff}, false, func(_, _ []byte) (bool, error) { return true, nil })
			})
		}
	}
	d.disk.Before(nil)
	compareViews(t, views(t, d.s), d.upTo(d.last()).Views())
	d.close()
	judge(t, mem, d.written, d.last())
}

// A bit flips in a file of a store that is closed, or was killed. The store does not open, or a
// check and queries find the damage, or the bit does not matter: no answer is wrong, and no
// committed write is lost without an error.
func TestFaultFlippedBits(t *testing.T) {
	want := harness.Times(60)
	flipped := harness.NewFault(t, "flipped bit on the disk", want)
	outcomes := map[string]int{}
	for seed := uint64(0); flipped.Count() < want; seed++ {
		mem := harness.NewCrashFS()
		w := newWriting(t, writeHistory(seed, 30, 30, 60), mem, nil)
		w.apply(func(i int, _ int64) error {
			if i == 10 {
				return w.store.Compact(t.Context())
			}
			return nil
		})
		must(t, w.store.Sync())
		killed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(seed, 1))})
		w.close()
		rng := rand.New(rand.NewPCG(seed, 2))
		for _, base := range []*harness.CrashFS{mem, killed} {
			names, err := base.List("s")
			must(t, err)
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
					fs := harness.NewCrashFS()
					_, err := vfs.Clone(base, fs, "s", "s")
					must(t, err)
					if !flip(t, fs, "s/"+name, rng) {
						continue
					}
					flipped.Happened()
					kind := strings.TrimLeft(strings.TrimLeft(name, "0123456789"), ".")
					kind, _, _ = strings.Cut(kind, "-")
					outcomes[kind+": "+damaged(t, fs, w.written)]++
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
	compareViews(t, views(t, s), w.upTo(w.last()).Views())
	return "harmless"
}

// flip flips one bit of a file. It returns false for an empty one.
func flip(t *testing.T, fs vfs.FS, name string, rng *rand.Rand) bool {
	t.Helper()
	f, err := fs.Open(name)
	must(t, err)
	all, err := io.ReadAll(f)
	must(t, errors.Join(err, f.Close()))
	if len(all) == 0 {
		return false
	}
	all[rng.IntN(len(all))] ^= 1 << rng.IntN(8)
	out, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = out.Write(all)
	must(t, errors.Join(err, out.Sync(), out.Close()))
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
	mem := harness.NewCrashFS()
	var once sync.Once
	fatal := make(chan error, 16)
	w := newWriting(t, writeHistory(seed, 30, 12, 60), mem, func(err error) {
		fatal <- err
		select {} // the process has ended; this goroutine is left behind
	})
	w.apply(nil)
	w.disk.Before(func(o harness.Operation) error {
		if o.Point() == point {
			once.Do(ended.Happened)
			return fmt.Errorf("faults: %w", cause)
		}
		return nil
	})
	// A compaction begins a new log.
	failed := make(chan error, 1)
	go func() { failed <- errors.Join(w.store.Compact(context.WithoutCancel(t.Context())), w.store.Sync()) }()
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
	judge(t, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), w.written, w.last())
}

// A log that cannot be made for want of a file descriptor is made as soon as one is free.
func TestFaultNoDescriptorForLog(t *testing.T) {
	mem, left := vfs.NewMem(), harness.Times(2)
	missing := harness.NewFault(t, "no file descriptor for a log", left)
	w := newWriting(t, writeHistory(7, 30, 12, 60), mem, func(err error) { t.Errorf("the process ends: %v", err) })
	w.disk.Before(func(o harness.Operation) error {
		if o.Point() != "create log" || left == 0 {
			return nil
		}
		left--
		missing.Happened()
		return fmt.Errorf("faults: %w", syscall.EMFILE)
	})
	w.apply(func(int, int64) error { return w.store.Compact(t.Context()) })
	w.close()
	judge(t, mem, w.written, w.last())
}

// Commits of a cluster report an unknown outcome, applied or not, and conflict, and callers give up during them. Each
// event counts once.
func TestFaultUnknownOutcome(t *testing.T) {
	want := harness.Times(20)
	unknown := harness.NewFault(t, "commit with an unknown outcome", want)
	for seed := uint64(0); unknown.Count() < want; seed++ {
		w := writeHistory(seed, 30, 30, 40)
		var giveUp atomic.Pointer[context.CancelFunc]
		store := memkv.Open(memkv.Options{Merger: merger(), Faults: memkv.Faults{Seed: seed, Conflict: 0.2, Unknown: 0.3}, OnCommit: func(n int) error {
			if stop := giveUp.Load(); stop != nil && n%7 == 0 {
				(*stop)()
			}
			return nil
		}})
		s := openWriter(t, store, sharedSettings, false)
		for i := 0; i < len(w.batches); {
			ctx, stop := context.WithCancel(t.Context())
			giveUp.Store(&stop)
			if err := applyOnce(ctx, s, w.batches[i]); err == nil {
				i++
			} else if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			stop()
		}
		w.finish(t, s, store, w.last())
		for range store.Counts().Unknown {
			unknown.Happened()
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}
