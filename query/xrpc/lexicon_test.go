package xrpc

import (
	"encoding/json"
	"io/fs"
	"testing"

	indigo "github.com/bluesky-social/indigo/atproto/lexicon"
)

// indigo reads every file as a lexicon, and finds what each refers to. (.ci/lexicons, which publishes
// them, needs the same package; go mod tidy sees only this test.)
func TestLexicons(t *testing.T) {
	files, err := fs.ReadDir(Lexicons, ".")
	if err != nil || len(files) < 20 {
		t.Fatal(len(files), err)
	}
	catalog := indigo.NewBaseCatalog()
	for _, f := range files {
		var schema indigo.SchemaFile
		b, err := fs.ReadFile(Lexicons, f.Name())
		if err == nil {
			err = json.Unmarshal(b, &schema)
		}
		if err == nil {
			err = catalog.AddSchemaFile(schema)
		}
		if err != nil || schema.ID+".json" != f.Name() {
			t.Errorf("%s, with the id %q: %v", f.Name(), schema.ID, err)
		}
	}
}
