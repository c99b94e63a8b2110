package lexicon

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestRead(t *testing.T) {
	files := fstest.MapFS{
		"b.json": {Data: []byte(`{"id":"x.b","defs":{"main":{"type":"query","output":{"schema":{"type":"ref","ref":"#one"}}}}}`)},
		"a.json": {Data: []byte(`{"id":"x.a","defs":{}}`)},
	}
	all, err := Read(files)
	if err != nil || len(all) != 2 || all[0].ID != "x.a" || all[1].Defs["main"].Output.Schema.Ref != "#one" {
		t.Fatalf("read %+v, %v", all, err)
	}
	files["c.json"] = &fstest.MapFile{Data: []byte(`{"id":`)}
	if _, err := Read(files); err == nil || !strings.Contains(err.Error(), "c.json") {
		t.Fatalf("a malformed lexicon: %v; want an error that names it", err)
	}
}
