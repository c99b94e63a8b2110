package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"skein.blue/query/xrpc"
)

// Each lexicon of this project becomes a record with the same contents and the fields that the
// specification requires, and one DNS record names their repo. Lexicons of other projects become
// no records.
func TestRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "records")
	var out strings.Builder
	if err := run(&out, "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", []string{dir}); err != nil {
		t.Fatal(err)
	}
	if want := "_lexicon.graph.skein.blue. 3600 IN TXT \"did=did:plc:aaaaaaaaaaaaaaaaaaaaaaaa\"\n"; out.String() != want {
		t.Errorf("%q, expected %q", out.String(), want)
	}
	all, err := fs.ReadDir(xrpc.Lexicons, ".")
	if err != nil {
		t.Fatal(err)
	}
	var files []fs.DirEntry
	for _, f := range all {
		if strings.HasPrefix(f.Name(), "blue.skein.") {
			files = append(files, f)
		}
	}
	if len(files) == len(all) {
		t.Error("no lexicons of other projects: the test proves nothing about them")
	}
	written, err := os.ReadDir(dir)
	if err != nil || len(written) != len(files) || len(files) == 0 {
		t.Fatalf("%d records for %d lexicons: %v", len(written), len(files), err)
	}
	read := func(b []byte, err error) (v map[string]any) {
		t.Helper()
		if err == nil {
			err = json.Unmarshal(b, &v)
		}
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, f := range files {
		lexicon, record := read(fs.ReadFile(xrpc.Lexicons, f.Name())), read(os.ReadFile(filepath.Join(dir, f.Name())))
		if record["$type"] != "com.atproto.lexicon.schema" || record["lexicon"] != 1.0 || record["id"] != strings.TrimSuffix(f.Name(), ".json") {
			t.Errorf("%s: $type %v, lexicon %v, id %v", f.Name(), record["$type"], record["lexicon"], record["id"])
		}
		delete(record, "$type")
		got, _ := json.Marshal(record)
		want, _ := json.Marshal(lexicon)
		if string(got) != string(want) {
			t.Errorf("%s: the record is %s, the lexicon %s", f.Name(), got, want)
		}
	}
}

// A lexicon that resolvers could not read is an error.
func TestInvalidLexicons(t *testing.T) {
	const good = `{"lexicon":1,"id":"blue.skein.graph.x","defs":{"main":{"type":"query","output":{"encoding":"application/json","schema":{"type":"ref","ref":"#y"}}},"y":{"type":"object","properties":{}}}}`
	for name, c := range map[string]struct{ file, json, want string }{
		"good":             {"blue.skein.graph.x", good, ""},
		"another name":     {"blue.skein.graph.z", good, "does not match the file name"},
		"another version":  {"blue.skein.graph.x", strings.Replace(good, `"lexicon":1`, `"lexicon":2`, 1), "version"},
		"not an NSID":      {"x", strings.Replace(good, "blue.skein.graph.x", "x", 1), "invalid id"},
		"a lost reference": {"blue.skein.graph.x", strings.Replace(good, `"#y"`, `"#z"`, 1), "reference #z"},
		"an unknown type":  {"blue.skein.graph.x", strings.Replace(good, `"object"`, `"thing"`, 1), "thing"},
		"a fraction":       {"blue.skein.graph.x", strings.Replace(good, `"properties":{}`, `"properties":{},"x":0.5`, 1), "not valid as a record"},
		"an unknown field": {"blue.skein.graph.x", strings.Replace(good, `"lexicon"`, `"revison":3,"lexicon"`, 1), "revison"},
		"another $type":    {"blue.skein.graph.x", strings.Replace(good, `"lexicon"`, `"$type":"app.bsky.feed.post","lexicon"`, 1), "$type"},
	} {
		_, err := recordsOf(fstest.MapFS{c.file + ".json": {Data: []byte(c.json)}})
		if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, args := range [][]string{{}, {"a", "b"}} {
		if err := run(&strings.Builder{}, "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", args); err == nil {
			t.Errorf("arguments %q are accepted", args)
		}
	}
	if err := run(&strings.Builder{}, "graph.skein.blue", []string{t.TempDir()}); err == nil {
		t.Error("a handle is accepted as DID")
	}
}
