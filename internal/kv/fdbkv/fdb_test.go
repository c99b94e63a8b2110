//go:build fdb

package fdbkv_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein.blue/internal/kv"
	"skein.blue/internal/kv/fdbkv"
	"skein.blue/internal/sim/kvtest"
)

func TestMain(m *testing.M) { os.Exit(kvtest.Main(m)) }

// open opens a new store on the cluster.
func open(t testing.TB, m kv.Merger, change func(*fdbkv.Options)) kv.Store {
	t.Helper()
	o := kvtest.Options(t, m)
	if change != nil {
		change(&o)
	}
	return kvtest.Open(t, o)
}

// must ends a test at an error.
func must(t testing.TB, err ...error) {
	t.Helper()
	if err := errors.Join(err...); err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	at := map[kv.Store]fdbkv.Options{}
	kvtest.Run(t, kvtest.Engine{
		Open: func(t *testing.T, m kv.Merger) kv.Store {
			var options fdbkv.Options
			s := open(t, m, func(o *fdbkv.Options) { options = *o })
			at[s] = options
			return s
		},
		Reopen: func(t *testing.T, s kv.Store) kv.Store {
			o := at[s]
			must(t, s.Close())
			again, err := fdbkv.Open(t.Context(), o)
			must(t, err)
			at[again] = o
			return again
		},
		OpenAs: func(t *testing.T, s kv.Store, m kv.Merger) error {
			o := at[s]
			o.Merger = m
			again, err := fdbkv.Open(t.Context(), o)
			if err == nil {
				err = again.Close()
				t.Errorf("it opened; closing: %v", err)
			}
			if !errors.Is(err, kv.ErrFormat) {
				t.Errorf("with another Merger: %v", err)
			}
			return err
		},
		// The prefix is part of a key, and a value must leave room for appends.
		Fits:      kvtest.Sizes{Key: 9_900, Value: 50_000},
		TooLarge:  kvtest.Sizes{Key: 10_001, Value: 50_001, Txn: 10_000_001},
		Conflicts: true,
	})
}

// Stores do not share keys, even if one prefix begins with another. A range without an
// end ends with its own store.
func TestPrefixes(t *testing.T) {
	a := open(t, kvtest.LastByte{}, func(o *fdbkv.Options) { o.Prefix = "p" })
	b := open(t, kvtest.LastByte{}, func(o *fdbkv.Options) { o.Prefix = "pp" })
	for i, s := range []kv.Store{a, b} {
		err := s.Update(t.Context(), func(tx kv.Txn) error {
			tx.Set([]byte{0}, []byte{byte(i)})
			tx.Set([]byte{0xff, 0xff}, []byte{byte(i)})
			return nil
		})
		must(t, err)
	}
	must(t, a.Update(t.Context(), func(tx kv.Txn) error { tx.DeleteRange(nil, nil); return nil }))
	for i, s := range []kv.Store{a, b} {
		n := 0
		err := s.View(t.Context(), func(r kv.Reader) error {
			return r.Scan(nil, nil, false, func(_, v []byte) (bool, error) {
				if n++; v[0] != byte(i) {
					t.Errorf("store %d has %x", i, v)
				}
				return true, nil
			})
		})
		if err != nil || n != 2*i {
			t.Errorf("store %d: %d keys, %v", i, n, err)
		}
	}
}

// Each read key that another transaction changed is counted as a conflict, each retry with its cause, and each View with
// the time that it waited for its read version, and its round trips.
func TestMetrics(t *testing.T) {
	open(t, kvtest.LastByte{}, nil) // the first transaction of a process may be tried again, with another client library
	reg := prometheus.NewRegistry()
	s := open(t, kvtest.LastByte{}, func(o *fdbkv.Options) {
		o.Metrics = kv.NewMetrics(reg, func(key []byte) string { return string(key) })
	})
	for range 3 {
		must(t, s.View(t.Context(), func(r kv.Reader) error { _, _, err := r.Get([]byte("free")); return err }))
	}
	attempts := 0
	err := s.Update(t.Context(), func(tx kv.Txn) error {
		if _, _, err := tx.Snapshot().Get([]byte("free")); err != nil {
			return err
		}
		for _, key := range []string{"read", "other"} {
			if _, _, err := tx.Get([]byte(key)); err != nil {
				return err
			}
		}
		tx.Conflict([]byte("named"))
		if attempts++; attempts < 4 {
			key := []string{"free", "read", "named", "free"}[attempts]
			if err := s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte(key), []byte{1, 1}); return nil }); err != nil {
				return err
			}
		}
		tx.Set([]byte("written"), []byte{1, 1})
		return nil
	})
	must(t, err)
	want := `
# HELP skein_store_conflicts_total Key ranges that another writer changed before a commit, as the engine reports them, by keyspace.
# TYPE skein_store_conflicts_total counter
skein_store_conflicts_total{keyspace="named"} 1
skein_store_conflicts_total{keyspace="read"} 1
# HELP skein_store_retries_total Retried writes, by cause.
# TYPE skein_store_retries_total counter
skein_store_retries_total{cause="conflict"} 2
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "skein_store_conflicts_total", "skein_store_retries_total"); err != nil || attempts != 3 {
		t.Errorf("%d attempts, %v", attempts, err)
	}
	families, err := reg.Gather()
	must(t, err)
	for _, f := range families {
		if n := f.GetMetric()[0].GetCounter(); f.GetName() == "skein_store_round_trips_total" && n.GetValue() != 3 {
			t.Errorf("the Views took %v round trips", n)
		}
		if h := f.GetMetric()[0].GetHistogram(); f.GetName() == "skein_store_read_version_duration_seconds" && (h.GetSampleCount() != 3 || h.GetSampleSum() <= 0) {
			t.Errorf("the Views waited %v", h)
		}
	}
}

// A transaction over a limit fails with ErrTooLarge and writes nothing.
func TestTooLarge(t *testing.T) {
	s := open(t, kvtest.LastByte{}, nil)
	for name, fn := range map[string]func(kv.Txn){
		"value": func(tx kv.Txn) { tx.Set([]byte("a"), make([]byte, 100_001)) },
		"key":   func(tx kv.Txn) { tx.Set(make([]byte, 10_001), nil) },
		"transaction": func(tx kv.Txn) {
			for i := range 120 {
				tx.Set(fmt.Appendf(nil, "%d", i), make([]byte, 99_000))
			}
		},
	} {
		err := s.Update(t.Context(), func(tx kv.Txn) error {
			tx.Set([]byte("b"), []byte("b"))
			fn(tx)
			return nil
		})
		if !errors.Is(err, kv.ErrTooLarge) {
			t.Errorf("a large %s: %v", name, err)
		}
	}
	err := s.View(t.Context(), func(r kv.Reader) error {
		return r.Scan(nil, nil, false, func(k, _ []byte) (bool, error) {
			t.Errorf("%q was written", k)
			return true, nil
		})
	})
	must(t, err)
}

// A View fails if it outlasts its snapshot. ViewAcross continues at the same key in a newer
// snapshot, and counts the crossings.
func TestLongView(t *testing.T) {
	t.Parallel() // it mostly sleeps
	s := open(t, kvtest.LastByte{}, nil)
	const keys = 2000
	err := s.Update(t.Context(), func(tx kv.Txn) error {
		for i := range keys {
			tx.Set(fmt.Appendf(nil, "%05d", i), make([]byte, 200))
		}
		return nil
	})
	must(t, err)
	scan := func(view func(context.Context, func(kv.Reader) error) error, reverse bool) (seen []string, err error) {
		err = view(t.Context(), func(r kv.Reader) error {
			return r.Scan(nil, nil, reverse, func(k, _ []byte) (bool, error) {
				if seen = append(seen, string(k)); len(seen)%700 == 10 { // three times
					time.Sleep(8 * time.Second)
				}
				return true, nil
			})
		})
		return seen, err
	}
	if _, err := scan(s.View, false); !errors.Is(err, kv.ErrTooOld) {
		t.Errorf("a scan of eight seconds: %v", err)
	}
	for _, reverse := range []bool{false, true} {
		crossed := 0
		seen, err := scan(func(ctx context.Context, fn func(kv.Reader) error) (err error) {
			crossed, err = s.ViewAcross(ctx, fn)
			return err
		}, reverse)
		if err != nil || len(seen) != keys || crossed < 2 {
			t.Errorf("a scan that may cross (reverse %v): %d keys, %d crossings, %v", reverse, len(seen), crossed, err)
		}
		for i, k := range seen {
			if reverse {
				i = keys - 1 - i
			}
			if k != fmt.Sprintf("%05d", i) {
				t.Fatalf("got key %q, want %d", k, i)
			}
		}
	}
}

// A caller of ViewAcross that takes longer than the timeout between two rows is not told that the cluster does
// not answer.
func TestSlowCaller(t *testing.T) {
	t.Parallel() // it mostly sleeps
	s := open(t, kvtest.LastByte{}, func(o *fdbkv.Options) { o.Timeout = 100 * time.Millisecond })
	const keys = 2000
	err := s.Update(t.Context(), func(tx kv.Txn) error {
		for i := range keys {
			tx.Set(fmt.Appendf(nil, "%05d", i), make([]byte, 200))
		}
		return nil
	})
	must(t, err)
	n := 0
	crossed, err := s.ViewAcross(t.Context(), func(r kv.Reader) error {
		slow := func() error {
			time.Sleep(12 * time.Second)
			_, ok, err := r.Get([]byte("00001"))
			if err == nil && !ok {
				err = errors.New("a key is missing")
			}
			return err
		}
		if err := slow(); err != nil {
			return err
		}
		return r.Scan(nil, nil, false, func(k, _ []byte) (bool, error) {
			if string(k) != fmt.Sprintf("%05d", n) {
				t.Errorf("got key %q, want %d", k, n)
			}
			if n++; n == 10 {
				return true, slow()
			}
			return true, nil
		})
	})
	if err != nil || n != keys || crossed < 2 {
		t.Errorf("%d keys, %d crossings, %v", n, crossed, err)
	}
}

// A View that goes on is not ended by its timeout: a server that is behind with its writes keeps a snapshot for
// longer than it promises.
func TestSnapshotThatLasts(t *testing.T) {
	t.Parallel() // it mostly sleeps
	if !fdbkv.Built {
		t.Skip("built without FoundationDB: go test -tags fdb")
	}
	c := kvtest.Start(t, "--knob_max_read_transaction_life_versions=60000000")
	defer func() { must(t, c.Remove()) }()
	s := kvtest.Open(t, fdbkv.Options{Location: fdbkv.Location{ClusterFile: c.File, Prefix: "x"}, Create: true, Merger: kvtest.LastByte{}, Timeout: 100 * time.Millisecond})
	err := s.View(t.Context(), func(r kv.Reader) error {
		for began := time.Now(); time.Since(began) < 13*time.Second; time.Sleep(500 * time.Millisecond) {
			if _, _, err := r.Get([]byte("k")); err != nil {
				return fmt.Errorf("after %v: %w", time.Since(began), err)
			}
		}
		return nil
	})
	must(t, err, s.Close())
}

// If a store cannot be opened, Open returns the reason within seconds.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	try := func(path string, change func(*fdbkv.Options)) error {
		o := fdbkv.Options{Location: fdbkv.Location{ClusterFile: path, Prefix: "open"}, Merger: kvtest.LastByte{}, Timeout: 2 * time.Second}
		if change != nil {
			change(&o)
		}
		begun := time.Now()
		s, err := fdbkv.Open(t.Context(), o)
		if err == nil {
			err = s.Close()
			t.Errorf("%s: it opened", path)
		}
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("%s: took %v to return: %v", path, took, err)
		}
		return err
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):        "no such file",
		dir:                               "is a directory",
		file("empty", "# nothing\n"):      "is empty",
		file("garbage", "hello there\n"):  "hello there",
		file("silent", "a:b@127.0.0.1:1"): "does not answer",
	} {
		if err := try(path, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	cluster := kvtest.Shared(t).File
	if err := try(cluster, nil); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("no store: %v", err)
	}
	open(t, kvtest.LastByte{}, func(o *fdbkv.Options) { o.Prefix = "open" })
	if err := try(cluster, func(o *fdbkv.Options) { o.Merger = otherMerger{} }); !errors.Is(err, kv.ErrFormat) || !strings.Contains(err.Error(), "another") || !strings.Contains(err.Error(), "lastbyte") {
		t.Errorf("another merger: %v", err)
	}
}

type otherMerger struct{ kvtest.LastByte }

func (otherMerger) Name() string { return "another" }

// During a restart of the cluster, reads fail within the timeout and writes wait.
// No write is lost or made twice.
func TestClusterRestarts(t *testing.T) {
	t.Parallel() // it mostly waits
	c := kvtest.Start(t)
	defer func() { must(t, c.Remove()) }()
	s, err := fdbkv.Open(t.Context(), fdbkv.Options{
		Location: fdbkv.Location{ClusterFile: c.File, Prefix: "x"}, Create: true, Merger: kvtest.LastByte{}, Timeout: 2 * time.Second,
	})
	must(t, err)
	stop := make(chan struct{})
	written := make(chan int)
	go func() { // adds keys, one per write
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				written <- n
				return
			default:
			}
			err := s.Update(context.Background(), func(tx kv.Txn) error {
				tx.Set(fmt.Appendf(nil, "%06d", n), []byte{1, 1})
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	}()
	for range 3 {
		time.Sleep(500 * time.Millisecond)
		must(t, c.Down())
		err := s.View(t.Context(), func(r kv.Reader) error { _, _, err := r.Get([]byte("x")); return err })
		if !errors.Is(err, kv.ErrUnavailable) {
			t.Errorf("a read while the cluster is down: %v", err)
		}
		must(t, errors.Join(c.Up(), c.Ready()))
	}
	time.Sleep(time.Second)
	close(stop)
	want := <-written
	got := 0
	err = s.View(t.Context(), func(r kv.Reader) error {
		return r.Scan(nil, nil, false, func(k, _ []byte) (bool, error) {
			if string(k) != fmt.Sprintf("%06d", got) {
				t.Errorf("got key %q, want %d", k, got)
			}
			got++
			return true, nil
		})
	})
	if err != nil || got != want || got < 100 {
		t.Errorf("%d writes were confirmed, found %d: %v", want, got, err)
	}
}

// After three attempts that outlast their snapshot, an Update fails with ErrTooLarge.
func TestSlowUpdate(t *testing.T) {
	t.Parallel() // it mostly sleeps
	s := open(t, kvtest.LastByte{}, nil)
	attempts := 0
	err := s.Update(t.Context(), func(tx kv.Txn) error {
		attempts++
		if _, _, err := tx.Get([]byte("a")); err != nil {
			return err
		}
		time.Sleep(6 * time.Second)
		tx.Set([]byte("b"), []byte{1, 1})
		return nil
	})
	if !errors.Is(err, kv.ErrTooLarge) || attempts != 3 {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}

// sum is a Merger that adds numbers.
type sum struct{}

func (sum) Name() string { return "sum" }

func (sum) Fold(dst, _ []byte, values [][]byte, _ bool) ([]byte, error) {
	n := uint64(0)
	for _, v := range values {
		n += binary.BigEndian.Uint64(v)
	}
	return binary.BigEndian.AppendUint64(dst, n), nil
}

// If many writers merge into one key, no merge is lost: appended operands are folded
// before the value is full.
func TestHotMerge(t *testing.T) {
	s := open(t, sum{}, nil)
	var done atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(5 * time.Second)
	operand := make([]byte, 62)
	operand[7] = 1
	for range 32 {
		wg.Go(func() {
			for time.Now().Before(end) {
				if err := s.Update(t.Context(), func(tx kv.Txn) error { tx.Merge([]byte("k"), operand); return nil }); err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	err := s.View(t.Context(), func(r kv.Reader) error {
		v, _, err := r.Get([]byte("k"))
		if err == nil && int64(binary.BigEndian.Uint64(v)) != done.Load() {
			t.Errorf("%d merges were confirmed, found %d", done.Load(), binary.BigEndian.Uint64(v))
		}
		return err
	})
	must(t, err)
}
