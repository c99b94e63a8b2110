package identities

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/internal/sim/harness"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/memkv"
)

// document is what an account's document says.
type document struct {
	key, host string
	deleted   bool
}

// op is an operation in the directory of a test.
type op struct {
	did       string
	doc       document
	at        time.Time
	nullified bool
	shown     int // the export shows it from this many operations on
	legacy    bool
}

// directory is a did:plc directory in plain maps.
type directory struct {
	rng  *rand.Rand
	keys []string

	mu    sync.Mutex // guards the fields below
	ops   []*op
	now   time.Time
	dids  []string
	quiet bool // no faults any more

	cut, busy, nonsense, asked atomic.Int64
}

func newDirectory(t *testing.T, seed uint64) *directory {
	t.Helper()
	d := &directory{rng: rand.New(rand.NewPCG(seed, 1)), now: time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)}
	for i := range 6 {
		var k interface {
			PublicKey() (atcrypto.PublicKey, error)
		}
		var err error
		if i%2 == 0 {
			k, err = atcrypto.GeneratePrivateKeyK256()
		} else {
			k, err = atcrypto.GeneratePrivateKeyP256()
		}
		must(t, err)
		public, err := k.PublicKey()
		must(t, err)
		d.keys = append(d.keys, public.DIDKey())
	}
	return d
}

func didOf(n uint64) string {
	b := make([]byte, 15)
	for i := range b {
		b[i] = byte(n * 0x9e3779b97f4a7c15 >> (i % 8 * 8) * uint64(i+1))
	}
	b[0], b[1] = byte(n>>8), byte(n)
	return didPrefix + alphabet.EncodeToString(b)
}

// grow adds n operations.
func (d *directory) grow(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for range n {
		if d.rng.IntN(3) == 0 { // several have the same time
			d.now = d.now.Add(time.Duration(d.rng.IntN(2000)) * time.Millisecond)
		}
		o := &op{at: d.now, doc: document{key: d.keys[d.rng.IntN(len(d.keys))], host: fmt.Sprintf("https://host%d.example.com", d.rng.IntN(40))}, shown: len(d.ops)}
		switch {
		case len(d.dids) == 0 || d.rng.IntN(3) > 0:
			o.did = didOf(uint64(len(d.dids)))
			o.legacy = d.rng.IntN(4) == 0
			d.dids = append(d.dids, o.did)
		case d.rng.IntN(8) == 0:
			o.did, o.doc = d.dids[d.rng.IntN(len(d.dids))], document{deleted: true}
		case d.rng.IntN(6) == 0: // a recovery: it invalidates the newest operation
			o.did = d.dids[d.rng.IntN(len(d.dids))]
			for _, p := range slices.Backward(d.ops) {
				if p.did == o.did && !p.nullified {
					p.nullified = true
					break
				}
			}
		case d.rng.IntN(10) == 0: // neither key nor host
			o.did, o.doc = d.dids[d.rng.IntN(len(d.dids))], document{}
		default:
			o.did = d.dids[d.rng.IntN(len(d.dids))]
		}
		if d.rng.IntN(50) == 0 {
			o.shown += d.rng.IntN(3) // an operation that the export shows late
		}
		d.ops = append(d.ops, o)
	}
}

// want returns the document of each account.
func (d *directory) want() map[string]document {
	d.mu.Lock()
	defer d.mu.Unlock()
	docs := map[string]document{}
	for _, o := range d.ops {
		if !o.nullified {
			docs[o.did] = o.doc
		}
	}
	return docs
}

func (o *op) line() []byte {
	var operation any
	switch {
	case o.doc.deleted:
		operation = map[string]any{"type": "plc_tombstone", "prev": "x", "sig": "y"}
	case o.legacy:
		operation = map[string]any{"type": "create", "signingKey": o.doc.key, "recoveryKey": o.doc.key, "handle": "a.example.com", "service": o.doc.host[len("https://"):]}
	default:
		methods, services := map[string]string{}, map[string]any{}
		if o.doc.key != "" {
			methods["atproto"] = o.doc.key
		}
		if o.doc.host != "" {
			services["atproto_pds"] = map[string]string{"type": "AtprotoPersonalDataServer", "endpoint": o.doc.host}
		}
		operation = map[string]any{"type": "plc_operation", "rotationKeys": []string{}, "verificationMethods": methods, "services": services, "alsoKnownAs": []string{"at://a.example.com"}}
	}
	line, err := json.Marshal(map[string]any{"did": o.did, "operation": operation, "cid": "bafy", "nullified": o.nullified, "createdAt": o.at.Format("2006-01-02T15:04:05.000Z")})
	if err != nil {
		panic(err)
	}
	return line
}

// ServeHTTP implements http.Handler: the export, with faults.
func (d *directory) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.asked.Add(1)
	after, err := time.Parse("2006-01-02T15:04:05.000Z", r.URL.Query().Get("after"))
	if err != nil || r.URL.Path != "/export" || r.URL.Query().Get("count") != "1000" {
		http.Error(w, "bad request", http.StatusBadRequest)
		return
	}
	d.mu.Lock()
	var lines [][]byte
	for _, o := range d.ops {
		if o.at.After(after) && o.shown < len(d.ops) && len(lines) < 1000 {
			lines = append(lines, o.line())
		}
	}
	fault := d.rng.IntN(8)
	if d.quiet {
		fault = 7
	}
	cut := d.rng.IntN(1000)
	d.mu.Unlock()
	body := append(bytes.Join(lines, []byte("\n")), '\n')
	switch fault {
	case 0:
		d.busy.Add(1)
		w.WriteHeader(http.StatusTooManyRequests)
	case 1:
		d.nonsense.Add(1)
		_, _ = w.Write([]byte("<html>maintenance</html>\n"))
	case 2:
		d.cut.Add(1)
		_, _ = w.Write(body[:len(body)*cut/1000])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case 3:
		http.Error(w, "broken", http.StatusBadGateway)
	default:
		_, _ = w.Write(body)
	}
}

// refuses is a directory that answers no look-up.
type refuses struct {
	identity.Directory

	asked atomic.Int64
}

var errAsked = errors.New("the directory was asked")

func (r *refuses) LookupDID(context.Context, syntax.DID) (*identity.Identity, error) {
	r.asked.Add(1)
	return nil, errAsked
}

func (r *refuses) Purge(context.Context, syntax.AtIdentifier) error { return nil }

// compare compares each account in the copy.
func compare(t *testing.T, m *Mirror, want map[string]document) {
	t.Helper()
	d := PLC{&refuses{}, m}
	for did, doc := range want {
		ident, err := d.LookupDID(t.Context(), syntax.DID(did))
		if doc.deleted {
			if !errors.Is(err, identity.ErrDIDNotFound) {
				t.Errorf("%s was deleted, and the copy has %v, %v", did, ident, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", did, err)
			continue
		}
		var key string
		if public, err := ident.PublicKey(); err == nil {
			key = public.DIDKey()
		}
		if key != doc.key || ident.PDSEndpoint() != doc.host || ident.DID != syntax.DID(did) {
			t.Errorf("%s: key %s, host %s; want %+v", did, key, ident.PDSEndpoint(), doc)
		}
		if t.Failed() {
			return
		}
	}
}

// A directory that grows, limits its rate, breaks connections and sends nonsense is copied exactly,
// although the process is killed again and again, and its disk loses what was not synced.
func TestMirror(t *testing.T) {
	var busy, cut, nonsense int64
	defer func() {
		if busy == 0 || cut == 0 || nonsense == 0 {
			t.Errorf("faults: %d busy, %d cut, %d nonsense: the test proves nothing", busy, cut, nonsense)
		}
	}()
	for seed := range uint64(5) {
		d := newDirectory(t, seed)
		d.grow(3000)
		server := httptest.NewServer(d)
		rng := rand.New(rand.NewPCG(seed, 2))
		fs := harness.NewCrashFS()
		open := func(t *testing.T) (kv.Store, *Mirror) {
			t.Helper()
			s, err := pebblekv.Open(pebblekv.Options{Dir: "plc", Create: true, FS: fs, Merger: MirrorMerger(), Memory: 8 << 20, SyncInterval: time.Hour})
			must(t, err)
			m, err := OpenMirror(t.Context(), MirrorOptions{Store: s, URL: server.URL, Client: server.Client(), poll: time.Millisecond, retry: time.Millisecond})
			must(t, err)
			return s, m
		}
		for kill := range 7 {
			s, m := open(t)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { m.Run(ctx) })
			if m.Fresh() {
				t.Error("the copy is used before it was complete")
			}
			asked := d.asked.Load()
			for d.asked.Load() < asked+int64(1+rng.IntN(6)) {
				<-time.After(time.Millisecond)
			}
			if kill == 6 { // the last one ends
				d.mu.Lock()
				d.quiet = true
				d.mu.Unlock()
				d.grow(3) // shows all that was late
				d.mu.Lock()
				for _, o := range d.ops {
					o.shown = 0
				}
				newest := d.ops[len(d.ops)-1].at.UnixMilli()
				polls := d.asked.Load()
				d.mu.Unlock()
				for !m.Fresh() || m.newest.Load() < newest || d.asked.Load() < polls+10 {
					<-time.After(time.Millisecond)
				}
				compare(t, m, d.want())
			}
			clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
			cancel()
			running.Wait()
			must(t, s.Close())
			if kill < 6 {
				fs = clone
				d.grow(rng.IntN(400))
			}
		}
		// A process that starts again has everything, and does not use it before the first poll.
		s, m := open(t)
		if m.Fresh() {
			t.Error("after a restart, the copy is used before it was complete")
		}
		m.complete.Store(time.Now().UnixNano())
		compare(t, m, d.want())
		must(t, s.Close())
		server.Close()
		busy, cut, nonsense = busy+d.busy.Load(), cut+d.cut.Load(), nonsense+d.nonsense.Load()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func openOne(t *testing.T, o MirrorOptions) *Mirror {
	t.Helper()
	o.Store = memkv.Open(memkv.Options{Merger: MirrorMerger()})
	m, err := OpenMirror(t.Context(), o)
	must(t, err)
	return m
}

// pageOf returns a page with these lines.
func pageOf(t *testing.T, lines ...[]byte) page {
	t.Helper()
	p := page{rows: map[string]row{}}
	for _, l := range lines {
		if err := p.add(l); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		p.lines++
	}
	return p
}

// A page that comes again, after newer ones, changes nothing: not for a moment does an account
// have its old host.
func TestOlderOperationsChangeNothing(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	m := openOne(t, MirrorOptions{now: func() time.Time { return now }})
	m.complete.Store(now.UnixNano())
	d := newDirectory(t, 1)
	did := didOf(1)
	for _, age := range []time.Duration{time.Hour, 0, time.Hour, time.Minute} {
		host := fmt.Sprintf("https://host%d.example.com", age)
		must(t, m.apply(t.Context(), pageOf(t, (&op{did: did, doc: document{key: d.keys[0], host: host}, at: now.Add(-age)}).line())))
		if ident, ok, err := m.LookUp(t.Context(), syntax.DID(did)); !ok || err != nil || age < time.Hour && ident.PDSEndpoint() != "https://host0.example.com" {
			t.Errorf("after an operation that is %v old: %v, %v, %v", age, ident, ok, err)
		}
	}
}

// An account is looked up at the directory if the copy is too old, after it was purged, if the
// copy does not have it, and if its operation cannot be represented.
func TestCopyIsPassedOver(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	m := openOne(t, MirrorOptions{now: func() time.Time { return now }})
	d := newDirectory(t, 1)
	known, strange, unknown := didOf(1), didOf(2), didOf(3)
	line := (&op{did: known, doc: document{key: d.keys[0], host: "https://a.example.com"}, at: now}).line()
	odd := []byte(fmt.Sprintf(`{"did":%q,"operation":{"type":"plc_new"},"createdAt":"2023-01-01T00:00:00.000Z"}`, strange))
	must(t, m.apply(t.Context(), pageOf(t, line, odd)))
	other := &refuses{}
	dir := PLC{other, m}
	asks := func(did string, want bool) {
		t.Helper()
		_, err := dir.LookupDID(t.Context(), syntax.DID(did))
		if asked := errors.Is(err, errAsked); asked != want {
			t.Errorf("%s: the directory was asked: %v, want %v (%v)", did, asked, want, err)
		}
	}
	asks(known, true) // not complete yet
	m.complete.Store(now.UnixNano())
	asks(known, false)
	asks(strange, true)
	asks(unknown, true)
	asks("did:web:example.com", true)
	asks("did:plc:short", true)
	now = now.Add(MaxAge)
	asks(known, false)
	now = now.Add(time.Millisecond)
	asks(known, true)
	m.complete.Store(now.UnixNano())
	must(t, dir.Purge(t.Context(), syntax.DID(known).AtIdentifier()))
	asks(known, true)
}

// copied copies a directory from a server, until the copy is fresh, and compares.
func copied(t *testing.T, server *httptest.Server, d *directory) {
	t.Helper()
	defer server.Close()
	m := openOne(t, MirrorOptions{URL: server.URL, Client: server.Client(), poll: time.Millisecond, retry: time.Microsecond})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	for !m.Fresh() {
		<-time.After(time.Millisecond)
	}
	cancel()
	running.Wait()
	compare(t, m, d.want())
}

// A line that is not an operation does not end the copy: it is skipped.
func TestStrangeLineIsSkipped(t *testing.T) {
	d := newDirectory(t, 2)
	d.quiet = true
	d.grow(10)
	bad := []byte("{\"did\":\"did:plc:x\"}\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(bad)
		d.ServeHTTP(w, r)
	}))
	copied(t, server, d)
}

// Operations of one millisecond that a page cuts are all read.
func TestPagesCutAMillisecond(t *testing.T) {
	d := newDirectory(t, 3)
	d.quiet = true
	at := d.now
	for i := range 2500 {
		if i%900 == 0 {
			at = at.Add(time.Millisecond)
		}
		did := didOf(uint64(i))
		d.dids = append(d.dids, did)
		d.ops = append(d.ops, &op{did: did, doc: document{host: "https://a.example.com"}, at: at})
	}
	server := httptest.NewServer(d)
	copied(t, server, d)
}

// Rows round trip, and malformed ones are errors.
func FuzzRow(f *testing.F) {
	f.Add([]byte{rowTombstone, 5})
	f.Add((&row{kind: rowK256, at: 1_700_000_000_000, key: make([]byte, keyBytes)}).bytes())
	f.Add((&row{kind: rowP256, at: 1, key: make([]byte, keyBytes), address: "https://a.example.com"}).bytes())
	f.Fuzz(func(t *testing.T, v []byte) {
		r, err := parseRow(v)
		if err != nil {
			return
		}
		again, err := parseRow(r.bytes())
		if err != nil || again.at != r.at || again.kind != r.kind || !bytes.Equal(again.key, r.key) || again.address != r.address {
			t.Errorf("%x: %+v, %+v, %v", v, r, again, err)
		}
		_, _ = r.identity("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa")
	})
}

// Lines of the export never panic, and what they make is a row.
func FuzzLine(f *testing.F) {
	f.Add((&op{did: didOf(1), doc: document{key: "did:key:zQ3shXjHeiBuRCKmM36cuYnm7YEMzhGnCmCyW92sRJ9pribSF", host: "https://a.example.com"}, at: time.Unix(1_700_000_000, 0)}).line())
	f.Add((&op{did: didOf(2), doc: document{deleted: true}, at: time.Unix(1_700_000_000, 0)}).line())
	f.Add([]byte(`{"did":"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa","operation":{"type":"create","service":"a.example.com"},"createdAt":"2022-11-17T00:35:16.391Z"}`))
	f.Add([]byte(`{"did":"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa","operation":7,"createdAt":"2022-11-17T00:35:16.391Z"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		key, r, _, err := parseLine(line)
		if err != nil {
			return
		}
		if len(key) != 16 || key[0] != keyAccount {
			t.Errorf("%q: key %x, %+v", line, key, r)
		}
		if _, err := parseRow(r.bytes()); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	})
}
