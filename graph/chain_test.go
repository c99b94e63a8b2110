package graph_test

import (
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// chain sends one account's events to a store.
type chain struct {
	t *testing.T
	s *graph.Store
}

func newChain(t *testing.T) *chain {
	t.Helper()
	return &chain{t, openShare(t, memkv.Open(memkv.Options{Merger: merger()}), dict.DefaultSettings, graph.Share{})}
}

const chained = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"

func root(n byte) []byte { return append([]byte{n}, make([]byte, 31)...) }

// commit sends a commit of rev after since (0: none), whose roots before and after it are prev (0:
// not sent) and data. It makes a follow. A rev of 0 is a commit that cannot be read.
func (c *chain) commit(source string, seq format.Seq, rev, since uint64, prev, data byte) {
	c.t.Helper()
	var b batch.Batch
	commit := &batch.Commit{DID: []byte(chained)}
	if rev > 0 {
		commit.Rev, commit.Data = []byte(oracle.TID(rev<<20)), root(data)
	}
	if since > 0 {
		commit.Since = []byte(oracle.TID(since << 20))
	}
	if prev > 0 {
		commit.PrevData = root(prev)
	}
	b.AddCommit(seq, commit)
	if rev > 0 {
		b.AddPut(kinds.ByName("follow").Kind, []byte(oracle.TID(rev<<20)), []byte("did:web:star.example.com"))
	}
	c.apply(source, &b)
}

func (c *chain) apply(source string, b *batch.Batch) {
	c.t.Helper()
	if err := c.s.Apply(c.t.Context(), source, b); err != nil {
		c.t.Fatal(err)
	}
	for c.s.Erasing() {
		if err := c.s.EraseSlice(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
	}
}

// has checks the numbers of records and of desynchronized repos.
func (c *chain) has(what string, records, desynchronized int64) {
	c.t.Helper()
	if n := counts(c.t, c.s); n.Records["follow"] != records || n.Desynchronized != desynchronized {
		c.t.Errorf("%s: %+v, want %d follows and %d desynchronized repos", what, n, records, desynchronized)
	}
}

// A commit that follows the last one by its rev, but starts from another root, shows that an event
// was missed: the account was restored to another repo with the same revs.
func TestChainByRoot(t *testing.T) {
	c := newChain(t)
	c.commit("pds", 1, 100, 0, 0, 1)
	c.commit("pds", 2, 200, 100, 1, 2)
	c.has("a whole chain", 2, 0)
	c.commit("pds", 3, 300, 200, 7, 3)
	c.has("another root before the commit", 3, 1)

	c = newChain(t)
	c.commit("pds", 1, 100, 0, 0, 1)
	c.commit("pds", 2, 200, 50, 1, 2)
	c.has("another rev before the commit", 2, 1)
}

// A commit from before the deletion of its account changes nothing, also if another source's events
// of the account came between.
func TestCommitBeforeDeletion(t *testing.T) {
	c := newChain(t)
	c.commit("pds", 5, 100, 0, 0, 1)
	var b batch.Batch
	b.AddAccount(10, []byte(chained), false, true)
	c.apply("pds", &b)
	c.has("deleted", 0, 0)
	c.commit("relay", 1, 0, 0, 0, 0) // unreadable: it names no rev
	c.commit("pds", 5, 100, 0, 0, 1)
	if n := counts(t, c.s); n.Records["follow"] != 0 {
		t.Errorf("a commit from before the deletion: %+v", n)
	}
	c.commit("pds", 11, 300, 0, 0, 3)
	if n := counts(t, c.s); n.Records["follow"] != 1 {
		t.Errorf("a commit after the deletion: %+v", n)
	}
}

// A repeated commit is a replay, also if its rev is that of the last one.
func TestRepeatedCommit(t *testing.T) {
	c := newChain(t)
	c.commit("pds", 1, 100, 0, 0, 1)
	c.commit("pds", 2, 200, 100, 1, 2)
	for seq := range format.Seq(4) {
		c.commit("pds", seq+1, 100, 0, 0, 1)
		c.commit("relay", seq+1, 200, 100, 1, 2)
	}
	c.has("repeated", 2, 0)
	if _, replays := c.s.Events(); replays != 8 {
		t.Errorf("%d replays, want 8", replays)
	}
}

// A repeated commit that cannot be read is a replay, too: it must not desynchronize a repo that was
// repaired since.
func TestRepeatedUnreadableCommit(t *testing.T) {
	c := newChain(t)
	c.commit("pds", 1, 100, 0, 0, 1)
	c.commit("pds", 2, 0, 0, 0, 0)
	c.has("unreadable", 1, 1)
	c.commit("pds", 2, 0, 0, 0, 0)
	if _, replays := c.s.Events(); replays != 1 {
		t.Errorf("%d replays, want 1", replays)
	}
}

// An #account event that comes again does not take back the one after it.
func TestRepeatedAccountEvent(t *testing.T) {
	c := newChain(t)
	c.commit("pds", 1, 100, 0, 0, 1)
	account := func(seq format.Seq, active bool) {
		t.Helper()
		var b batch.Batch
		b.AddAccount(seq, []byte(chained), active, false)
		c.apply("pds", &b)
	}
	for _, e := range []struct {
		seq    format.Seq
		active bool
		hidden int64
	}{{2, false, 1}, {3, true, 0}, {2, false, 0}, {4, false, 1}, {3, true, 1}, {4, false, 1}} {
		account(e.seq, e.active)
		if n := counts(t, c.s); n.Hidden != e.hidden {
			t.Errorf("after #account %d: %d hidden accounts, want %d", e.seq, n.Hidden, e.hidden)
		}
	}
}

// Rows of an archive about an account that the stream has deleted change nothing: they are from before
// the deletion, or will come with the repo.
func TestArchiveOfDeletedAccount(t *testing.T) {
	c := newChain(t)
	c.commit("pds", 1, 100, 0, 0, 1)
	var b batch.Batch
	b.AddAccount(2, []byte(chained), false, true)
	c.apply("pds", &b)
	b.Reset()
	b.AddArchived(1, []byte(chained), []byte(oracle.TID(100<<20)))
	b.AddPut(kinds.ByName("follow").Kind, []byte(oracle.TID(100<<20)), []byte("did:web:star.example.com"))
	b.Seen(1, nil)
	c.apply("archive", &b)
	c.has("deleted, then archived", 0, 0)
}
