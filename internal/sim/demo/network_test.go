package demo

import (
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/internal/identities"
)

// The made-up commits decode, each continues its repo's previous commit, and the highlights exist.
func TestNetwork(t *testing.T) {
	n := New(1)
	at := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	d := wire.Decoder{Kinds: kinds.BuiltIn}
	revs := map[string]string{}
	for i := range 20_000 {
		var m wire.Message
		if err := wire.Parse(n.next(at.Add(time.Duration(i)*time.Second)), &m); err != nil {
			t.Fatal(err)
		}
		var b batch.Batch
		if d.Add(&m, &b); len(d.Drops) > 0 {
			t.Fatalf("commit %d: %+v", i, d.Drops)
		}
		if was := revs[string(m.DID)]; string(m.Since) != was || string(m.Rev) <= was || int(m.Seq) != i+1 {
			t.Fatalf("commit %d of %s: rev %s since %s, after %s", i, m.DID, m.Rev, m.Since, was)
		}
		revs[string(m.DID)] = string(m.Rev)
	}
	h := n.highlights()
	if h.Fan == "" || h.Post == "" || h.Stars[0] == h.Stars[1] {
		t.Errorf("%+v", h)
	}
	if again := New(1); string(again.next(at)) != string(New(1).next(at)) {
		t.Error("the same seed makes different networks")
	}
}

// The past is spread evenly over its hours, up to now.
func TestPast(t *testing.T) {
	end := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	hours := map[int]int{}
	for i := range pastOps {
		hours[int(end.Sub(pastAt(end, i))/time.Hour)]++
	}
	for hour := range pastHours {
		if each := pastOps / pastHours; hours[hour] < each-1 || hours[hour] > each+1 {
			t.Errorf("%d hours ago: %d commits, want %d", hour, hours[hour], each)
		}
	}
}

// Everybody has a unique handle, a name and a picture, and posts have texts.
func TestPeople(t *testing.T) {
	n := New(1)
	if len(n.handles) != people {
		t.Fatalf("%d handles", len(n.handles))
	}
	srv := httptest.NewServer(n.People())
	defer srv.Close()
	for i, did := range n.dids {
		handle := n.Handle(did)
		if found, err := n.Resolve(t.Context(), strings.ToUpper(handle)); found != did || err != nil {
			t.Fatalf("%s, person %d: %q, %v", did, i, found, err)
		}
	}
	if did, err := n.Resolve(t.Context(), "nobody.test"); did != "" || !errors.Is(err, identities.ErrNotFound) {
		t.Errorf("an unknown handle: %q, %v", did, err)
	}
	did, uri := n.dids[7], "at://"+n.dids[8]+"/app.bsky.feed.post/x"
	for _, test := range []struct{ path, want string }{
		{"/xrpc/app.bsky.actor.getProfiles?actors=" + did + "&actors=did:plc:nobody&actors=" + n.Handle(n.dids[8]), `{"profiles":[{"did":"` + did + `","handle":"` + n.Handle(did)},
		{"/xrpc/app.bsky.feed.getPosts?uris=" + uri, `{"posts":[{"author":{"did":"` + n.dids[8]},
		{"/xrpc/app.bsky.actor.searchActorsTypeahead?q=" + n.Handle(did)[:8], `{"actors":[{"did":"did:plc:`},
		{"/page/faces/" + did, `<svg xmlns="http://www.w3.org/2000/svg"`},
		{"/page/faces/did:plc:nobody", "404"},
	} {
		resp, err := srv.Client().Get(srv.URL + test.path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil || !strings.HasPrefix(string(body), test.want) {
			t.Errorf("%s: %s, %v", test.path, body, err)
		}
		if strings.Contains(test.path, "nobody&") && strings.Count(string(body), `"did"`) != 2 {
			t.Errorf("want two known profiles: %s", body)
		}
	}
}
