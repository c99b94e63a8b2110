package query_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// A parameter that a method does not have is an error that names the one that may be meant:
// passed over, it would change what the answer means.
func TestUnknownParameters(t *testing.T) {
	w := newWorld(t, 81, 300)
	d := w.history.Accounts()[0]
	const post = "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/3kaaaaaaaaaaa"
	const like = "&source=app.bsky.feed.like:subject.uri"
	const older = "target=" + post + "&collection=app.bsky.feed.like&path=.subject.uri"
	for call, c := range map[string]struct{ unknown, says string }{
		"/xrpc/blue.skein.graph.rank?via=follows&of=follows(" + d + ")":            {"sicne=1s", "did you mean since?"}, //nolint:misspell // that is the test
		"/xrpc/blue.skein.graph.query?set=follows(" + d + ")":                      {"Limit=1", "did you mean limit?"},
		"/xrpc/blue.skein.graph.list?set=follows(" + d + ")":                       {"cursro=x", "did you mean cursor?"},
		"/xrpc/blue.skein.graph.histogram?set=follows(" + d + ")":                  {"buckets=1h", "did you mean bucket?"},
		"/xrpc/blue.skein.graph.contains?set=follows(" + d + ")&member=" + d:       {"members=" + d, "did you mean member?"},
		"/xrpc/blue.skein.graph.counts?edge=followers&subject=" + d:                {"subjects=" + d, "did you mean subject?"},
		"/xrpc/blue.skein.graph.getBlocks?direction=blocking&actor=" + d:           {"other=" + d, "did you mean others?"},
		"/xrpc/blue.skein.graph.known?actor=" + d + "&edge=followers&subject=" + d: {"subjects=" + d, "did you mean subject?"},
		"/xrpc/blue.skein.graph.getAccount?did=" + d:                               {"handle=x", "blue.skein.graph.getAccount takes did"},
		"/xrpc/blue.skein.graph.getStats":                                          {"x=1", "blue.skein.graph.getStats takes no parameters"},
		"/xrpc/blue.skein.graph.subscribe?set=follows(" + d + ")":                  {"curser=x", "did you mean cursor?"},
		"/xrpc/app.bsky.graph.getRelationships?actor=" + d:                         {"other=" + d, "did you mean others?"},
		"/xrpc/app.bsky.feed.getFeedSkeleton?feed=" + post:                         {"limti=1", "did you mean limit?"},
		"/xrpc/app.bsky.feed.describeFeedGenerator":                                {"feed=x", "takes no parameters"},
		"/xrpc/blue.microcosm.links.getBacklinks?subject=" + post + like:           {"dids=" + d, "did you mean did?"},
		"/xrpc/blue.microcosm.links.getBacklinksCount?subject=" + post + like:      {"did=" + d, "takes subject, source"},
		"/xrpc/blue.microcosm.links.getBacklinkDids?subject=" + post + like:        {"revers=true", "takes subject, source, cursor, limit"},
		"/links?" + older:               {"fromdids=" + d, "did you mean from_dids?"},
		"/links/count?" + older:         {"did=" + d, "takes target, collection, path"},
		"/links/distinct-dids?" + older: {"limits=5", "did you mean limit?"},
		"/links/all?target=" + post:     {"path=.subject.uri", "takes target"},
	} {
		sep := "&"
		if !strings.Contains(call, "?") {
			sep = "?"
		}
		status, body, _ := w.get(call + sep + c.unknown)
		var e struct{ Error, Message string }
		if err := json.Unmarshal([]byte(body), &e); err != nil || status != 400 || e.Error != "InvalidRequest" || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s with %s: %d %s, want %q", call, c.unknown, status, body, c.says)
		}
	}
	// All documented parameters are accepted, useful or not.
	for _, call := range []string{
		"/links?reverse=true&limit=3&did=" + d + "&" + older,
		"/links?from_dids=" + d + "&" + older,
		"/links/count?cursor=&" + older,
		"/xrpc/blue.microcosm.links.getManyToMany?pathToOther=list&source=app.bsky.graph.listitem:subject&linkDid=" + d + "&otherSubject=" + post + "&limit=4&subject=" + d,
		"/xrpc/app.bsky.graph.getRelationships?others=" + d + "&others=" + d + "&actor=" + d,
		"/xrpc/blue.skein.graph.rank?" + url.Values{"of": {"follows(" + d + ")"}, "via": {"likes"}, "except": {"likes(" + d + ")"}, "since": {"1h"}, "until": {"1m"}, "subjectsSince": {"1d"}, "by": {"lift"}, "min": {"1"}, "limit": {"1"}}.Encode(),
	} {
		if status, body, _ := w.get(call); status != 200 {
			t.Errorf("%s: %d %s", call, status, body)
		}
	}
	// A clipped echo, and no guess, of what nobody types.
	if status, body, _ := w.get("/xrpc/blue.skein.graph.getStats?" + strings.Repeat("a", 5000) + "=1"); status != 400 || len(body) > 300 {
		t.Errorf("%d %s", status, body)
	}
	// A time that is given and empty is a slip, too.
	for _, name := range []string{"since", "until", "subjectsSince"} {
		if status, body, _ := w.get("/xrpc/blue.skein.graph.rank?via=likes&of=follows(" + d + ")&" + name + "="); status != 400 || !strings.Contains(body, name) {
			t.Errorf("an empty %s: %d %s", name, status, body)
		}
	}
}
