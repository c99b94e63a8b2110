package language

import (
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// KindAt returns the kind of edge that a field of a collection's records makes, nil if the
// field is not indexed. The path joins the field's names with dots.
func (v *Vocabulary) KindAt(collection, path string) *kinds.Info {
	of := v.Table.Collection(collection)
	if of == nil {
		return nil
	}
	for _, k := range of.Kinds {
		if k.To.Path() == path && !k.Kind.IsSelf() {
			return k
		}
	}
	return nil
}

// ActorsOf returns the expression of the accounts with an edge of kind k to target, nil if
// there can be no such edge. Expressions in text cannot name all of these sets.
func (v *Vocabulary) ActorsOf(k *kinds.Info, target string) *Expr {
	if k == nil || k.Kind.IsSelf() || !k.To.Form.Valid([]byte(target)) {
		return nil
	}
	l := Literal{S: target, Is: k.To.Is()}
	if !k.To.Form.IsString() && l.Unusable() != "" {
		return nil
	}
	return &Expr{words: v, Source: k.Source() + " " + target, Strings: []Literal{l}, Offsets: []int{0}, Root: Node{Op: OpReverse, Kind: k.Kind, Is: dict.DID}}
}
