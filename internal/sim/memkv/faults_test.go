package memkv_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
	"skein.blue/internal/sim/memkv"
)

// fold is a Merger that concatenates, and fails on "bad".
type fold struct{}

var errFold = errors.New("bad operand")

func (fold) Name() string { return "fold" }

func (fold) Fold(dst, _ []byte, values [][]byte, _ bool) ([]byte, error) {
	for _, v := range values {
		if string(v) == "bad" {
			return nil, errFold
		}
		dst = append(dst, v...)
	}
	return dst, nil
}

// set sets one key.
func set(t *testing.T, s kv.Store, key, value string) {
	t.Helper()
	if err := s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte(key), []byte(value)); return nil }); err != nil {
		t.Fatal(err)
	}
}

// keys lists the keys of a store.
func keys(t *testing.T, s kv.Store) (all []string) {
	t.Helper()
	err := s.View(t.Context(), func(r kv.Reader) error {
		return r.Scan(nil, nil, false, func(k, _ []byte) (bool, error) { all = append(all, string(k)); return true, nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Faults have about the configured shares, and are the same with the same seed.
func TestFaultShares(t *testing.T) {
	const n = 2000
	run := func(f memkv.Faults) (attempts []int, c memkv.Counts) {
		s := memkv.Open(memkv.Options{Merger: kvtest.LastByte{}, Faults: f})
		for i := range n {
			tries := 0
			err := s.Update(t.Context(), func(tx kv.Txn) error {
				tries++
				key := fmt.Appendf(nil, "%d", i)
				if _, done, err := tx.Get(key); done || err != nil {
					return err
				}
				tx.Set(key, nil)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			attempts = append(attempts, tries)
		}
		if got := len(keys(t, s)); got != n {
			t.Errorf("%+v: found %d keys", f, got)
		}
		return attempts, s.Counts()
	}
	about := func(what string, got, want int) {
		t.Helper()
		if got < want*9/10 || got > want*11/10 {
			t.Errorf("%s: %d, want about %d", what, got, want)
		}
	}
	if _, c := run(memkv.Faults{Seed: 1}); c != (memkv.Counts{Commits: n}) {
		t.Errorf("without faults: %+v", c)
	}
	_, c := run(memkv.Faults{Seed: 1, Conflict: 0.5})
	if about("conflicts", c.Conflicts, n); c.Commits != n || c.Unknown != 0 {
		t.Errorf("%+v", c)
	}
	// Every outcome is unknown and half of the commits are applied: about two attempts per key.
	attempts, c := run(memkv.Faults{Seed: 1, Unknown: 1})
	if about("unknown outcomes", c.Unknown, 2*n); c.Commits != n || c.Conflicts != 0 {
		t.Errorf("%+v", c)
	}
	if slices.Min(attempts) != 2 {
		t.Error("an attempt with an unknown outcome was not retried")
	}
	same, again := run(memkv.Faults{Seed: 1, Unknown: 1})
	if !slices.Equal(same, attempts) || again != c {
		t.Error("the same seed injected other faults")
	}
	if other, _ := run(memkv.Faults{Seed: 2, Unknown: 1}); slices.Equal(other, attempts) {
		t.Error("another seed injected the same faults")
	}
}

// A crash before a commit loses all of it, a crash after it nothing.
func TestOnCommit(t *testing.T) {
	crash := errors.New("crash")
	var numbers []int
	o := memkv.Options{Merger: kvtest.LastByte{}, OnCommit: func(n int) error {
		numbers = append(numbers, n)
		switch n {
		case 2:
			return crash
		case 3:
			return fmt.Errorf("%w: %w", crash, memkv.ErrAfterCommit)
		}
		return nil
	}}
	s := memkv.Open(o)
	for i, want := range []error{nil, crash, crash, nil} {
		err := s.Update(t.Context(), func(tx kv.Txn) error { tx.Set(fmt.Append(nil, i+1), nil); return nil })
		if !errors.Is(err, want) || errors.Is(err, memkv.ErrAfterCommit) != (i == 2) {
			t.Errorf("commit %d: %v", i+1, err)
		}
	}
	// A transaction without writes does not commit.
	if err := s.Update(t.Context(), func(tx kv.Txn) error { tx.Conflict([]byte("a")); return nil }); err != nil {
		t.Error(err)
	}
	if got := keys(t, s); !slices.Equal(got, []string{"1", "3", "4"}) || !slices.Equal(numbers, []int{1, 2, 3, 4}) {
		t.Errorf("%q after commits %v", got, numbers)
	}
	// A reopened store counts from 1.
	o.OnCommit = func(n int) error { numbers = []int{n}; return nil }
	again := s.Reopen(o)
	set(t, again, "5", "")
	if got := keys(t, again); !slices.Equal(got, []string{"1", "3", "4", "5"}) || !slices.Equal(numbers, []int{1}) {
		t.Errorf("then %q after commits %v", got, numbers)
	}
}

// An attempt that is older than the store's history is retried, whatever it read, as on
// FoundationDB after five seconds.
func TestTooOldIsRetried(t *testing.T) {
	s := memkv.Open(memkv.Options{Merger: kvtest.LastByte{}})
	attempts := 0
	err := s.Update(t.Context(), func(tx kv.Txn) error {
		if attempts++; attempts == 1 {
			for range 9000 {
				set(t, s, "other", "")
			}
		}
		tx.Set([]byte("k"), nil)
		return nil
	})
	if err != nil || attempts != 2 {
		t.Errorf("%d attempts, %v", attempts, err)
	}
}

// Conflicted receives the first key of each range that made a commit conflict.
func TestConflicted(t *testing.T) {
	var conflicts []string
	s := memkv.Open(memkv.Options{Merger: kvtest.LastByte{}, Conflicted: func(key []byte) { conflicts = append(conflicts, string(key)) }})
	attempts := 0
	err := s.Update(t.Context(), func(tx kv.Txn) error {
		attempts++
		tx.Conflict([]byte("named"))
		for _, read := range []func() error{
			func() error { _, _, err := tx.Get([]byte("got")); return err },
			func() error {
				return tx.Scan([]byte("scanned"), []byte("t"), true, func(_, _ []byte) (bool, error) { return true, nil })
			},
		} {
			if err := read(); err != nil {
				return err
			}
		}
		if keys := []string{"", "got", "scanned9", "named", "free"}; attempts < len(keys) {
			set(t, s, keys[attempts], "")
		}
		tx.Set([]byte("written"), nil)
		return nil
	})
	if err != nil || attempts != 4 || !slices.Equal(conflicts, []string{"got", "scanned", "named"}) {
		t.Errorf("%d attempts, conflicts %q, %v", attempts, conflicts, err)
	}
	if c := s.Counts(); c != (memkv.Counts{Commits: 5, Conflicts: 3}) {
		t.Errorf("%+v", c)
	}
}

// An error of Fold ends the Update, and nothing is written.
func TestFoldFails(t *testing.T) {
	s := memkv.Open(memkv.Options{Merger: fold{}})
	set(t, s, "k", "good")
	err := s.Update(t.Context(), func(tx kv.Txn) error {
		tx.Set([]byte("a"), nil)
		tx.Merge([]byte("k"), []byte("bad"))
		tx.Delete([]byte("k"))
		return nil
	})
	if got := keys(t, s); !errors.Is(err, errFold) || !slices.Equal(got, []string{"k"}) {
		t.Errorf("%q, %v", got, err)
	}
	if c := s.Counts().Commits; c != 1 {
		t.Errorf("%d commits", c)
	}
}

// Sizes up to the limits, inclusive, are accepted.
func TestLimitsFit(t *testing.T) {
	limits := memkv.Limits{Key: 8, Value: 16, Txn: 64, Age: memkv.FDBLimits.Age}
	for name, c := range map[string]struct {
		write func(tx kv.Txn)
		fits  bool
	}{
		"a key":            {func(tx kv.Txn) { tx.Set(make([]byte, 8), nil) }, true},
		"a longer key":     {func(tx kv.Txn) { tx.Delete(make([]byte, 9)) }, false},
		"a range":          {func(tx kv.Txn) { tx.DeleteRange(make([]byte, 8), []byte("z")) }, true},
		"a longer range":   {func(tx kv.Txn) { tx.DeleteRange(make([]byte, 9), []byte("z")) }, false},
		"a value":          {func(tx kv.Txn) { tx.Set(nil, make([]byte, 16)) }, true},
		"a longer value":   {func(tx kv.Txn) { tx.Set(nil, make([]byte, 17)) }, false},
		"an operand":       {func(tx kv.Txn) { tx.Merge(nil, make([]byte, 16)) }, true},
		"a longer operand": {func(tx kv.Txn) { tx.Merge(nil, make([]byte, 17)) }, false},
		"a longest fold":   {func(tx kv.Txn) { tx.Merge(nil, make([]byte, 10)); tx.Merge(nil, make([]byte, 6)) }, true},
		"a longer fold":    {func(tx kv.Txn) { tx.Merge(nil, make([]byte, 10)); tx.Merge(nil, make([]byte, 7)) }, false},
	} {
		s := memkv.Open(memkv.Options{Merger: fold{}, Limits: limits})
		err := s.Update(t.Context(), func(tx kv.Txn) error { c.write(tx); return nil })
		if c.fits && err != nil || !c.fits && !errors.Is(err, kv.ErrTooLarge) || !c.fits && len(keys(t, s)) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l := memkv.FDBLimits; l.Key != 10_000 || l.Value != 50_000 || l.Txn != 10_000_000 {
		t.Errorf("FoundationDB's limits are %+v", l)
	}
}

// A Scan clears the bytes that its callback received, which exposes callers that keep them.
func TestScanClears(t *testing.T) {
	s := memkv.Open(memkv.Options{Merger: kvtest.LastByte{}})
	set(t, s, "key", "value")
	for range 2 { // the stored bytes stay
		err := s.View(t.Context(), func(r kv.Reader) error {
			var k, v []byte
			err := r.Scan(nil, nil, false, func(key, value []byte) (bool, error) {
				if k, v = key, value; string(k) != "key" || string(v) != "value" {
					t.Errorf("%q → %q", k, v)
				}
				return true, nil
			})
			if string(k) != "\x00\x00\x00" || string(v) != "\x00\x00\x00\x00\x00" {
				t.Errorf("%q → %q is not cleared", k, v)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Each call overwrites what the Get before it returned, which exposes callers that keep it.
func TestNextCallOverwritesGet(t *testing.T) {
	s := memkv.Open(memkv.Options{Merger: kvtest.LastByte{}})
	set(t, s, "key", "value")
	for name, next := range map[string]func(r kv.Reader) error{
		"Get":      func(r kv.Reader) error { _, _, err := r.Get([]byte("other")); return err },
		"MultiGet": func(r kv.Reader) error { return r.MultiGet(nil, nil) },
		"Scan": func(r kv.Reader) error {
			return r.Scan([]byte("x"), nil, false, func(_, _ []byte) (bool, error) { return true, nil })
		},
	} {
		err := s.View(t.Context(), func(r kv.Reader) error {
			v, _, err := r.Get([]byte("key"))
			if err != nil || string(v) != "value" {
				t.Errorf("%q, %v", v, err)
			}
			if err := next(r); err != nil || string(v) == "value" {
				t.Errorf("after a %s, the value is still %q: %v", name, v, err)
			}
			again, _, err := r.Get([]byte("key"))
			if string(again) != "value" {
				t.Errorf("after a %s, the store has %q", name, again)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// An Update that always conflicts ends with its context.
func TestContextEndsRetries(t *testing.T) {
	s := memkv.Open(memkv.Options{Merger: kvtest.LastByte{}, Faults: memkv.Faults{Conflict: 1}})
	ctx, cancel := context.WithCancel(t.Context())
	attempts := 0
	err := s.Update(ctx, func(tx kv.Txn) error {
		if attempts++; attempts == 50 {
			cancel()
		}
		tx.Set([]byte("k"), nil)
		return nil
	})
	if !errors.Is(err, context.Canceled) || attempts != 50 || len(keys(t, s)) > 0 {
		t.Errorf("%d attempts, %v", attempts, err)
	}
	if c := s.Counts(); c != (memkv.Counts{Conflicts: 50}) {
		t.Errorf("%+v", c)
	}
}
