package load

import (
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/network"
)

// Feeder puts a network's events into batches, as the consumer does after
// decoding their messages.
type Feeder struct {
	n                  *network.Network
	did, subject, rkey []byte
	rev, since         []byte
}

// NewFeeder returns a Feeder for a network's events.
func NewFeeder(n *network.Network) *Feeder { return &Feeder{n: n} }

// Add adds an event to a batch, with offset added to its sequence number.
func (f *Feeder) Add(b *batch.Batch, e *network.Event, offset int64) {
	seq := format.Seq(e.Seq + offset)
	f.did = f.n.AppendDID(f.did[:0], int(e.Account))
	switch e.Type {
	case network.Commit:
		f.commit(b, e, seq)
	case network.Sync:
		root := f.n.Root(int(e.Account), e.Rev)
		f.rev = dict.AppendTID(f.rev[:0], e.Rev)
		b.AddSync(seq, &batch.Commit{DID: f.did, Rev: f.rev, Data: root[:]})
	case network.Account:
		b.AddAccount(seq, f.did, e.Status == network.Active, e.Status == network.Deleted)
	default:
	}
	b.Seen(seq, nil)
}

func (f *Feeder) commit(b *batch.Batch, e *network.Event, seq format.Seq) {
	f.rev = dict.AppendTID(f.rev[:0], e.Rev)
	root := f.n.Root(int(e.Account), e.Rev)
	c := batch.Commit{DID: f.did, Rev: f.rev, Data: root[:]}
	if e.Since != 0 {
		f.since = dict.AppendTID(f.since[:0], e.Since)
		before := f.n.Root(int(e.Account), e.Since)
		c.Since, c.PrevData = f.since, before[:]
	}
	b.AddCommit(seq, &c)
	for k := range e.Ops() {
		o := f.n.Op(e, k)
		if o.Kind == network.Post || o.Kind == network.Other {
			continue
		}
		f.rkey = dict.AppendTID(f.rkey[:0], o.TID)
		if o.Action == network.Delete {
			b.AddDelete(o.Kind, f.rkey)
			continue
		}
		f.subject = f.n.AppendSubject(f.subject[:0], &o)
		b.AddPut(o.Kind, f.rkey, f.subject)
	}
}
