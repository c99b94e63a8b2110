// Package kinds defines what skein indexes: each kind of edge is one row of a Table. The decoder,
// the store, the queries, the metrics, the page, the simulated network and the models of the tests
// take their kinds from it.
//
// Some rows are built in (All). A new kind is one more row, with a number that was never used
// before. More kinds can be configured (package graph, Options.Kinds; file.go documents the form).
// A store gives them their numbers, so each store has its own Table. If a store is older than a
// kind, graph.Open notes that earlier records are missing. A Table is read-only; any goroutine may
// use it.
package kinds

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"skein.blue/intern/dict"
)

// A Kind is a kind of edge, from one collection of records. Stores contain its value.
type Kind uint8

// An End is the subject of an edge, which a record names. The actor of an edge is always the
// account that owns the record.
type End struct {
	Form  Form     // what the subject is
	Field []string // the path to it in the record, step by step (SplitPath)
}

// Is returns the namespace of the subject's id.
func (e *End) Is() dict.Namespace { return e.Form.Is() }

// Path returns the path as it is written: its steps, joined with dots.
func (e *End) Path() string { return strings.Join(e.Field, ".") }

// IsSelf reports whether the path is self: the subject is the record.
func (e *End) IsSelf() bool { return e.Path() == "self" }

// IsMany reports whether the path goes through an array.
func (e *End) IsMany() bool {
	return slices.ContainsFunc(e.Field, func(step string) bool { _, _, is := CutStep(step); return is })
}

// did and uri are subjects that are DIDs and AT URIs.
func did(field ...string) End { return End{DID, field} }
func uri(field ...string) End { return End{ATURI, field} }

// Info is a row of a table of kinds. If several rows have the same collection, its records make an
// edge for each.
type Info struct {
	Kind       Kind
	Name       string // in stats and metrics
	Collection string // the NSID of the records
	To         End    // the subject
	// Forward and Reverse name the sets in expressions: the subjects of an actor, and the
	// actors of a subject. They are "" if these sets have no meaning on their own.
	Forward, Reverse string
	// Verb and Object describe the sets on the page, in the sentence "an account VERBs an
	// OBJECT": a regular verb in the infinitive, and account, post or list. They are "" for
	// kinds without sets, and for configured ones.
	Verb, Object string
	// Optional says that the field may be absent, as most posts are not replies. Such a record
	// makes no edge, and is not malformed.
	Optional bool
	// Records names the set of the records that name a subject, "" if there is none. It needs a kind of the
	// collection's records themselves (Kind.IsSelf), which has their ids.
	Records string
}

// Source returns the collection and the path of the subject, as in
// "app.bsky.feed.like:subject.uri".
func (k *Info) Source() string { return k.Collection + ":" + k.To.Path() }

// HasSets reports whether expressions have the kind's sets.
func (k *Info) HasSets() bool { return k.Forward != "" }

// AppendSelf appends the URI of a record, the subject of its edge of a kind of records themselves. It appends nothing if
// the account's DID is too long for the subject of an edge.
func (k *Info) AppendSelf(dst, did, rkey []byte) []byte {
	if len(did) > MaxDID {
		return dst
	}
	dst = append(append(append(dst, "at://"...), did...), '/')
	return append(append(append(dst, k.Collection...), '/'), rkey...)
}

// All are the built-in rows. A number is never reused. Stores assign the numbers from
// FirstConfigured on.
//
// Every edge starts at the author of its record. The records of a list's author name the list's
// members: such a record makes two edges, to the member and to the list, and queries join the two
// by the record's key (graph.Snapshot.Listed).
var All = []Info{
	{1, "follow", "app.bsky.graph.follow", did("subject"), "follows", "followers", "follow", "account", false, ""},
	{Like, "like", "app.bsky.feed.like", uri("subject", "uri"), "likes", "likers", "like", "post", false, ""},
	{Repost, "repost", "app.bsky.feed.repost", uri("subject", "uri"), "reposts", "reposters", "repost", "post", false, ""},
	{4, "block", "app.bsky.graph.block", did("subject"), "blocks", "blockers", "block", "account", false, ""},
	{5, "listblock", "app.bsky.graph.listblock", uri("subject"), "listblocks", "listblockers", "block", "list", false, ""},
	{ListMember, "listitem", "app.bsky.graph.listitem", did("subject"), "", "", "", "", false, ""},
	{ListItem, "listitem_list", "app.bsky.graph.listitem", uri("list"), "", "", "", "", false, ""},
}

// The kinds whose subjects are posts.
const (
	Like   Kind = 2
	Repost Kind = 3
)

// The two edges of a record of app.bsky.graph.listitem: to the account that is on a list, and to
// the list.
const (
	ListMember Kind = 6
	ListItem   Kind = 7
)

// Labels are not edges of records: labelers send them (package graph/write, labels.go). The set of what
// has a label is stored like the reverse set of an edge. Its subject is a labeler and a value (LabelSet);
// its members are the accounts, or the records, with the label.
const (
	LabeledAccount Kind = 8
	LabeledRecord  Kind = 9
)

// IsLabel reports whether k is one of the two kinds of labels. A Table has their Info, but they are not
// in Table.All.
func (k Kind) IsLabel() bool { return k == LabeledAccount || k == LabeledRecord }

// Members returns the namespace of the members of the kind's reverse sets.
func (k Kind) Members() dict.Namespace {
	if k == LabeledRecord {
		return dict.URI
	}
	return dict.DID
}

// Labeled is the name of the sets of labels in expressions.
const Labeled = "labeled"

// labels are the rows of the kinds of labels.
var labels = [...]Info{
	{Kind: LabeledAccount, Name: "label", To: End{Form: Text}, Reverse: Labeled},
	{Kind: LabeledRecord, Name: "label_record", To: End{Form: Text}, Reverse: Labeled},
}

// LabelSet returns the subject of the sets of what has a label: the labeler's DID, a space and the value.
func LabelSet(labeler, value string) string { return labeler + " " + value }

// MaxLabel is the most bytes of a label's value (https://atproto.com/specs/label).
const MaxLabel = 128

// ValidLabel reports whether s is a label's value.
func ValidLabel[S ~string | ~[]byte](s S) bool { return len(s) <= MaxLabel && ValidText(s) }

// ValidLabelSet reports whether s is a LabelSet.
func ValidLabelSet(s []byte) bool {
	labeler, value, ok := bytes.Cut(s, []byte(" "))
	return ok && DID.Valid(labeler) && ValidLabel(value)
}

// LastBuiltIn is the highest kind of All.
const LastBuiltIn = ListItem

// Hidden is the kind of the set of hidden accounts.
const Hidden Kind = 0

// Max is the largest Kind.
const Max = 255

// The numbers that a store assigns to configured kinds: from FirstConfigured on to those of records
// with one subject, from FirstMany on to those whose path goes through an array, and from FirstSelf on to
// those whose subject is the record itself.
const (
	FirstConfigured Kind = 64
	FirstMany       Kind = 128
	FirstSelf       Kind = 192
	MaxConfigured   Kind = 64 // the most kinds of each sort that a store can configure
)

// IsSelf reports whether the subject of each record of the kind is the record itself: its forward sets are the
// records of an actor. The only actor of such a subject is its author, so the store has no reverse sets of the kind.
func (k Kind) IsSelf() bool { return k >= FirstSelf }

// IsMany reports whether a record of the kind can name several subjects. The store then has an entry for
// each pair of a record and a subject, and none for a record without subjects; a record of any other kind
// has one entry, whether or not it names a subject.
func (k Kind) IsMany() bool { return k >= FirstMany && k < FirstSelf }

// MaxSubjects is the most subjects of a record that are indexed: the first distinct ones in the order of
// the record. It bounds what one record costs.
const MaxSubjects = 128

// MostEdges returns the most edges that what was received in so many bytes may make: many records of a commit or a repo can
// have the same block. In real records, an edge takes more than 16 bytes even in an array: a DID 32, a tag 80 as
// a facet of a post, and an operation of a commit or an entry of a repo's tree, 60 and more.
func MostEdges(bytes int) int { return 2*MaxSubjects + bytes/16 }

// A Table has the kinds that a store indexes.
type Table struct {
	// All are its rows, with the built-in ones first.
	All []Info

	byKind      [Max + 1]*Info
	byName      map[string]*Info
	collections []Collection
}

// A Collection is an indexed collection with the kinds of edges that its records make, at least
// one.
type Collection struct {
	NSID  string
	Kinds []*Info
	many  bool // whether some of the kinds have several subjects a record
	self  Kind // of its records themselves, 0 if there is none
}

// BuiltIn is the table of a store without configured kinds.
var BuiltIn = func() *Table {
	t, err := TableOf(nil)
	if err != nil {
		panic(err)
	}
	return t
}()

// TableOf returns the table of a store with configured kinds, which have their numbers. It fails
// if they contradict each other, or built-in kinds.
func TableOf(configured []Info) (*Table, error) {
	t := &Table{All: slices.Concat(All, configured), byName: map[string]*Info{}}
	sources := map[string]*Info{}
	sets := map[string]*Info{
		"members": nil, "intersect": nil, "union": nil, "except": nil, "rank": nil, "listed": nil, "lists": nil,
		"mutuals": nil, "blockedBy": nil, "blocking": nil, "within": nil, "atleast": nil, "sample": nil, Labeled: nil,
		"authors": nil, "by": nil, "blend": nil, "mix": nil, // mix is a word of feeds
		"accounts": nil, "uris": nil, "uri_texts": nil, // views of an export
	}
	for i := range t.All {
		k := &t.All[i]
		if i >= len(All) {
			if err := k.check(); err != nil {
				return nil, err
			}
			if first := k.To.first(); k.Kind < first || k.Kind > first+MaxConfigured-1 || t.byKind[k.Kind] != nil {
				return nil, fmt.Errorf("kinds: %s has the number %d, which is invalid or taken", k.Source(), k.Kind)
			}
		}
		if other := sources[k.Source()]; other != nil {
			return nil, fmt.Errorf("kinds: %s is already indexed, as %s", k.Source(), other.Name)
		}
		if other := t.byName[k.Name]; other != nil {
			return nil, fmt.Errorf("kinds: the kinds of %s and %s are both named %s", other.Source(), k.Source(), k.Name)
		}
		for _, set := range []string{k.Forward, k.Reverse, k.Records} {
			if set == "" {
				continue
			}
			if other, taken := sets[set]; taken && other != nil {
				return nil, fmt.Errorf("kinds: a set of %s cannot be named %s, like a set of %s", k.Source(), set, other.Source())
			} else if taken {
				return nil, fmt.Errorf("kinds: a set of %s cannot be named %s, a reserved word of expressions", k.Source(), set)
			}
			sets[set] = k
		}
		sources[k.Source()], t.byName[k.Name], t.byKind[k.Kind] = k, k, k
		if n := slices.IndexFunc(t.collections, func(c Collection) bool { return c.NSID == k.Collection }); n >= 0 {
			t.collections[n].Kinds = append(t.collections[n].Kinds, k)
		} else {
			t.collections = append(t.collections, Collection{NSID: k.Collection, Kinds: []*Info{k}})
		}
		switch c := t.Collection(k.Collection); {
		case k.Kind.IsMany():
			c.many = true
		case k.Kind.IsSelf():
			c.self = k.Kind
		}
	}
	for i := range t.All {
		if k := &t.All[i]; k.Records != "" && t.Self(k.Kind) == 0 {
			return nil, fmt.Errorf("kinds: the set %s has records of %s, so a line with the path self for that collection must come first", k.Records, k.Collection)
		}
	}
	for i := range labels {
		t.byKind[labels[i].Kind] = &labels[i]
	}
	return t, nil
}

// HasMany reports whether records of the collection can name several subjects.
func (c *Collection) HasMany() bool { return c.many }

// Self returns the kind of the records themselves of a kind's collection, 0 if there is none.
func (t *Table) Self(k Kind) Kind { return t.Collection(t.byKind[k].Collection).self }

// Labels returns the rows of the kinds of labels.
func (t *Table) Labels() []Info { return labels[:] }

// Info returns the row of a kind, nil if there is none.
func (t *Table) Info(k Kind) *Info { return t.byKind[k] }

// ByName returns the row with a name, nil if there is none.
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

// Collection returns an indexed collection, nil if it is not indexed.
func (t *Table) Collection(nsid string) *Collection {
	for i := range t.collections {
		if t.collections[i].NSID == nsid {
			return &t.collections[i]
		}
	}
	return nil
}

// CollectionOf returns the collection that a record's path starts with, nil if it is not indexed.
func (t *Table) CollectionOf(path []byte) *Collection {
	for i := range t.collections {
		c := t.collections[i].NSID
		if len(path) > len(c) && path[len(c)] == '/' && string(path[:len(c)]) == c {
			return &t.collections[i]
		}
	}
	return nil
}

// Info returns the row of a built-in kind, nil if there is none.
func (k Kind) Info() *Info { return BuiltIn.Info(k) }

// Valid reports whether a store may have records of the kind: it is built in, or in the range for
// configured kinds.
func (k Kind) Valid() bool {
	return k.Info() != nil && !k.IsLabel() || k >= FirstConfigured
}

// String returns the name of a built-in kind, for debugging.
func (k Kind) String() string {
	if i := k.Info(); i != nil {
		return i.Name
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ByName returns the built-in row with a name, nil if there is none.
func ByName(name string) *Info { return BuiltIn.ByName(name) }
