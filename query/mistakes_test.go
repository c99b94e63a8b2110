package query_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
)

// A mistake is an error that names the parameter, and the place in an expression. (The packages of expressions, rankings,
// backlinks and feeds have tables of theirs.)
func TestMistakes(t *testing.T) {
	w := newWorld(t, 4, 500)
	d, list := w.history.Accounts()[0], oracle.ListOf(w.history.Accounts()[0], 0)
	const post, plc = "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/3kaaaaaaaaaaa", "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	many := func(name, v string, n int) string { return strings.Repeat("&"+name+"="+v, n) }
	set := "set=members(" + strings.Join(w.history.Accounts()[:20], ",") + ")"
	first := w.answer("query", url.Values{"set": {set[4:]}, "limit": {"2"}}).Cursor
	like, older := "&source=app.bsky.feed.like:subject.uri", "target="+post+"&collection=app.bsky.feed.like&path=.subject.uri"
	follows := "set=follows(" + d + ")"
	for method, calls := range map[string]map[string]string{
		"query": {
			"": `set" is missing`,
			"set=likers(at://alice.example.com/app.bsky.feed.post/3kaaaaaaaaaaa)": "handles are not resolved here: give the DID",
			"set=listed(https://bsky.app/profile/alice.example.com/lists/x)":      "handles are not resolved here",
			"set=union(follows(" + plc + "),likes(" + plc + "))":                  "position 48",
			"records=true&set=members(" + d + ")":                                 "takes a single set",
			set + "&limit=1001":                                                   "1 to 1000",
			set + "&count=maybe":                                                  "count",
			set + "&cursor=garbage":                                               "cursor",
			set + "&cursor=" + first[1:]:                                          "cursor",
			follows + "&cursor=" + first:                                          "cursor",
		},
		"contains": {
			set:                            `member" is missing`,
			set + many("member", plc, 101): "at most 100",
			set + "&member=at://" + plc:    "member",
			set + "&member=did:plc:short":  "24 characters",
			follows + "&member=" + d + "&members=" + d: "did you mean member?",
		},
		"counts": {
			"subject=" + d:                            `edge" is missing`,
			"edge=followers":                          `subject" is missing`,
			"edge=follow&subject=" + d:                `parameter edge is "follow"; it must be one of follows, followers`,
			"edge=followed_by&subject=" + d:           "; did you mean followers?",
			"edge=like&subject=" + post:               "; did you mean likes?",
			"edge=members&subject=" + d:               `parameter edge is "members"`,
			"edge=followers&subject=" + post:          "is not an account",
			"edge=likers&edge=likes&subject=" + post:  "cannot be in one call, because likers takes an AT URI and likes takes an account",
			"subject=" + d + many("edge", "likes", 9): "parameter edge occurs 9 times; at most 8",
			"edge=likes" + many("subject", d, 101):    "parameter subject occurs 101 times; at most 100",
			"edge=likes&subjects=" + d:                "did you mean subject?",
		},
		"known": {
			"edge=followers&subject=" + d:                                      `actor" is missing`,
			"actor=x&edge=followers&subject=" + d:                              `actor "x" (number 1) is not an account`,
			"actor=" + d + "&actor=" + d + "&edge=followers&subject=" + d:      "parameter actor occurs 2 times",
			"actor=" + d + "&edge=likes&subject=" + d:                          "it must be one of follows, followers, blocks, blockers, likers, reposters, listblockers, listed",
			"actor=" + d + "&edge=followers&subject=" + d + "&subject=" + post: "(number 2) is not an account",
			"actor=" + d + "&edge=followers" + many("subject", d, 101):         "subject occurs 101 times; at most 100 are allowed",
			"actor=" + d + "&edge=followers&limit=101&subject=" + d:            "from 0 to 100",
		},
		"getBlocks": {
			"direction=blocking":                                          `actor" is missing`,
			"actor=" + d:                                                  "parameter direction is",
			"actor=" + d + "&direction=both":                              "it must be blocking or blockedBy",
			"actor=" + d + "&direction=blocking&limit=101":                "limit",
			"actor=" + d + "&direction=blocking&others=x":                 "others",
			"actor=" + d + "&direction=blocking&cursor=x":                 "cursor",
			"actor=" + d + "&direction=blocking&others=" + d + "&limit=5": "others cannot be combined with limit or cursor",
			"actor=" + d + "&direction=blocking" + many("others", d, 101): "at most 100",
		},
		"histogram": {
			"": `set" is missing`,
			"set=union(follows(" + d + "),members(" + d + "))": "histogram needs a set whose members come from records",
			follows + "&bucket=59s":                            `parameter bucket is "59s"; it must be a duration from 1m to 30d`,
			follows + "&bucket=31d":                            "parameter bucket is",
			follows + "&bucket=90.5s":                          "parameter bucket is",
			follows + "&bucket=":                               "parameter bucket is",
			follows + "&since=tomorrow":                        "is not a time",
			follows + "&since=2026-01-02&until=2026-01-02":     "must be earlier than until",
		},
		"list": {
			follows + "&order=":                                              "must be newest, oldest, created, id or size(NAME)",
			follows + "&order=biggest":                                       `is "biggest"; it must be newest`,
			follows + "&order=size(":                                         `is "size("`,
			follows + "&order=size()":                                        `NAME is ""; for a set of DIDs it must be one of`,
			follows + "&order=size(likers)":                                  `NAME is "likers"; for a set of DIDs`,
			follows + "&order=size(following)":                               "; did you mean follows?",
			"set=likes(" + d + ")&order=size(followers)":                     "for a set of AT URIs it must be one of",
			"set=union(" + follows[4:] + ",members(" + d + "))&order=oldest": "needs a set whose members come from records",
			follows + "&limit=0":                                             "from 1 to 1000",
			follows + "&exact=maybe":                                         "exact",
		},
		"rank": {"of=follows(" + d + ")&via=likes&sicne=1s": "did you mean since?"}, //nolint:misspell // that is the test
		"subscribe": {
			"set=authors(likes(" + d + "))":            "cannot be watched",
			"set=union(listed(" + list + ",since=1d))": "since or until",
			follows + "&curser=x":                      "did you mean cursor?",
		},
		"getAccount": {"handle=x&did=" + d: "blue.skein.graph.getAccount takes did"},
		"getStats":   {"x=1": "blue.skein.graph.getStats takes no parameters", strings.Repeat("a", 5000) + "=1": "…"},
		"app.bsky.graph.getRelationships": {
			"others=" + d:                        `actor" is missing`,
			"actor=x":                            "neither a DID nor a handle",
			"actor=" + d + "&others=x y":         "neither a DID nor a handle",
			"actor=" + d + many("others", d, 31): "others occurs 31 times",
			"other=x&actor=" + d:                 "did you mean others?",
		},
		"app.bsky.feed.getFeedSkeleton":        {"limti=1&feed=" + post: "did you mean limit?"},
		"blue.microcosm.links.getBacklinks":    {"dids=" + d + "&subject=" + post + like: "did you mean did?"},
		"blue.microcosm.links.getBacklinkDids": {"revers=true&subject=" + post + like: "takes subject, source, cursor, limit"},
		"/links":                               {"fromdids=" + d + "&" + older: "did you mean from_dids?"},
		"/links/count":                         {"did=" + d + "&" + older: "takes target, collection, path"},
	} {
		for call, says := range calls {
			status, body, h := w.get(strings.ReplaceAll(method+"?"+call, " ", "%20"))
			if status != 400 || !strings.HasPrefix(body, `{"error":"InvalidRequest"`) || !strings.Contains(strings.ReplaceAll(body, `\"`, `"`), says) || len(body) > 700 || h.Get("Access-Control-Allow-Origin") != "*" {
				t.Errorf("%s?%.200s: %d %s, want %q", method, call, status, body, says)
			}
		}
	}
	w.says("frob", 501, `MethodNotImplemented","message":"unknown method "blue.skein.graph.frob`)
	w.says("app.bsky.graph.getRelationships?actor=some.handle.example&others="+d, 400, "ActorNotFound")
	w.says("/nothing", 404, "")
	// All documented parameters are accepted, useful or not, and so are values at their bounds.
	for _, call := range []string{
		"/links?reverse=true&limit=3&did=" + d + "&" + older,
		"/links/count?cursor=&" + older,
		"rank?via=likes&since=1h&until=1m&subjectsSince=1d&by=lift&min=1&limit=1&of=follows(" + d + ")&except=likes(" + d + ")",
		"query?set=+intersect+(+followers+(+did:web:example.com%253A80+)+)+",
	} {
		w.says(call, 200, "{")
	}
	for _, call := range []string{"POST getStats", "POST getAccount", "PUT query", "DELETE query", "POST subscribe"} {
		method, name, _ := strings.Cut(call, " ")
		if status, _, h := w.do(method, pathOf(name+"?"+set), ""); status != http.StatusMethodNotAllowed || name != "subscribe" && h.Get("Allow") == "" {
			t.Errorf("%s: %d", call, status)
		}
	}
	// A browser may send tokens: CORS's * does not stand for Authorization.
	if status, _, h := w.do(http.MethodOptions, pathOf("query"), ""); status != http.StatusNoContent || h.Get("Access-Control-Allow-Methods") == "" || !strings.Contains(h.Get("Access-Control-Allow-Headers"), "Authorization,") || !strings.Contains(h.Get("Access-Control-Expose-Headers"), "Retry-After") {
		t.Errorf("OPTIONS: %d %v", status, h)
	}
	w.serve(query.Options{Timeout: time.Nanosecond})
	w.says("query?"+follows, http.StatusGatewayTimeout, "QueryTimeout")
}
