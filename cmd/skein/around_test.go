package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	simulated "skein.blue/internal/sim/network"
	"skein.blue/internal/sim/relay"
)

// holdings are what an export says of each account.
type holdings struct {
	records  map[string][]string // by account: kind, key and subject
	accounts map[string]account
	around   graph.Around
}

type account struct {
	DID, Rev                        string
	Hidden, Partial, Desynchronized bool
	Queued                          *graph.Resync
}

func holdingsOf(t *testing.T, store string) holdings {
	t.Helper()
	h := holdings{records: map[string][]string{}, accounts: map[string]account{}}
	for text := range strings.Lines(run(t, 0, "", "export", "--store", store)) {
		var l struct {
			DID, Kind string
			Records   [][2]string
			Account   account
			Doubts    struct{ Backfill graph.Backfill }
		}
		if json.Unmarshal([]byte(text), &l) != nil {
			t.Fatalf("line %q", text)
		}
		if l.Account.DID != "" {
			h.accounts[l.Account.DID] = l.Account
		}
		if l.Doubts.Backfill.Around.Hops > 0 {
			h.around = l.Doubts.Backfill.Around
		}
		for _, r := range l.Records {
			h.records[l.DID] = append(h.records[l.DID], l.Kind+" "+r[0]+" "+r[1])
		}
	}
	return h
}

// follows returns whom an account follows.
func (h *holdings) follows(did string) (all []string) {
	for _, r := range h.records[did] {
		if f := strings.Fields(r); f[0] == "follow" && !slices.Contains(all, f[2]) {
			all = append(all, f[2])
		}
	}
	return all
}

// naming returns those records of an account that name a center, or a record of it.
func (h *holdings) naming(did, center string) (all []string) {
	for _, r := range h.records[did] {
		if subject := strings.Fields(r)[2]; subject == center || strings.HasPrefix(subject, "at://"+center+"/") {
			all = append(all, r)
		}
	}
	return all
}

// A part of a network has the repos of its members whole, grows with each follow, and has of everybody else what they did
// to the center since it began, whenever it is killed. With another center, others lose their claim.
func TestAround(t *testing.T) {
	t.Parallel()
	n := simulated.Options{Accounts: 4096, OnlyPLC: true, Seed: 1}
	const past, events = 6000, 2000
	o := relay.Options{Network: n, From: past, Rate: 600, Events: events}
	address := simulateHosts(t, o)
	net := simulated.New(n)
	first, second := string(net.AppendDID(nil, 0)), string(net.AppendDID(nil, 1))
	source := []string{"--relay", "ws://" + address, "--plc", "http://" + address, "--allow-private-hosts"}
	store := filepath.Join(t.TempDir(), "part")
	start := func(more ...string) *daemon {
		return serveDaemon(t, nil, append(append([]string{"--store", store}, source...), more...)...)
	}
	inPlace := func(d *daemon) {
		t.Helper()
		quiet := 0
		eventually(t, time.Minute, "the part is in place", func() bool {
			quiet++
			_, rows := askAt(t, d.admin+"/resyncs")
			for row := range strings.Lines(rows) { // accounts that never acted have no repo on a host
				if !strings.Contains(row, `"not_found"`) {
					quiet = 0
				}
			}
			if d.cursor() < past+events {
				quiet = 0
			}
			return quiet >= 55 // a second and more: what is in place may bring others
		})
	}
	rng := seeded(t)
	from := []string{"--cursor", fmt.Sprint(past)} // as if it had begun to listen then
	for range 3 {
		d := start(append(from, "--around", first)...)
		from = nil
		d.indexes(past + 1)
		time.Sleep(time.Duration(rng.IntN(1200)) * time.Millisecond)
		d.kill()
	}
	d := start("--around", first)
	inPlace(d)
	if _, config := askAt(t, d.api+"/page/config.json"); !strings.Contains(config, `"accounts":["`+first+`"]`) {
		t.Errorf("the page asks about others than the center: %s", config)
	}
	d.stop()

	whole, stream := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "stream")
	d = serveDaemon(t, nil, append([]string{"--store", whole, "--cursor", fmt.Sprint(past)}, source...)...)
	eventually(t, time.Minute, "all repos are fetched", func() bool { // which can begin once the stream is live
		code, out, _ := skein(t, "backfill", "--admin", d.admin)
		return code == 0 && strings.HasPrefix(out, "done: ")
	})
	d.stop()
	run(t, 0, "", "replay", "--store", stream, "--relay", "ws://"+address, "--cursor", fmt.Sprint(past), "--until", fmt.Sprint(past+events))
	truth, heard := holdingsOf(t, whole), holdingsOf(t, stream)
	check := func(center string) (members int, others int) {
		t.Helper()
		got := holdingsOf(t, store)
		belongs := map[string]bool{center: true}
		for _, did := range truth.follows(center) {
			belongs[did] = true
		}
		for did := range belongs {
			a := got.accounts[did]
			if truth.accounts[did].Hidden || a.Hidden {
				continue
			}
			members++
			if a.Partial || a.Desynchronized || a.Queued != nil && a.Queued.Failure != "not_found" || fmt.Sprint(got.records[did]) != fmt.Sprint(truth.records[did]) {
				t.Errorf("member %s, partial=%t desynchronized=%t queued %+v:\n%q, want\n%q", did, a.Partial, a.Desynchronized, a.Queued, got.records[did], truth.records[did])
			}
		}
		for did, a := range got.accounts {
			if !belongs[did] && a.Rev != "" && !a.Partial && a.Queued == nil && center == second {
				t.Errorf("%s does not belong to the part, and counts as whole", did)
			}
		}
		for did := range heard.accounts {
			if a := got.accounts[did]; belongs[did] || !a.Partial && a.DID != "" {
				continue // or it was unfollowed
			}
			if got, want := got.naming(did, center), heard.naming(did, center); center == first && fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("outsider %s did %q to the center, want %q", did, got, want)
			} else {
				others += len(want)
			}
			if center == first && len(got.records[did]) > len(got.naming(did, center)) {
				t.Errorf("outsider %s has other records: %q", did, got.records[did])
			}
		}
		if got.around.Members < members || len(got.around.Centers) != 1 || got.around.Centers[0] != center {
			t.Errorf("%+v, want %d members", got.around, members)
		}
		return members, others
	}
	if members, others := check(first); members < 20 || others < 20 {
		t.Errorf("%d members, %d records of others: too few for a test", members, others)
	}
	run(t, 0, "no problems found", "check", "--store", store)

	resolver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"did":%q}`, net.AppendDID(nil, 4000)) }))
	defer resolver.Close()
	d = start("--around", second, "--resolver", resolver.URL)
	inPlace(d)
	if code, out, errs := skein(t, "resync", "--admin", d.admin, "@outsider.example.com"); code == 0 || !strings.Contains(out+errs, string(net.AppendDID(nil, 4000))+" is not in the part") {
		t.Errorf("resync of an outsider: %d %s%s", code, out, errs)
	}
	d.stop()
	check(second)
	run(t, 0, "no problems found", "check", "--store", store)

	// Flags and stores that exclude each other.
	run(t, 64, "the store holds a part of the network", "replay", "--frames", plainPDS, "--store", store)
	for _, c := range []struct {
		code  int
		says  string
		flags []string
	}{
		{64, "the store holds a part of the network", []string{"--store", store}},
		{64, "holds records of the whole network", []string{"--store", stream, "--around", second}},
		{64, "--backfill", []string{"--store", store, "--around", second, "--backfill", "repos"}},
		{64, "--hops needs --around", []string{"--store", store, "--hops", "2"}},
		{64, "neither an account", []string{"--store", store, "--around", "at://" + first + "/app.bsky.feed.post/a"}},
		{1, "--resolver off", []string{"--store", store, "--around", "@a.example.com", "--resolver", "off"}},
	} {
		run(t, c.code, c.says, append(append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, source...), c.flags...)...)
	}
}
