package graph_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/export"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// forget has a store lack the last kind of the table, as one that an older program made.
func forget(t *testing.T, store kv.Store) {
	t.Helper()
	must(t, store.Update(t.Context(), func(tx kv.Txn) error {
		h, err := read.Header(tx)
		if err != nil {
			return err
		}
		h.Kinds = h.Kinds[:len(h.Kinds)-1]
		tx.Set(format.HeaderKey, h.Append(nil))
		return nil
	}))
}

// lacking returns how many kinds a store lacks earlier records of.
func lacking(t *testing.T, s *graph.Store) (n int) {
	t.Helper()
	must(t, s.View(t.Context(), func(sn *ask.View) error {
		n = len(sn.Lacking())
		return nil
	}))
	return n
}

func fillOne(b *batch.Batch, did string, seq int64) {
	fill(b, &oracle.Event{Type: oracle.CommitEvent, Seq: seq, DID: did, Rev: "3jzfcijpj2z2a", Ops: []oracle.Op{{Kind: "follow", Rkey: "x", Subject: "did:plc:d"}}})
}

// openKinds opens a store, which other writers may join, with configured kinds besides its own.
func openKinds(t *testing.T, store kv.Store, settings dict.Settings, more []kinds.Info) *graph.Store {
	t.Helper()
	s, err := graph.Open(t.Context(), store, graph.Options{Intern: intern.Options{Settings: settings, Owner: "o"}, Joins: settings.Partitions > 1, Kinds: more})
	must(t, err)
	return s
}

func closed(t *testing.T, all ...*graph.Store) {
	t.Helper()
	for _, s := range all {
		must(t, s.Close(t.Context()))
	}
}

// A store that lacks a kind says so, and the other writers of it stop, which may not know the kind.
func TestKindAdded(t *testing.T) {
	for name, settings := range map[string]dict.Settings{"alone": dict.DefaultSettings, "several": dict.SharedSettings} {
		synctest.Test(t, func(t *testing.T) {
			store := memkv.Open(memkv.Options{Merger: merger()})
			n := min(2, int(settings.Partitions))
			var b batch.Batch
			for d := range 50 {
				fillOne(&b, fmt.Sprintf("did:web:u%d.com", d), int64(d+1))
			}
			var writers []*graph.Store
			for i := range n { // each follows a relay of its own
				s := openKinds(t, store, settings, nil)
				if writers = append(writers, s); n > 1 {
					graph.Settle(t, writers...)
				}
				must(t, s.Apply(t.Context(), fmt.Sprint("relay", i), &b))
			}
			closed(t, writers[0])
			forget(t, store)
			s := openKinds(t, store, settings, nil)
			if lacking(t, s) != 1 {
				t.Errorf("%s: %d kinds are lacking", name, lacking(t, s))
			}
			for _, w := range writers[1:] {
				b.Reset()
				for d := range 20 {
					fillOne(&b, fmt.Sprintf("did:web:v%d.com", d), int64(d+100))
				}
				if err := w.Apply(t.Context(), "relay1", &b); !errors.Is(err, graph.ErrClaimed) {
					t.Errorf("the other writer goes on: %v", err)
				}
				_ = w.Close(t.Context())
			}
			closed(t, s)
			s = openKinds(t, store, settings, nil)
			if lacking(t, s) != 1 {
				t.Errorf("%s, opened again: %d kinds are lacking", name, lacking(t, s))
			}
			closed(t, s)
			verify(t, store)
		})
	}
}

// A store keeps over an export and an import that it lacks a kind.
func TestKindsOfAnExport(t *testing.T) {
	from := memkv.Open(memkv.Options{Merger: merger()})
	s := openKinds(t, from, dict.Settings{}, nil)
	var b batch.Batch
	fillOne(&b, "did:web:a.com", 1)
	must(t, errors.Join(s.Apply(t.Context(), "relay", &b), s.Close(t.Context())))
	for want := range 2 {
		var text strings.Builder
		_, err := export.Write(t.Context(), from, &text, nil)
		must(t, err)
		forget(t, from)
		to := memkv.Open(memkv.Options{Merger: merger()})
		s, err := graph.Open(t.Context(), to, graph.Options{Import: true})
		must(t, err)
		_, err = export.Read(t.Context(), s, strings.NewReader(text.String()), nil)
		must(t, err)
		closed(t, s)
		s = openKinds(t, to, dict.Settings{}, nil)
		if got := lacking(t, s); got != want {
			t.Errorf("%d kinds are lacking, want %d", got, want)
		}
		closed(t, s)
	}
}

// A store with records of a kind that the program does not know is opened by nothing of it.
func TestUnknownKind(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: merger()})
	closed(t, openKinds(t, store, dict.Settings{}, nil))
	must(t, store.Update(t.Context(), func(tx kv.Txn) error {
		h, err := read.Header(tx)
		h.Kinds = append(h.Kinds, kinds.Kind(200))
		tx.Set(format.HeaderKey, h.Append(nil))
		return err
	}))
	if _, err := graph.Open(t.Context(), store, graph.Options{}); !errors.Is(err, read.ErrFormat) {
		t.Errorf("opened: %v", err)
	}
	if _, err := export.Write(t.Context(), store, &strings.Builder{}, nil); !errors.Is(err, read.ErrFormat) {
		t.Errorf("exported: %v", err)
	}
}

// A kind that is configured is indexed by every writer of a store, also by one that has its
// claim when another adds it, and by one that opens without the file.
func TestConfiguredBySeveral(t *testing.T) { synctest.Test(t, testConfiguredBySeveral) }

func testConfiguredBySeveral(t *testing.T) {
	parsed := func(file string) []kinds.Info {
		all, err := kinds.Parse(file)
		must(t, err)
		return all
	}
	const one = "a.b.c list at-uri listed1 listedBy"
	store := memkv.Open(memkv.Options{Merger: merger()})
	open := func(more []kinds.Info) *graph.Store {
		return openKinds(t, store, dict.SharedSettings, more)
	}
	counts := func(s *graph.Store) (c format.Counts) {
		t.Helper()
		must(t, s.View(t.Context(), func(sn *ask.View) (err error) { c, err = sn.Counts(); return err }))
		return c
	}
	first := open(nil)
	second := open(parsed(one)) // the first has lost its claim
	did := func(d int) []byte { return fmt.Appendf(nil, "did:web:u%d.com", d) }
	var b batch.Batch
	for d := range 60 {
		b.AddCommit(1, &batch.Commit{DID: did(d), Rev: []byte("3kaaaaaaaaa2b"), Data: make([]byte, 32)})
		b.AddPut(kinds.FirstConfigured, []byte("r"), []byte("at://did:web:x.com/a.b.d/x"))
	}
	b.Seen(1, nil)
	if err := first.Apply(t.Context(), "relay", &b); !errors.Is(err, graph.ErrClaimed) {
		t.Errorf("the first writer goes on: %v", err)
	}
	_ = first.Close(t.Context())
	first = open(nil)
	graph.Settle(t, first, second)
	for _, s := range []*graph.Store{first, second} {
		if len(s.Kinds().Configured()) != 1 {
			t.Errorf("a writer indexes %d configured kinds", len(s.Kinds().Configured()))
		}
		must(t, s.Apply(t.Context(), "relay", &b))
	}
	if n := counts(first).Records["listed1"]; n != 60 {
		t.Errorf("%d records", n)
	}
	if lacking(t, first) != 0 {
		t.Error("a new store lacks a kind")
	}
	closed(t, first, second)
	verify(t, store)
	// Now the store has accounts: of what is added from here on, the past is lacking.
	s := open(parsed(one + "\na.b.e x did xs ys"))
	if lacking(t, s) != 1 {
		t.Error("a store with accounts does not lack a new kind")
	}
	other := open(nil)
	graph.Settle(t, s, other)
	for n, w := range []*graph.Store{s, other} { // each queues what is its share
		due := w.SweepDue()
		must(t, w.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Swept = due }))
		if got := lacking(t, s); got != 1-n {
			t.Errorf("after %d of two writers have queued all accounts, %d kinds are lacking", n+1, got)
		}
	}
	// Repos that wait to be fetched keep the kind from nobody else: they are not complete themselves.
	b.Reset()
	for d := range 60 {
		b.AddResync(did(d), batch.Cause{Reason: "test"})
	}
	b.Seen(3, nil)
	must(t, s.Apply(t.Context(), "relay", &b))
	if lacking(t, s) != 0 || counts(s).Incomplete == 0 {
		t.Errorf("while repos wait to be fetched, %d kinds are lacking, and %d repos are in doubt", lacking(t, s), counts(s).Incomplete)
	}
	closed(t, s, other)
}
