package wire_test

import (
	"slices"
	"testing"

	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/internal/sim/synth"
)

// Records with the same bytes, and so the same CID, are parsed once for each of their
// collections, and each path gets the subject of its collection.
func TestOneBlockOfManyPaths(t *testing.T) {
	more, err := kinds.Parse("a.b.c self at-uri all\na.b.c subject did cs csBy\na.b.c list at-uri ls lsBy\na.b.d subject at-uri ds dsBy")
	must(t, err)
	table, err := kinds.Configure(kinds.BuiltIn, more)
	must(t, err)
	b := synth.NewBlock(synth.ListItem(bob, post, "2026-01-01T00:00:00Z"))
	var ops []any
	var want []string
	for _, path := range []string{"a.b.c/1", "app.bsky.graph.follow/1", "app.bsky.graph.listitem/1", "a.b.d/1", "a.b.c/2", "app.bsky.graph.listitem/2", "app.bsky.graph.follow/2", "a.b.c/3", "a.b.e/1"} {
		ops = append(ops, op("create", path, b.CID))
		switch key := path[len(path)-1:]; path[:len(path)-2] {
		case "a.b.c":
			want = append(want, "  put kind(192) "+key+" at://"+alice+"/"+path, "  put kind(64) "+key+" "+bob, "  put kind(65) "+key+" "+post)
		case "a.b.d":
			want = append(want, "  put kind(66) "+key+" ")
		case "app.bsky.graph.follow":
			want = append(want, "  put follow "+key+" "+bob)
		case "app.bsky.graph.listitem":
			want = append(want, "  put listitem "+key+" "+bob, "  put listitem_list "+key+" "+post)
		}
	}
	d := wire.Decoder{Kinds: table}
	var m wire.Message
	must(t, wire.Parse(commit(ops, []synth.Block{b}, nil), &m))
	var batch batch.Batch
	d.Add(&m, &batch)
	if got := describe(&batch)[1:]; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if len(d.Drops) != 1 || d.Drops[0].Reason != wire.BadSubject || string(d.Drops[0].Path) != "a.b.d/1" {
		t.Errorf("%+v", d.Drops)
	}
	if d.Ops != 8 {
		t.Errorf("%d operations", d.Ops)
	}
}
