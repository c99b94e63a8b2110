package query_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/consumer"
	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
	"skein.blue/query/language"
)

// never is an unknown account.
const never = "did:plc:neverseenaaaaaaaaaaaaaaa"

// world is a graph made of a history, a server of it, and the truth.
type world struct {
	t       *testing.T
	store   *graph.Store
	history *oracle.History
	model   *oracle.Model
	base    string

	// Of the present model; nil if they were not read yet.
	rkeys    map[oracle.Edge][]string // of the records of each edge
	listings []oracle.Listing
}

// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newWorld returns a world after some events of a random history.
func newWorld(t *testing.T, seed uint64, events int) *world {
	t.Helper()
	w := newWorldOn(t, oracle.NewHistory(seed, 40), memory(write.Limits{}), graph.Options{})
	w.grow(events)
	return w
}

// spreadWorld returns a world over centuries, whose chunks and rows are spilled soon.
func spreadWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	w := newWorldOn(t, oracle.NewSpreadHistory(seed, 30), memory(write.Limits{Row: 6, Chunk: 3}), graph.Options{})
	w.grow(5000)
	return w
}

func memory(l write.Limits) kv.Store { return memkv.Open(memkv.Options{Merger: write.NewMerger(l)}) }

// newWorldOn returns a world without events.
func newWorldOn(t *testing.T, h *oracle.History, store kv.Store, o graph.Options) *world {
	t.Helper()
	g, err := graph.Open(t.Context(), store, o)
	must(t, err)
	w := &world{t: t, store: g, history: h, model: oracle.New()}
	w.serve(query.Options{Version: "1.2.3", Relay: "memory"})
	return w
}

// serve serves the world with other options from here on.
func (w *world) serve(o query.Options) *query.Server {
	w.t.Helper()
	s := query.New(w.store, o)
	srv := httptest.NewServer(s)
	w.t.Cleanup(srv.Close)
	w.t.Cleanup(s.Close)
	w.base = srv.URL
	return s
}

// grow lets more events happen.
func (w *world) grow(events int) {
	w.t.Helper()
	var list []*oracle.Event
	for range events {
		list = append(list, w.history.Next())
	}
	w.happen(list...)
}

// happen lets events happen.
func (w *world) happen(events ...*oracle.Event) {
	w.t.Helper()
	var frames [][]byte
	for _, e := range events {
		w.model.Apply(e)
		frames = append(frames, oracle.Frame(e))
	}
	w.rkeys, w.listings = nil, nil
	w.index(frames)
}

// commit lets an account make records.
func (w *world) commit(seq int64, did string, ops ...oracle.Op) {
	w.t.Helper()
	w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: seq, DID: did, Rev: oracle.TID(uint64(seq) << 20), Ops: ops})
}

// index indexes messages of the stream.
func (w *world) index(frames [][]byte) {
	w.t.Helper()
	c, err := consumer.New(w.store, consumer.Options{Relay: "ws://memory", Read: slices.Values(frames)})
	if err == nil {
		err = c.Run(w.t.Context())
	}
	for err == nil && w.store.Erasing() {
		err = w.store.EraseSlice(w.t.Context())
	}
	must(w.t, err)
}

// do sends a request with headers, in pairs of a name and a value.
func (w *world) do(method, path, body string, headers ...string) (status int, answer string, header http.Header) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second) // a stream does not end
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, w.base+path, strings.NewReader(body))
	must(w.t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	must(w.t, err)
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// get calls a method of blue.skein.graph, another one by its NSID, or a path.
func (w *world) get(call string) (status int, body string, header http.Header) {
	w.t.Helper()
	return w.do(http.MethodGet, pathOf(call), "")
}

func pathOf(call string) string {
	name, _, _ := strings.Cut(call, "?")
	switch {
	case strings.HasPrefix(name, "/"):
		return call
	case strings.Contains(name, "."):
		return "/xrpc/" + call
	}
	return "/xrpc/blue.skein.graph." + call
}

// ask calls a method that must answer, and decodes into v. It sends a long question as a form.
func (w *world) ask(method string, p url.Values, v any) {
	w.t.Helper()
	status, body, _ := w.get(method + "?" + p.Encode())
	if len(p.Encode()) > language.MaxExpr {
		status, body, _ = w.do(http.MethodPost, pathOf(method), p.Encode(), "Content-Type", formType)
	}
	if err := json.Unmarshal([]byte(body), v); err != nil || status != 200 {
		w.t.Fatalf("%s %v: %d %s %v", method, p, status, body, err)
	}
}

// answer has the fields of the answers of several methods.
type answer struct {
	Type, Order, Cursor       string
	Total                     int
	Members, Records          []string
	Items                     []item
	Labels                    []struct{ URI, Src, Val, CID string }
	Blocks                    []accountBlock
	Subjects                  []countedSubject
	Of, Accounts              uint64
	Incomplete                bool
	Reason                    string
	Missing                   struct{ Labelers int }
	State, Description, Actor string
	Feed                      []struct{ Post string }
	Error, Message            string
}

type item struct {
	Member, Record, Time, Created string
	Size                          *int
	Count, Share, Lift            int
}

type countedSubject struct {
	Subject string
	Total   int
	Totals  []int
	Sample  []string
}

// answer asks a method that must answer.
func (w *world) answer(method string, p url.Values) (a answer) {
	w.t.Helper()
	w.ask(method, p, &a)
	return a
}

func (w *world) query(set string) answer {
	w.t.Helper()
	return w.answer("query", url.Values{"set": {set}, "limit": {"1000"}})
}

// pages asks for all pages, and calls between after each but the last.
func (w *world) pages(method string, p url.Values, between func()) (all []answer) {
	w.t.Helper()
	for p = maps.Clone(p); ; {
		a := w.answer(method, p)
		all = append(all, a)
		if a.Cursor == "" {
			return all
		}
		if len(all) > 2000 {
			w.t.Fatalf("%s %v has no last page", method, p)
		}
		p.Set("cursor", a.Cursor)
		if between != nil {
			between()
		}
	}
}

// all asks for a set in pages.
func (w *world) all(set string, limit int, between func()) (members []string, totals []int) {
	w.t.Helper()
	for _, a := range w.pages("query", url.Values{"set": {set}, "limit": {fmt.Sprint(limit)}}, between) {
		if len(a.Members) > limit {
			w.t.Fatalf("a page of %d, limit %d", len(a.Members), limit)
		}
		members, totals = append(members, a.Members...), append(totals, a.Total)
	}
	return members, totals
}

// says asks, and checks the status and a part of the answer, in which \" is written as ".
func (w *world) says(call string, status int, part string) {
	w.t.Helper()
	got, body, _ := w.get(strings.ReplaceAll(call, " ", "%20"))
	if got != status || !strings.Contains(strings.ReplaceAll(body, `\"`, `"`), part) {
		w.t.Errorf("%.300s: %d %.500s, want %d %s", call, got, body, status, part)
	}
}

// expression makes a random expression of DIDs or URIs, and its members
// according to the model.
func (w *world) expression(rng *rand.Rand, dids bool, depth int) (string, map[string]bool) {
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	set := map[string]bool{}
	if depth == 0 || rng.IntN(3) == 0 {
		if rng.IntN(6) == 0 {
			var args []string
			for range 1 + rng.IntN(5) {
				s := pick(w.strings(dids))
				args = append(args, s)
				if !w.model.Hidden[s] {
					set[s] = true
				}
			}
			return "members( " + strings.Join(args, " , ") + ")", set
		}
		l := w.leaf(rng, span{all: true})
		for l.isURI() == dids {
			l = w.leaf(rng, span{all: true})
		}
		for _, m := range l.members {
			set[m] = true
		}
		return l.name + "(" + l.of + ")", set
	}
	if rng.IntN(7) == 0 {
		of, records := w.expression(rng, false, depth-1)
		text, by := "authors("+of+")", map[string]bool{}
		if !dids {
			var accounts string
			accounts, by = w.expression(rng, true, depth-1)
			text = "by(" + of + ", " + accounts + ")"
		}
		for uri := range records {
			switch did := strings.Split(uri, "/")[2]; {
			case !strings.HasPrefix(did, "did:") || w.model.Hidden[did]:
			case dids:
				set[did] = true
			case by[did]:
				set[uri] = true
			}
		}
		return text, set
	}
	op := []string{"intersect", "union", "except"}[rng.IntN(3)]
	var parts []string
	for i := range 1 + rng.IntN(3) {
		s, members := w.expression(rng, dids, depth-1)
		parts = append(parts, s)
		switch {
		case i == 0:
			set = members
		case op == "union":
			maps.Copy(set, members)
		default:
			maps.DeleteFunc(set, func(m string, _ bool) bool { return members[m] == (op == "except") })
		}
	}
	return op + "(" + strings.Join(parts, ",\n") + ")", set
}

// strings returns accounts, or posts, that may be asked about, and an unknown one.
func (w *world) strings(dids bool) []string {
	if dids {
		return append(slices.Clone(w.history.Accounts()), never)
	}
	return append(w.posts(), "at://"+never+"/app.bsky.feed.post/x")
}

func (w *world) posts() (posts []string) {
	for uri := range w.model.Views().Reverse["like"] {
		if strings.HasPrefix(uri, "at://did:") { // the others may not be asked about
			posts = append(posts, uri)
		}
	}
	slices.Sort(posts)
	return posts
}

// span is a window of the model, in microseconds: [from, to), or all.
type span struct {
	all      bool
	from, to int64
}

func (s span) has(rkey string) bool {
	at, ok := oracle.Micros(rkey)
	return s.all || ok && at >= s.from && at < s.to
}

// span picks a window, mostly one that begins or ends at a record, or a microsecond
// beside it, and returns the parameters that ask for it.
func (w *world) span(rng *rand.Rand, times []int64) (s span, p map[string]string) {
	if p = map[string]string{}; rng.IntN(5) == 0 {
		return span{all: true}, p
	}
	at := func() int64 { return times[rng.IntN(len(times))] + rng.Int64N(3) - 1 }
	s = span{false, 0, math.MaxInt64}
	if rng.IntN(4) > 0 {
		s.from = at()
		p["since"] = time.UnixMicro(s.from).UTC().Format(time.RFC3339Nano)
	}
	if len(p) == 0 || rng.IntN(2) == 0 {
		if s.to = at(); s.to <= s.from {
			s.to = s.from + 1 + rng.Int64N(1<<40)
		}
		p["until"] = time.UnixMicro(s.to).UTC().Format(time.RFC3339Nano)
	}
	return s, p
}

func (w *world) times() (all []int64) {
	for p := range w.model.Records {
		if at, ok := oracle.Micros(p.Rkey); ok {
			all = append(all, at)
		}
	}
	slices.Sort(all)
	return all
}

// leaf is a set of the model, and the records that are shown for its members.
type leaf struct {
	kind     kinds.Info // without a name: of lists
	name, of string
	members  []string
	records  map[string]string // URIs
}

// text writes a leaf with the parameters of a window.
func (l leaf) text(window map[string]string) string {
	s := l.name + "(" + l.of
	for _, name := range slices.Sorted(maps.Keys(window)) {
		s += ", " + name + "=" + window[name]
	}
	return s + ")"
}

func (l leaf) isURI() bool {
	return l.name == "lists" || l.name == l.kind.Forward && l.kind.To.Is() == dict.URI
}

var allOfTime = span{all: true}

// leaf picks a set of the records in a window.
func (w *world) leaf(rng *rand.Rand, s span) leaf {
	accounts := w.history.Accounts()
	of := accounts[rng.IntN(len(accounts))]
	if rng.IntN(5) == 0 {
		if rng.IntN(2) == 0 {
			return w.listLeaf("listed", oracle.ListOf(of, rng.IntN(oracle.Lists)), s)
		}
		return w.listLeaf("lists", of, s)
	}
	all := oracle.Kinds()
	k, v := all[rng.IntN(len(all))], w.model.Views()
	l := leaf{kind: k, name: k.Forward, of: of, records: map[string]string{}}
	members := v.Forward[k.Name][of]
	if rng.IntN(2) == 0 {
		if k.To.Is() == dict.URI {
			posts := w.posts()
			l.of = posts[rng.IntN(len(posts))]
		}
		l.name, members = k.Reverse, v.Reverse[k.Name][l.of]
	}
	for _, m := range members {
		actor, subject := l.of, m
		if l.name == k.Reverse {
			actor, subject = m, l.of
		}
		if uri := w.record(k.Name, actor, subject, s); uri != "" {
			l.members, l.records[m] = append(l.members, m), uri
		}
	}
	return l
}

// listLeaf has who is on a list, or the lists that an account is on.
func (w *world) listLeaf(name, of string, s span) leaf {
	l := leaf{name: name, of: of, records: map[string]string{}}
	if w.listings == nil {
		w.listings = w.model.Listings()
	}
	for _, at := range w.listings {
		m := at.List
		if name == "listed" {
			m = at.Member
		}
		uri := "at://" + at.Author + "/app.bsky.graph.listitem/" + at.Rkey
		if (at.List == of && !w.model.Hidden[m] || at.Member == of) && s.has(at.Rkey) && (l.records[m] == "" || uri < l.records[m]) {
			l.records[m] = uri // an account has no time, so the lowest key is shown
		}
	}
	l.members = slices.Sorted(maps.Keys(l.records))
	return l
}

// record picks, of the records of an edge in a window, the one that is shown; "" if there is none.
func (w *world) record(kind, actor, subject string, s span) string {
	if w.rkeys == nil {
		w.rkeys = map[oracle.Edge][]string{}
		for p, of := range w.model.Records {
			e := oracle.Edge{Kind: p.Kind, Actor: p.DID, Subject: of}
			w.rkeys[e] = append(w.rkeys[e], p.Rkey)
		}
	}
	tidOf := func(rkey string) uint64 { tid, _ := dict.ParseTID(rkey); return tid }
	since := tidOf(subject[strings.LastIndexByte(subject, '/')+1:])
	if at, _ := oracle.Micros(subject[strings.LastIndexByte(subject, '/')+1:]); at == 0 {
		since = 0
	}
	var after, before, other []string
	for _, rkey := range w.rkeys[oracle.Edge{Kind: kind, Actor: actor, Subject: subject}] {
		switch tid, ok := dict.ParseTID(rkey); {
		case !s.has(rkey):
		case since == 0, !ok: // of a subject without a time the lowest key is shown
			other = append(other, rkey)
		case tid >= since:
			after = append(after, rkey)
		default:
			before = append(before, rkey)
		}
	}
	byTime := func(x, y string) int { return cmp.Compare(tidOf(x), tidOf(y)) }
	uri := "at://" + actor + "/" + kinds.ByName(kind).Collection + "/"
	switch {
	case len(after) > 0:
		return uri + slices.MinFunc(after, byTime)
	case len(before) > 0:
		return uri + slices.MaxFunc(before, byTime)
	case len(other) > 0:
		return uri + slices.Min(other)
	}
	return ""
}

func intersect(a, b []string) (both []string) {
	for _, x := range a {
		if slices.Contains(b, x) {
			both = append(both, x)
		}
	}
	return both
}

// numbered makes a DID of a number.
func numbered(i int) string {
	did := fmt.Appendf(nil, "did:plc:%024d", i)
	for j := 8; j < len(did); j++ {
		did[j] += 'a' - '0'
	}
	return string(did)
}
