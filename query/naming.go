package query

import (
	"strings"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// kindAt returns the kind of edge that the records of a collection make at a path, nil if
// that is not indexed.
func (v *vocabulary) kindAt(collection, path string) *kinds.Info {
	of := v.table.Collection(collection)
	if of == nil {
		return nil
	}
	for _, k := range of.Kinds {
		if strings.Join(k.To.Field, ".") == path {
			return k
		}
	}
	return nil
}

// whoNames returns the set of who names a target, nil if there can be none. Not all of them
// have a name in expressions.
func (v *vocabulary) whoNames(k *kinds.Info, target string) *Expr {
	if k == nil {
		return nil
	}
	l, ok := literalOf(target)
	if !ok || l.s != target || l.is != k.To.Is || l.handle != "" || l.unusable() != "" {
		return nil
	}
	return &Expr{words: v, source: k.Source() + " " + target, strings: []literal{l}, offsets: []int{0}, root: node{op: opReverse, kind: k.Kind, is: dict.DID}}
}
