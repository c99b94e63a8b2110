package harness_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// @atproto/api requests a feed for users of the reference PDS, whose keys are in the PLC
// directory. With a token from the PDS it receives the user's own feed, page by page;
// without one, or with one that is expired, forged, or for another audience or method, it
// does not.
//
//	.ci/peers DIR && go test ./internal/sim/harness -run TestFeed -peers DIR -v
func TestFeed(t *testing.T) {
	kit := peers(t)
	if _, err := os.Stat(filepath.Join(*peersDir, "node_modules/@atproto/api")); err != nil {
		t.Skip("-peers lacks @atproto/api: run .ci/peers again")
	}
	n := newNetwork(t, kit, 7)
	viewer := n.accounts[0]
	want := n.likes(viewer, 12)
	feeds := filepath.Join(n.dir, "feeds")
	must(t, os.WriteFile(feeds, []byte("mine = likes($viewer), seen=hide\n"), 0o600))
	n.flags = []string{"--feeds", feeds, "--service-host", "feeds.example.com", "--plc", fmt.Sprintf("http://127.0.0.1:%d", n.plcPort), "--allow-private-hosts"}
	n.follow("--relay", fmt.Sprintf("ws://127.0.0.1:%d", n.pdsPort), "--cursor", "0")
	n.indexed("likes("+viewer.DID+")", 12)
	var out feedAnswers
	b, err := kit.Feed(t.Context(), n.log, n.pdsPort, viewer.DID, n.index.api, "at://did:web:feeds.example.com/app.bsky.feed.generator/mine")
	must(t, err)
	must(t, json.Unmarshal(b, &out))
	slices.Reverse(want) // newest first
	if out.DID != viewer.DID || out.Service.DID != "did:web:feeds.example.com" || out.Good.Status != 200 || !slices.Equal(out.Good.Posts, want) {
		t.Errorf("%s, want %q", b, want)
	}
	if out.Entry.Status != 200 || !slices.Equal(out.Entry.Posts, want) {
		t.Errorf("a token for the service's entry: %+v", out.Entry)
	}
	if out.Unseen.Status != 200 || !slices.Equal(out.Unseen.Posts, want[2:]) {
		t.Errorf("after two posts were seen: %+v, want %q", out.Unseen, want[2:])
	}
	if out.Again.Error != "JwtReplayed" {
		t.Errorf("a replayed token: %+v", out.Again)
	}
	for name, a := range map[string]asked{"none": out.None, "again": out.Again, "audience": out.Audience, "another entry": out.OtherEntry, "method": out.Method, "forged": out.Forged, "expired": out.Expired} {
		if a.Status != 401 || len(a.Posts) > 0 {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if !strings.Contains(out.Expired.Message, "expired") {
		t.Errorf("expired: %+v", out.Expired)
	}
}

// likes makes an account like that many posts of another, and returns them, the oldest
// first.
func (n *network) likes(a *account, count int) (posts []string) {
	n.t.Helper()
	for i := range count {
		post := fmt.Sprintf("at://%s/app.bsky.feed.post/3kaaaaaaaa%c22", n.accounts[1].DID, 'a'+i)
		posts = append(posts, post)
		err := n.client.ApplyWrites(n.t.Context(), a.Account, Write{Collection: "app.bsky.feed.like", Rkey: fmt.Sprintf("3kbbbbbbbbb%c2", 'a'+i), Value: map[string]any{
			"$type": "app.bsky.feed.like", "createdAt": "2026-01-01T00:00:00Z", "subject": map[string]string{"uri": post, "cid": "bafyreibjifzpqj6o6wcq3hejh7y4z4z2vmiklkvykc57tw3pcbx3kxifpm"},
		}})
		must(n.t, err)
	}
	return posts
}

// indexed waits until a set has that many members.
func (n *network) indexed(set string, members int) {
	n.t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		if strings.Contains(n.get(n.index.api+"/xrpc/blue.skein.graph.query?count=true&set="+set), fmt.Sprintf(`"total":%d`, members)) {
			return
		}
		if time.Since(began) > time.Minute {
			n.t.Fatalf("%s does not have %d members after a minute", set, members)
		}
	}
}

type asked struct {
	Status         int
	Posts          []string
	Error, Message string
}

// feedAnswers is the output of peers.mjs feed.
type feedAnswers struct {
	DID                                           string
	Service                                       struct{ DID string }
	Good, Entry, Again, None, Unseen              asked
	Audience, OtherEntry, Method, Forged, Expired asked
}
