package harness_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"testing"
)

// answer is the answer to a query, or an error.
type answer struct {
	Total          int
	Members        []string
	Error, Message string
}

// The reference PDS finds the entry #skein_graph in the DID document, and proxies a query
// with $viewer for each of its users: each receives the answer for its own DID.
//
//	.ci/peers DIR && go test ./internal/sim/harness -run TestViewer -peers DIR -v
func TestViewer(t *testing.T) {
	kit := peers(t)
	n := newNetwork(t, kit, 8)
	alice, bob := n.accounts[0], n.accounts[2]
	want := map[*account][]string{alice: n.likes(alice, 5), bob: n.likes(bob, 2)}
	ports, err := FreePorts(1)
	must(t, err)
	// Resolvers of did:web reach localhost through plain HTTP.
	host, service := fmt.Sprintf("localhost:%d", ports[0]), fmt.Sprintf("did:web:localhost%%3A%d", ports[0])
	n.flags = []string{"--listen", fmt.Sprintf("127.0.0.1:%d", ports[0]), "--service-host", host, "--plc", fmt.Sprintf("http://127.0.0.1:%d", n.plcPort), "--allow-private-hosts"}
	n.follow("--relay", fmt.Sprintf("ws://127.0.0.1:%d", n.pdsPort), "--cursor", "0")
	const method = "blue.skein.graph.query"
	likes := url.Values{"set": {"likes($viewer)"}}
	read := func(status int, body []byte, err error) (int, answer) {
		t.Helper()
		var a answer
		if err == nil {
			err = json.Unmarshal(body, &a)
		}
		if err != nil {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		slices.Sort(a.Members)
		return status, a
	}
	for who, posts := range want {
		n.indexed("likes("+who.DID+")", len(posts))
		if status, a := read(n.client.Proxied(t.Context(), who.Account, service+"#skein_graph", method, likes)); status != 200 || !slices.Equal(a.Members, posts) {
			t.Errorf("%s through the PDS: %d %+v, want %q", who.DID, status, a, posts)
		}
	}
	if status, a := read(n.client.Proxied(t.Context(), alice.Account, service+"#skein_graph", "blue.skein.graph.known", url.Values{"actor": {"$viewer"}, "edge": {"followers"}, "subject": {bob.DID}})); status != 200 || a.Error != "" {
		t.Errorf("known through the PDS: %d %+v", status, a)
	}
	if status, a := read(n.client.Proxied(t.Context(), alice.Account, service+"#bsky_fg", method, likes)); status == 200 {
		t.Errorf("an entry missing in the document: %d %+v", status, a)
	}
	// A token that names the entry, as a PDS of 2026 signs it, is valid once.
	token, err := n.client.ServiceAuth(t.Context(), alice.Account, service+"#skein_graph", method)
	must(t, err)
	direct := NewClient(ports[0])
	for i, expect := range []answer{{Total: 5}, {Error: "JwtReplayed"}} {
		if status, a := read(direct.Get(t.Context(), "/xrpc/"+method+"?"+likes.Encode(), map[string]string{"Authorization": "Bearer " + token})); a.Total != expect.Total || a.Error != expect.Error {
			t.Errorf("use %d of a token: %d %+v", i+1, status, a)
		}
	}
	if status, a := read(direct.Get(t.Context(), "/xrpc/"+method+"?"+likes.Encode(), nil)); status != 401 || a.Error != "AuthMissing" {
		t.Errorf("without a token: %d %+v", status, a)
	}
}
