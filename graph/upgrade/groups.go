package upgrade

import (
	"bytes"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// groups moves the rows of one slice of the step to format.FormatRowGroups into groups. It writes one operand for each group that
// has rows in the slice: the next slice may begin within a group.
type groups struct {
	tx    kv.Txn
	old   format.Layout // before the step
	group format.RowGroup
	key   []byte // of group; empty if there is none

	folder format.Folder // like row, scratch of folds
	row    []byte
}

func openGroups(tx kv.Txn, h format.Header) (visit func(key, value []byte) (int, error), end func() error) {
	g := &groups{tx: tx, old: format.Layout{Settings: h.Settings, Ungrouped: true}}
	return g.visit, g.end
}

// visit moves a row; containers stay. So does a row that cannot be read: it would make its whole group unreadable. skein check then
// reports its key.
func (g *groups) visit(key, value []byte) (written int, err error) {
	k, subject, _, isRow, err := format.ParseReverseKey(key)
	if err != nil || !isRow || !g.old.FitsReverseKey(key, true) || !g.folds(key, value) {
		return len(key), nil //nolint:nilerr // see above
	}
	g.tx.Delete(key)
	if len(value) == 0 {
		return len(key), nil
	}
	if err := g.begin(k, subject); err != nil {
		return 0, err
	}
	g.group.Add(subject, value)
	return 2*len(key) + len(value), nil
}

// folds reports whether a row can be read and folded.
func (g *groups) folds(key, value []byte) (ok bool) {
	row, _, err := g.folder.Fold(g.row[:0], key, [][]byte{value, nil}, true) // two values are decoded in any case
	if err == nil {
		g.row = row
	}
	return err == nil
}

// begin ends the last group, if the subject is in another.
func (g *groups) begin(k kinds.Kind, subject dict.ID) error {
	key := format.AppendRowGroupKey(nil, k, subject)
	if bytes.Equal(key, g.key) {
		return nil
	}
	err := g.end()
	g.key = key
	return err
}

// end writes the last group.
func (g *groups) end() error {
	if len(g.key) == 0 {
		return nil
	}
	g.tx.Merge(g.key, g.group.Value)
	g.key = g.key[:0]
	g.group.Reset()
	return nil
}

// finishGroups writes the new version.
func finishGroups(_ kv.Txn, h format.Header, _ Tally) ([]byte, error) {
	h.Version = format.FormatRowGroups
	return h.Append(nil), nil
}
