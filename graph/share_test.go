package graph_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

var sharedSettings = dict.Settings{ShardBits: 8, LeaseSize: 256, Partitions: 64}

// Several writers on one store, each with some of the partitions, and others in
// each run: together they know what one alone would. They conflict
// on strings, which they may, and on nothing of the graph.
func TestShares(t *testing.T) { synctest.Test(t, testShares) } // writers beat and close in synthetic time, however busy the machine is

func testShares(t *testing.T) {
	var mu sync.Mutex
	conflicts := map[byte]int{}
	o := memkv.Options{Merger: merger(), Conflicted: func(key []byte) {
		mu.Lock()
		defer mu.Unlock()
		conflicts[key[0]]++
	}}
	store := memkv.Open(o)
	m, h := oracle.New(), oracle.NewHistory(3, 200)
	var stream []*oracle.Event
	for run, n := range []int{1, 2, 3, 2, 64, 1} {
		for range 1500 {
			e := h.Next()
			stream = append(stream, e)
			m.Apply(e)
		}
		var wg sync.WaitGroup
		writers := make([]*graph.Store, n)
		for i := range writers {
			writers[i] = openWriter(t, store, sharedSettings, true)
		}
		graph.Settle(t, writers...)
		clear(conflicts) // of moves
		for _, s := range writers {
			wg.Go(func() {
				if err := followStream(t, s, stream, uint64(run)); err != nil {
					t.Error(err)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		s, err := graph.Open(t.Context(), store, graph.Options{ReadOnly: true})
		must(t, err)
		if !compareViews(t, views(t, s), m.Views()) {
			t.Fatalf("after run %d, of %d writers", run, n)
		}
		compareCounts(t, s, m)
		verify(t, store)
		if t.Failed() {
			t.Fatalf("after run %d, of %d writers", run, n)
		}
	}
	t.Logf("conflicts by keyspace: %v", conflicts)
	for keyspace, n := range conflicts {
		if keyspace != dict.KeyID && keyspace != dict.KeyLease {
			t.Errorf("%d conflicts in keyspace %q", n, keyspace)
		}
	}
}

// While one of the writers has not heard the stream, nobody knows since when it is heard.
func TestUnheardPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memkv.Open(memkv.Options{Merger: merger()})
		writers := []*graph.Store{openWriter(t, store, sharedSettings, true), openWriter(t, store, sharedSettings, true)}
		graph.Settle(t, writers...)
		for i, s := range writers {
			must(t, s.SetLive(t.Context(), "relay", time.Now(), nil))
			for _, of := range writers {
				must(t, of.View(t.Context(), func(v *graph.View) error {
					if at := v.Known().Holes.Unbroken; at.IsZero() != (i == 0) {
						t.Errorf("after writer %d: %v", i, at)
					}
					return nil
				}))
			}
		}
		for _, s := range writers {
			must(t, s.Close(t.Context()))
		}
	})
}

// followStream applies the stream from the store's own cursor on.
func followStream(t *testing.T, s *graph.Store, stream []*oracle.Event, seed uint64) error {
	cursor, _ := s.Cursor("relay")
	rng := rand.New(rand.NewPCG(seed, 9))
	var b batch.Batch
	left := 0
	for _, e := range stream {
		if e.Seq <= int64(cursor.Seq) {
			continue
		}
		fill(&b, e)
		if left--; left > 0 {
			continue
		}
		left = rng.IntN(100)
		if err := s.Apply(t.Context(), "relay", &b); err != nil {
			return err
		}
		b.Reset()
	}
	if err := s.Apply(t.Context(), "relay", &b); err != nil {
		return err
	}
	eraseAll(t, s)
	return nil
}

// A dead letter is noted once, though a writer that takes partitions over reads again what the first one read, or it itself.
func TestDeadLettersOfMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memkv.Open(memkv.Options{Merger: merger()})
		one, two := openWriter(t, store, sharedSettings, true), openWriter(t, store, sharedSettings, true)
		graph.Settle(t, one, two)
		var b batch.Batch
		for i := range int64(64) {
			did := fmt.Sprintf("did:plc:a%d", i)
			fill(&b, &oracle.Event{Type: oracle.AccountEvent, Seq: i + 1, DID: did, Active: true})
			b.AddDeadLetter(format.DeadLetter{Seq: format.Seq(i + 1), DID: did, Reason: "test"})
		}
		apply := func(s *graph.Store) {
			t.Helper()
			must(t, s.Apply(t.Context(), "relay", &b))
		}
		apply(one)
		apply(two)
		closed(t, one)
		graph.Settle(t, two)
		apply(two)
		if all := noted(t, store); len(all) != 64 {
			t.Errorf("%d dead letters: %q", len(all), all)
		}
		closed(t, two)
	})
}

// What is known of the accounts of partitions moves with them, although their counts do not: a stream that the new writer is the
// first to hear begins with a hole, and a roster that the stream gave is refuted.
func TestAccountsOfMoves(t *testing.T) {
	for _, isHeard := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memkv.Open(memkv.Options{Merger: merger()})
			one := openWriter(t, store, sharedSettings, true)
			var b batch.Batch
			for i := range 64 {
				did := fmt.Appendf(nil, "did:plc:a%d", i)
				if b.AddStatus(did, true); isHeard {
					b.AddCommit(format.Seq(i+1), &batch.Commit{DID: did, Rev: dict.AppendTID(nil, 1<<40), Since: dict.AppendTID(nil, 1<<39), Data: make([]byte, 32)})
					b.Seen(format.Seq(i+1), nil)
				}
			}
			must(t, one.Apply(t.Context(), map[bool]string{true: "relay"}[isHeard], &b))
			if one.Backfill().Roster.Known() != isHeard {
				t.Errorf("%+v", one.Backfill().Roster)
			}
			all := []*graph.Store{one}
			for range 3 { // more than one has lanes
				all = append(all, openWriter(t, store, sharedSettings, true))
			}
			graph.Settle(t, all...)
			b.Reset()
			b.Seen(100, nil)
			for i, s := range all {
				must(t, s.Apply(t.Context(), "relay", &b))
				if noted, _ := s.Holes(); noted > 0 == isHeard || s.Backfill().Roster.Known() {
					t.Errorf("heard before the move: %v; writer %d has %d holes, roster %+v", isHeard, i, noted, s.Backfill().Roster)
				}
				closed(t, s)
			}
		})
	}
}

// The state of a backfill of 3,000 hosts, larger than the largest value of FoundationDB, moves with the partitions.
func TestManyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memkv.Open(memkv.Options{Merger: merger()})
		one := openWriter(t, store, sharedSettings, true)
		for _, hosts := range []int{3000, 1700, 2} {
			want := format.Backfill{Parts: format.AllPartitions(64), Hosts: map[string]format.HostBackfill{}}
			for i := range hosts {
				want.Hosts[fmt.Sprintf("https://host%04d.example", i)] = format.HostBackfill{Listed: int64(i)}
			}
			must(t, one.ChangeBackfill(t.Context(), func(b *format.Backfill) { *b = want }))
			two := openWriter(t, store, sharedSettings, true)
			graph.Settle(t, one, two)
			closed(t, one)
			graph.Settle(t, two)
			if one = two; !reflect.DeepEqual(one.Backfill(), want) {
				t.Errorf("%d hosts, want %d", len(one.Backfill().Hosts), hosts)
			}
		}
		closed(t, one)
	})
}
