package query_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
)

// A client that offers xrpc.v1.json gets each message in that envelope; one that offers
// nothing that is known here gets it bare, as before.
func TestSubprotocol(t *testing.T) {
	t.Parallel()
	w := watchedWorld(t, 66, 0, query.Options{})
	a := w.history.Accounts()
	for n, c := range []struct {
		offers   []string
		envelope bool
	}{
		{nil, false},
		{[]string{"xrpc.v0.cbor"}, false},
		{[]string{"xrpc.v1.cbor"}, false},
		{[]string{"xrpc.v1.json"}, true},
		{[]string{"xrpc.v1.cbor", "xrpc.v1.json"}, true},
	} {
		dialer := websocket.Dialer{Subprotocols: c.offers}
		conn, resp, err := dialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(w.subscribeURL("followers("+a[0]+")", ""), "http"), nil)
		if err != nil {
			t.Fatal(c.offers, err)
		}
		_ = resp.Body.Close()
		if got := conn.Subprotocol(); (got == "xrpc.v1.json") != c.envelope || got != resp.Header.Get("Sec-WebSocket-Protocol") {
			t.Errorf("%q: the server chose %q", c.offers, got)
		}
		next := func() change {
			t.Helper()
			kind, frame, err := conn.ReadMessage()
			if err != nil || kind != websocket.TextMessage {
				t.Fatal(c.offers, kind, err)
			}
			var bare struct {
				change
				DollarType string `json:"$type"`
				Payload    json.RawMessage
			}
			if err := json.Unmarshal(frame, &bare); err != nil {
				t.Fatal(err)
			}
			if !c.envelope {
				if bare.DollarType != "" || bare.Payload != nil {
					t.Fatalf("%q: not as before: %s", c.offers, frame)
				}
				return bare.change
			}
			var payload struct {
				change
				DollarType string `json:"$type"`
			}
			if err := json.Unmarshal(bare.Payload, &payload); err != nil || bare.DollarType != "message" || payload.DollarType != "blue.skein.graph.subscribe#change" || bare.Cursor != "" {
				t.Fatalf("%q: %s: %v", c.offers, frame, err)
			}
			return payload.change
		}
		if first := next(); first.Type != "did" || first.Cursor == "" {
			t.Errorf("%q: the first message is %+v", c.offers, first)
		}
		who := a[n+1]
		w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: int64(n + 1), DID: who, Rev: tidOf(int64(n + 1)), Ops: []oracle.Op{{Kind: "follow", Rkey: "1", Subject: a[0]}}})
		if m := next(); !slices.Equal(m.Entered, []string{who}) {
			t.Errorf("%q: %+v", c.offers, m)
		}
		_ = conn.Close()
	}
}
