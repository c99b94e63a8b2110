package command

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"skein.blue/graph/read"
	"skein.blue/internal/kv"
)

// Messages lose the names of packages, and nothing else.
func TestPlain(t *testing.T) {
	for want, err := range map[string]error{
		"the store has another format: Pebble 3":                                   fmt.Errorf("%w: Pebble 3", kv.ErrFormat),
		"this program cannot read the store: there is no graph in the store":       fmt.Errorf("graph: %w: there is no graph in the store", read.ErrFormat),
		"reading the progress of the check: interrupted":                           fmt.Errorf("check: reading the progress of the check: %w", context.Canceled),
		"opening the graph in x: the kinds of the export: a row; two rows (a row)": errors.New("app: opening the graph in x: graph: the kinds of the export: format: a row; kv: two rows (dict: a row)"),
		"a\nb":                errors.Join(errors.New("kv: a"), errors.New("graph: intern: b")),
		"no query: set=graph": errors.New("query: no query: set=graph"),
	} {
		if got := plain(err); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
