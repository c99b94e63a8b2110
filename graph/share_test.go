package graph_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/export"
	"skein.blue/graph/format"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

var sharedSettings = dict.Settings{ShardBits: 8, LeaseSize: 256, Partitions: 64}

// Several writers on one store, each with a share of the partitions, and other
// shares in each run: together they know what one alone would. They conflict
// on strings, which they may, and on nothing of the graph.
func TestShares(t *testing.T) {
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
		for i := range n {
			wg.Go(func() {
				s := openShare(t, store, sharedSettings, graph.Share{I: i, N: n})
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
		if err != nil {
			t.Fatal(err)
		}
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
	for s.Erasing() {
		if err := s.EraseSlice(t.Context()); err != nil {
			return err
		}
	}
	return nil
}

// A share that is written already is refused. One whose writer is gone is taken
// over, and that writer, should it come back, writes nothing any more.
func TestFence(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: merger()})
	first := openShare(t, store, sharedSettings, graph.Share{I: 0, N: 2})
	open := func(share graph.Share, shards *dict.ShardRange) (*graph.Store, error) {
		return graph.Open(t.Context(), store, graph.Options{
			Share: share, Beat: 20 * time.Millisecond, Intern: intern.Options{Owner: "second", Shards: shards},
		})
	}
	for _, share := range []graph.Share{{}, {I: 0, N: 2}, {I: 1, N: 4}} {
		if _, err := open(share, nil); !errors.Is(err, graph.ErrClaimed) {
			t.Errorf("share %s beside 0/2: %v", share, err)
		}
	}
	for _, share := range []graph.Share{{I: 2, N: 2}, {I: -1, N: 2}, {I: 0, N: 65}, {I: 0, N: -1}} {
		if _, err := open(share, nil); !errors.Is(err, graph.ErrShare) {
			t.Errorf("share %+v: %v", share, err)
		}
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	// One that says nothing for long counts as gone.
	silent, err := graph.Open(t.Context(), store, graph.Options{Share: graph.Share{I: 0, N: 2}, Beat: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var b batch.Batch
	fill(&b, &oracle.Event{Type: oracle.IdentityEvent, Seq: 1}) // so that it has a cursor
	if err := silent.Apply(t.Context(), "relay", &b); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	second, err := open(graph.Share{I: 1, N: 4}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 64 { // of nearly all partitions
		fill(&b, &oracle.Event{
			Type: oracle.CommitEvent, Seq: int64(i + 2), DID: fmt.Sprintf("did:plc:a%d", i), Rev: oracle.TID(1000),
			Ops: []oracle.Op{{Kind: "follow", Rkey: "x", Subject: "did:plc:b"}},
		})
	}
	if err := silent.Apply(t.Context(), "relay", &b); !errors.Is(err, graph.ErrClaimed) {
		t.Errorf("a writer that was replaced writes on: %v", err)
	}
	if err := second.Apply(t.Context(), "relay", &b); err != nil {
		t.Error(err)
	}
	if err := errors.Join(silent.Close(t.Context()), second.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	verify(t, store)

	// Ranges of shards are there to be apart.
	low, err := open(graph.Share{I: 0, N: 2}, &dict.ShardRange{First: 0, Last: 127})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(graph.Share{I: 1, N: 2}, &dict.ShardRange{First: 100, Last: 200}); !errors.Is(err, graph.ErrClaimed) {
		t.Errorf("shards 100-200 beside 0-127: %v", err)
	}
	for _, r := range []dict.ShardRange{{First: 5, Last: 4}, {First: 0, Last: 256}, {First: 128, Last: 190}} {
		if _, err := open(graph.Share{I: 1, N: 2}, &r); !errors.Is(err, dict.ErrSettings) {
			t.Errorf("shards %s: %v", r, err)
		}
	}
	high, err := open(graph.Share{I: 1, N: 2}, &dict.ShardRange{First: 128, Last: 255})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*graph.Store{low, high} {
		b.Reset()
		for i := range 64 {
			fill(&b, &oracle.Event{
				Type: oracle.CommitEvent, Seq: int64(i + 100), DID: fmt.Sprintf("did:plc:c%d", i), Rev: oracle.TID(2000),
				Ops: []oracle.Op{{Kind: "follow", Rkey: "x", Subject: "did:plc:d"}},
			})
		}
		if err := s.Apply(t.Context(), "relay", &b); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	verify(t, store)
}

// A store moves to another engine and layout and back, and answers as before. A truncated export,
// or a file that is not an export, is rejected and changes nothing for good.
func TestExportImport(t *testing.T) {
	m, h := oracle.New(), oracle.NewHistory(8, 100)
	mem := func(settings dict.Settings, imports bool) (*memkv.Store, *graph.Store) {
		store := memkv.Open(memkv.Options{Merger: merger()})
		s, err := graph.Open(t.Context(), store, graph.Options{Intern: intern.Options{Settings: settings}, Import: imports, Beat: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return store, s
	}
	store, s := mem(dict.Settings{}, false)
	var b batch.Batch
	history := func(n int) {
		for range n {
			e := h.Next()
			m.Apply(e)
			fill(&b, e)
		}
		b.AddDeadLetter(format.DeadLetter{Seq: b.Last(), DID: "did:plc:x", Reason: "bad", Time: time.Unix(5, 0).UTC()})
		b.AddGap(format.Gap{After: b.Last(), Reason: "gap", Time: time.Unix(6, 0).UTC()})
		if err := s.Apply(t.Context(), "relay", &b); err != nil {
			t.Fatal(err)
		}
		b.Reset()
		for s.Erasing() {
			if err := s.EraseSlice(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	history(6000)
	var first string
	for i, settings := range []dict.Settings{sharedSettings, dict.DefaultSettings, {ShardBits: 32, LeaseSize: 1}} {
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if _, err := export.Write(t.Context(), store, &out, nil); err != nil {
			t.Fatal(err)
		}
		exported := out.String()
		if lines := sortedLines(exported); first == "" {
			first = lines
		} else if lines != first && i < 2 {
			t.Error("the export of an import is another")
		}
		store, s = mem(settings, true)
		lines := strings.SplitAfter(exported, "\n")
		for name, bad := range map[string]string{
			"cut off":   strings.Join(lines[:len(lines)-2], ""),
			"in a line": exported[:len(exported)/2],
			"no export": "{}\n",
			"a change":  strings.Replace(exported, `"kind":"like"`, `"kind":"repost"`, 1),
			"a gap":     strings.Join(append(lines[:len(lines)/2:len(lines)/2], lines[len(lines)/2+1:]...), ""),
		} {
			if _, err := export.Read(t.Context(), s, strings.NewReader(bad), nil); !errors.Is(err, graph.ErrImport) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := graph.Open(t.Context(), store, graph.Options{}); err == nil || !strings.Contains(err.Error(), "skein import") {
			t.Errorf("a store whose import was not finished is opened: %v", err)
		}
		if err := check.Store(t.Context(), store, func(string) {}, nil); err == nil || !strings.Contains(err.Error(), "skein import") {
			t.Errorf("a store whose import was not finished is checked: %v", err)
		}
		if _, err := export.Write(t.Context(), store, io.Discard, nil); err == nil || !strings.Contains(err.Error(), "skein import") {
			t.Errorf("a store whose import was not finished is exported: %v", err)
		}
		if _, err := export.Read(t.Context(), s, strings.NewReader(exported), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := export.Read(t.Context(), s, strings.NewReader(exported), nil); !errors.Is(err, graph.ErrImport) {
			t.Errorf("into a store that is not empty: %v", err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		s = openShare(t, store, dict.Settings{}, graph.Share{})
		compareViews(t, views(t, s), m.Views())
		compareCounts(t, s, m)
		verify(t, store)
		if t.Failed() {
			t.Fatalf("imported with %s", settings)
		}
		if i == 1 { // the stream goes on where it was
			history(2000)
			compareViews(t, views(t, s), m.Views())
			verify(t, store)
		}
	}
}

func sortedLines(s string) string {
	s, _, _ = strings.Cut(s, `,"sha256":`) // of lines in another order
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// An import that was begun with one export does not end well with another.
func TestImportOfAnother(t *testing.T) {
	const account = `{"account":{"did":"did:plc:a","last":{}}}`
	exported := func(end int, rkeys ...string) string {
		lines := []string{`{"export":1}`, account}
		for _, rkey := range rkeys {
			lines = append(lines, fmt.Sprintf(`{"did":"did:plc:a","kind":"follow","records":[[%q,"did:plc:b"]]}`, rkey))
		}
		return strings.Join(append(lines, fmt.Sprintf(`{"end":{"accounts":1,"records":%d}}`, end)), "\n")
	}
	for name, second := range map[string]string{"another": exported(1, "x"), "the same": exported(2, "x", "y")} {
		store := memkv.Open(memkv.Options{Merger: merger()})
		s, err := graph.Open(t.Context(), store, graph.Options{Import: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := export.Read(t.Context(), s, strings.NewReader(exported(3, "x", "y")), nil); !errors.Is(err, graph.ErrImport) {
			t.Errorf("an export that is not whole: %v", err)
		}
		if _, err := export.Read(t.Context(), s, strings.NewReader(second), nil); (err == nil) != (name == "the same") {
			t.Errorf("gone on with %s: %v", name, err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
