package backfill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
)

// answering returns the address of a server that answers as f does.
func answering(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	return srv.URL
}

// Addresses of relays and hosts may have any scheme, a path, which is cut, and several forms.
func TestHTTPAddress(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "",
		"relay.example.com":             "https://relay.example.com",
		"relay.example.com:8443":        "https://relay.example.com:8443",
		"wss://relay.example.com":       "https://relay.example.com",
		"wss://relay.example.com/xrpc/": "https://relay.example.com",
		"ws://127.0.0.1:2470/a/b":       "http://127.0.0.1:2470",
		"http://pds.example.com/":       "http://pds.example.com",
		"https://pds.example.com":       "https://pds.example.com",
		"HTTPS://PDS.example.com:443":   "https://pds.example.com",
		"ws://pds.example.com:80/":      "http://pds.example.com",
		"http://pds.example.com:443":    "http://pds.example.com:443",
	} {
		if got := HTTPAddress(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// The hosts of a relay are those that it lists, page by page, except banned ones and names that are
// not host names. A relay that has no such list is read as one host.
func TestHostsOfRelay(t *testing.T) {
	page := func(cursor string, hosts ...any) map[string]any {
		return map[string]any{"cursor": cursor, "hosts": hosts}
	}
	host := func(name, status string) any { return map[string]string{"hostname": name, "status": status} }
	for _, c := range []struct {
		name  string
		serve func(w http.ResponseWriter, cursor string)
		want  []string // "relay" stands for its own address
		err   string
	}{
		{"two pages", func(w http.ResponseWriter, cursor string) {
			if cursor == "" {
				writeJSON(w, page("2", host("a.example.com", "active"), host("b.example.com", "idle"), host("c.example.com", "banned")))
			} else {
				writeJSON(w, page("", host("d.example.com:8443", "offline"), host("e.example.com", "throttled")))
			}
		}, []string{"http://a.example.com", "http://b.example.com", "http://d.example.com:8443", "http://e.example.com"}, ""},
		{"names of strangers", func(w http.ResponseWriter, _ string) {
			writeJSON(w, page("", host("", "active"), host("a/b", "active"), host("user@c", "active"), host("d?e", "active"), host("f#g", "active"), host("h i", "active"), host("j.example.com", "active")))
		}, []string{"http://j.example.com"}, ""},
		{"an empty list", func(w http.ResponseWriter, _ string) { writeJSON(w, page("")) }, []string{"relay"}, ""},
		{"no list", func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusNotFound) }, []string{"relay"}, ""},
		{"refused on the second page", func(w http.ResponseWriter, cursor string) {
			if cursor == "" {
				writeJSON(w, page("2", host("a.example.com", "active")))
			} else {
				w.WriteHeader(http.StatusForbidden)
			}
		}, nil, "HTTP 403"},
		{"out of order", func(w http.ResponseWriter, _ string) { w.WriteHeader(http.StatusInternalServerError) }, nil, "HTTP 500"},
		{"not JSON", func(w http.ResponseWriter, _ string) { _, _ = w.Write([]byte("<p>hello")) }, nil, "listHosts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := answering(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/xrpc/com.atproto.sync.listHosts" || r.URL.Query().Get("limit") != "1000" {
					t.Errorf("requested: %s", r.URL)
				}
				c.serve(w, r.URL.Query().Get("cursor"))
			})
			m := idle(t, Options{Relay: at, Patience: Patience{Tries: 1}})
			got, err := m.client.hostsOfRelay(t.Context())
			for i := range c.want {
				if c.want[i] == "relay" {
					c.want[i] = at
				}
			}
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) || !slices.Equal(got, c.want) {
				t.Errorf("%v, %v; want %v, %q", got, err, c.want, c.err)
			}
		})
	}
}

// The reading of a host's list stops when the list is mostly of other hosts' repos, too long, or
// nearly empty on many pages; the relay's list has no such bound.
func TestBoundOfList(t *testing.T) {
	m := idle(t, Options{Relay: "https://relay.example.com"})
	for _, c := range []struct {
		name   string
		listed int64
		l      listing
		want   string // "": read on
	}{
		{"new", 0, listing{}, ""},
		{"many foreign repos, more of its own", 10_000, listing{foreign: 5000, own: 5000, pages: 10}, ""},
		{"few foreign repos, none of its own", 1000, listing{foreign: mostForeign, pages: 1}, ""},
		{"many foreign repos", 2001, listing{foreign: mostForeign + 1, own: mostForeign, pages: 3}, "foreign"},
		{"as long as allowed", mostListedByHost, listing{pages: 2000, own: 2_000_000}, ""},
		{"longer", mostListedByHost + 1, listing{pages: 2001, own: 2_000_001}, "more than"},
		{"many small pages", fewPages * leastPerPage, listing{pages: fewPages + 1}, "pages"},
		{"an hour for a page", 30_000, listing{took: time.Hour + time.Minute}, "in 1h1m"},
		{"an hour for many pages", 40_000, listing{took: time.Hour + time.Minute}, ""},
		{"a few empty pages", 0, listing{pages: fewPages}, ""},
		{"many pages, full enough", (fewPages + 1) * leastPerPage, listing{pages: fewPages + 1}, ""},
	} {
		c.l.Listed = c.listed
		err := m.lister.bound(&c.l, "https://pds.example.com")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if err := m.lister.bound(&c.l, m.o.Relay); err != nil {
			t.Errorf("%s, of the relay: %v", c.name, err)
		}
	}
}

// A host that lists known accounts of other hosts, page by page, costs no more look-ups than one that lists unknown ones. A
// comparison then has to confirm the roster.
func TestListOfKnownAccounts(t *testing.T) {
	var looked atomic.Int64
	m := idle(t, Options{PLC: answering(t, func(w http.ResponseWriter, _ *http.Request) {
		looked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	})})
	var list listing
	for page := range 4 {
		var b batch.Batch
		repos := make([]listed, pageSize)
		for i := range repos {
			repos[i] = listed{DID: "did:plc:" + strings.NewReplacer("0", "a", "1", "b").Replace(fmt.Sprintf("%024b", page*pageSize+i)), Active: new(false)}
			b.AddStatus([]byte(repos[i].DID), true)
		}
		must(t, m.o.Store.Apply(t.Context(), "", &b))
		must(t, m.lister.takePage(t.Context(), &listJob{}, "https://pds.example.com", &list, repos))
		list.Listed += pageSize
	}
	if n := looked.Load(); n > mostForeign+verifiers || !list.Unread {
		t.Errorf("%d requests to the directory, %+v", n, list)
	}
}

// A page with far more repos than were requested is refused.
func TestHugePage(t *testing.T) {
	repos := make([]any, mostListed+1)
	for i := range repos {
		repos[i] = map[string]any{"did": fmt.Sprintf("did:web:a%d.example.com", i), "rev": "3mb2kxx5ts22a"}
	}
	n := len(repos)
	at := answering(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, map[string]any{"repos": repos[:n]}) })
	m := idle(t, Options{Patience: Patience{Tries: 1}})
	if _, err := m.client.page(t.Context(), at, ""); err == nil || !strings.Contains(err.Error(), "5001 repos") {
		t.Errorf("%v", err)
	}
	n = mostListed
	if p, err := m.client.page(t.Context(), at, ""); err != nil || len(p.Repos) != mostListed {
		t.Errorf("%d repos: %v", len(p.Repos), err)
	}
}

// Jobs over lists that cannot start say why, and leave no job behind.
func TestListJobErrors(t *testing.T) {
	m := idle(t, Options{})
	if err := m.Hosts(t.Context()); err == nil || !strings.Contains(err.Error(), "not running") {
		t.Errorf("before Run: %v", err)
	}
	m.o.Relay = ""
	if err := m.Hosts(t.Context()); err == nil || !strings.Contains(err.Error(), "--host") {
		t.Errorf("without a relay: %v", err)
	}
}

// An interrupted list continues, in the next process, after the last page that was stored, and its
// hosts that were done are not read again.
func TestListContinues(t *testing.T) {
	w := newWorld(t, 3)
	for i := range 60 { // three pages a host
		w.add(i, 2)
	}
	store := newStore()
	x := w.index(store, nil)
	dids := slices.Sorted(maps.Keys(w.repos))
	of := func(h *pds) (own []string) {
		for _, did := range dids {
			if w.repos[did].host == h {
				own = append(own, did)
			}
		}
		return own
	}
	must(t, x.g.ChangeBackfill(t.Context(), func(b *format.Backfill) {
		b.Named, b.ListingFrom = true, time.Now()
		b.Hosts = map[string]format.HostBackfill{
			w.hosts[0].srv.URL: {Done: true, Listed: 20},
			w.hosts[1].srv.URL: {Cursor: of(w.hosts[1])[6], Listed: 7},
			w.hosts[2].srv.URL: {Done: true, Listed: 3, Failed: "HTTP 500"},
		}
	}))
	x.end()
	x = w.index(store, nil)
	st := x.settle(t)
	await(t, "the end of the lists", func() bool { st = x.settle(t); return len(x.g.Backfill().Hosts) == 0 })
	if st.Hosts != 3 || st.HostsDone != 3 || st.Listed != 20+20+3 || st.Complete != 13 || st.Ended["repos"] != "1 of 3 hosts could not be listed" {
		t.Errorf("%+v", st)
	}
	if b := x.g.Backfill(); b.Roster.Known() || b.Named {
		t.Errorf("hosts that an operator named count as the whole network: %+v", b)
	}
	for i, did := range of(w.hosts[1]) {
		if s, _ := x.stateOf(t, did); s.Complete() != (i > 6) {
			t.Errorf("repo %d of the host: complete %v", i, s.Complete())
		}
	}
}

// Lists that a move of partitions interrupts continue when the Manager runs again, and what has not begun fails.
func TestListsRunAgain(t *testing.T) {
	asked, refused := make(chan struct{}, 100), make(chan error)
	relay := answering(t, func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	})
	m := idle(t, Options{Relay: relay}) // the stream is never heard, so the lists wait
	ctx, stop := context.WithCancelCause(t.Context())
	must(t, m.Run(ctx, func() {
		go func() { refused <- m.Hosts(t.Context()) }()
		<-asked
		stop(errors.New("partitions move"))
	}))
	if m.jobs.has(jobRepos) {
		t.Fatal("Run has ended before the request for the hosts")
	}
	if err := <-refused; err == nil || err.Error() != "partitions move" {
		t.Errorf("%v", err)
	}
	must(t, m.o.Store.ChangeBackfill(t.Context(), func(b *format.Backfill) {
		b.Hosts = map[string]format.HostBackfill{"http://127.0.0.1:1": {}}
	}))
	for range 2 {
		must(t, m.Run(context.WithCancel(t.Context())))
	}
}

// Lists wait while too many repos are queued, in all or of one host; both are counted as jobs come and go.
func TestRoomForLists(t *testing.T) {
	m := idle(t, Options{})
	const host = "https://pds.example.com"
	for n := range mostOfAHost {
		if !m.queue.hasRoom(host) {
			t.Fatalf("no room after %d of %d", n, mostOfAHost)
		}
		m.queue.sched.put(fmt.Sprintf("did:web:a%d.example.com", n), 1, time.Now().Add(time.Hour), 0, host)
	}
	if m.queue.hasRoom(host) || !m.queue.hasRoom("https://other.example.com") || !m.queue.hasRoom("") {
		t.Errorf("of the host %v, of another %v, in all %v", m.queue.hasRoom(host), m.queue.hasRoom("https://other.example.com"), m.queue.hasRoom(""))
	}
	synctest.Test(t, func(t *testing.T) {
		for within, want := range map[time.Duration]string{time.Hour: "deadline exceeded", 2 * time.Hour: "5000 of its repos"} {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			own := 90 * time.Minute
			if err := m.queue.awaitRoom(ctx, host, &own, 3*time.Hour); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("after %v: %v, want %q", within, err, want)
			}
			cancel()
		}
	})
	m.queue.sched.remove(m.queue.sched.jobs["did:web:a17.example.com"])
	must(t, m.queue.awaitRoom(t.Context(), host, nil, 0))
}
