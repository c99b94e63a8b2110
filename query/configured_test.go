package query_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"skein.blue/consumer"
	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/check"
	"skein.blue/graph/export"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/synth"
	"skein.blue/query"
)

const (
	firstKinds = "app.bsky.feed.post reply.parent.uri at-uri repliedTo repliers"
	allKinds   = firstKinds + "\napp.bsky.feed.post embed.record.uri at-uri quoted quoters\nsh.tangled.graph.follow subject did tangledFollows tangledFollowers"
)

// configuredWorld is a store that is opened, again and again, with several files of kinds.
type configuredWorld struct {
	t       *testing.T
	rng     *rand.Rand
	kv      kv.Store
	store   *graph.Store
	seq     int64
	have    map[string]bool              // names of the kinds that it is configured with
	posts   []string                     // subjects
	indexed map[string]map[string]string // by name of the kind, DID and path: the subject
	revs    map[string]string            // of the accounts
	base    string
}

func (w *configuredWorld) open(file string) error {
	more, err := kinds.Parse(file)
	if err != nil {
		w.t.Fatal(err)
	}
	store, err := graph.Open(w.t.Context(), w.kv, graph.Options{Kinds: more})
	if err != nil {
		return err
	}
	w.store = store
	s, err := query.New(store, query.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	w.t.Cleanup(srv.Close)
	w.base = srv.URL
	for _, k := range store.Kinds().Configured() {
		w.have[k.Name] = true
	}
	return nil
}

func (w *configuredWorld) close() {
	if err := w.store.Close(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func did(n int) string { return fmt.Sprintf("did:web:n%d.example.com", n) }

// record makes a record, and says what it names.
func (w *configuredWorld) record(collection string) (record synth.Map, names map[string]string) {
	names = map[string]string{}
	uri := func() string { return w.posts[w.rng.IntN(len(w.posts))] }
	if collection == "sh.tangled.graph.follow" {
		names["tangledFollows"] = did(w.rng.IntN(10))
		return synth.Map{{Key: "subject", Value: names["tangledFollows"]}}, names
	}
	record = synth.Map{{Key: "text", Value: "x"}}
	link := func(kind string, path ...string) {
		names[kind] = uri()
		var v any = names[kind]
		switch w.rng.IntN(12) {
		case 0:
			v, names[kind] = "https://example.com/", ""
		case 1:
			v, names[kind] = 7, ""
		case 2:
			v = nil
			delete(names, kind)
		}
		for _, key := range slices.Backward(path[1:]) {
			v = synth.Map{{Key: key, Value: v}}
		}
		record = append(record, synth.Pair{Key: path[0], Value: v})
	}
	if w.rng.IntN(2) == 0 {
		link("repliedTo", "reply", "parent", "uri")
	}
	if w.rng.IntN(3) == 0 {
		link("quoted", "embed", "record", "uri")
	}
	return record, names
}

// grow has commits of one or several operations on posts and follows.
func (w *configuredWorld) grow(commits int) {
	w.t.Helper()
	c, err := consumer.New(w.store, consumer.Options{Relay: "ws://memory", Read: func(handle func([]byte) error) error {
		for range commits {
			if err := handle(w.commit()); err != nil {
				return err
			}
		}
		return nil
	}})
	if err == nil {
		err = c.Run(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *configuredWorld) commit() []byte {
	w.seq++
	author, rev := did(w.rng.IntN(10)), oracle.TID(uint64(w.seq)<<20)
	root := synth.CommitBlock(author, rev, [32]byte{1})
	m := synth.Commit{Repo: []byte(author), Rev: []byte(rev), Seq: w.seq, Time: []byte("2026-01-01T00:00:00.000Z"), Root: root.CID}
	if last := w.revs[author]; last != "" {
		m.Since, m.PrevData = []byte(last), &synth.Link{1}
	}
	w.revs[author] = rev
	blocks := []synth.Block{root}
	for range 1 + w.rng.IntN(3) {
		collection := []string{"app.bsky.feed.post", "app.bsky.feed.post", "sh.tangled.graph.follow"}[w.rng.IntN(3)]
		rkey := fmt.Sprint("k", w.rng.IntN(6))
		path := author + "/" + collection + "/" + rkey
		for _, sets := range w.indexed {
			delete(sets, path)
		}
		if w.rng.IntN(4) == 0 {
			m.Ops = append(m.Ops, synth.Op{Action: "delete", Collection: collection, Rkey: []byte(rkey)})
			continue
		}
		record, names := w.record(collection)
		b := synth.NewBlock(synth.CBOR(nil, record))
		blocks = append(blocks, b)
		m.Ops = append(m.Ops, synth.Op{Action: "create", Collection: collection, Rkey: []byte(rkey), CID: &b.CID})
		for kind, subject := range names {
			if w.have[kind] {
				if w.indexed[kind] == nil {
					w.indexed[kind] = map[string]string{}
				}
				w.indexed[kind][path] = subject
			}
		}
	}
	m.CAR = [][]byte{synth.CAR(root.CID, blocks...)}
	b, _ := m.Append(nil)
	return b
}

func (w *configuredWorld) get(path string, p url.Values, v any) {
	w.t.Helper()
	(&world{t: w.t, base: w.base}).path(path, p, v)
}

// records returns how many records of a kind name a subject.
func (w *configuredWorld) records(kind, subject string) (n int) {
	for _, s := range w.indexed[kind] {
		if s == subject {
			n++
		}
	}
	return n
}

// compare asks for all sets.
func (w *configuredWorld) compare(what string) {
	w.t.Helper()
	views := oracle.ViewsOf(func(yield func(oracle.Edge) bool) {
		for kind, records := range w.indexed {
			for path, subject := range records {
				author, _, _ := strings.Cut(path, "/")
				if !yield(oracle.Edge{Kind: kind, Actor: author, Subject: subject}) {
					return
				}
			}
		}
	}, func(string) bool { return false })
	some := 0
	var stats struct {
		Records map[string]int
		Kinds   []struct{ Name, Collection, Path, Names, Forward, Reverse string }
	}
	w.get("/xrpc/blue.skein.graph.getStats", nil, &stats)
	for _, k := range w.store.Kinds().Configured() {
		if n, ok := stats.Records[k.Name]; !ok || n != len(w.indexed[k.Name]) {
			w.t.Errorf("%s: %d records of %s, want %d", what, n, k.Name, len(w.indexed[k.Name]))
		}
		if !slices.ContainsFunc(stats.Kinds, func(s struct{ Name, Collection, Path, Names, Forward, Reverse string }) bool {
			return s.Collection+":"+s.Path == k.Source() && s.Forward == k.Forward && s.Reverse == k.Reverse && s.Names == k.To.Is().String()
		}) {
			w.t.Errorf("%s: getStats has not %s: %+v", what, k.Source(), stats.Kinds)
		}
		subjects := w.posts
		if k.To.Is().String() == "did" {
			subjects = nil
			for n := range 10 {
				subjects = append(subjects, did(n))
			}
		}
		ask := func(set string, want []string) {
			some += len(want)
			var got answer
			w.get("/xrpc/blue.skein.graph.query", url.Values{"set": {set}}, &got)
			if slices.Sort(got.Members); !slices.Equal(got.Members, want) {
				w.t.Errorf("%s: %s: %q, want %q", what, set, got.Members, want)
			}
		}
		for n := range 10 {
			ask(k.Forward+"("+did(n)+")", views.Forward[k.Name][did(n)])
		}
		for _, subject := range subjects {
			want := views.Reverse[k.Name][subject]
			ask(k.Reverse+"("+subject+")", want)
			var links struct{ Total int }
			if w.get("/xrpc/blue.microcosm.links.getBacklinksCount", url.Values{"subject": {subject}, "source": {k.Source()}}, &links); links.Total != w.records(k.Name, subject) {
				w.t.Errorf("%s: %d links of %s to %s, want %d", what, links.Total, k.Source(), subject, w.records(k.Name, subject))
			}
		}
		var ranked struct{ Items []struct{ Member string } }
		w.get("/xrpc/blue.skein.graph.rank", url.Values{"of": {"members(" + did(1) + ")"}, "via": {k.Forward}}, &ranked)
		if len(ranked.Items) != len(views.Forward[k.Name][did(1)]) {
			w.t.Errorf("%s: rank via %s: %v", what, k.Forward, ranked)
		}
	}
	if some < 20 {
		w.t.Errorf("%s: the sets had %d members", what, some)
	}
	if err := check.Store(w.t.Context(), w.kv, func(p string) { w.t.Errorf("%s: check: %s", what, p) }, nil); err != nil {
		w.t.Fatal(err)
	}
}

// A store is configured with kinds, and with more of them later; it remembers them, says so,
// and refuses what contradicts them. Its sets are the model's, also after an export.
func TestConfiguredKinds(t *testing.T) {
	w := &configuredWorld{t: t, rng: rand.New(rand.NewPCG(3, 1)), kv: memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})}), have: map[string]bool{}, revs: map[string]string{}, indexed: map[string]map[string]string{}}
	for n := range 8 {
		w.posts = append(w.posts, fmt.Sprintf("at://%s/app.bsky.feed.post/p%d", did(n), n))
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(w.open(firstKinds))
	w.grow(300)
	w.compare("one kind")
	w.close()
	must(w.open(allKinds))
	w.compare("three kinds")
	var lacking complete
	w.get("/xrpc/blue.skein.graph.query", url.Values{"set": {"quoters(" + w.posts[0] + ")"}}, &lacking)
	if !lacking.Incomplete || !strings.Contains(lacking.Reason, "app.bsky.feed.post:embed.record.uri has been indexed only since") {
		t.Errorf("a set whose past is not there: %+v", lacking)
	}
	var account struct{ State, Description string }
	w.get("/xrpc/blue.skein.graph.getAccount", url.Values{"did": {did(1)}}, &account)
	if account.State != "partial" || !strings.Contains(account.Description, "has been indexed only since") {
		t.Errorf("an account whose past is not all there: %+v", account)
	}
	w.grow(300)
	w.compare("three kinds, and more")
	gaps := 0
	must(w.store.View(t.Context(), func(sn *ask.View) error {
		all, err := sn.Gaps()
		for _, g := range all {
			if g.Reason == format.KindAdded && strings.Contains(g.Detail, "app.bsky.feed.post:embed.record.uri") && !strings.Contains(g.Detail, "reply.parent.uri") {
				gaps++
			}
		}
		return err
	}))
	if gaps != 1 {
		t.Errorf("%d gaps say what was not indexed before", gaps)
	}
	w.close()
	must(w.open("")) // what it has been configured with, it has
	w.grow(300)
	w.compare("without a file")
	w.close()
	for _, other := range []string{
		"app.bsky.feed.post reply.parent.uri at-uri repliedTo answerers",
		"app.bsky.feed.post reply.root.uri at-uri repliedTo repliers",
		"app.bsky.feed.post reply.parent.uri did repliedTo repliers",
		"a.b.c x did x quoters",
	} {
		if err := w.open(other); err == nil {
			t.Errorf("%s is taken", other)
		} else if !strings.Contains(other, "root") && !strings.Contains(other, "a.b.c") && !errors.Is(err, kinds.ErrContradiction) {
			t.Errorf("%s: %v", other, err)
		}
	}
	var text bytes.Buffer
	_, err := export.Write(t.Context(), w.kv, &text, nil)
	must(err)
	w.kv = memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
	to, err := graph.Open(t.Context(), w.kv, graph.Options{Import: true})
	must(err)
	_, err = export.Read(t.Context(), to, bytes.NewReader(text.Bytes()), nil)
	must(errors.Join(err, to.Close(t.Context())))
	must(w.open(""))
	w.compare("imported")
	w.grow(100)
	w.compare("imported, and more")
	w.close()
	// A row that says something else than it can is a store that is not opened.
	for name, row := range map[string]string{"no JSON": "[", "a number that is built in": `[{"number":1,"collection":"a.b.c","path":"x","names":"did","forward":"xs","reverse":"ys"}]`} {
		must(w.kv.Update(t.Context(), func(tx kv.Txn) error { tx.Set(format.KeyKinds, []byte(row)); return nil }))
		if err := w.open(""); err == nil {
			t.Errorf("a store is opened whose kinds are %s", name)
		}
	}
}

// The kinds of a store are in a form that stays.
func TestKindsOnDisk(t *testing.T) {
	more, err := kinds.Parse(allKinds)
	if err != nil {
		t.Fatal(err)
	}
	table, err := kinds.Configure(kinds.BuiltIn, more)
	if err != nil {
		t.Fatal(err)
	}
	v, err := format.AppendKinds(nil, table)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"number":64,"collection":"app.bsky.feed.post","path":"reply.parent.uri","names":"uri","forward":"repliedTo","reverse":"repliers"},` +
		`{"number":65,"collection":"app.bsky.feed.post","path":"embed.record.uri","names":"uri","forward":"quoted","reverse":"quoters"},` +
		`{"number":66,"collection":"sh.tangled.graph.follow","path":"subject","names":"did","forward":"tangledFollows","reverse":"tangledFollowers"}]`
	if string(v) != want || !json.Valid(v) {
		t.Errorf("%s, want %s", v, want)
	}
	again, err := format.DecodeKinds(v)
	if err != nil || !maps.EqualFunc(byName(again), byName(table), func(x, y kinds.Info) bool { return fmt.Sprint(x) == fmt.Sprint(y) }) {
		t.Errorf("%+v, %v", again, err)
	}
}

func byName(t *kinds.Table) map[string]kinds.Info {
	all := map[string]kinds.Info{}
	for _, k := range t.All {
		all[k.Name] = k
	}
	return all
}
