package load

import (
	"cmp"
	"context"
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/internal/network"
	"skein.blue/internal/oracle"
	"skein.blue/internal/relay"
)

// model is what the index must hold after the network's events, worked out from
// the events themselves: of all accounts, or, where every is more than 1, of one
// in so many, and of the subjects that one in so many is.
type model struct {
	// reached is, by account, the last event that the index has applied of its partition: lanes
	// stop at different places. nil means that it is the same of all.
	reached []int64
	n       *network.Network
	faults  relay.Faults
	every   uint64
	past    bool // the index began after the network, and fetched what was before
	records map[recordKey]recordValue
	named   map[setKey]bool // the sets that had a member once, of those that are looked at
	gone    []int64         // the event that deleted the account, by account
	repos   []repo          // by account
	events  int64
}

// repo is a repo of the network: a rev says which root it has.
type repo = oracle.Repo[uint64, uint64]

// setKey names a set: of an account's edges of a kind, or of those to a subject.
type setKey struct {
	tid     uint64
	of      int32
	kind    kinds.Kind
	reverse bool
}

// recordKey is a path: 16 bytes.
type recordKey struct {
	tid     uint64
	account int32
	kind    kinds.Kind
}

// recordValue is what a record names. Its subject is -1 if it names none.
type recordValue struct {
	tid     uint64
	event   int64
	subject int32
}

func newModel(o network.Options, faults relay.Faults, every int) *model {
	n := network.New(o)
	return &model{
		n: n, faults: faults, every: uint64(max(every, 1)), records: map[recordKey]recordValue{}, named: map[setKey]bool{},
		gone: make([]int64, n.Accounts()), repos: make([]repo, n.Accounts()),
	}
}

// actor reports whether an account's own sets are looked at, and subject whether
// those about something are.
func (m *model) actor(account int32) bool { return uint64(account)*0x9e3779b97f4a7c15>>32%m.every == 0 }

func (m *model) subject(subject int32, tid uint64) bool {
	return (uint64(subject)+tid*31)*0x9e3779b97f4a7c15>>32%m.every == 0
}

// run applies the events up to one.
func (m *model) run(ctx context.Context, to int64) error {
	made := make(chan []network.Event, 4)
	free := make(chan []network.Event, 4)
	for range cap(free) {
		free <- make([]network.Event, 0, 4096)
	}
	go func() {
		defer close(made)
		for m.n.Seq() < to && ctx.Err() == nil {
			events := (<-free)[:min(4096, to-m.n.Seq())]
			for i := range events {
				m.n.Next(&events[i])
			}
			made <- events
		}
	}()
	for events := range made {
		for i := range events {
			m.apply(&events[i])
		}
		free <- events[:0]
	}
	return ctx.Err()
}

func (m *model) apply(e *network.Event) {
	m.events++
	if m.reached != nil && e.Seq > m.reached[e.Account] {
		return // the index has not come so far where this account is
	}
	damage := m.faults.Damage(e)
	if damage == relay.Truncated || damage == relay.Garbage {
		return // never heard of
	}
	r := &m.repos[e.Account]
	switch e.Type {
	case network.Account:
		if r.Account(e.Status == network.Active, e.Status == network.Deleted) {
			m.gone[e.Account] = e.Seq
		}
	case network.Sync:
		r.Sync(e.Rev, e.Rev)
	case network.Commit:
		if r.Commit(oracle.Commit[uint64, uint64]{Rev: e.Rev, Since: e.Since, Root: e.Rev, Damaged: damage == relay.BadCommit}) {
			m.commit(e, damage)
		}
	default:
	}
}

func (m *model) commit(e *network.Event, damage relay.Damage) {
	a := e.Account
	for k := range e.Ops() {
		o := m.n.Op(e, k)
		if o.Kind == network.Post || o.Kind == network.Other {
			continue
		}
		key := recordKey{o.TID, a, o.Kind}
		if o.Action == network.Delete || !m.actor(a) && !m.subject(o.Subject, o.SubjectTID) {
			delete(m.records, key)
			continue
		}
		v := recordValue{o.SubjectTID, e.Seq, o.Subject}
		if k == 0 && damage == relay.BadRecord {
			v = recordValue{0, e.Seq, -1}
		} else {
			if m.actor(a) {
				m.named[setKey{0, a, o.Kind, false}] = true
			}
			if m.subject(o.Subject, o.SubjectTID) {
				m.named[setKey{o.SubjectTID, o.Subject, o.Kind, true}] = true
			}
		}
		m.records[key] = v
	}
}

// A record is a live record that names a subject.
type record struct {
	recordKey
	subject    int32
	subjectTID uint64
}

// live returns the records that are left, and how many there are of each kind,
// those that name no subject included.
func (m *model) live() (all []record, counts [kinds.Max + 1]int64) {
	all = make([]record, 0, len(m.records))
	for k, v := range m.records {
		if v.event < m.gone[k.account] {
			continue
		}
		counts[k.kind]++
		if v.subject >= 0 {
			all = append(all, record{k, v.subject, v.tid})
		}
	}
	return all, counts
}

// count counts the repos of which something is true.
func (m *model) count(is func(*repo) bool) (n int64) {
	for i := range m.repos {
		if is(&m.repos[i]) {
			n++
		}
	}
	return n
}

// byActor and bySubject are the orders in which the sets of both directions lie
// together.
func byActor(x, y record) int {
	return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.account, y.account), cmp.Compare(x.subject, y.subject), cmp.Compare(x.subjectTID, y.subjectTID))
}

func bySubject(x, y record) int {
	return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.subject, y.subject), cmp.Compare(x.subjectTID, y.subjectTID), cmp.Compare(x.account, y.account))
}

// networkOp is the operation that made a record.
func networkOp(r *record) network.Op {
	return network.Op{Kind: r.kind, TID: r.tid, Subject: r.subject, SubjectTID: r.subjectTID}
}

func dedupe(ids []uint64) []uint64 {
	slices.Sort(ids)
	return slices.Compact(ids)
}
