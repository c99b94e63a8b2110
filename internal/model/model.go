// Package model is the index in plain maps: slow, obvious, and what the real
// one is compared with. It also makes random histories. It knows nothing of
// batches, ids, stores or wire formats.
package model

import (
	"maps"
	"slices"
)

// Type is the type of an event.
type Type int

// The types of events.
const (
	Commit Type = iota
	Sync
	Account
	Identity
)

// An Event is one message of the stream.
type Event struct {
	Type     Type
	Seq      int64
	DID      string
	Rev      string // of a commit
	Since    string // "" if absent
	Data     [32]byte
	PrevData *[32]byte
	TooBig   bool
	Damaged  bool // the commit cannot be read whole
	Ops      []Op
	Active   bool // of an account
	Deleted  bool // its status
}

// An Op is one operation of a commit.
type Op struct {
	Kind    string // as in graph.Kinds: follow, like, repost, block
	Delete  bool
	Rkey    string
	Subject string // "" if the record is malformed
}

// Path names a record.
type Path struct{ DID, Kind, Rkey string }

// Repo is what is known of a repo.
type Repo struct {
	Rev             string
	Data            [32]byte
	Partial, Desync bool
}

// Model is the whole truth.
type Model struct {
	Records map[Path]string // "" is *no subject*
	Hidden  map[string]bool
	Repos   map[string]*Repo // of every account that an event was seen of
}

// New returns an empty model.
func New() *Model {
	return &Model{map[Path]string{}, map[string]bool{}, map[string]*Repo{}}
}

// Apply applies an event that was not applied before.
func (m *Model) Apply(e *Event) {
	if e.Type == Identity {
		return
	}
	r := m.Repos[e.DID]
	if r == nil {
		r = &Repo{}
		m.Repos[e.DID] = r
	}
	switch e.Type {
	case Account:
		delete(m.Hidden, e.DID)
		if !e.Active {
			m.Hidden[e.DID] = true
		}
		if !e.Active && e.Deleted {
			*r = Repo{}
			maps.DeleteFunc(m.Records, func(p Path, _ string) bool { return p.DID == e.DID })
		}
	case Sync:
		if r.Rev == "" || e.Data != r.Data {
			r.Desync = true
		} else {
			r.Rev = max(r.Rev, e.Rev)
		}
	case Commit:
		m.commit(r, e)
	default:
	}
}

func (m *Model) commit(r *Repo, e *Event) {
	if r.Rev != "" && e.Rev <= r.Rev {
		return
	}
	if e.TooBig || e.Damaged {
		r.Desync = true
	}
	if e.Damaged {
		return
	}
	if r.Rev == "" {
		r.Partial = r.Partial || e.Since != ""
	} else if e.Since != r.Rev || e.PrevData != nil && *e.PrevData != r.Data {
		r.Desync = true
	}
	r.Rev, r.Data = e.Rev, e.Data
	for _, o := range e.Ops {
		p := Path{e.DID, o.Kind, o.Rkey}
		if o.Delete {
			delete(m.Records, p)
		} else {
			m.Records[p] = o.Subject
		}
	}
}

// Views are all sets that have a member, sorted, by kind and then by the DID
// or URI that they are of, as a query must answer them.
type Views struct {
	Forward, Reverse map[string]map[string][]string
}

// Views computes all sets.
func (m *Model) Views() Views {
	v := Views{map[string]map[string][]string{}, map[string]map[string][]string{}}
	for p, subject := range m.Records {
		if subject == "" || m.Hidden[p.DID] {
			continue
		}
		if !m.Hidden[subject] {
			add(v.Forward, p.Kind, p.DID, subject)
		}
		add(v.Reverse, p.Kind, subject, p.DID)
	}
	for _, dir := range []map[string]map[string][]string{v.Forward, v.Reverse} {
		for _, sets := range dir {
			for of, set := range sets {
				slices.Sort(set)
				sets[of] = slices.Compact(set)
			}
		}
	}
	return v
}

func add(dir map[string]map[string][]string, kind, of, member string) {
	if dir[kind] == nil {
		dir[kind] = map[string][]string{}
	}
	dir[kind][of] = append(dir[kind][of], member)
}
