package export_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/export"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
)

// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var layouts = map[string]dict.Settings{
	"one":      dict.DefaultSettings,
	"several":  dict.SharedSettings,
	"long ids": {ShardBits: 32, LeaseSize: 1, Partitions: 1},
}

// A place is a store, and the graph that has it open.
type place struct {
	*graph.Store

	t     *testing.T
	store *memkv.Store
	seq   format.Seq
	b     batch.Batch
}

func open(t *testing.T, settings dict.Settings, imports bool) *place {
	t.Helper()
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{Row: 8, Chunk: 8})})
	s, err := graph.Open(t.Context(), store, graph.Options{
		Intern: intern.Options{Settings: settings}, Import: imports, Beat: time.Minute, SliceSize: 4,
	})
	must(t, err)
	return &place{Store: s, t: t, store: store}
}

// close closes the graph, and so gives up the writer's claim.
func (p *place) close() {
	p.t.Helper()
	must(p.t, p.Close(p.t.Context()))
}

// commit adds a commit to the batch. since and data name the commit before it.
func (p *place) commit(did, since string, data byte, put func()) (rev string) {
	p.seq++
	rev = tid(uint64(p.seq) << 40)
	c := &batch.Commit{DID: []byte(did), Rev: []byte(rev), Since: []byte(since), Data: make([]byte, 32)}
	c.Data[0] = data
	p.b.AddCommit(p.seq, c)
	put()
	p.b.Seen(p.seq, []byte("2026-05-06T07:08:09.123456Z"))
	return rev
}

func (p *place) account(did string, active, erase bool) {
	p.seq++
	p.b.AddAccount(p.seq, []byte(did), active, erase)
	p.b.Seen(p.seq, []byte("2026-05-06T07:08:10Z"))
}

// apply applies the batch.
func (p *place) apply(source string) {
	p.t.Helper()
	must(p.t, p.Apply(p.t.Context(), source, &p.b))
	p.b.Reset()
}

func (p *place) erase() {
	p.t.Helper()
	for p.Erasing() {
		must(p.t, p.EraseSlice(p.t.Context()))
	}
}

const day = uint64(24*3600*1_000_000) << format.ClockBits

// tid returns a TID of 2024 or later.
func tid(after uint64) string { return string(dict.AppendTID(nil, 19_700*day+after)) }

// fill makes a store that has rows of every type.
func (p *place) fill(records int) {
	rng := rand.New(rand.NewPCG(2, 2))
	for i := range 30 {
		did := fmt.Sprintf("did:plc:%024d", i)
		since := ""
		if i%5 == 1 {
			since = tid(7) // an older commit that the store never saw
		}
		rev := p.commit(did, since, byte(i), func() {
			for n := range records {
				rkey := tid(rng.Uint64N(300 * day))
				if n%4 == 0 {
					rkey = fmt.Sprintf("raw_%d:%d", i, rng.IntN(1e6))
				}
				k := kinds.All[rng.IntN(4)]
				subject := fmt.Sprintf("did:web:s%d.example.com", rng.IntN(12))
				if k.To.Is() == dict.URI {
					subject = fmt.Sprintf("at://did:plc:%024d/app.bsky.feed.post/%s", rng.IntN(6), tid(rng.Uint64N(9)*day))
				}
				if n%7 == 0 {
					subject = ""
				}
				p.b.AddPut(k.Kind, []byte(rkey), []byte(subject))
			}
		})
		if i%5 == 2 {
			p.commit(did, rev[:12]+"z", byte(i), func() {}) // the commit in between is missing
		}
		switch i % 6 {
		case 3:
			p.account(did, false, false)
		case 4:
			p.account(did, false, true)
		}
		if i == 10 {
			p.commit(did, rev, 5, func() { p.b.AddDelete(1, []byte("x")) })
		}
		if i%10 == 9 {
			p.b.AddDeadLetter(format.DeadLetter{Seq: p.seq, DID: did, Path: "a/b", Reason: "bad <&> \"'", Time: time.Unix(int64(i), 5000).UTC()})
			p.b.AddGap(format.Gap{After: p.seq, Reason: "gap", Time: time.Unix(int64(i), 0).UTC(), Since: time.Unix(1, 0).UTC(), Suspect: i == 19, Detail: "more"})
			p.apply([]string{"wss://one.example.com", "wss://two.example.com"}[i/10%2])
		}
	}
	p.erase()
	must(p.t, p.SetFuture(p.t.Context(), "wss://two.example.com"))
}

// doubts matches the line of an export that has times of the clock.
var doubts = regexp.MustCompile(`\{"doubts":.*\n`)

// exported returns the export of a store.
func exported(t *testing.T, store *memkv.Store) string {
	t.Helper()
	var out strings.Builder
	_, err := export.Write(t.Context(), store, &out, nil)
	must(t, err)
	return out.String()
}

// imported fills a new store from an export.
func imported(t *testing.T, settings dict.Settings, text string) *memkv.Store {
	t.Helper()
	p := open(t, settings, true)
	_, err := export.Read(t.Context(), p.Store, strings.NewReader(text), nil)
	must(t, err)
	p.close()
	return p.store
}

// TestRoundTrip moves a store from each layout to each other. Its export has the same bytes,
// and the check finds no problems.
func TestRoundTrip(t *testing.T) {
	first := ""
	for from, settings := range layouts {
		p := open(t, settings, false)
		p.fill(20)
		p.close()
		text := exported(t, p.store)
		timeless := doubts.ReplaceAllString(text[:strings.LastIndex(text, `{"end"`)], "")
		if first == "" {
			first = timeless
		}
		if timeless != first { // the stream was the same
			t.Errorf("the export of %s differs", from)
		}
		if again := exported(t, p.store); again != text {
			t.Errorf("the second export of %s differs", from)
		}
		for _, want := range []string{`"future":true`, `"hidden":true`, `"partial":true`, `"desynchronized":true`, `"top":`, `"lastDeletion":`, `"raw_`, `,""]`, `"suspect":true`, `"reason":"bad <&> \"'"`} {
			if !strings.Contains(text, want) {
				t.Errorf("the export of %s has no %s", from, want)
			}
		}
		for to, other := range layouts {
			store := imported(t, other, text)
			if got := exported(t, store); got != text {
				t.Errorf("from %s to %s: %d bytes became %d others", from, to, len(text), len(got))
			}
			must(t, check.Store(t.Context(), store, func(problem string) { t.Errorf("from %s to %s: %s", from, to, problem) }, nil))
		}
	}
}

// TestListsBesideHoles: whether a hole came since lists were begun is known after an import, and after another.
func TestListsBesideHoles(t *testing.T) {
	for _, isBeside := range []bool{false, true} {
		p := open(t, dict.DefaultSettings, false)
		hole := func() {
			t.Helper()
			p.account("did:plc:a", true, false)
			p.b.AddGap(format.Gap{After: p.seq - 1, Reason: "gap", Suspect: true})
			p.apply("wss://a.com")
			must(t, p.SetCompared(t.Context(), 99))
		}
		for range 5 {
			hole()
		}
		holes, _ := p.Holes()
		err := p.ChangeBackfill(t.Context(), func(b *format.Backfill) {
			b.Hosts, b.ListingHoles = map[string]format.HostBackfill{"https://host.com": {}}, holes
		})
		must(t, err)
		if isBeside {
			hole()
		}
		for range 2 {
			p.close()
			p = reopened(t, imported(t, dict.DefaultSettings, exported(t, p.store)), dict.DefaultSettings)
			if noted, compared := p.Holes(); noted != compared || noted > p.Backfill().ListingHoles != isBeside {
				t.Errorf("a hole since: %v; %d of %d holes are compared, and %d are from before the lists", isBeside, compared, noted, p.Backfill().ListingHoles)
			}
		}
	}
}

// TestStreamContinuesAfterImport: after an import, the stream continues at its cursor, and
// earlier events are replays.
func TestStreamContinuesAfterImport(t *testing.T) {
	for from, settings := range layouts {
		for to, other := range layouts {
			one := open(t, settings, false)
			one.fill(5)
			two := &place{t: t, store: imported(t, other, exported(t, one.store)), seq: one.seq}
			var err error
			two.Store, err = graph.Open(t.Context(), two.store, graph.Options{})
			must(t, err)
			for _, p := range []*place{one, two} {
				p.account("did:plc:000000000000000000000003", true, false)
				p.commit("did:plc:000000000000000000000010", "", 1, func() { p.b.AddPut(1, []byte("new"), []byte("did:web:new.com")) })
				p.commit("did:plc:000000000000000000000004", "", 1, func() { p.b.AddPut(1, []byte("new"), []byte("did:web:new.com")) })
				p.apply("wss://one.example.com")
			}
			before := exported(t, two.store)
			two.seq = 3 // far below the cursor: a replay
			two.commit("did:plc:000000000000000000000010", "", 1, func() { two.b.AddPut(1, []byte("old"), []byte("did:web:old.com")) })
			two.account("did:plc:000000000000000000000009", true, false)
			two.b.Seen(one.seq, []byte("2026-05-06T07:08:09.123456Z"))
			two.apply("wss://one.example.com")
			one.close()
			two.close()
			if got := exported(t, two.store); got != before || got != exported(t, one.store) {
				t.Errorf("from %s to %s, the stores diverged: %d bytes, %d before", from, to, len(got), len(before))
			}
		}
	}
}

// TestLines has the whole export of a small store.
func TestLines(t *testing.T) {
	p := open(t, dict.DefaultSettings, false)
	const relay = "wss://relay.example.com"
	rev := p.commit("did:plc:a", "", 0xab, func() {
		p.b.AddPut(1, []byte(tid(3<<41)), []byte("did:plc:b"))
		p.b.AddPut(1, []byte("self"), []byte("did:plc:a"))
		p.b.AddPut(2, []byte(tid(5)), nil)
		p.b.AddPut(2, []byte(tid(6)), []byte("at://did:plc:b/a.b.c/x"))
	})
	p.b.AddDeadLetter(format.DeadLetter{Seq: 1, Reason: "<bad>", Time: time.Unix(0, 0).UTC()})
	p.b.AddGap(format.Gap{After: 1, Reason: "gap", Time: time.Unix(0, 0).UTC()})
	p.apply(relay)
	p.account("did:plc:b", false, false)
	p.apply(relay)
	p.close()
	want := []string{
		`{"export":4,"kinds":["follow","like","repost","block","listblock","listitem","listitem_list"]}`,
		`{"cursor":{"source":"` + relay + `","seq":2,"time":"2026-05-06T07:08:10Z","exact":true}}`,
		`{"dead":{"source":"` + relay + `","seq":1,"reason":"<bad>","time":"1970-01-01T00:00:00Z"}}`,
		`{"gap":{"source":"` + relay + `","after":1,"reason":"gap","time":"1970-01-01T00:00:00Z"}}`,
		`{"account":{"did":"did:plc:a","rev":"` + rev + `","root":"ab00000000000000","top":"` + tid(3<<41) + `","last":{"source":"` + relay + `","seq":1}}}`,
		`{"did":"did:plc:a","kind":"follow","records":[["` + tid(3<<41) + `","did:plc:b"],["self","did:plc:a"]]}`,
		`{"did":"did:plc:a","kind":"like","records":[["` + tid(5) + `",""],["` + tid(6) + `","at://did:plc:b/a.b.c/x"]]}`,
		`{"account":{"did":"did:plc:b","hidden":true,"last":{},"lastAccount":{"source":"` + relay + `","seq":2}}}`,
	}
	text := exported(t, p.store)
	body := text[:strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n")+1]
	if got := strings.Split(strings.TrimSuffix(doubts.ReplaceAllString(body, ""), "\n"), "\n"); !slices.Equal(got, want) {
		t.Errorf("the export is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	sum := sha256.Sum256([]byte(body))
	end := fmt.Sprintf(`{"end":{"accounts":2,"records":4,"sha256":"%s"}}`, hex.EncodeToString(sum[:])) + "\n"
	if got := text[len(body):]; got != end {
		t.Errorf("it ends in %s, want %s", got, end)
	}
}

// TestErasing: an export omits the records of accounts that are being erased, so it is the same
// before and after they are gone.
func TestErasing(t *testing.T) {
	for name, settings := range layouts {
		p := open(t, settings, false)
		for i := range 3 {
			p.commit(fmt.Sprintf("did:plc:x%d", i), "", 1, func() {
				for n := range uint64(30) {
					p.b.AddPut(kinds.Kind(1+n%4), []byte(tid(n<<44)), nil)
				}
			})
		}
		p.apply("relay")
		p.account("did:plc:x1", false, true)
		p.apply("relay")
		during := []string{exported(t, p.store)}
		for p.Erasing() {
			must(t, p.EraseSlice(t.Context()))
			during = append(during, exported(t, p.store))
		}
		for i, text := range during {
			if text != during[len(during)-1] {
				t.Errorf("%s, after %d of %d slices it is\n%s\nand after all\n%s", name, i, len(during)-1, text, during[len(during)-1])
			}
		}
		if len(during) < 5 || strings.Contains(during[0], `{"did":"did:plc:x1","kind"`) || !strings.Contains(during[0], `{"did":"did:plc:x2","kind"`) {
			t.Errorf("%s: %d slices; %s", name, len(during), during[0])
		}
		p.close()
	}
}

// TestFewRoundTrips: on a cluster, an export begins to read records before it needs them, so that it takes one
// round trip for many accounts, and not one for each kind of each account.
func TestFewRoundTrips(t *testing.T) {
	const accounts = 640
	trips, unused := 0, 0
	p := &place{t: t, store: memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{}), Trips: func(n, more int) { trips, unused = n, more }})}
	var err error
	p.Store, err = graph.Open(t.Context(), p.store, graph.Options{Intern: intern.Options{Settings: dict.SharedSettings}})
	must(t, err)
	for i := range accounts {
		p.commit(fmt.Sprintf("did:plc:%024d", i), "", byte(i), func() { p.b.AddPut(1, []byte(tid(uint64(i)<<30)), []byte("did:plc:b")) })
	}
	p.apply("relay")
	p.close()
	if text := exported(t, p.store); strings.Count(text, `"records":[`) != accounts {
		t.Fatalf("%d lines of records", strings.Count(text, `"records":[`))
	}
	if trips > accounts/2 || unused > 0 {
		t.Errorf("%d round trips for %d accounts, %d reads begun for nothing", trips, accounts, unused)
	}
	t.Logf("%d round trips for %d accounts", trips, accounts)
}

// TestProgress: many records of an account take several lines, and arrive as one account's.
// An import takes several batches. Export and import report progress.
func TestProgress(t *testing.T) {
	const n = 52_345
	p := open(t, dict.DefaultSettings, false)
	p.commit("did:plc:many", "", 1, func() {
		for i := range uint64(n) {
			p.b.AddPut(1, []byte(tid(i<<30)), []byte("did:plc:b"))
		}
	})
	p.apply("relay")
	p.close()
	var reported []int64
	var out strings.Builder
	counts, err := export.Write(t.Context(), p.store, &out, func(records int64) { reported = append(reported, records) })
	if err != nil || counts.Accounts != 1 || counts.Records != n || len(counts.SHA256) != 64 {
		t.Errorf("%+v: %v", counts, err)
	}
	if !slices.IsSorted(reported) || len(reported) == 0 || reported[len(reported)-1] != n {
		t.Errorf("the progress is %v", reported)
	}
	read := map[string]bool{}
	lines := 0
	for text := range strings.Lines(out.String()) {
		var l struct{ Records [][2]string }
		must(t, json.Unmarshal([]byte(text), &l))
		for _, r := range l.Records {
			read[r[0]] = true
		}
		if len(l.Records) > 0 {
			lines++
		}
	}
	if len(read) != n || lines != 53 {
		t.Errorf("%d records in %d lines", len(read), lines)
	}
	reported = nil
	to := open(t, dict.SharedSettings, true)
	got, err := export.Read(t.Context(), to.Store, strings.NewReader(out.String()), func(records int64) { reported = append(reported, records) })
	if counts.SHA256 = ""; err != nil || got != counts || len(reported) != 2 || reported[0] < 49_000 || reported[1] != n {
		t.Errorf("%+v, want %+v, progress %v: %v", got, counts, reported, err)
	}
	to.close()
	if again := exported(t, to.store); again != out.String() {
		t.Errorf("%d bytes became %d others", out.Len(), len(again))
	}
}
