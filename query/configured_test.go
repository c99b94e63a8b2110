package query_test

import (
	"slices"
	"strings"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/synth"
)

// A store is configured with kinds, and with more of them later; it remembers them, and answers say since when they are
// indexed.
func TestConfiguredKinds(t *testing.T) {
	store := memory(write.Limits{})
	var w *world
	open := func(file string) {
		t.Helper()
		more, err := kinds.Parse(file)
		if err != nil {
			t.Fatal(err)
		}
		w = newWorldOn(t, nil, store, graph.Options{Kinds: more})
	}
	const parent, quoted, replies = "at://did:web:n1.example.com/app.bsky.feed.post/1", "at://did:web:n1.example.com/app.bsky.feed.post/2", "app.bsky.feed.post reply.parent.uri at-uri repliedTo repliers"
	record := synth.Map{
		{Key: "embed", Value: synth.Map{{Key: "record", Value: synth.Map{{Key: "uri", Value: quoted}}}}},
		{Key: "reply", Value: synth.Map{{Key: "parent", Value: synth.Map{{Key: "uri", Value: parent}}}}},
	}
	index := func(seq int64, author int, collection string, record synth.Map) {
		t.Helper()
		w.index([][]byte{commitFrame(seq, did(author), "create", collection, oracle.TID(uint64(seq)<<30), record)})
	}
	has := func(set string, want ...string) answer {
		t.Helper()
		a := w.query(set)
		if slices.Sort(a.Members); !slices.Equal(a.Members, want) {
			t.Errorf("%s: %q, want %q", set, a.Members, want)
		}
		return a
	}
	open(replies)
	index(1, 2, "app.bsky.feed.post", record)
	has("repliers("+parent+")", did(2))
	w.says("query?set=quoters("+quoted+")", 400, "is not a set")
	for _, file := range []string{replies + "\napp.bsky.feed.post embed.record.uri at-uri quoted quoters\nsh.tangled.graph.follow subject did tangledFollows tangledFollowers", ""} {
		if err := w.store.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		open(file) // what it has been configured with, it has
	}
	index(2, 3, "app.bsky.feed.post", record)
	index(3, 5, "sh.tangled.graph.follow", synth.Map{{Key: "subject", Value: did(4)}})
	has("repliedTo("+did(2)+")", parent)
	has("repliers("+parent+")", did(2), did(3))
	has("tangledFollowers("+did(4)+")", did(5))
	has("rank(of=members("+did(3)+"),via=quoted)", quoted)
	if a := has("quoters("+quoted+")", did(3)); !strings.Contains(a.Reason, "app.bsky.feed.post:embed.record.uri has been indexed only since") {
		t.Errorf("a set whose past is not there: %+v", a)
	}
	w.says("getAccount?did="+did(2), 200, `"state":"partial"`)
	w.says("getAccount?did="+did(2), 200, "has been indexed only since")
	w.says("blue.microcosm.links.getBacklinksCount?subject="+quoted+"&source=app.bsky.feed.post:embed.record.uri", 200, `{"total":1}`)
	w.says("getStats", 200, `"collection":"app.bsky.feed.post","path":"embed.record.uri","names":"uri","forward":"quoted","reverse":"quoters"`)
}
