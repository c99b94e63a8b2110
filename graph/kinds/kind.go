// Package kinds defines what is indexed: each kind of edge is one row of a Table. The decoder,
// the store, the queries, the metrics, the simulated network and the models of the tests all
// read it. It does not store or decode anything.
//
// Some kinds are built in (All). A new one gets a number that was never used. An operator can
// configure more (graph.Options.Kinds; file.go has the syntax). Their store numbers them, so
// each store has a Table of its own. If a kind is newer than its store, graph.Open records a
// gap for the missing records. Any goroutine may read a Table; nothing changes one.
package kinds

import (
	"fmt"
	"slices"
	"strings"

	"skein.blue/intern/dict"
)

// A Kind is a kind of edge. Its number is in the store.
type Kind uint8

// An End is one of the two ends of an edge.
type End struct {
	// Is is the type of the end: a DID or an AT URI.
	Is dict.Namespace
	// Field is the path to the end in the record. nil means the author of the record.
	Field []string
}

// IsAuthor reports whether the end is the author of the record.
func (e End) IsAuthor() bool { return e.Field == nil }

// Author is the end that is the author of the record.
var Author = End{Is: dict.DID}

// did and uri are ends that a field of the record names.
func did(field ...string) End { return End{dict.DID, field} }
func uri(field ...string) End { return End{dict.URI, field} }

// Info is a row of the table of kinds. If several have the same collection, its records make
// an edge of each kind.
type Info struct {
	Kind       Kind
	Name       string // in stats and metrics
	Collection string // the NSID of the records
	From, To   End    // the ends of the edge
	// Forward and Reverse are the query operators: from From to the set of To, and from To
	// to the set of From. They are "" if the sets alone have no meaning.
	Forward, Reverse string
	// Known makes the kind available in the method known: which of the accounts that someone
	// follows have such an edge to a subject.
	Known bool
	// Optional says that the field may be absent: most posts are not replies. Such a record
	// makes no edge, and is not malformed.
	Optional bool
}

// Source returns the collection and the path to the subject, as in
// "app.bsky.feed.like:subject.uri".
func (k *Info) Source() string { return k.Collection + ":" + strings.Join(k.To.Field, ".") }

// HasSets reports whether queries can ask for the kind's sets.
func (k *Info) HasSets() bool { return k.Reverse != "" }

// All has the built-in kinds. A number is never reused. Stores give the numbers from
// FirstConfigured on.
//
// Chunks and sets need edges that begin at the author of the record. The members of a list
// are named by records of the list's author, so such a record makes two edges: to the member
// and to the list. A query joins the two by the record's key (ask.View.Listed).
var All = []Info{
	{1, "follow", "app.bsky.graph.follow", Author, did("subject"), "follows", "followers", true, false},
	{2, "like", "app.bsky.feed.like", Author, uri("subject", "uri"), "likes", "likers", true, false},
	{3, "repost", "app.bsky.feed.repost", Author, uri("subject", "uri"), "reposts", "reposters", true, false},
	{4, "block", "app.bsky.graph.block", Author, did("subject"), "blocks", "blockers", false, false},
	{5, "listblock", "app.bsky.graph.listblock", Author, uri("subject"), "listblocks", "listblockers", false, false},
	{ListMember, "listitem", "app.bsky.graph.listitem", Author, did("subject"), "", "", false, false},
	{ListItem, "listitem_list", "app.bsky.graph.listitem", Author, uri("list"), "", "", false, false},
}

// The two edges of a record of app.bsky.graph.listitem: to the account on the list, and to
// the list.
const (
	ListMember Kind = 6
	ListItem   Kind = 7
)

// Hidden is the kind of the set of hidden accounts.
const Hidden Kind = 0

// Max is the highest Kind.
const Max = 255

// The numbers that a store gives to configured kinds.
const (
	FirstConfigured Kind = 64
	MaxConfigured   Kind = 64 // the most kinds that a store can configure
)

// A Table has the kinds that a store indexes.
type Table struct {
	// All are the rows, the built-in ones first.
	All []Info

	byKind      [Max + 1]*Info
	byName      map[string]*Info
	collections []Collection
}

// A Collection is an indexed collection, and the kinds of edges that each of its records
// makes, at least one.
type Collection struct {
	NSID  string
	Kinds []*Info
}

// BuiltIn is the table of a store without configured kinds.
var BuiltIn = func() *Table {
	t, err := TableOf(nil)
	if err != nil {
		panic(err)
	}
	return t
}()

// TableOf returns the table of a store with configured kinds, which have numbers. It fails if
// they contradict each other, or a built-in kind.
func TableOf(configured []Info) (*Table, error) { return tableOf(configured, 0) }

// Stored returns the table of a store that already has configured kinds. If a later program
// has built in one of them, both are indexed, and the configured one gets a _ after each name
// that clashes.
func Stored(configured []Info) (*Table, error) { return tableOf(configured, len(configured)) }

// tableOf makes a table. The first stored of the configured kinds are already in a store, and
// keep their numbers.
func tableOf(configured []Info, stored int) (*Table, error) {
	t := &Table{All: slices.Concat(All, configured), byName: map[string]*Info{}}
	sources := map[string]*Info{}
	sets := map[string]*Info{"members": nil, "intersect": nil, "union": nil, "except": nil, "rank": nil, "listed": nil, "lists": nil}
	for i := range t.All {
		k := &t.All[i]
		if i >= len(All) {
			if err := k.check(); err != nil {
				return nil, err
			}
			if k.Kind < FirstConfigured || k.Kind >= FirstConfigured+MaxConfigured || t.byKind[k.Kind] != nil {
				return nil, fmt.Errorf("kinds: %s has the number %d, which is taken or out of range", k.Source(), k.Kind)
			}
		}
		if i >= len(All) && i < len(All)+stored {
			for taken := true; taken; {
				_, forward := sets[k.Forward]
				_, reverse := sets[k.Reverse]
				if taken = forward || reverse || t.byName[k.Name] != nil; taken {
					k.Name, k.Forward, k.Reverse = k.Name+"_", k.Forward+"_", k.Reverse+"_"
				}
			}
		} else if other := sources[k.Source()]; other != nil {
			return nil, fmt.Errorf("kinds: %s is already indexed as %s", k.Source(), other.Name)
		}
		if other := t.byName[k.Name]; other != nil {
			return nil, fmt.Errorf("kinds: %s and %s have the same name %s", other.Source(), k.Source(), k.Name)
		}
		for _, set := range []string{k.Forward, k.Reverse} {
			if set == "" {
				continue
			}
			if other, taken := sets[set]; taken && other != nil {
				return nil, fmt.Errorf("kinds: a set of %s cannot have the name %s, which a set of %s has", k.Source(), set, other.Source())
			} else if taken {
				return nil, fmt.Errorf("kinds: a set of %s cannot have the name %s, which is a word of expressions", k.Source(), set)
			}
			sets[set] = k
		}
		sources[k.Source()], t.byName[k.Name], t.byKind[k.Kind] = k, k, k
		if n := slices.IndexFunc(t.collections, func(c Collection) bool { return c.NSID == k.Collection }); n >= 0 {
			t.collections[n].Kinds = append(t.collections[n].Kinds, k)
		} else {
			t.collections = append(t.collections, Collection{k.Collection, []*Info{k}})
		}
	}
	return t, nil
}

// Info returns a kind's row, or nil.
func (t *Table) Info(k Kind) *Info { return t.byKind[k] }

// ByName returns the row of a kind by its name, or nil.
func (t *Table) ByName(name string) *Info { return t.byName[name] }

// Configured returns the configured rows.
func (t *Table) Configured() []Info { return t.All[len(All):] }

// Numbers returns the numbers of all rows, ascending.
func (t *Table) Numbers() (all []Kind) {
	for i := range t.All {
		all = append(all, t.All[i].Kind)
	}
	slices.Sort(all)
	return all
}

// Collections returns the indexed collections, in the order of the table.
func (t *Table) Collections() []Collection { return t.collections }

// Collection returns an indexed collection, or nil.
func (t *Table) Collection(nsid string) *Collection {
	for i := range t.collections {
		if t.collections[i].NSID == nsid {
			return &t.collections[i]
		}
	}
	return nil
}

// CollectionOf returns the indexed collection that a record's path begins with, or nil.
func (t *Table) CollectionOf(path []byte) *Collection {
	for i := range t.collections {
		c := t.collections[i].NSID
		if len(path) > len(c) && path[len(c)] == '/' && string(path[:len(c)]) == c {
			return &t.collections[i]
		}
	}
	return nil
}

// Info returns the row of a built-in kind, or nil.
func (k Kind) Info() *Info { return BuiltIn.Info(k) }

// Valid reports whether a store may have the kind: it is built in, or has a number for
// configured kinds.
func (k Kind) Valid() bool {
	return k.Info() != nil || k >= FirstConfigured && k < FirstConfigured+MaxConfigured
}

// String returns the name of a built-in kind; for debugging.
func (k Kind) String() string {
	if i := k.Info(); i != nil {
		return i.Name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ByName returns the row of a built-in kind by its name, or nil.
func ByName(name string) *Info { return BuiltIn.ByName(name) }
