package query_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"skein.blue/internal/sim/oracle"
)

// Whatever is asked about, a hidden account is in no answer, neither as a member nor as the author of a record, and its own
// sets are empty: also in answers that are made beside the algebra.
func TestHiddenInNoAnswer(t *testing.T) {
	w := newWorld(t, 3, 6000)
	accounts := w.history.Accounts()
	views := w.model.Views()
	hidden := ""
	for _, a := range accounts {
		if !w.model.Hidden[a] && len(views.Forward["block"][a]) > 0 && len(views.Forward["follow"][a]) > 1 && len(views.Forward["like"][a]) > 0 {
			hidden = a
		}
	}
	followed, blocked, liked := views.Forward["follow"][hidden][0], views.Forward["block"][hidden][0], views.Forward["like"][hidden][0]
	asked := map[string]bool{}
	ask := func(method string, pairs ...string) {
		p := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			p.Add(pairs[i], pairs[i+1])
		}
		asked[method+"?"+p.Encode()] = true
	}
	for _, set := range []string{"follows(" + hidden + ")", "blocking(" + hidden + ")", "followers(" + followed + ")", "blockedBy(" + blocked + ")", "likers(" + liked + ")"} {
		ask("blue.skein.graph.query", "set", set)
		ask("blue.skein.graph.list", "set", set)
		ask("blue.skein.graph.rank", "of", set, "via", "follows")
		ask("blue.skein.graph.contains", "set", set, "member", followed)
	}
	ask("blue.skein.graph.getBlocks", "actor", hidden, "direction", "blocking")
	ask("blue.skein.graph.getBlocks", "actor", hidden, "direction", "blocking", "others", blocked)
	ask("blue.skein.graph.getBlocks", "actor", blocked, "direction", "blockedBy")
	ask("blue.skein.graph.getBlocks", "actor", blocked, "direction", "blockedBy", "others", hidden)
	ask("app.bsky.graph.getRelationships", "actor", hidden, "others", followed, "others", blocked)
	ask("app.bsky.graph.getRelationships", "actor", followed, "others", hidden)
	ask("blue.skein.graph.known", "actor", hidden, "edge", "followers", "subject", followed)
	ask("blue.skein.graph.counts", "edge", "follows", "edge", "likes", "edge", "blocks", "subject", hidden)
	ask("blue.microcosm.links.getBacklinks", "subject", followed, "source", "app.bsky.graph.follow:subject", "did", hidden)
	ask("blue.microcosm.links.getManyToMany", "subject", followed, "source", "app.bsky.graph.listitem:subject", "pathToOther", "list")
	ask("blue.microcosm.links.getBacklinkDids", "subject", followed, "source", "app.bsky.graph.follow:subject")
	answer := func(method string) string {
		status, body, _ := w.get(method)
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", method, status, body)
		}
		return body
	}
	before := map[string]string{}
	for method := range asked {
		before[method] = answer(method)
	}
	w.happen(&oracle.Event{Type: oracle.AccountEvent, Seq: 100_000, DID: hidden})
	changed := 0
	for method := range asked {
		after := answer(method)
		if after != before[method] {
			changed++
		}
		named := strings.Count(after, `"`+hidden+`"`) - strings.Count(after, `"actor":"`+hidden+`"`) - strings.Count(after, `"subject":"`+hidden+`"`) - strings.Count(after, `#relationship","did":"`+hidden+`"`)
		if strings.Contains(after, hidden+"/app.bsky.") || named > 0 {
			t.Errorf("%s names the hidden account: %s", method, after)
		}
	}
	if changed < len(asked)/2 {
		t.Errorf("hiding the account changed %d of %d answers; the test shows little", changed, len(asked))
	}
}
