package graph_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
	if err := store.Update(t.Context(), func(tx kv.Txn) error {
		h, err := read.Header(tx)
		if err != nil {
			return err
		}
		h.Kinds = h.Kinds[:len(h.Kinds)-1]
		tx.Set(format.HeaderKey, h.Append(nil))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func added(t *testing.T, store kv.Store) (sources []string) {
	t.Helper()
	if err := store.View(t.Context(), func(r kv.Reader) error {
		gaps, err := read.Gaps(r)
		for _, g := range gaps {
			if g.Reason == format.KindAdded {
				sources = append(sources, g.Source)
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return sources
}

func fillOne(b *batch.Batch, did string, seq int64) {
	fill(b, &oracle.Event{Type: oracle.CommitEvent, Seq: seq, DID: did, Rev: "3jzfcijpj2z2a", Ops: []oracle.Op{{Kind: "follow", Rkey: "x", Subject: "did:plc:d"}}})
}

// A store that lacks a kind says so as a gap of every source, once; and the other writers of
// it stop, which may not know the kind, as does an older program that finds it.
func TestKindAdded(t *testing.T) {
	for name, settings := range map[string]dict.Settings{"alone": dict.DefaultSettings, "several": dict.SharedSettings} {
		t.Run(name, func(t *testing.T) {
			store := memkv.Open(memkv.Options{Merger: merger()})
			open := func(i, n int) (*graph.Store, error) {
				return graph.Open(t.Context(), store, graph.Options{
					Intern: intern.Options{Settings: settings, Owner: name}, Beat: 10 * time.Millisecond, Share: graph.Share{I: i, N: n},
				})
			}
			n := 1
			if settings.Partitions > 1 {
				n = 2
			}
			var writers []*graph.Store
			for i := range n { // each follows a relay of its own
				s, err := open(i, n)
				if err != nil {
					t.Fatal(err)
				}
				var b batch.Batch
				for d := range 50 {
					fillOne(&b, "did:web:u"+string(rune('a'+d%26))+strings.Repeat("x", d)+".com", int64(d+1))
				}
				if err := s.Apply(t.Context(), "relay"+string(rune('0'+i)), &b); err != nil {
					t.Fatal(err)
				}
				writers = append(writers, s)
			}
			if err := writers[0].Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			forget(t, store)
			s, err := open(0, n)
			if err != nil {
				t.Fatal(err)
			}
			if got := added(t, store); len(got) != n {
				t.Errorf("gaps of %q, there are %d sources", got, n)
			}
			if n == 2 {
				var b batch.Batch
				for d := range 20 {
					fillOne(&b, "did:web:v"+strings.Repeat("y", d+1)+".com", int64(d+100))
				}
				if err := writers[1].Apply(t.Context(), "relay1", &b); !errors.Is(err, graph.ErrClaimed) {
					t.Errorf("the other writer goes on: %v", err)
				}
				_ = writers[1].Close(t.Context())
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s, err = open(0, n); err != nil || len(added(t, store)) != n {
				t.Errorf("opened again: %v, gaps of %q", err, added(t, store))
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			verify(t, store)
		})
	}
}

// A store keeps over an export and an import that it lacks a kind; what was exported before
// exports said so has the first four.
func TestKindsOfAnExport(t *testing.T) {
	from := memkv.Open(memkv.Options{Merger: merger()})
	s, err := graph.Open(t.Context(), from, graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var b batch.Batch
	fillOne(&b, "did:web:a.com", 1)
	if err := errors.Join(s.Apply(t.Context(), "relay", &b), s.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	whole := exportOf(t, from)
	forget(t, from)
	for name, c := range map[string]struct {
		text string
		gaps int
	}{
		"all kinds":     {whole, 0},
		"one is missed": {exportOf(t, from), 1},
	} {
		to := memkv.Open(memkv.Options{Merger: merger()})
		s, err := graph.Open(t.Context(), to, graph.Options{Import: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := export.Read(t.Context(), s, strings.NewReader(c.text), nil); err != nil {
			t.Fatal(name, err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, err = graph.Open(t.Context(), to, graph.Options{}); err != nil {
			t.Fatal(err)
		}
		if got := added(t, to); len(got) != c.gaps {
			t.Errorf("%s: gaps of %q, want %d", name, got, c.gaps)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func exportOf(t *testing.T, store kv.Store) string {
	t.Helper()
	var b strings.Builder
	if _, err := export.Write(t.Context(), store, &b, nil); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A store with records of a kind that the program does not know is opened by nothing of it.
func TestUnknownKind(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: merger()})
	s, err := graph.Open(t.Context(), store, graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := store.Update(t.Context(), func(tx kv.Txn) error {
		h, err := read.Header(tx)
		h.Kinds = append(h.Kinds, kinds.Kind(200))
		tx.Set(format.HeaderKey, h.Append(nil))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := graph.Open(t.Context(), store, graph.Options{}); !errors.Is(err, read.ErrFormat) {
		t.Errorf("opened: %v", err)
	}
	if _, err := export.Write(t.Context(), store, &strings.Builder{}, nil); !errors.Is(err, read.ErrFormat) {
		t.Errorf("exported: %v", err)
	}
}

// A kind that is configured is indexed by every writer of a store, also by one that has its
// claim when another adds it, and by one that opens without the file.
func TestConfiguredBySeveral(t *testing.T) {
	more, err := kinds.Parse("a.b.c list at-uri listed1 listedBy")
	if err != nil {
		t.Fatal(err)
	}
	store := memkv.Open(memkv.Options{Merger: merger()})
	open := func(i int, more []kinds.Info) *graph.Store {
		t.Helper()
		s, err := graph.Open(t.Context(), store, graph.Options{
			Intern: intern.Options{Settings: dict.SharedSettings, Owner: "o"}, Beat: 10 * time.Millisecond, Share: graph.Share{I: i, N: 2}, Kinds: more,
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := open(0, nil)
	second := open(1, more) // the first has lost its claim
	var b batch.Batch
	put := func(seq int64) {
		b.Reset()
		for d := range 60 {
			b.AddCommit(format.Seq(seq), &batch.Commit{DID: []byte("did:web:u" + strings.Repeat("x", d+1) + ".com"), Rev: []byte(fmt.Sprintf("3kaaaaaaaaa%s", []string{"2a", "2b", "2c"}[seq])), Data: make([]byte, 32)})
			b.AddPut(kinds.FirstConfigured, []byte("r"), []byte("at://did:web:x.com/a.b.d/x"))
		}
		b.Seen(format.Seq(seq), nil)
	}
	put(1)
	if err := first.Apply(t.Context(), "relay", &b); !errors.Is(err, graph.ErrClaimed) {
		t.Errorf("the first writer goes on: %v", err)
	}
	_ = first.Close(t.Context())
	first = open(0, nil)
	for _, s := range []*graph.Store{first, second} {
		if len(s.Kinds().Configured()) != 1 {
			t.Errorf("a writer indexes %d configured kinds", len(s.Kinds().Configured()))
		}
		if err := s.Apply(t.Context(), "relay", &b); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.View(t.Context(), func(sn *ask.View) error {
		counts, err := sn.Counts()
		if counts.Records["listed1"] != 60 {
			t.Errorf("%d records", counts.Records["listed1"])
		}
		lacking, lerr := sn.Lacking()
		if len(lacking) != 0 {
			t.Errorf("of a new store %v is lacking", lacking)
		}
		return errors.Join(err, lerr)
	}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*graph.Store{first, second} {
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	verify(t, store)
	// Now the store has accounts: of what is added from here on, the past is lacking.
	again, err := kinds.Parse("a.b.c list at-uri listed1 listedBy\na.b.e x did xs ys")
	if err != nil {
		t.Fatal(err)
	}
	s := open(0, again)
	if err := s.View(t.Context(), func(sn *ask.View) error {
		lacking, err := sn.Lacking()
		if len(lacking) != 1 || lacking[kinds.FirstConfigured+1].IsZero() {
			t.Errorf("%v is lacking", lacking)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	other := open(1, nil)
	for n, w := range []*graph.Store{s, other} { // each queues what is its share
		due := w.SweepDue()
		if err := w.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Swept = due }); err != nil {
			t.Fatal(err)
		}
		if err := s.View(t.Context(), func(sn *ask.View) error {
			lacking, err := sn.Lacking()
			if (len(lacking) == 0) != (n == 1) {
				t.Errorf("%v is lacking, after %d of two writers have queued all accounts", lacking, n+1)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	// Repos that wait to be fetched keep the kind from nobody else: they are not complete themselves.
	b.Reset()
	for d := range 60 {
		b.AddResync([]byte("did:web:u"+strings.Repeat("x", d+1)+".com"), batch.Cause{Reason: "test"})
	}
	b.Seen(3, nil)
	if err := s.Apply(t.Context(), "relay", &b); err != nil {
		t.Fatal(err)
	}
	if err := s.View(t.Context(), func(sn *ask.View) error {
		lacking, err := sn.Lacking()
		if len(lacking) != 0 {
			t.Errorf("%v is lacking, while repos wait to be fetched", lacking)
		}
		if err != nil {
			return err
		}
		counts, err := sn.Counts()
		if counts.Incomplete == 0 {
			t.Errorf("repos wait to be fetched, and none is in doubt: %+v", counts)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	_, _ = s.Close(t.Context()), other.Close(t.Context())
}
