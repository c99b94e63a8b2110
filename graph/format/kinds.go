package format

import (
	"encoding/json"
	"fmt"

	"skein.blue/graph/kinds"
)

// configured is a kind of a store that is not built in. KeyKinds has the list of them, in
// JSON: the permanent meaning of each number in this store. A store without configured kinds
// has no such row.
type configured struct {
	Number     kinds.Kind `json:"number"`
	Collection string     `json:"collection"`
	Path       string     `json:"path"`  // kinds.End.Path
	Names      string     `json:"names"` // the form of the subject (kinds.Form)
	Forward    string     `json:"forward"`
	Reverse    string     `json:"reverse"`
	Records    string     `json:"records,omitempty"`
}

// AppendKinds appends the value of KeyKinds.
func AppendKinds(dst []byte, t *kinds.Table) ([]byte, error) {
	list := []configured{}
	for _, k := range t.Configured() {
		list = append(list, configured{k.Kind, k.Collection, k.To.Path(), k.To.Form.String(), k.Forward, k.Reverse, k.Records})
	}
	b, err := json.Marshal(list)
	return append(dst, b...), err
}

// DecodeKinds reads the value of KeyKinds. nil, for a missing row, means the built-in kinds.
func DecodeKinds(v []byte) (*kinds.Table, error) {
	if v == nil {
		return kinds.BuiltIn, nil
	}
	list, err := FromJSON[[]configured](v)
	if err != nil {
		return nil, err
	}
	var rows []kinds.Info
	for _, c := range list {
		k := kinds.Info{
			Kind: c.Number, Name: c.Forward, Collection: c.Collection, Forward: c.Forward, Reverse: c.Reverse, Records: c.Records, Optional: true,
		}
		if k.To.Form, err = kinds.FormOf(c.Names); err == nil {
			k.To.Field, err = kinds.SplitPath(c.Path)
		}
		if err != nil {
			return nil, fmt.Errorf("format: the kinds of the store: %s:%s: %w", c.Collection, c.Path, err)
		}
		rows = append(rows, k)
	}
	t, err := kinds.TableOf(rows)
	if err != nil {
		return nil, fmt.Errorf("format: the kinds of the store: %w", err)
	}
	return t, nil
}
