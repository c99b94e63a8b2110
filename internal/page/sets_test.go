package page

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"testing"

	"skein.blue/graph/kinds"
)

// servedSets returns the sets that the page of a store receives.
func servedSets(t *testing.T, table *kinds.Table) map[string]Set {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(http.NotFoundHandler(), NewLive(samples()), Options{Kinds: table}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/page/config.json", nil))
	var config struct{ Sets []Set }
	must(t, json.Unmarshal(w.Body.Bytes(), &config))
	all := map[string]Set{}
	for _, s := range config.Sets {
		if all[s.Name].Name != "" || s.Meaning == "" {
			t.Errorf("%q is listed twice, or has no meaning", s.Name)
		}
		all[s.Name] = s
	}
	return all
}

// The page receives both sets of every kind in graph/kinds, with words for them, and the sets of configured kinds.
func TestPageHasAllKinds(t *testing.T) {
	configured, err := kinds.Parse("sh.tangled.graph.follow subject did tangledFollows tangledFollowers\napp.bsky.feed.post self at-uri posts\napp.bsky.feed.post reply.parent.uri at-uri repliedTo repliers replies")
	must(t, err)
	table, err := kinds.Configure(kinds.BuiltIn, configured)
	must(t, err)
	all := servedSets(t, table)
	for _, k := range table.All {
		if !k.HasSets() || k.Kind.IsSelf() {
			continue
		}
		for _, s := range []Set{all[k.Forward], all[k.Reverse]} {
			if s.Of == "" || s.Members == "" || s.Which == "" || s.WhichNot == "" || all[s.Inverse].Inverse != s.Name {
				t.Errorf("%s: %+v", k.Name, s)
			}
			if isBuiltIn := kinds.ByName(k.Name) != nil; isBuiltIn != (s.Deed != "") || isBuiltIn != (s.Heading != "") {
				t.Errorf("%s in a ranking: %+v", k.Name, s)
			}
		}
	}
	want := []Set{
		{Name: "followers", Meaning: "accounts that follow an account", Of: "account", Members: "account", Inverse: "follows", Which: "follow", WhichNot: "do not follow", Deed: "follows", Heading: "Accounts that follow"},
		{Name: "likes", Meaning: "posts that an account likes", Title: "Posts it likes", Of: "account", Members: "post", Inverse: "likers", Which: "are liked by", WhichNot: "are not liked by", Deed: "liked by", Heading: "Posts liked by"},
		{Name: "listblockers", Meaning: "accounts that block a list", Title: "Blocked by", Of: "list", Members: "account", Inverse: "listblocks", Which: "block", WhichNot: "do not block", Deed: "blocks", Heading: "Accounts that block"},
		{Name: "repliers", Meaning: "accounts with app.bsky.feed.post records that link to a record", Of: "record", Members: "account", Inverse: "repliedTo", Which: "are in the repliers of", WhichNot: "are not in the repliers of"},
		{Name: "replies", Meaning: "app.bsky.feed.post records that link to a record", Of: "record", Members: "record", Which: "are in the replies of", WhichNot: "are not in the replies of"},
		{Name: "posts", Meaning: "app.bsky.feed.post records of an account", Of: "account", Members: "record", Which: "are in the posts of", WhichNot: "are not in the posts of"},
	}
	for _, s := range want {
		if all[s.Name] != s {
			t.Errorf("%+v, want %+v", all[s.Name], s)
		}
	}
}

// The scripts have no list of the sets: each names only the sets of the queries that it proposes.
func TestScriptsListNoSets(t *testing.T) {
	proposed := []string{"followers", "follows", "likes", "likers", "reposts", "listed"}
	for name, f := range files {
		for _, k := range kinds.All {
			for _, set := range []string{k.Forward, k.Reverse} {
				if set != "" && !slices.Contains(proposed, set) && regexp.MustCompile(`\b`+set+`\b`).Match(f.plain) {
					t.Errorf("%s names %s, which it should receive in config.json", name, set)
				}
			}
		}
	}
}
