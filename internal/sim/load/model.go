package load

import (
	"cmp"
	"context"
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/internal/sim/network"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/relay"
)

// model is the expected content of the index after the network's events, computed from the
// events alone. With every > 1 it has only one account in that many, and one subject in that
// many.
type model struct {
	// reached has the last applied event of each account's partition, because lanes stop at
	// different places. nil: all events are applied.
	reached []int64
	n       *network.Network
	faults  relay.Faults
	every   uint64
	past    bool // the index started after the network, and fetched the past
	records map[recordKey]recordValue
	named   map[setKey]bool // the sampled sets that ever had a member
	deleted []int64         // seq of the event that deleted an account, by account
	repos   []repo          // by account
	events  int64
}

// repo is the state of a repo; a rev also identifies its root.
type repo = oracle.Repo[uint64, uint64]

// setKey names a set: the subjects of an account's edges of a kind, or the actors of edges to a
// subject.
type setKey struct {
	tid     uint64
	of      int32
	kind    kinds.Kind
	reverse bool
}

// recordKey is a path in 16 bytes.
type recordKey struct {
	tid     uint64
	account int32
	kind    kinds.Kind
}

// recordValue is the subject of a record, -1 if it names none.
type recordValue struct {
	tid     uint64
	event   int64
	subject int32
}

func newModel(o network.Options, faults relay.Faults, every int) *model {
	n := network.New(o)
	return &model{
		n: n, faults: faults, every: uint64(max(every, 1)), records: map[recordKey]recordValue{}, named: map[setKey]bool{},
		deleted: make([]int64, n.Accounts()), repos: make([]repo, n.Accounts()),
	}
}

// actor reports whether the model has an account's own sets, and subject whether it has the
// sets of a subject.
func (m *model) actor(account int32) bool { return uint64(account)*0x9e3779b97f4a7c15>>32%m.every == 0 }

func (m *model) subject(subject int32, tid uint64) bool {
	return (uint64(subject)+tid*31)*0x9e3779b97f4a7c15>>32%m.every == 0
}

// run applies the events up to one.
func (m *model) run(ctx context.Context, to int64) error {
	filled := make(chan []network.Event, 4)
	free := make(chan []network.Event, 4)
	for range cap(free) {
		free <- make([]network.Event, 0, 4096)
	}
	go func() {
		defer close(filled)
		for m.n.Seq() < to && ctx.Err() == nil {
			events := (<-free)[:min(4096, to-m.n.Seq())]
			for i := range events {
				m.n.Next(&events[i])
			}
			filled <- events
		}
	}()
	for events := range filled {
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
		return // the index has not applied it in this account's partition
	}
	damage := m.faults.Damage(e)
	if damage == relay.Truncated || damage == relay.Garbage {
		return // lost
	}
	r := &m.repos[e.Account]
	switch e.Type {
	case network.Account:
		if r.Account(e.Status == network.Active, e.Status == network.Deleted) {
			m.deleted[e.Account] = e.Seq
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
		if k == 0 && damage == relay.BadRecord { // the commit cannot be applied whole
			m.repos[a].Desync = true
		}
		key := recordKey{o.TID, a, o.Kind}
		if o.Action == network.Delete || !m.actor(a) && !m.subject(o.Subject, o.SubjectTID) {
			delete(m.records, key)
			continue
		}
		if k == 0 && damage == relay.BadRecord {
			m.records[key] = recordValue{0, e.Seq, -1}
		} else {
			m.put(a, &o, e.Seq)
		}
	}
}

// put adds a record that a commit brought, event 0 being the history.
func (m *model) put(account int32, o *network.Op, event int64) {
	if m.actor(account) {
		m.named[setKey{0, account, o.Kind, false}] = true
	}
	if m.subject(o.Subject, o.SubjectTID) {
		m.named[setKey{o.SubjectTID, o.Subject, o.Kind, true}] = true
	}
	m.records[recordKey{o.TID, account, o.Kind}] = recordValue{o.SubjectTID, event, o.Subject}
}

// A record is a live record with a subject.
type record struct {
	recordKey
	subject    int32
	subjectTID uint64
}

// live returns the live records, and how many there are of each kind, including records without
// a subject.
func (m *model) live() (all []record, counts [kinds.Max + 1]int64) {
	all = make([]record, 0, len(m.records))
	for k, v := range m.records {
		if v.event < m.deleted[k.account] {
			continue
		}
		counts[k.kind]++
		if v.subject >= 0 {
			all = append(all, record{k, v.subject, v.tid})
		}
	}
	return all, counts
}

// count counts the repos for which is returns true.
func (m *model) count(is func(*repo) bool) (n int64) {
	for i := range m.repos {
		if is(&m.repos[i]) {
			n++
		}
	}
	return n
}

// byActor and bySubject are orders in which each set of one direction is contiguous.
func byActor(x, y record) int {
	return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.account, y.account), cmp.Compare(x.subject, y.subject), cmp.Compare(x.subjectTID, y.subjectTID))
}

func bySubject(x, y record) int {
	return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.subject, y.subject), cmp.Compare(x.subjectTID, y.subjectTID), cmp.Compare(x.account, y.account))
}

func dedupe(ids []uint64) []uint64 { slices.Sort(ids); return slices.Compact(ids) }
