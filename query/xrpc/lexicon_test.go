package xrpc

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	indigo "github.com/bluesky-social/indigo/atproto/lexicon"
)

func TestReadLexicons(t *testing.T) {
	files := fstest.MapFS{
		"b.json": {Data: []byte(`{"id":"x.b","defs":{"main":{"type":"query","output":{"schema":{"type":"ref","ref":"#one"}}}}}`)},
		"a.json": {Data: []byte(`{"id":"x.a","defs":{}}`)},
	}
	all, err := ReadLexicons(files)
	if err != nil || len(all) != 2 || all[0].ID != "x.a" || all[1].Defs["main"].Output.Schema.Ref != "#one" {
		t.Fatalf("read %+v, %v", all, err)
	}
	files["c.json"] = &fstest.MapFile{Data: []byte(`{"id":`)}
	if _, err := ReadLexicons(files); err == nil || !strings.Contains(err.Error(), "c.json") {
		t.Fatalf("a malformed lexicon: %v; want an error that names it", err)
	}
}

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
