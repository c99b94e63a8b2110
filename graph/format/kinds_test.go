package format_test

import (
	"reflect"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
)

// The kinds of a store are in a form that stays.
func TestKindsOnDisk(t *testing.T) {
	more, err := kinds.Parse("app.bsky.feed.post reply.parent.uri at-uri repliedTo repliers\nsh.tangled.graph.follow subject did tangledFollows tangledFollowers")
	if err != nil {
		t.Fatal(err)
	}
	table, err := kinds.Configure(kinds.BuiltIn, more)
	if err != nil {
		t.Fatal(err)
	}
	v, err := format.AppendKinds(nil, table)
	const want = `[{"number":64,"collection":"app.bsky.feed.post","path":"reply.parent.uri","names":"at-uri","forward":"repliedTo","reverse":"repliers"},` +
		`{"number":65,"collection":"sh.tangled.graph.follow","path":"subject","names":"did","forward":"tangledFollows","reverse":"tangledFollowers"}]`
	if string(v) != want || err != nil {
		t.Errorf("%s, want %s: %v", v, want, err)
	}
	if again, err := format.DecodeKinds(v); err != nil || !reflect.DeepEqual(again.Configured(), table.Configured()) {
		t.Errorf("%+v, %v", again, err)
	}
	for _, row := range []string{"[", `[{"number":1,"collection":"a.b.c","path":"x","names":"did","forward":"xs","reverse":"ys"}]`} { // a number that is built in
		if _, err := format.DecodeKinds([]byte(row)); err == nil {
			t.Errorf("%s is decoded", row)
		}
	}
}
