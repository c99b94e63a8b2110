package query_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/internal/identities"
	"skein.blue/query"
)

// handles knows some handles; others it has to look up first.
type handles struct {
	asked  atomic.Int64
	mu     sync.Mutex
	kept   map[string]string
	remote map[string]string
	hung   map[string]chan struct{} // accounts whose handles are not known before
}

func (h *handles) Kept(name string) (string, bool, error) {
	h.asked.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	did, ok := h.kept[name]
	return did, ok, nil
}

func (h *handles) Resolve(_ context.Context, name string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch did := h.remote[name]; {
	case did != "":
		h.kept[name] = did
		return did, nil
	case strings.HasPrefix(name, "h5"):
		return "did:web:" + name, nil
	case name == "broken.example.com":
		return "", identities.ErrFailed
	}
	return "", identities.ErrNotFound
}

// HandleOf knows only remote handles that are not broken.
func (h *handles) HandleOf(_ context.Context, did string) (string, error) {
	if until, hangs := h.hung[did]; hangs {
		<-until
	}
	for handle, is := range h.remote {
		if is == did {
			return handle, nil
		}
	}
	return "", identities.ErrFailed
}

// A handle, and an address at bsky.app, stand for what they name, wherever a DID or a post
// is taken.
func TestNames(t *testing.T) {
	w := newWorld(t, 31, 4000)
	v := w.model.Views()
	a := []string{"", ""} // with follows; and the author of a post that is liked
	post := ""
	for _, did := range w.history.Accounts() {
		if len(v.Forward["follow"][did]) > 3 {
			a[0] = did
		}
	}
	for uri, likers := range v.Reverse["like"] {
		if author, rest, _ := strings.Cut(strings.TrimPrefix(uri, "at://"), "/"); len(likers) > 1 && strings.HasPrefix(author, "did:") && author != a[0] && rest != "" && len(v.Forward["follow"][author]) > 0 {
			a[1], post = author, uri
		}
	}
	if a[0] == "" || post == "" {
		t.Fatal("nobody follows many, or no post is liked")
	}
	h := &handles{kept: map[string]string{"kept.example.com": a[0]}, remote: map[string]string{"alice.example.com": a[1], "twice.example.com": a[1]}}
	w.serve(query.Options{Handles: h})
	rkey := post[strings.LastIndexByte(post, '/')+1:]
	for set, want := range map[string][]string{
		"follows(@kept.example.com)":                                            v.Forward["follow"][a[0]],
		"follows(@alice.example.com)":                                           v.Forward["follow"][a[1]],
		"followers(https://bsky.app/profile/alice.example.com)":                 v.Reverse["follow"][a[1]],
		"followers(https://bsky.app/profile/" + a[1] + "/)":                     v.Reverse["follow"][a[1]],
		"likers(https://bsky.app/profile/alice.example.com/post/" + rkey + ")":  v.Reverse["like"][post],
		"likers(https://bsky.app/profile/" + a[1] + "/post/" + rkey + "?ref=x)": v.Reverse["like"][post],
		"likers(at://alice.example.com/app.bsky.feed.post/" + rkey + ")":        v.Reverse["like"][post],
		"intersect(follows(@alice.example.com), members(@kept.example.com))":    intersect(v.Forward["follow"][a[1]], []string{a[0]}),
		"members(@kept.example.com,@alice.example.com," + a[0] + ")":            intersect(a[:2], a),
		"atleast(2,follows(@twice.example.com),follows(@twice.example.com))":    v.Forward["follow"][a[1]],
	} {
		got, _ := w.all(set, 3, nil)
		if w.model.Hidden[a[0]] || w.model.Hidden[a[1]] {
			t.Fatal("another seed: one of the two is hidden")
		}
		want = slices.Clone(want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", set, got, want)
		}
	}
	for call, want := range map[string]struct {
		status int
		says   string
	}{
		"query?set=follows(@nobody.example.com)": {400, `"HandleNotFound","message":"set: at position 8: no account has the handle nobody.example.com`},
		"query?set=follows(@broken.example.com)": {502, `"UpstreamFailure","message":"set: at position 8: broken.example.com`},
		"query?set=" + members(1, 10):            {400, `this query has 9 handles that the server has not looked up yet; at most 8 are allowed`},
		"query?set=union(within(@h51.example.com,2),within(@h52.example.com,2),within(@h53.example.com,2))": {200, `"total"`},
		"overlap?set=members(@h51.example.com,@h52.example.com)&set=" + members(1, 8):                       {400, `this query has 9 handles`},
		"known?edge=followers&actor=@nobody.example.com&subject=" + a[0]:                                    {400, `"HandleNotFound","message":"actor (number 1): no account has`},
		"known?edge=followers&actor=@kept.example.com&subject=@alice.example.com":                           {200, `"total"`},
		"contains?set=members(" + a[1] + ")&member=@alice.example.com":                                      {200, `"contained":true`},
		"contains?set=likes(" + a[1] + ")&member=at://did:web:a.example.com/space/com.example.forum/self":   {400, `(number 1) is not an AT URI`},
	} {
		w.says(call, want.status, want.says)
	}
	var rel struct {
		Actor         string
		Relationships []map[string]any
	}
	w.ask("app.bsky.graph.getRelationships", url.Values{"actor": {"alice.example.com"}, "others": {"kept.example.com", "nobody.example.com"}}, &rel)
	if rel.Actor != a[1] || rel.Relationships[0]["did"] != a[0] || rel.Relationships[1]["notFound"] != true {
		t.Errorf("%+v", rel)
	}
	w.ask("app.bsky.graph.getRelationships", url.Values{"actor": {"\u2068@Alice.Example.com\u2069"}, "others": {" Kept.example.com", "\u200e" + a[0], "Nobody.example.com "}}, &rel)
	if rel.Actor != a[1] || len(rel.Relationships) != 3 || rel.Relationships[0]["did"] != a[0] || rel.Relationships[1]["did"] != a[0] || rel.Relationships[2]["actor"] != "Nobody.example.com " {
		t.Errorf("pasted: %+v", rel)
	}
}

// Handles are looked up for the client who asks, in the part that clients have (identities.Broker).
func TestHandlesAreLookedUpForClients(t *testing.T) {
	w := newWorld(t, 31, 100)
	var now, most atomic.Int32
	full := make(chan struct{})
	reached := sync.OnceFunc(func() { close(full) })
	slow := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		if n := now.Add(1); n > most.Load() {
			if most.Store(n); n == identities.ClientsOfHandles {
				reached()
			}
		}
		select {
		case <-full:
		case <-time.After(4 * time.Second):
		}
		now.Add(-1)
		rw.WriteHeader(http.StatusNotFound)
	}))
	defer slow.Close()
	h, err := identities.New(identities.Options{Resolver: slow.URL})
	must(t, err)
	w.serve(query.Options{Handles: h})
	var asking sync.WaitGroup
	for i := range 3 {
		asking.Go(func() { w.get("query?set=" + url.QueryEscape(members(8*i, 8+8*i))) })
	}
	asking.Wait()
	select {
	case <-full:
	default:
		t.Errorf("at most %d look-ups ran at a time, want %d", most.Load(), identities.ClientsOfHandles)
	}
}

func members(from, to int) string {
	var all []string
	for i := range to - from {
		all = append(all, fmt.Sprintf("@h%d.example.com", from+i))
	}
	return "members(" + strings.Join(all, ",") + ")"
}
