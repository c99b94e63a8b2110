package load

import (
	"context"
	"fmt"
	"slices"

	"skein.blue/graph/ask"
	"skein.blue/graph/check"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/app"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/network"
)

// checkedWhole is the number of records up to which the whole index is compared. Above
// it, the model samples accounts and subjects so that about that many records are left.
const checkedWhole = 10_000_000

// maxProblems bounds the reported differences.
const maxProblems = 20

// checker compares an index with a model.
type checker struct {
	s        *ask.View
	m        *model
	ids      []dict.ID // by account; None if not looked up, or unknown
	problems []string
	sets     int
	ids64    []uint64
	want     []uint64
}

func (c *checker) broken(format string, args ...any) {
	if len(c.problems) <= maxProblems {
		c.problems = append(c.problems, fmt.Sprintf(format, args...))
	}
}

// verify compares the index with the model: all sets of both directions in the model,
// the record keys, the hidden accounts and the totals. If the model is whole, it also
// checks the store's own invariants, which tie the rest to the compared parts. It
// returns the differences, and the number of compared sets.
func verify(ctx context.Context, x *app.Index, m *model) (problems []string, sets int, err error) {
	c := &checker{m: m, ids: make([]dict.ID, m.n.Accounts())}
	all, counts := m.live()
	if m.past {
		all = slices.DeleteFunc(all, func(r record) bool { return m.repos[r.account].Hidden })
	}
	// Nobody writes any more, so all states agree.
	if _, err := x.Graph.ViewAcross(ctx, func(s *ask.View) error { c.s = s; return c.run(all, counts) }); err != nil {
		return nil, c.sets, err
	}
	if m.every == 1 {
		err = check.Store(ctx, x.KV, func(p string) { c.broken("%s", p) }, func(int64) {})
	}
	return c.problems, c.sets, err
}

func (c *checker) run(all []record, counts [kinds.Max + 1]int64) error {
	if err := c.totals(counts); err != nil {
		return err
	}
	if err := c.accounts(all); err != nil {
		return err
	}
	slices.SortFunc(all, byActor)
	err := c.sorted(all, func(x, y record) bool { return x.kind == y.kind && x.account == y.account }, c.forward)
	if err != nil {
		return err
	}
	slices.SortFunc(all, bySubject)
	err = c.sorted(all, func(x, y record) bool {
		return x.kind == y.kind && x.subject == y.subject && x.subjectTID == y.subjectTID
	}, c.reverse)
	if err != nil {
		return err
	}
	return c.empty()
}

// empty checks the sets that once had a member and are empty now.
func (c *checker) empty() error {
	var b intern.Batch
	var keys []setKey
	var at []int
	var str []byte
	flush := func() error {
		if err := c.s.Lookup(&b); err != nil {
			return err
		}
		for i, k := range keys {
			id, kind := b.ID(at[i]), k.kind
			var members uint64
			if k.reverse {
				set, err := c.s.Actors(kind, id)
				if err != nil {
					return err
				}
				whole, err := set.All()
				if err != nil {
					return err
				}
				members = uint64(len(c.visible(whole.List(nil))))
			} else {
				set, err := c.s.Subjects(kind, id, ask.Window{})
				if err != nil {
					return err
				}
				members = set.Len()
			}
			if members > 0 {
				c.broken("%s set of %s (reverse: %t): the index has %d members, the model none", kind, c.str(str, k), k.reverse, members)
			}
		}
		c.sets += len(keys)
		b.Reset()
		keys, at = keys[:0], at[:0]
		return nil
	}
	for k := range c.m.named {
		ns := dict.DID
		if k.tid != 0 {
			ns = dict.URI
		}
		str = c.str(str[:0], k)
		keys, at = append(keys, k), append(at, b.Add(ns, str))
		if len(keys) == 8192 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// str appends the DID or URI of a set.
func (c *checker) str(dst []byte, k setKey) []byte {
	return c.m.n.AppendSubject(dst, &network.Op{Subject: k.of, SubjectTID: k.tid})
}

func (c *checker) totals(counts [kinds.Max + 1]int64) error {
	got, err := c.s.Counts()
	if err != nil {
		return err
	}
	if c.m.past {
		return nil // no host has the past of inactive accounts
	}
	compare := func(what string, got, want int64) {
		if got != want {
			c.broken("%s: the index has %d, the model %d", what, got, want)
		}
	}
	compare("hidden accounts", got.Hidden, c.m.count(func(r *repo) bool { return r.Hidden }))
	compare("partial repos", got.Partial, c.m.count(func(r *repo) bool { return r.Partial }))
	compare("desynchronized repos", got.Desynchronized, c.m.count(func(r *repo) bool { return r.Desync }))
	if c.m.every == 1 {
		for _, k := range kinds.All {
			compare(k.Name+" records", got.Records[k.Name], counts[k.Kind])
		}
	}
	return nil
}

// accounts looks up the ids of the accounts in records, and compares the hidden ones.
func (c *checker) accounts(all []record) error {
	needed := make([]bool, len(c.ids))
	for i := range all {
		needed[all[i].account] = true
		if all[i].subjectTID == 0 {
			needed[all[i].subject] = true
		}
	}
	var b intern.Batch
	var at []int
	var which []int
	flush := func() error {
		if err := c.s.Lookup(&b); err != nil {
			return err
		}
		for i, account := range which {
			id := b.ID(at[i])
			c.ids[account] = id
			hidden := id != dict.None && c.s.IsHidden(id)
			if c.m.past {
				if err := c.complete(account, id); err != nil {
					return err
				}
			}
			if c.m.repos[account].Hidden != hidden && (!c.m.past || id != dict.None) {
				c.broken("account %s: hidden=%t in the index, %t in the model", c.did(int32(account)), hidden, c.m.repos[account].Hidden)
			}
			if id == dict.None && needed[account] {
				c.broken("account %s is unknown", c.did(int32(account)))
			}
		}
		b.Reset()
		at, which = at[:0], which[:0]
		return nil
	}
	var did []byte
	for account, is := range needed {
		if is || c.m.repos[account].Hidden || c.m.past && c.m.repos[account].Rev != 0 {
			did = c.m.n.AppendDID(did[:0], account)
			at, which = append(at, b.Add(dict.DID, did)), append(which, account)
		}
		if len(which) == 8192 || account == len(needed)-1 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// visible removes hidden accounts if the past was fetched: no host has the past of a
// hidden account, while its later events are in the index.
func (c *checker) visible(ids []uint64) []uint64 {
	if !c.m.past {
		return ids
	}
	return slices.DeleteFunc(ids, func(id uint64) bool { return c.s.IsHidden(dict.ID(id)) })
}

// complete checks that the repo of an active account is complete.
func (c *checker) complete(account int, id dict.ID) error {
	r := &c.m.repos[account]
	if r.Hidden || r.Rev == 0 {
		return nil
	}
	st, _, queued, err := c.s.Account(c.did(int32(account)))
	if err != nil {
		return err
	}
	if id == dict.None || !st.Complete() || queued != nil {
		c.broken("the repo of %s is incomplete: %+v, queued %+v", c.did(int32(account)), st, queued)
	}
	return nil
}

func (c *checker) did(account int32) string { return string(c.m.n.AppendDID(nil, int(account))) }

// set is a run of sorted records that form one set, with the ids of the subjects.
type set struct {
	records  []record
	subjects []dict.ID
}

// sorted calls each for every set, after it has looked up the subjects of many sets at
// a time.
func (c *checker) sorted(all []record, same func(x, y record) bool, each func(*set) error) error {
	var b intern.Batch
	var some []set
	var at []int
	pending := 0
	var uri []byte
	flush := func() error {
		if err := c.s.Lookup(&b); err != nil {
			return err
		}
		i := 0
		for n := range some {
			s := &some[n]
			for _, r := range s.records {
				if r.subjectTID == 0 {
					s.subjects = append(s.subjects, c.ids[r.subject])
					continue
				}
				s.subjects = append(s.subjects, b.ID(at[i]))
				i++
			}
			if err := each(s); err != nil {
				return err
			}
		}
		c.sets += len(some)
		b.Reset()
		some, at, pending = some[:0], at[:0], 0
		return nil
	}
	for records := range sets.Runs(all, same) {
		some = append(some, set{records: records})
		for i := range records {
			if r := &records[i]; r.subjectTID != 0 {
				uri = c.uri(uri[:0], r)
				at = append(at, b.Add(dict.URI, uri))
			}
		}
		if pending += len(records); pending > 20_000 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

func (c *checker) uri(dst []byte, r *record) []byte {
	return c.m.n.AppendSubject(dst, &network.Op{Kind: r.kind, TID: r.tid, Subject: r.subject, SubjectTID: r.subjectTID})
}

// forward compares the subjects of an account, and the keys of its records.
func (c *checker) forward(s *set) error {
	r := &s.records[0]
	if !c.m.actor(r.account) {
		return nil
	}
	delete(c.m.named, setKey{0, r.account, r.kind, false})
	actor, kind := c.ids[r.account], r.kind
	c.want = c.want[:0]
	for _, id := range s.subjects {
		c.want = append(c.want, uint64(id))
	}
	c.want = dedupe(c.want)
	var err error
	if c.ids64, err = c.s.AppendSubjects(c.ids64[:0], kind, actor, ask.Window{}); err != nil {
		return err
	}
	got := dedupe(c.ids64)
	if c.m.repos[r.account].Hidden {
		c.want = c.want[:0] // a hidden account's own sets read as empty
	}
	if !slices.Equal(got, c.want) {
		c.broken("%s of %s: the index has %d subjects, the model %d", kind, c.did(r.account), len(got), len(c.want))
	}
	keys := make([][]byte, len(s.subjects))
	err = c.s.RecordsFrom(kind, actor, s.subjects, func(int) uint64 { return ask.Timeless }, ask.Window{}, func(i int, p format.Path) error {
		keys[i] = p.AppendRkey(nil)
		return nil
	})
	if err != nil {
		return err
	}
	for i := range s.records {
		lowest := s.records[i].tid
		for j := i - 1; j >= 0 && s.subjects[j] == s.subjects[i]; j-- {
			lowest = min(lowest, s.records[j].tid)
		}
		for j := i + 1; j < len(s.records) && s.subjects[j] == s.subjects[i]; j++ {
			lowest = min(lowest, s.records[j].tid)
		}
		if want := dict.AppendTID(nil, lowest); string(keys[i]) != string(want) {
			c.broken("%s of %s: the record of subject %d has key %q, the model %q", kind, c.did(r.account), s.subjects[i], keys[i], want)
		}
	}
	return nil
}

// reverse compares the actors of a subject.
func (c *checker) reverse(s *set) error {
	r := &s.records[0]
	if !c.m.subject(r.subject, r.subjectTID) {
		return nil
	}
	delete(c.m.named, setKey{r.subjectTID, r.subject, r.kind, true})
	kind := r.kind
	c.want = c.want[:0]
	for i := range s.records {
		c.want = append(c.want, uint64(c.ids[s.records[i].account]))
	}
	c.want = dedupe(c.want)
	set, err := c.s.Actors(kind, s.subjects[0])
	if err != nil {
		return err
	}
	whole, err := set.All()
	if err != nil {
		return err
	}
	if c.ids64 = c.visible(whole.List(c.ids64[:0])); !slices.Equal(c.ids64, c.want) {
		c.broken("actors of %s edges to %s: the index has %d, the model %d", kind, c.uri(nil, r), len(c.ids64), len(c.want))
	}
	return nil
}
