package algebra

import (
	"maps"
	"slices"
	"strings"

	"skein.blue/graph/ask"
	"skein.blue/query/language"
)

// findLabelers reads the states of the labelers of the expression. It fails if the labels of one of them are
// not read.
func (v *Bound) findLabelers() error {
	if !v.Expr.Root.HasLabels() {
		return nil
	}
	var err error
	if v.labelers, err = v.View.Labelers(); err != nil {
		return err
	}
	known := slices.Sorted(maps.Keys(v.labelers))
	var unknown string
	var walk func(n *language.Node)
	walk = func(n *language.Node) {
		if n.Op.IsSet() && n.Kind.IsLabel() {
			if did := v.Expr.LabelerOf(n); unknown == "" && v.labelers[did].Name == "" {
				unknown = did
			}
		}
		for i := range n.Args {
			walk(&n.Args[i])
		}
	}
	walk(&v.Expr.Root)
	switch {
	case unknown == "":
		return nil
	case len(known) == 0:
		return &LimitError{"unknown labeler " + unknown + ": this server has no labels of any labeler (operators: add it to --labelers)"}
	}
	return &LimitError{"unknown labeler " + unknown + ": this server has labels of " + strings.Join(known, ", ") + " (operators: add it to --labelers)"}
}

// CheckLabelers returns an error for the client if the expression names a labeler whose labels are not read.
func CheckLabelers(sn *ask.View, e *language.Expr) error {
	v := Bound{Reader: &Reader{View: sn}, Expr: e}
	return v.findLabelers()
}

// Labeler returns how far the labels of a leaf that is labeled(…) are read.
func (v *Bound) Labeler(n *language.Node) ask.Labeler { return v.labelers[v.Expr.LabelerOf(n)] }
