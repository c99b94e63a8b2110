package write_test

import (
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/internal/sim/oracle"
)

const chained = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"

func root(n byte) []byte { return append([]byte{n}, make([]byte, 31)...) }

// event adds an event of the account.
type event func(b *batch.Batch, seq format.Seq)

func header(rev, since uint64, prev, data byte) *batch.Commit {
	c := &batch.Commit{DID: []byte(chained)}
	if rev > 0 {
		c.Rev, c.Data = []byte(oracle.TID(rev<<20)), root(data)
	}
	if since > 0 {
		c.Since = []byte(oracle.TID(since << 20))
	}
	if prev > 0 {
		c.PrevData = root(prev)
	}
	return c
}

func follow(b *batch.Batch, rev uint64) {
	b.AddPut(kindOf("follow"), []byte(oracle.TID(rev<<20)), []byte("did:web:star.example.com"))
}

// commit is a commit of rev after since (0: none), whose roots before and after it are prev (0: not sent) and data. It
// makes a follow. A rev of 0 is a commit that cannot be read.
func commit(rev, since uint64, prev, data byte) event {
	return func(b *batch.Batch, seq format.Seq) {
		if b.AddCommit(seq, header(rev, since, prev, data)); rev > 0 {
			follow(b, rev)
		}
	}
}

// imported is a commit, or a #sync, whose message names another rev than its block.
func imported(isSync bool, rev uint64, data byte) event {
	return func(b *batch.Batch, seq format.Seq) {
		c := header(rev, 0, 0, data)
		if c.OtherRev = true; isSync {
			b.AddSync(seq, c)
			return
		}
		b.AddCommit(seq, c)
		follow(b, rev)
	}
}

func sync(rev uint64, data byte) event {
	return func(b *batch.Batch, seq format.Seq) { b.AddSync(seq, header(rev, 0, 0, data)) }
}

func status(active, deleted bool) event {
	return func(b *batch.Batch, seq format.Seq) { b.AddAccount(seq, []byte(chained), active, deleted) }
}

func archived(rev uint64) event {
	return func(b *batch.Batch, seq format.Seq) {
		b.AddArchived(seq, []byte(chained), []byte(oracle.TID(rev<<20)))
		follow(b, rev)
		b.Seen(seq, nil)
	}
}

// TestEvents delivers events of one account, and compares its records, whether the repo is desynchronized, and whether
// the account is hidden.
func TestEvents(t *testing.T) {
	late := uint64(time.Now().Add(time.Minute).UnixMicro()) >> 10
	type step struct {
		source  string
		seq     format.Seq
		event   event
		records int64
		desync  bool
		hidden  bool
	}
	for name, steps := range map[string][]step{
		// A commit that follows the last one by its rev, but starts from another root, shows that an event was missed: the account
		// was restored to another repo with the same revs.
		"another root": {
			{"pds", 1, commit(100, 0, 0, 1), 1, false, false},
			{"pds", 2, commit(200, 100, 1, 2), 2, false, false},
			{"pds", 3, commit(300, 200, 7, 3), 3, true, false},
		},
		"another rev": {
			{"pds", 1, commit(100, 0, 0, 1), 1, false, false},
			{"pds", 2, commit(200, 50, 1, 2), 2, true, false},
		},
		// The first commit that is heard follows one from before, or one that should have been heard, or it does not say which.
		"an older one before the first": {{"pds", 1, commit(200, 100, 7, 1), 1, false, false}},
		"a recent one before the first": {{"pds", 1, commit(late+1, late, 7, 1), 1, true, false}},
		"some one before the first":     {{"pds", 1, commit(200, 0, 7, 1), 1, true, false}},
		"an older one after an archive": {{"archive", 1, archived(50), 1, false, false}, {"pds", 1, commit(200, 100, 7, 1), 2, false, false}},
		"a recent one after an archive": {{"archive", 1, archived(50), 1, false, false}, {"pds", 1, commit(late+1, late, 7, 1), 2, true, false}},
		// A commit from before the deletion of its account changes nothing, also if another source's events of the account came between.
		"before a deletion": {
			{"pds", 5, commit(100, 0, 0, 1), 1, false, false},
			{"pds", 10, status(false, true), 0, false, true},
			{"relay", 1, commit(0, 0, 0, 0), 0, true, true},
			{"pds", 5, commit(100, 0, 0, 1), 0, true, true},
			{"pds", 11, commit(300, 0, 0, 3), 1, true, true},
		},
		// A repeated commit is a replay, also if its rev is that of the last one.
		"repeated commits": {
			{"pds", 1, commit(100, 0, 0, 1), 1, false, false},
			{"pds", 2, commit(200, 100, 1, 2), 2, false, false},
			{"pds", 1, commit(100, 0, 0, 1), 2, false, false},
			{"relay", 1, commit(200, 100, 1, 2), 2, false, false},
			{"pds", 3, commit(100, 0, 0, 1), 2, false, false},
			{"relay", 2, commit(200, 100, 1, 2), 2, false, false},
			{"pds", 4, commit(200, 100, 1, 2), 2, false, false},
		},
		// An #account event that comes again does not take back the one after it.
		"repeated #account": {
			{"pds", 1, commit(100, 0, 0, 1), 1, false, false},
			{"pds", 2, status(false, false), 1, false, true},
			{"pds", 3, status(true, false), 1, false, false},
			{"pds", 2, status(false, false), 1, false, false},
			{"pds", 4, status(false, false), 1, false, true},
			{"pds", 3, status(true, false), 1, false, true},
		},
		// The first events of a live start have no numbers: none is taken for one that came before.
		"without numbers": {
			{"pds", 0, commit(100, 0, 0, 1), 1, false, false},
			{"pds", 0, status(false, false), 1, false, true},
			{"pds", 0, status(true, false), 1, false, false},
			{"pds", 0, sync(200, 2), 1, true, false},
			{"pds", 0, status(false, true), 0, false, true},
			{"pds", 0, commit(300, 0, 0, 3), 1, false, true},
		},
		// Rows of an archive about an account that the stream has deleted are from before the deletion, or come with the repo.
		"an archive of a deleted account": {
			{"pds", 1, commit(100, 0, 0, 1), 1, false, false},
			{"pds", 2, status(false, true), 0, false, true},
			{"archive", 1, archived(100), 0, false, true},
		},
		// The status that an archive has is older than the one that the stream brought, also after a hole.
		"an archive after a hole": {
			{"pds", 1, status(false, false), 0, false, true},
			{"pds", 1, func(b *batch.Batch, seq format.Seq) { b.AddGap(format.Gap{After: seq, Suspect: true}) }, 0, false, true},
			{"archive", 1, func(b *batch.Batch, seq format.Seq) { b.AddArchivedAccount(seq, []byte(chained), true, false) }, 0, false, true},
		},
		// A #sync with the root that the index has: nothing was missed, whatever its rev. The next commit continues from the
		// higher one. A relay that was killed sends an older #sync again, under a new number. One of an import is not a replay.
		"#sync": {
			{"pds", 1, commit(100, 0, 0, 1), 1, false, false},
			{"pds", 2, sync(200, 1), 1, false, false},
			{"pds", 3, commit(300, 200, 1, 2), 2, false, false},
			{"pds", 4, sync(200, 1), 2, false, false},
			{"pds", 5, imported(true, 100, 1), 2, true, false},
		},
		// A commit whose message named another rev than its block: of the source that is followed it tells of an import, of
		// another one it is a replay like all others.
		"another rev in the block": {
			{"pds", 1, imported(false, 100, 1), 1, false, false},
			{"pds", 2, commit(200, 100, 1, 2), 2, false, false},
			{"relay", 1, imported(false, 100, 1), 2, false, false},
			{"relay", 2, commit(200, 100, 1, 2), 2, false, false},
			{"pds", 3, imported(false, 150, 3), 2, true, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, memory(smallLimits), graph.Options{})
			for i, step := range steps {
				var b batch.Batch
				step.event(&b, step.seq)
				apply(t, s, step.source, &b)
				erase(t, s)
				n := counts(t, s)
				if n.Records["follow"] != step.records || n.Desynchronized > 0 != step.desync || n.Hidden > 0 != step.hidden {
					t.Errorf("after event %d: %+v, want %+v", i, n, step)
				}
			}
		})
	}
}

// A repeated commit is counted as a replay, also if it cannot be read: it must not desynchronize a repo that was repaired since.
func TestReplays(t *testing.T) {
	s := open(t, memory(smallLimits), graph.Options{})
	for i, e := range []event{commit(100, 0, 0, 1), commit(0, 0, 0, 0), commit(0, 0, 0, 0), commit(100, 0, 0, 1)} {
		var b batch.Batch
		e(&b, []format.Seq{1, 2, 2, 1}[i])
		apply(t, s, "pds", &b)
	}
	if _, replays := s.Events(); replays != 2 {
		t.Errorf("%d replays, want 2", replays)
	}
}

// The answer of an account's host and relay counts if no #account has come since they were asked, of whatever
// source.
func TestAnswerAndNewerStatus(t *testing.T) {
	for since, seq := range map[string]format.Seq{"": 0, "relay": 8, "other": 7} { // another source may have the same number
		s := open(t, memory(smallLimits), graph.Options{})
		var b batch.Batch
		status(false, false)(&b, 7)
		apply(t, s, "relay", &b)
		asked, _ := account(t, s, chained)
		b.Reset()
		if since != "" {
			status(false, false)(&b, seq)
			apply(t, s, since, &b)
			b.Reset()
		}
		b.AddAnswer([]byte(chained), true, &asked)
		apply(t, s, "", &b)
		if st, _ := account(t, s, chained); st.Has(format.FlagHidden) != (since != "") {
			t.Errorf("after an #account of %q: %+v", since, st)
		}
	}
}
