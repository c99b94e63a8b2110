package write_test

import (
	"testing"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/internal/sim/oracle"
)

// Events of an account outside the part that a store holds need no chain, and never queue its repo.
func TestOutside(t *testing.T) {
	store := memory(smallLimits)
	o := queues
	o.SliceSize = 1
	s := open(t, store, o)
	seq := format.Seq(0)
	give := func(outside bool, events ...event) {
		t.Helper()
		var b batch.Batch
		for _, add := range events {
			seq++
			add(&b, seq)
			if outside {
				b.Event(b.Events() - 1).Flags |= batch.IsOutside
			}
			b.Seen(seq, nil)
		}
		apply(t, s, "relay", &b)
	}
	queue := func(c batch.Cause) {
		t.Helper()
		var b batch.Batch
		b.AddResync([]byte(chained), c)
		apply(t, s, "", &b)
	}
	place := func(rev uint64) batch.Outcome {
		t.Helper()
		_, row := account(t, s, chained)
		var b batch.Batch
		b.AddSnapshot(&batch.Snapshot{DID: []byte(chained), Rev: []byte(oracle.TID(rev << 20)), Data: root(byte(rev)), Generation: row.Generation, First: true, Last: true})
		follow(&b, rev)
		apply(t, s, "", &b)
		return b.Outcome(0)
	}
	is := func(what string, queued bool, flags uint16) {
		t.Helper()
		const all = format.FlagPartial | format.FlagDesync | format.FlagNoRoot | format.FlagHidden | format.FlagBehind
		if st, row := account(t, s, chained); st.Flags&all != flags || (row != nil) != queued {
			t.Errorf("%s: flags %b, want %b; queued: %t", what, st.Flags&all, flags, row != nil)
		}
	}
	const partial = format.FlagPartial | format.FlagNoRoot

	give(true, commit(2, 0, 0, 2))
	is("a first commit", false, partial)
	give(true, commit(5, 3, 9, 5), imported(false, 4, 4), commit(5, 3, 9, 6))
	is("commits that do not follow from each other, and older ones", false, partial)
	give(true, status(false, false), commit(6, 1, 5, 6))
	is("a commit of a hidden account, which is active again", false, partial)
	give(true, status(true, false), commit(0, 0, 0, 0))
	is("a commit that cannot be read", false, partial|format.FlagDesync|format.FlagBehind)
	give(true, status(false, false), func(b *batch.Batch, seq format.Seq) {
		b.AddCommit(seq, &batch.Commit{DID: []byte(chained), Refuted: true})
	})
	is("a refuted commit of a hidden account", false, partial|format.FlagHidden|format.FlagDesync|format.FlagBehind)
	give(true, status(true, false))
	give(true, commit(7, 2, 0, 7))
	is("the next one", false, partial|format.FlagDesync)

	// It joins: its next commit follows from none that the index knows, and a snapshot from before the last one is too old.
	give(false, commit(9, 8, 8, 9))
	is("a commit of a member", false, format.FlagPartial|format.FlagDesync)
	queue(batch.Cause{Reason: "around"})
	give(true, commit(10, 9, 9, 10)) // read before it joined
	if o := place(9); o != batch.Older {
		t.Errorf("a snapshot from before a commit that was taken in part: %v", o)
	}
	if o := place(10); o != batch.Placed {
		t.Errorf("a snapshot: %v", o)
	}
	is("in place", false, 0)
	give(true, commit(11, 10, 10, 11)) // likewise
	is("a commit that was taken in part", true, format.FlagDesync|format.FlagBehind)
	if o := place(11); o != batch.Placed {
		t.Errorf("a snapshot: %v", o)
	}

	queue(batch.Cause{Reason: "operator"})
	queue(batch.Cause{Leaves: true})
	is("it leaves", false, partial)
	give(true, commit(12, 11, 11, 12), status(false, true), commit(13, 0, 0, 13))
	is("deleted, and back while it is being erased", false, format.FlagPartial|format.FlagHidden|format.FlagDesync|format.FlagBehind)
	erase(t, s)
	give(true, commit(14, 13, 13, 14))
	is("erased, and active again", false, partial|format.FlagDesync)
	verify(t, store)
	closeAll(t, s, store)
}

// An account that is active again, perhaps within one write, may have missed events until a #sync or a commit shows that it missed
// none. A partial account misses a kind that is added.
func TestReturned(t *testing.T) {
	const yes, no = true, false
	back := []event{status(false, false), status(true, false)}
	added := func(b *batch.Batch, _ format.Seq) {
		b.AddResync([]byte(chained), batch.Cause{Reason: format.KindAdded})
	}
	leaves := func(b *batch.Batch, _ format.Seq) { b.AddResync([]byte(chained), batch.Cause{Leaves: true}) }
	for name, test := range map[string]struct {
		events []event
		missed [3]bool // of a complete account, a partial one, and one without a repo
	}{
		"back":            {back, [3]bool{yes, yes, yes}},
		"#sync":           {append(back[:2:2], sync(100, 1)), [3]bool{no, no, yes}},
		"next commit":     {append(back[:2:2], commit(200, 100, 1, 2)), [3]bool{no, no, no}},
		"another commit":  {append(back[:2:2], commit(200, 150, 0, 2), commit(300, 200, 2, 3)), [3]bool{yes, yes, no}},
		"first commit":    {append(back[:2:2], commit(200, 0, 0, 2)), [3]bool{yes, yes, no}},
		"leaves the part": {append(back[:2:2], leaves), [3]bool{no, no, no}},
		"a kind is added": {[]event{added}, [3]bool{yes, yes, no}},
	} {
		for n, first := range []event{commit(100, 0, 0, 1), commit(100, 50, 0, 1), func(*batch.Batch, format.Seq) {}} {
			s := open(t, memory(smallLimits), queues)
			for _, events := range [][]event{{first}, test.events} {
				var b batch.Batch
				for i, add := range events {
					add(&b, format.Seq(len(events)+i))
				}
				apply(t, s, "relay", &b)
			}
			if st, row := account(t, s, chained); st.Missed() != test.missed[n] || st.Missed() && (st.Complete() || row == nil) {
				t.Errorf("%s %d: %+v, queued %+v", name, n, st, row)
			}
		}
	}
}

// A first commit that is heard after another one shows that this was missed, but not in a part of the network: it was of an outsider.
func TestFirstCommitAfterAnother(t *testing.T) {
	for hops, missed := range []bool{true, false} {
		s := open(t, memory(smallLimits), queues)
		must(t, s.ChangeBackfill(t.Context(), func(b *format.Backfill) { b.Around.Hops = hops }))
		var b batch.Batch
		now := uint64(time.Now().UnixMicro()) >> 10
		commit(now+9, now+8, 8, 9)(&b, 1)
		apply(t, s, "relay", &b)
		if st, _ := account(t, s, chained); st.Missed() != missed || !st.Has(format.FlagPartial) {
			t.Errorf("%d hops: %+v", hops, st)
		}
	}
}
