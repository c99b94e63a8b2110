package upgrade

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/export"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/memkv"
)

func gunzip(t *testing.T, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// unpack writes the directory of a store.
func unpack(t *testing.T, archive []byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(h.Name)), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// load makes a store in memory from a dump.
func load(t *testing.T, dump []byte, faults memkv.Faults) kv.Store {
	t.Helper()
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{}), Faults: faults})
	put(t, store, dump)
	return store
}

// holding makes a store in memory that holds rows.
func holding(t *testing.T, rows map[string]string, faults memkv.Faults) kv.Store {
	t.Helper()
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{}), Faults: faults})
	if err := store.Update(t.Context(), func(tx kv.Txn) error {
		for k, v := range rows {
			tx.Set([]byte(k), []byte(v))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return store
}

// put puts the keys and values of a dump into a store.
func put(t *testing.T, store kv.Store, dump []byte) {
	t.Helper()
	if err := store.Update(t.Context(), func(tx kv.Txn) error {
		dump := dump
		next := func() []byte {
			n, w := binary.Uvarint(dump)
			b := dump[w : w+int(n)]
			dump = dump[w+int(n):]
			return b
		}
		for len(dump) > 0 {
			k := next()
			tx.Set(k, next())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func exported(t *testing.T, store kv.Store) string {
	t.Helper()
	var b strings.Builder
	if _, err := export.Write(t.Context(), store, &b, nil); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestStoresOfEveryVersion opens stores made by the programs of their time. Opening one names
// the command that upgrades it. Upgraded, it has the same rows as ever and the same export, and
// can be written.
func TestStoresOfEveryVersion(t *testing.T) {
	for name, c := range map[string]struct {
		version format.Version
		open    func(*testing.T) kv.Store
	}{
		"v3-alone": {3, func(t *testing.T) kv.Store {
			dir := unpack(t, gunzip(t, "v3-alone.tar.gz"))
			s, err := pebblekv.Open(pebblekv.Options{Dir: dir, Merger: write.NewMerger(write.Limits{}), SyncInterval: time.Second, Marker: format.HeaderKey})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}},
		"v3-several": {3, func(t *testing.T) kv.Store { return load(t, gunzip(t, "v3-several.kv.gz"), memkv.Faults{}) }},
		"v4-alone": {4, func(t *testing.T) kv.Store {
			dir := unpack(t, gunzip(t, "v4-alone.tar.gz"))
			s, err := pebblekv.Open(pebblekv.Options{Dir: dir, Merger: write.NewMerger(write.Limits{}), SyncInterval: time.Second, Marker: format.HeaderKey})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}},
		"v4-several": {4, func(t *testing.T) kv.Store { return load(t, gunzip(t, "v4-several.kv.gz"), memkv.Faults{}) }},
		// Rows were spilled above 5 members, and chunks above 8 records.
		"v9-alone":   {9, func(t *testing.T) kv.Store { return load(t, gunzip(t, "v9-alone.kv.gz"), memkv.Faults{}) }},
		"v9-several": {9, func(t *testing.T) kv.Store { return load(t, gunzip(t, "v9-several.kv.gz"), memkv.Faults{}) }},
		// Rows were spilled above 4 members, and chunks above 5 records.
		"v6-alone":   {6, func(t *testing.T) kv.Store { return load(t, gunzip(t, "v6-alone.kv.gz"), memkv.Faults{}) }},
		"v6-several": {6, func(t *testing.T) kv.Store { return load(t, gunzip(t, "v6-several.kv.gz"), memkv.Faults{}) }},
		"v8-alone": {8, func(t *testing.T) kv.Store {
			dir := unpack(t, gunzip(t, "v8-alone.tar.gz"))
			s, err := pebblekv.Open(pebblekv.Options{Dir: dir, Merger: write.NewMerger(write.Limits{}), SyncInterval: time.Second, Marker: format.HeaderKey})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}},
	} {
		t.Run(name, func(t *testing.T) {
			store := c.open(t)
			o := graph.Options{MustExist: true, Beat: 10 * time.Millisecond}
			if _, err := graph.Open(t.Context(), store, o); !errors.Is(err, read.ErrFormat) || !strings.Contains(err.Error(), "skein upgrade") {
				t.Fatalf("opening a store of an older format: %v, want a hint at skein upgrade", err)
			}
			from, err := Run(t.Context(), store, nil)
			if err != nil || from != c.version {
				t.Fatalf("upgraded from %d, want %d: %v", from, c.version, err)
			}
			if from, err := Run(t.Context(), store, nil); err != nil || from != format.Newest {
				t.Errorf("upgraded a second time from %d: %v", from, err)
			}
			if got, want := sumOf(everything(t, store)), upgradedSums[name]; got != want {
				t.Errorf("the upgraded store's rows have the sum %s, want %s", got, want)
			}
			if err := check.Store(t.Context(), store, func(p string) { t.Error(p) }, nil); err != nil {
				t.Fatal(err)
			}
			// Older exports have a shorter first line and another order of lines, and so another
			// sum in the last.
			body := func(s string) []string {
				_, s, _ = strings.Cut(s, "\n")
				s, _, _ = strings.Cut(s, `,"sha256":`)
				return slices.Sorted(strings.SplitSeq(s, "\n"))
			}
			if got, want := body(exported(t, store)), body(string(gunzip(t, name+".export.gz"))); !slices.Equal(got, want) {
				t.Errorf("the export differs: %d lines, want %d", len(got), len(want))
			}
			s, err := graph.Open(t.Context(), store, o)
			if err != nil {
				t.Fatal(err)
			}
			var b batch.Batch
			b.AddCommit(1<<40, &batch.Commit{DID: []byte("did:web:new.example.com"), Rev: []byte("3zzzzzzzzzz2a"), Data: make([]byte, 32)})
			b.AddPut(1, []byte("3zzzzzzzzzz2a"), []byte("did:web:other.example.com"))
			b.Seen(1<<40, nil)
			if err := s.Apply(t.Context(), "wss://relay.example.com", &b); err != nil {
				t.Fatal(err)
			}
			var gaps []format.Gap
			if err := store.View(t.Context(), func(r kv.Reader) (err error) { gaps, err = read.Gaps(r); return err }); err != nil {
				t.Fatal(err)
			}
			if c.version < 6 && !slices.ContainsFunc(gaps, func(g format.Gap) bool { // format 6 has all kinds
				return g.Reason == format.KindAdded && g.Suspect && strings.Contains(g.Detail, "listblock")
			}) {
				t.Errorf("no gap says that older listblocks are missing: %+v", gaps)
			}
			if err := errors.Join(s.Close(t.Context()), check.Store(t.Context(), store, func(p string) { t.Error(p) }, nil), store.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// upgradedSums are the SHA-256 of all rows of the stores in testdata after an upgrade to
// format 11. A new version of the format changes them; nothing else may.
var upgradedSums = map[string]string{
	"v9-alone":   "3d76e901f21b3c9de32144b659846330328f3855960af993df10a0b16407029d",
	"v9-several": "e73976ef6c126d19e207212e75a70f0033e29c93cd93b918da1a64bef64bb24e",
	"v8-alone":   "3ee050c399a51399a8429e452c058b06f916119212b052ab1854e6b9a92d568d",
	"v3-alone":   "7765149404e5af8e596f69db2b43ab84cd9cd1bbaa946513c0a8740f6ecaa89a",
	"v3-several": "f2a3587ec8798f94921da5301136dc23af12a1048da0e7e6a9aa32dcee1c5fa1",
	"v4-alone":   "ce1725962c05b28aca634b759d9a3b6ae0c573faf3ad3885e45ef82717f2aea5",
	"v6-alone":   "2b124426ec19b53d31a7fdab97281eea495d54ce786a7f69469fff924048df38",
	"v6-several": "c9f4718fb95f0a1545ca74912473d32a246bf6d9c327ba37c22c12d5e19c4a1d",
	"v4-several": "12ff899e0c8a68c367ed6363f0083ca26290af529a386598a0fcc650670c059f",
}

// sameRows fails if a store does not have the rows that it should have after a crash at the n-th write, and what followed.
func sameRows(t *testing.T, n int, got, want map[string]string) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	for key, v := range want {
		if got[key] != v {
			t.Fatalf("after a crash at write %d, %x is %x, want %x", n, key, got[key], v)
		}
	}
	t.Fatalf("after a crash at write %d there are %d keys, want %d", n, len(got), len(want))
}

// sumOf returns the SHA-256 of rows, in the order of their keys.
func sumOf(rows map[string]string) string {
	h := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(rows)) {
		for _, s := range []string{k, rows[k]} {
			h.Write(binary.AppendUvarint(nil, uint64(len(s))))
			h.Write([]byte(s))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// errCrash ends a run like a crash.
var errCrash = errors.New("crash")

// crashing fails the n-th write, before or after its commit.
type crashing struct {
	kv.Store

	n     int
	after bool
}

func (c *crashing) Update(ctx context.Context, fn func(kv.Txn) error) error {
	c.n--
	if c.n == 0 && !c.after {
		return errCrash
	}
	if err := c.Store.Update(ctx, fn); err != nil {
		return err
	}
	if c.n == 0 {
		return errCrash
	}
	return nil
}

// TestInterruptedRunsMoveEveryKeyOnce interrupts a run before and after each write, with
// conflicts and commits of unknown outcome.
func TestInterruptedRunsMoveEveryKeyOnce(t *testing.T) {
	step := Step{
		From: 3, To: 4, Prefixes: [][]byte{[]byte("b"), []byte("a1")},
		Move: func(_ format.Header, k, v []byte) ([]byte, []byte, error) { // a second move would show
			return append([]byte("z"), k...), append(bytes.Clone(v), '.'), nil
		},
		Finish: func(tx kv.Txn, h format.Header, _ Tally) ([]byte, error) {
			tx.Set([]byte("finished"), []byte{byte(h.Version)})
			return []byte{4}, nil
		},
	}
	want := map[string]string{"finished": "\x03", string(format.HeaderKey): "\x04", "a0": "stays"}
	fill := map[string]string{string(format.HeaderKey): "\x03", "a0": "stays"}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 5000 {
		k, v := fmt.Sprintf("%s%d", []string{"a1", "b"}[i%2], i), strings.Repeat("v", rng.IntN(900))
		fill[k], want["z"+k] = v, v+"."
	}
	crashes := 0
	for n := 1; ; n++ {
		for _, after := range []bool{false, true} {
			store := holding(t, fill, memkv.Faults{Seed: uint64(n), Conflict: 0.2, Unknown: 0.2})
			_, err := run(t.Context(), &crashing{store, n, after}, []Step{step}, 4, nil)
			if err != nil && !errors.Is(err, errCrash) {
				t.Fatal(err)
			}
			crashed := err != nil
			if crashed {
				crashes++
				err := store.View(t.Context(), func(r kv.Reader) error { _, err := read.Header(r); return err })
				if v := header(t, store); format.UpgradingHeader(v) != nil && (!errors.Is(err, read.ErrFormat) || !strings.Contains(err.Error(), "skein upgrade again")) {
					t.Errorf("a store whose upgrade is under way opens: %v", err)
				}
				if _, err := run(t.Context(), store, []Step{step}, 4, nil); err != nil {
					t.Fatal(err)
				}
			}
			if got := everything(t, store); !maps.Equal(got, want) {
				for k, v := range want {
					if got[k] != v {
						t.Errorf("%q is %.20q, want %.20q", k, got[k], v)
						break
					}
				}
				t.Fatalf("after a crash at write %d (after its commit: %t) the store has %d keys, want %d", n, after, len(got), len(want))
			}
			if !crashed && after {
				if crashes < 10 {
					t.Errorf("only %d runs crashed: the test proves too little", crashes)
				}
				return
			}
		}
	}
}

// crashAnywhere upgrades one fresh store after another, crashes at one more write each time, upgrades the store again, and calls
// check with what it then has, until a run meets no crash. It returns the number of crashes.
func crashAnywhere(t *testing.T, fresh func(f memkv.Faults) kv.Store, check func(n int, got map[string]string)) (crashes int) {
	t.Helper()
	for n := 1; ; n++ {
		store := fresh(memkv.Faults{Seed: uint64(n), Conflict: 0.2, Unknown: 0.2})
		_, err := run(t.Context(), &crashing{store, n, n%2 == 0}, Steps, format.Newest, nil)
		if err != nil && !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), store, nil); err != nil {
			t.Fatal(err)
		}
		if check(n, everything(t, store)); err == nil {
			return n - 1
		}
	}
}

// TestDatesAfterCrashes interrupts the steps that add dates and repeated members at each of their writes. The next run continues
// it, and the store is the one of a run without a crash.
func TestDatesAfterCrashes(t *testing.T) {
	for _, name := range []string{"v6-alone", "v6-several"} {
		dump := gunzip(t, name+".kv.gz")
		whole := load(t, dump, memkv.Faults{})
		if _, err := Run(t.Context(), whole, nil); err != nil {
			t.Fatal(err)
		}
		want := everything(t, whole)
		dated, repeated := 0, 0
		for k, v := range want {
			if k[0] == format.KeyDates {
				dated++
			}
			if kind, subject, _, isRow, err := format.ParseReverseKey([]byte(k)); err == nil && isRow && kind != kinds.Hidden {
				if r, err := format.ParseRow(subject, []byte(v)); err == nil && len(r.Repeated) > 0 {
					repeated++
				}
			}
		}
		crashes := crashAnywhere(t, func(f memkv.Faults) kv.Store { return load(t, dump, f) }, func(n int, got map[string]string) {
			if !maps.Equal(got, want) {
				t.Fatalf("%s: after a crash at write %d the store has %d keys, want %d", name, n, len(got), len(want))
			}
		})
		if crashes < 5 || dated < 50 || repeated < 3 {
			t.Errorf("%s: %d crashes, %d blocks of dates, %d rows with repeated members", name, crashes, dated, repeated)
		}
	}
}

func header(t *testing.T, store kv.Store) (v []byte) {
	t.Helper()
	if err := store.View(t.Context(), func(r kv.Reader) error {
		h, _, err := r.Get(format.HeaderKey)
		v = bytes.Clone(h)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return v
}

func everything(t *testing.T, store kv.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	if err := store.View(t.Context(), func(r kv.Reader) error {
		return r.Scan(nil, nil, false, func(k, v []byte) (bool, error) { all[string(k)] = string(v); return true, nil })
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRefusedStoresStayUnchanged runs on stores that cannot be upgraded.
func TestRefusedStoresStayUnchanged(t *testing.T) {
	for name, h := range map[string]string{"no store": "", "too old": "\x02", "newer": "\x63"} {
		store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
		if h != "" {
			if err := store.Update(t.Context(), func(tx kv.Txn) error { tx.Set(format.HeaderKey, []byte(h)); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		before := everything(t, store)
		if _, err := Run(t.Context(), store, nil); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
		if !maps.Equal(before, everything(t, store)) {
			t.Errorf("%s: the store was changed", name)
		}
	}
	// A live writer prevents a step, but not the discovery that none is needed.
	store := load(t, gunzip(t, "v3-several.kv.gz"), memkv.Faults{})
	if _, err := Run(t.Context(), store, nil); err != nil {
		t.Fatal(err)
	}
	s, err := graph.Open(t.Context(), store, graph.Options{Beat: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if from, err := Run(t.Context(), store, nil); err != nil || from != format.Newest {
		t.Errorf("a store of the newest format with a live writer: %v", err)
	}
	next := []Step{{From: format.Newest, To: format.Newest + 1, Finish: func(kv.Txn, format.Header, Tally) ([]byte, error) { return []byte{byte(format.Newest + 1)}, nil }}}
	if _, err := run(t.Context(), store, next, format.Newest+1, nil); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("upgrading a store with a live writer: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// threeAtOnce upgrades a store by three concurrent runs.
func threeAtOnce(t *testing.T, store kv.Store, steps []Step, target format.Version) {
	t.Helper()
	errs := make(chan error, 3)
	for range cap(errs) {
		go func() { _, err := run(t.Context(), store, steps, target, nil); errs <- err }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// headerBytes is the header of a store of a version from format.FormatOneHeader on.
func headerBytes(v format.Version) []byte {
	return (&format.Header{Version: v, Settings: dict.DefaultSettings, Kinds: []kinds.Kind{1, 2}}).Append(nil)
}

// TestConcurrentRunsMakeEachStepOnce lets three runs overtake each other.
func TestConcurrentRunsMakeEachStepOnce(t *testing.T) {
	moving := []Step{
		{From: 3, To: 4, Prefixes: [][]byte{[]byte("b")}, Move: func(_ format.Header, k, v []byte) ([]byte, []byte, error) {
			return append([]byte("y"), k...), append(bytes.Clone(v), '.'), nil
		}, Finish: func(kv.Txn, format.Header, Tally) ([]byte, error) { return headerBytes(4), nil }},
		{From: 4, To: 5, Finish: func(tx kv.Txn, _ format.Header, _ Tally) ([]byte, error) {
			tx.Set([]byte("whole"), nil)
			return headerBytes(5), nil
		}},
		{From: 5, To: 6, Prefixes: [][]byte{[]byte("y"), []byte("c")}, Move: func(_ format.Header, k, v []byte) ([]byte, []byte, error) {
			return append([]byte("z"), k...), append(bytes.Clone(v), '!'), nil
		}, Finish: func(kv.Txn, format.Header, Tally) ([]byte, error) { return headerBytes(6), nil }},
	}
	want := map[string]string{string(format.HeaderKey): string(headerBytes(6)), "whole": ""}
	fill := map[string]string{string(format.HeaderKey): "\x03"}
	for i := range 6000 {
		fill[fmt.Sprintf("b%d", i)], want[fmt.Sprintf("zyb%d", i)] = "v", "v.!"
		fill[fmt.Sprintf("c%d", i)], want[fmt.Sprintf("zc%d", i)] = "w", "w!"
	}
	for seed := range uint64(20) {
		store := holding(t, fill, memkv.Faults{Seed: seed, Conflict: 0.1, Unknown: 0.1})
		threeAtOnce(t, store, moving, 6)
		if got := everything(t, store); !maps.Equal(got, want) {
			t.Fatalf("seed %d: the store has %d keys, want %d", seed, len(got), len(want))
		}
	}
	// The real steps, on stores of version 3.
	for seed := range 10 {
		store := load(t, gunzip(t, "v3-several.kv.gz"), memkv.Faults{Seed: uint64(seed), Conflict: 0.1, Unknown: 0.1})
		threeAtOnce(t, store, Steps, format.Newest)
		if err := check.Store(t.Context(), store, func(p string) { t.Error(p) }, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStoreWithoutSettings: a store whose maker stopped between its first two writes becomes
// one without a graph. A store with data and no settings stays unchanged.
func TestStoreWithoutSettings(t *testing.T) {
	for name, data := range map[string]bool{"empty": false, "with strings": true} {
		store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
		if err := store.Update(t.Context(), func(tx kv.Txn) error {
			tx.Set(format.HeaderKey, []byte{3})
			tx.Set(format.KeySecret, make([]byte, 32))
			if data {
				tx.Set([]byte("i\x01did:web:x.com"), []byte{0, 0, 0, 0, 1})
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		before := everything(t, store)
		_, err := Run(t.Context(), store, nil)
		switch {
		case data && (err == nil || !maps.Equal(before, everything(t, store))):
			t.Errorf("%s: %v", name, err)
		case !data && err != nil:
			t.Errorf("%s: %v", name, err)
		case !data:
			s, err := graph.Open(t.Context(), store, graph.Options{})
			if err != nil || !s.Made() {
				t.Errorf("%s: opening it made a store: %t, %v", name, s.Made(), err)
			}
		}
	}
}

// TestCountsInSlices upgrades a store of version 5. Each slice of accounts is one small write
// and counts once, wherever a run stops. A gap without a later comparison becomes a hole, and
// incomplete kinds wait for a sweep.
func TestCountsInSlices(t *testing.T) {
	const accounts = 2*sliceKeys*256 + 1000 // in three slices
	fill := func(tx kv.Txn, from, to int) {
		l := format.Layout{Settings: dict.DefaultSettings}
		for i := from; i < to; i += 256 {
			var group []byte
			for id := i; id < min(i+256, to); id++ {
				group = l.AppendAccount(group, dict.ID(1<<20+id), &format.RepoState{Source: 1, Flags: []uint16{format.FlagHasRev, format.FlagPartial, format.FlagHidden}[id%3]})
			}
			tx.Set(l.AccountKey(nil, dict.ID(1<<20+i)), group)
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	made := func(faults memkv.Faults) kv.Store {
		store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{}), Faults: faults})
		for from := 0; from < accounts; from += 1 << 17 {
			if err := store.Update(t.Context(), func(tx kv.Txn) error { fill(tx, from, min(from+1<<17, accounts)); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Update(t.Context(), func(tx kv.Txn) error {
			h := format.Header{Version: 5, Settings: dict.DefaultSettings, Kinds: []kinds.Kind{1, 2}}
			tx.Set(format.HeaderKey, h.Append(nil))
			tx.Set(format.KeyCounts, []byte(`{"accounts":7,"complete":99}`))
			tx.Set(format.KeyLacking, []byte(`{"x":"2026-01-02T03:04:05Z"}`))
			tx.Set(format.NoteKey(format.KeyGap, 1, 5, ""), []byte(`{"source":"s","after":5,"reason":"outdated_cursor","suspect":true,"time":"2026-01-02T03:04:05Z"}`))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return store
	}
	steps := Steps[2:3]
	for n := 1; ; n++ {
		store := made(memkv.Faults{Seed: uint64(n), Conflict: 0.2, Unknown: 0.2})
		_, err := run(t.Context(), &crashing{store, n, n%2 == 0}, steps, 6, nil)
		if err != nil && !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		crashed := err != nil
		if _, err := run(t.Context(), store, steps, 6, nil); err != nil {
			t.Fatal(err)
		}
		var c format.Counts
		var h format.Holes
		var lacking map[string]format.Lack
		all := everything(t, store)
		_ = json.Unmarshal([]byte(all[string(format.KeyCounts)]), &c)
		_ = json.Unmarshal([]byte(all[string(format.KeyHoles)]), &h)
		_ = json.Unmarshal([]byte(all[string(format.KeyLacking)]), &lacking)
		if third := int64(accounts / 3); c.Complete < third || c.Complete > third+1 || c.Incomplete < third || c.Incomplete > third+1 || c.Accounts != 7 {
			t.Fatalf("after a crash at write %d the counts of %d accounts are %+v", n, accounts, c)
		}
		if !h.Uncompared() || lacking["x"] != (format.Lack{At: at, Sweep: 1}) {
			t.Fatalf("after a crash at write %d the holes are %+v, the incomplete kinds %+v", n, h, lacking)
		}
		if _, left := all[string(format.UpgradeTallyKey)]; left {
			t.Fatal("the tally stays in the store")
		}
		if !crashed {
			if n < 5 {
				t.Errorf("the upgrade took %d writes: all accounts were in one slice", n)
			}
			return
		}
	}
}

// TestStepsLeadFromOldestToNewest: each version has one step, to the next.
func TestStepsLeadFromOldestToNewest(t *testing.T) {
	version := format.Oldest
	for _, s := range Steps {
		if s.From != version || s.To != version+1 {
			t.Errorf("a step leads from format %d to %d, want %d to %d", s.From, s.To, version, version+1)
		}
		version = s.To
	}
	if version != format.Newest {
		t.Errorf("the steps end at format %d, want %d", version, format.Newest)
	}
}

// TestStepsSeeTheHeader: every function of a step receives the settings and kinds that the
// store had before it, from wherever its version keeps them.
func TestStepsSeeTheHeader(t *testing.T) {
	for name, want := range map[string]format.Header{
		"v3-several": {Version: 3, Settings: dict.SharedSettings, Kinds: []kinds.Kind{1, 2, 3, 4}},
		"v4-several": {Version: 4, Settings: dict.SharedSettings, Kinds: []kinds.Kind{1, 2, 3, 4, 5}},
	} {
		store := load(t, gunzip(t, name+".kv.gz"), memkv.Faults{})
		visited, from := 0, want.Version
		see := func(h format.Header) {
			if visited++; h.Version != want.Version || h.Settings != want.Settings || !slices.Equal(h.Kinds, want.Kinds) {
				t.Fatalf("%s: a step sees the header %+v, want %+v", name, h, want)
			}
		}
		finish := func(to format.Version) func(kv.Txn, format.Header, Tally) ([]byte, error) {
			return func(_ kv.Txn, h format.Header, _ Tally) ([]byte, error) {
				see(h)
				want = h
				want.Version = to
				return want.Append(nil), nil
			}
		}
		steps := []Step{
			{From: from, To: 5, Prefixes: [][]byte{{format.KeyRecord}}, Move: func(h format.Header, k, v []byte) ([]byte, []byte, error) { see(h); return k, v, nil }, Finish: finish(5)},
			{From: 5, To: 6, Prefixes: [][]byte{{format.KeyAccount}}, Count: func(h format.Header, _, _ []byte, _ Tally) error { see(h); return nil }, Finish: finish(6)},
			{From: 6, To: 7, Finish: finish(7)},
		}
		if _, err := run(t.Context(), store, steps, 7, nil); err != nil || visited < 10 {
			t.Errorf("%s: the steps were called %d times: %v", name, visited, err)
		}
	}
}

// TestWrongHeaderStopsAStep: a step that returns a header of another version than its own
// would run for ever, or skip a step.
func TestWrongHeaderStopsAStep(t *testing.T) {
	for _, wrong := range [][]byte{headerBytes(5), headerBytes(7), {}} {
		store := holding(t, map[string]string{string(format.HeaderKey): string(headerBytes(5))}, memkv.Faults{})
		steps := []Step{{From: 5, To: 6, Finish: func(kv.Txn, format.Header, Tally) ([]byte, error) { return wrong, nil }}}
		if _, err := run(t.Context(), store, steps, 6, nil); err == nil || !bytes.Equal(header(t, store), headerBytes(5)) {
			t.Errorf("a step from 5 to 6 that returns %x leaves %x: %v", wrong, header(t, store), err)
		}
	}
}

// TestMalformedHeaderIsLeftAlone: a step does not begin on a store whose header it cannot read.
func TestMalformedHeaderIsLeftAlone(t *testing.T) {
	for _, rows := range []map[string]string{
		{string(format.HeaderKey): "\x03", string(format.OldSettingsKey): "\x02\x0e"},
		{string(format.HeaderKey): "\x04\x0e"},
		{string(format.HeaderKey): string(headerBytes(5)[:9])},
	} {
		store := holding(t, rows, memkv.Faults{})
		if _, err := Run(t.Context(), store, nil); err == nil || !maps.Equal(everything(t, store), rows) {
			t.Errorf("%q is upgraded to %q: %v", rows, everything(t, store), err)
		}
	}
}

// TestRepeatedAcrossSlices: an actor whose records are visited in several slices is a repeated member of the
// sets of all subjects that several of them name.
func TestRepeatedAcrossSlices(t *testing.T) {
	const records = 3 * sliceKeys
	actor, kind := dict.ID(7<<32), kinds.Kind(1)
	h := format.Header{Version: format.FormatDates, Settings: dict.DefaultSettings, Kinds: []kinds.Kind{kind}}
	rows := map[string]string{string(format.HeaderKey): string(h.Append(nil))}
	layout := format.Layout{Settings: h.Settings}
	subject := func(i int) dict.ID { return dict.ID(9<<32 + i%(records/2+10)) }
	for i := range records {
		path := format.Path{TID: uint64(1+i) << format.BucketShift}
		chunk := format.CoderOf(kind, actor, path.Bucket()).Append(nil, 0, []format.Record{{Path: path, Subject: subject(i)}})
		rows[string(format.AppendChunkKey(nil, kind, actor, path, 0))] = string(chunk)
		rows[string(layout.AppendMemberKey(nil, kind, subject(i), actor))] = string(format.AppendRow(nil, subject(i), 0, nil, []uint64{uint64(actor)}))
	}
	store := holding(t, rows, memkv.Faults{})
	if _, err := Run(t.Context(), store, nil); err != nil {
		t.Fatal(err)
	}
	after := everything(t, store)
	for i := range records/2 + 10 {
		row, err := format.ParseRow(subject(i), []byte(after[string(layout.AppendMemberKey(nil, kind, subject(i), actor))]))
		if want := i < records/2-10; err != nil || row.IsRepeated(uint64(actor)) != want {
			t.Fatalf("subject %d is repeated: %v, want %v, %v", i, !want, want, err)
		}
	}
}

// TestRepeatedInBoundedWrites: the step writes no more at once for an actor that names many subjects twice. FoundationDB
// bounds a transaction.
func TestRepeatedInBoundedWrites(t *testing.T) {
	const subjects, chunks = 20_000, 100
	actor, kind := dict.ID(7<<32), kinds.Kind(1)
	h := format.Header{Version: format.FormatDates, Settings: dict.DefaultSettings, Kinds: []kinds.Kind{kind}}
	rows := map[string]string{string(format.HeaderKey): string(h.Append(nil))}
	layout := format.Layout{Settings: h.Settings}
	of := func(i int) dict.ID { return dict.ID(9<<32 + i%subjects) }
	for c := range chunks {
		first := format.Path{TID: uint64(1+c) << format.BucketShift}
		var records []format.Record
		for i := range 2 * subjects / chunks {
			records = append(records, format.Record{Path: format.Path{TID: first.TID + uint64(i)<<format.ClockBits}, Subject: of(c*2*subjects/chunks + i)})
		}
		rows[string(format.AppendChunkKey(nil, kind, actor, first, 0))] = string(format.CoderOf(kind, actor, first.Bucket()).Append(nil, 0, records))
	}
	for i := range subjects {
		rows[string(layout.AppendMemberKey(nil, kind, of(i), actor))] = string(format.AppendRow(nil, of(i), 0, nil, []uint64{uint64(actor)}))
	}
	store := &countingMerges{Store: holding(t, rows, memkv.Faults{})}
	if _, err := Run(t.Context(), store, nil); err != nil {
		t.Fatal(err)
	}
	if most := sliceBytes/costOfRead + 2*subjects/chunks; store.all != subjects || store.most > most {
		t.Errorf("%d members were added, %d of them in one write; want %d, and at most %d", store.all, store.most, subjects, most)
	}
	after := everything(t, store)
	for i := range subjects {
		if row, err := format.ParseRow(of(i), []byte(after[string(layout.AppendMemberKey(nil, kind, of(i), actor))])); err != nil || !row.IsRepeated(uint64(actor)) {
			t.Fatalf("subject %d is not repeated: %v", i, err)
		}
	}
}

// countingMerges counts merges: all, and those of the write that has most.
type countingMerges struct {
	kv.Store

	all, most int
}

func (c *countingMerges) Update(ctx context.Context, fn func(kv.Txn) error) error {
	tx := &mergeCounter{}
	err := c.Store.Update(ctx, func(inner kv.Txn) error {
		tx.Txn, tx.n = inner, 0
		return fn(tx)
	})
	c.all, c.most = c.all+tx.n, max(c.most, tx.n)
	return err
}

type mergeCounter struct {
	kv.Txn

	n int
}

func (c *mergeCounter) Merge(key, operand []byte) {
	c.n++
	c.Txn.Merge(key, operand)
}

// TestPackedAfterCrashes interrupts the step to packed chunks at each of its writes. In the end, all chunks are packed that can
// be, and their records are those of before.
func TestPackedAfterCrashes(t *testing.T) {
	const chunks = 3*sliceKeys + 50
	kind := kinds.Kind(2)
	h := format.Header{Version: format.FormatRepeated, Settings: dict.DefaultSettings, Kinds: []kinds.Kind{kind}}
	rows := map[string]string{string(format.HeaderKey): string(h.Append(nil))}
	want := map[string]string{}
	for i := range chunks {
		actor, path := dict.ID(7<<32+i), format.Path{TID: uint64(1+i%9) << format.BucketShift}
		c := format.CoderOf(kind, actor, path.Bucket())
		var records []format.Record
		for n := range i % 20 {
			records = append(records, format.Record{Path: format.Path{TID: path.TID + uint64(n)<<40}, Subject: dict.ID(9<<32 + n<<20)})
		}
		key := string(format.AppendChunkKey(nil, kind, actor, path, 0))
		rows[key] = string(c.Append(nil, 0, records))
		want[key] = string(c.AppendStored(nil, 0, records))
	}
	packed := 0
	for key, v := range want {
		if v != rows[key] {
			packed++
		}
	}
	crashes := crashAnywhere(t, func(f memkv.Faults) kv.Store { return holding(t, rows, f) }, func(n int, got map[string]string) {
		for key, v := range want {
			if got[key] != v {
				t.Fatalf("after a crash at write %d, chunk %x is %x, want %x", n, key, got[key], v)
			}
		}
	})
	if crashes < 5 || packed < chunks/2 {
		t.Errorf("%d crashes, %d packed chunks: too few to prove anything", crashes, packed)
	}
}

// TestRefusedStoreStaysReadable: the program of a store of format 8 still reads it after this one has refused it, although the engine
// compacted its chunks meanwhile. Once the store is upgraded and open, they are packed.
func TestRefusedStoreStaysReadable(t *testing.T) {
	dir, kind, actor := t.TempDir(), kinds.Kind(2), dict.ID(7<<32)
	open := func() *pebblekv.Store {
		s, err := pebblekv.Open(pebblekv.Options{Dir: dir, Create: true, Merger: write.NewMerger(write.Limits{}), Marker: format.HeaderKey})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	path := func(n int) format.Path { return format.Path{TID: 1<<format.BucketShift + uint64(n)<<40} }
	key := format.AppendChunkKey(nil, kind, actor, path(0), 0)
	c := format.CoderOf(kind, actor, path(0).Bucket())
	update := func(s *pebblekv.Store, fn func(tx kv.Txn)) {
		if err := s.Update(t.Context(), func(tx kv.Txn) error { fn(tx); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	merge := func(s *pebblekv.Store, n int) {
		update(s, func(tx kv.Txn) {
			tx.Merge(key, c.Append(nil, 0, []format.Record{{Path: path(n), Subject: dict.ID(9<<32 + n<<20)}}))
		})
	}
	value := func(s *pebblekv.Store) (v []byte) { // after a compaction, which leaves nothing to fold
		if err := s.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.View(t.Context(), func(r kv.Reader) error { got, _, err := r.Get(key); v = bytes.Clone(got); return err }); err != nil {
			t.Fatal(err)
		}
		return v
	}
	var records []format.Record
	s := open()
	h := format.Header{Version: format.FormatRepeated, Settings: dict.DefaultSettings, Kinds: kinds.BuiltIn.Numbers()}
	update(s, func(tx kv.Txn) { tx.Set(format.HeaderKey, h.Append(nil)); tx.Set(format.KeySecret, make([]byte, 32)) })
	for n := range 40 {
		merge(s, n)
		records = append(records, format.Record{Path: path(n), Subject: dict.ID(9<<32 + n<<20)})
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	if _, err := graph.Open(t.Context(), s, graph.Options{}); !errors.Is(err, read.ErrFormat) {
		t.Fatalf("a store of format 8 opens: %v", err)
	}
	if got := value(s); !bytes.Equal(got, c.Append(nil, 0, records)) {
		t.Errorf("the refused store has the chunk %x", got)
	}
	if _, err := Run(t.Context(), s, nil); err != nil {
		t.Fatal(err)
	}
	if got := value(s); !bytes.Equal(got, c.AppendStored(nil, 0, records)) {
		t.Errorf("the upgraded store has the chunk %x", got)
	}
	g, err := graph.Open(t.Context(), s, graph.Options{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	merge(s, 40)
	records = append(records, format.Record{Path: path(40), Subject: dict.ID(9<<32 + 40<<20)})
	if got := value(s); !bytes.Equal(got, c.AppendStored(nil, 0, records)) {
		t.Errorf("the open store has the chunk %x", got)
	}
	if err := errors.Join(g.Close(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDateOfOneRecord: in stores of format 7, the number of format.OneRecord is a date like others, also of members
// with several records. The upgrade makes such members undated.
func TestDateOfOneRecord(t *testing.T) {
	kind, subject, member, other := kinds.Kind(1), dict.ID(9<<32), uint64(7<<32+5), uint64(7<<32+6)
	h := format.Header{Version: format.FormatDates, Settings: dict.DefaultSettings, Kinds: []kinds.Kind{kind}}
	row := string(format.Layout{Settings: h.Settings}.AppendMemberKey(nil, kind, subject, dict.ID(member)))
	block := string(format.AppendDateBlock(format.AppendDatesKey(nil, kind, subject), member>>format.DateShift))
	const low = 1<<format.DateShift - 1
	dates := []format.Dated{{Member: uint16(member & low), Date: format.OneRecord}, {Member: uint16(other & low), Date: 77}}
	store := holding(t, map[string]string{
		string(format.HeaderKey): string(h.Append(nil)),
		row:                      string(format.AppendDatedRow(nil, subject, 1, nil, []uint64{member, other}, []uint32{format.OneRecord, 77})),
		block:                    string(format.AppendDates(nil, nil, dates)),
	}, memkv.Faults{})
	if _, err := Run(t.Context(), store, nil); err != nil {
		t.Fatal(err)
	}
	after := everything(t, store)
	dates[0].Date = format.Undated
	want := format.AppendDatedRow(nil, subject, 1, nil, []uint64{member, other}, []uint32{format.Undated, 77})
	if after[row] != string(want) || after[block] != string(format.AppendDates(nil, nil, dates)) {
		t.Errorf("row %x, want %x; block %x, want %x", after[row], want, after[block], format.AppendDates(nil, nil, dates))
	}
}
