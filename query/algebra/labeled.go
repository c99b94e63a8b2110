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
func findLabelers(v *Evaluation) (err error) {
	for n := range v.Expr.Root.All() {
		if !n.Op.IsSet() || !n.Kind.IsLabel() {
			continue
		}
		if v.labelers == nil {
			if v.labelers, err = v.View.Labelers(); err != nil {
				return err
			}
		}
		if did := v.Expr.LabelerOf(n); v.labelers[did].Name == "" {
			has := "no labels of any labeler"
			if len(v.labelers) > 0 {
				has = "labels of " + strings.Join(slices.Sorted(maps.Keys(v.labelers)), ", ")
			}
			return &LimitError{"unknown labeler " + did + ": this server has " + has + " (operators: add it to --labelers)"}
		}
	}
	return nil
}

// Labeler returns how far the labels of a leaf that is labeled(…) are read.
func (v *Evaluation) Labeler(n *language.Node) ask.Labeler { return v.labelers[v.Expr.LabelerOf(n)] }
