package consumer_test

import (
	"go/build"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDeps holds the wall below consumer and its subpackages: of graph they know only the store, its batches and its
// kinds, and nothing of queries.
func TestDeps(t *testing.T) {
	t.Parallel()
	allowed := []string{"skein.blue/graph", "skein.blue/graph/batch", "skein.blue/graph/kinds"}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || d.Name() == "testdata" {
			return err
		}
		p, err := build.ImportDir(path, 0)
		if err != nil {
			return err
		}
		for _, i := range p.Imports {
			isGraph := i == "skein.blue/graph" || strings.HasPrefix(i, "skein.blue/graph/")
			if isGraph && !slices.Contains(allowed, i) || strings.HasPrefix(i, "skein.blue/query") {
				t.Errorf("consumer/%s imports %s", path, i)
			}
		}
		return nil
	})
	must(t, err)
}
