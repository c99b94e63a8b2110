package write_test

import (
	"fmt"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/internal/sim/harness"
)

// Events of a large account that is being erased do not keep those of others waiting for the erasure. They are put aside, the
// account stays hidden, and its repo is fetched once its old records are gone. A small account of the same batch is erased at once.
func TestAbuseErasing(t *testing.T) {
	const did, small = "did:web:u1.example.com", "did:web:u3.example.com"
	records := harness.Size(30_000, 300_000)
	store := &reading{Store: openPebble(t, write.Limits{})}
	queued := 0
	s := open(t, store, graph.Options{Queued: func(q []batch.Queued) { queued += len(q) }})
	c := &commits{t: t, s: s}
	status := func(did string, active, deleted bool) {
		c.n++
		c.b.AddAccount(format.Seq(c.n), []byte(did), active, deleted)
		c.b.Seen(format.Seq(c.n), nil)
	}
	for i := range records {
		if i%5000 == 0 {
			c.apply()
			c.begin(1)
		}
		c.b.AddPut(kindOf("follow"), rkeyAt(uint64(i)<<34), fmt.Appendf(nil, "did:web:s%d.example.com", i%1000))
	}
	c.apply()
	place := func(answered bool) batch.Outcome {
		st, row := account(t, s, did)
		var b batch.Batch
		if answered {
			b.AddAnswer([]byte(did), true, &st)
		}
		n := b.AddSnapshot(&batch.Snapshot{DID: []byte(did), Rev: c.rev(), Data: make([]byte, 32), Generation: row.Generation, First: true, Last: true})
		b.AddPut(kindOf("follow"), rkeyAt(7), []byte("did:web:friend.example.com"))
		apply(t, s, "", &b)
		return b.Outcome(n)
	}

	put := func(actor int, tid uint64) {
		c.begin(actor)
		c.b.AddPut(kindOf("follow"), rkeyAt(tid), []byte("did:web:friend.example.com"))
	}
	store.scanned = 0
	put(3, 5)
	status(small, false, true)
	status(did, false, true)
	for range 20 { // each deletion, and each event after one, begins a write of its own
		put(1, 5)
		status(did, false, true)
	}
	status(did, true, false)
	put(1, 7)
	status(small, true, false)
	put(3, 7)
	put(2, 6)
	began := time.Now()
	c.apply()
	took := time.Since(began)
	read := store.scanned
	st, row := account(t, s, did)
	if !st.Has(format.FlagErasing) || !st.Has(format.FlagHidden) || st.Complete() || row == nil || !row.Due.After(began.Add(time.Second)) || queued == 0 {
		t.Errorf("while it is being erased, the account is %+v, queued %+v, notified %d times", st, row, queued)
	}
	if st, row := account(t, s, small); !st.Complete() || st.Has(format.FlagHidden) || row != nil {
		t.Errorf("after the same batch, the small account is %+v, queued %+v", st, row)
	}
	verify(t, store)
	for _, answered := range []bool{false, true} {
		if o := place(answered); o != batch.Superseded {
			t.Errorf("while the account is being erased, its repo is %v", o)
		}
	}
	if st, _ := account(t, s, did); !st.Has(format.FlagHidden) {
		t.Errorf("while the account is being erased, an answer shows it: %+v", st)
	}
	store.scanned = 0
	began = time.Now()
	erase(t, s)
	harness.Figure(t, "events of an account that is being erased", "held others for %d chunks, %v; erasing the other records took %d chunks, %v", read, took, store.scanned, time.Since(began))
	if read*2 > store.scanned {
		t.Errorf("the batch reads %d chunks, and the erasure %d", read, store.scanned)
	}
	if o := place(true); o != batch.Placed {
		t.Errorf("after the erasure, the repo is %v", o)
	}
	if st, row := account(t, s, did); !st.Complete() || st.Has(format.FlagHidden) || row != nil {
		t.Errorf("after the fetch, the account is %+v, queued %+v", st, row)
	}
	verify(t, store)
	must(t, s.Close(t.Context()))
}
