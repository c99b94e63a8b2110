package lexicons_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"skein.blue/query/lexicons"
)

func TestRead(t *testing.T) {
	files := fstest.MapFS{
		"in/b.json": {Data: []byte(`{"id":"x.b","defs":{"main":{"type":"query","output":{"schema":{"type":"ref","ref":"#one"}}}}}`)},
		"in/a.json": {Data: []byte(`{"id":"x.a","defs":{}}`)},
	}
	all, err := lexicons.Read(files, "in")
	if err != nil || len(all) != 2 || all[0].ID != "x.a" || all[1].Defs["main"].Output.Schema.Ref != "#one" {
		t.Fatalf("read %+v, %v", all, err)
	}
	files["in/c.json"] = &fstest.MapFile{Data: []byte(`{"id":`)}
	if _, err := lexicons.Read(files, "in"); err == nil || !strings.Contains(err.Error(), "c.json") {
		t.Fatalf("a malformed lexicon: %v; want an error that names it", err)
	}
	if _, err := lexicons.Read(files, "none"); err == nil {
		t.Fatal("reading a missing folder succeeded")
	}
}
