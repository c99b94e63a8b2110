package oracle

import (
	"iter"
	"slices"
	"strings"
)

// An Edge says that Actor has an edge of a kind to Subject.
type Edge struct{ Kind, Actor, Subject string }

// Views are all non-empty sets, sorted, by the name of the kind and the DID or URI of
// the set, as a query must answer them.
type Views struct {
	Forward, Reverse map[string]map[string][]string
	Records          map[string]map[string]int // how many records each account has
}

// ViewsOf computes the sets of edges (docs/semantics.md#s14). A hidden account is a
// member of no set, and its own edges are in none.
func ViewsOf(edges iter.Seq[Edge], hidden func(did string) bool) Views {
	v := Views{map[string]map[string][]string{}, map[string]map[string][]string{}, map[string]map[string]int{}}
	for e := range edges {
		if v.Records[e.Kind] == nil {
			v.Records[e.Kind] = map[string]int{}
		}
		v.Records[e.Kind][e.Actor]++
		if e.Subject == "" || hidden(e.Actor) {
			continue
		}
		if !hidden(e.Subject) {
			add(v.Forward, e.Kind, e.Actor, e.Subject)
		}
		add(v.Reverse, e.Kind, e.Subject, e.Actor)
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

// Total returns what a ranking's damp, share and lift divide by: the number of accounts with an edge to a result or, if the result was
// reached through a reverse set, the number of its records.
func (v Views) Total(kind, of string, reverse bool) int {
	if reverse {
		return v.Records[kind][of]
	}
	return len(v.Reverse[kind][of])
}

func add(dir map[string]map[string][]string, kind, of, member string) {
	if dir[kind] == nil {
		dir[kind] = map[string][]string{}
	}
	dir[kind][of] = append(dir[kind][of], member)
}

// A Listing is a record that puts an account on a list of the record's author.
type Listing struct{ Author, Rkey, Member, List string }

// Listings returns the valid ones: those in the repo of the list's own author, if the
// author is active.
func (m *Model) Listings() (all []Listing) {
	for p, member := range m.Records {
		if p.Kind != ListItem || member == "" || m.Hidden[p.DID] {
			continue
		}
		list := m.Records[Path{p.DID, ListItemOf, p.Rkey}]
		if strings.HasPrefix(list+"/", "at://"+p.DID+"/") {
			all = append(all, Listing{p.DID, p.Rkey, member, list})
		}
	}
	return all
}
