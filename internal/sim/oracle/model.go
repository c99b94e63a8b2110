// Package oracle is a model of the index in its plainest form, for comparison with the real
// one. They share no code except the table of kinds.
//
// It has the rules of a repo (repo.go) and of the sets (sets.go). Model (model.go) applies them to events in maps of
// strings, for tests and recorded streams; the load test (internal/sim/load) applies the same rules to numbers, because
// it has millions. Both know no batches, ids, stores or wire formats. Around them: random histories (history.go), small
// graphs in a store (small.go), and the truth files of recorded streams, compared with a server over HTTP (truth.go,
// methods.go).
package oracle

import (
	"iter"
	"maps"
	"sync"
)

// Type is the type of an event.
type Type int

// The types of events.
const (
	CommitEvent Type = iota
	SyncEvent
	AccountEvent
	IdentityEvent
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
	Damaged  bool // the commit cannot be read completely
	Ops      []Op
	Active   bool // of an account
	Deleted  bool // the status of an inactive account
}

// An Op is one operation of a commit.
type Op struct {
	Kind    string // name in kinds.All
	Delete  bool
	Rkey    string
	Subject string // "" if the record is malformed
	// List is the second subject of a listitem: the list. The Kind is then ListItem, and
	// the record makes two edges.
	List string
}

// The kinds of edges of a record that puts an account on a list: to the account, and to the
// list.
const (
	ListItem   = "listitem"
	ListItemOf = "listitem_list"
)

// Edges returns an operation for each kind of edge of the record.
func (o Op) Edges() []Op {
	if o.Kind != ListItem {
		return []Op{o}
	}
	list := Op{Kind: ListItemOf, Delete: o.Delete, Rkey: o.Rkey, Subject: o.List}
	o.List = ""
	return []Op{o, list}
}

// Path names a record.
type Path struct{ DID, Kind, Rkey string }

// Model is the expected content of an index. Only Apply may change it.
type Model struct {
	Records map[Path]string // "" if the record names no subject
	Hidden  map[string]bool
	Repos   map[string]*Repo[string, [32]byte] // of every account with an event

	mu    sync.Mutex // guards views
	views *Views     // of this content; nil if they were not computed yet
}

// New returns an empty model.
func New() *Model {
	return &Model{Records: map[Path]string{}, Hidden: map[string]bool{}, Repos: map[string]*Repo[string, [32]byte]{}}
}

// Apply applies an event that was not applied before.
func (m *Model) Apply(e *Event) {
	if e.Type == IdentityEvent {
		return
	}
	m.mu.Lock()
	m.views = nil
	m.mu.Unlock()
	r := m.Repos[e.DID]
	if r == nil {
		r = &Repo[string, [32]byte]{}
		m.Repos[e.DID] = r
	}
	switch e.Type {
	case AccountEvent:
		if r.Account(e.Active, e.Deleted) {
			maps.DeleteFunc(m.Records, func(p Path, _ string) bool { return p.DID == e.DID })
		}
		delete(m.Hidden, e.DID)
		if r.Hidden {
			m.Hidden[e.DID] = true
		}
	case SyncEvent:
		r.Sync(e.Rev, e.Data)
	case CommitEvent:
		if !r.Commit(Commit[string, [32]byte]{Rev: e.Rev, Since: e.Since, Root: e.Data, Prev: e.PrevData, TooBig: e.TooBig, Damaged: e.Damaged}) {
			return
		}
		for _, record := range e.Ops {
			for _, o := range record.Edges() {
				p := Path{e.DID, o.Kind, o.Rkey}
				if o.Delete {
					delete(m.Records, p)
				} else {
					m.Records[p] = o.Subject
				}
			}
		}
	default:
	}
}

// Edges yields the edges of the records.
func (m *Model) Edges() iter.Seq[Edge] {
	return func(yield func(Edge) bool) {
		for p, subject := range m.Records {
			if !yield(Edge{p.Kind, p.DID, subject}) {
				return
			}
		}
	}
}

// Views returns all sets. They are computed again only after Apply, so the caller must not change them.
func (m *Model) Views() Views {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.views == nil {
		v := ViewsOf(m.Edges(), func(did string) bool { return m.Hidden[did] })
		m.views = &v
	}
	return *m.views
}
