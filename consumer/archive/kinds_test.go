package archive

import (
	"slices"
	"strings"
	"testing"

	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/internal/sim/synth"
)

// A row of a collection with several kinds makes one operation for each: a put with the
// subject, without one if that is malformed, and a deletion if an optional subject is
// absent.
func TestRowsOfConfiguredKinds(t *testing.T) {
	more, err := kinds.Parse("app.bsky.feed.post reply.parent.uri at-uri repliedTo repliers\napp.bsky.feed.post embed.record.uri at-uri quoted quoters")
	if err != nil {
		t.Fatal(err)
	}
	table, err := kinds.Configure(kinds.BuiltIn, more)
	if err != nil {
		t.Fatal(err)
	}
	const post = "at://did:plc:bbbbbbbbbbbbbbbbbbbbbbbb/app.bsky.feed.post/3kaaaaaaaaaaa"
	at := func(path ...string) synth.Map {
		var v any = post
		for _, key := range slices.Backward(path) {
			v = synth.Map{{Key: key, Value: v}}
		}
		m, _ := v.(synth.Map)
		return m
	}
	for name, test := range map[string]struct {
		record any
		kind   kind
		want   []string
		drops  int
	}{
		"a reply":                        {at("reply", "parent", "uri"), create, []string{"put kind(64) x " + post, "delete kind(65) x"}, 0},
		"a quote":                        {at("embed", "record", "uri"), update, []string{"delete kind(64) x", "put kind(65) x " + post}, 0},
		"both":                           {append(at("embed", "record", "uri"), at("reply", "parent", "uri")...), createResync, []string{"put kind(64) x " + post, "put kind(65) x " + post}, 0},
		"neither":                        {synth.Map{{Key: "text", Value: "hello"}}, create, []string{"delete kind(64) x", "delete kind(65) x"}, 0},
		"another embed":                  {synth.Map{{Key: "embed", Value: synth.Map{{Key: "images", Value: []any{}}}}}, create, []string{"delete kind(64) x", "delete kind(65) x"}, 0},
		"a reply to null":                {synth.Map{{Key: "reply", Value: synth.Map{{Key: "parent", Value: synth.Map{{Key: "uri", Value: nil}}}}}}, create, []string{"delete kind(64) x", "delete kind(65) x"}, 0},
		"malformed":                      {synth.Map{{Key: "reply", Value: synth.Map{{Key: "parent", Value: synth.Map{{Key: "uri", Value: "https://example.com"}}}}}}, create, []string{"put kind(64) x ", "delete kind(65) x"}, 1},
		"a quote of a record in a space": {synth.Map{{Key: "embed", Value: synth.Map{{Key: "record", Value: synth.Map{{Key: "uri", Value: "at://did:plc:bbbbbbbbbbbbbbbbbbbbbbbb/space/com.example.forum/self/did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/3kaaaaaaaaaaa"}}}}}}, create, []string{"delete kind(64) x", "put kind(65) x "}, 1},
		"not a map":                      {5, create, []string{"put kind(64) x ", "put kind(65) x "}, 1},
		"deleted":                        {nil, remove, []string{"delete kind(64) x", "delete kind(65) x"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			drops := 0
			f := newFolder(table, nil, 0, func(reason wire.Reason) {
				if drops++; strings.Contains(name, "space") != (reason == wire.SpaceSubject) {
					t.Errorf("dropped as %s", reason)
				}
			})
			r := row{seq: 1, kind: test.kind, did: []byte("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"), collection: []byte("app.bsky.feed.post"), rkey: []byte("x"), rev: []byte("3kaaaaaaaaaaa"), payload: synth.CBOR(nil, test.record)}
			var b batch.Batch
			f.commit(&r, &b)
			var got []string
			for _, line := range b.Describe()[1:] {
				got = append(got, line[2:])
			}
			if !slices.Equal(got, test.want) || drops != test.drops {
				t.Errorf("%q, want %q; %d drops, want %d", got, test.want, drops, test.drops)
			}
		})
	}
}
