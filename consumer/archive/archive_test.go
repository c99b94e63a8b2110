package archive

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/export"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/internal/kv"
	"skein.blue/internal/outward"
	"skein.blue/internal/sim/memkv"
)

// expected returns the records that remain of what jetstream's own client printed of the
// archive in testdata: path → subject, in the form of an export. The last row of a record
// decides.
func expected(t testing.TB) map[string]string {
	t.Helper()
	f, err := os.Open("testdata/expected.jsonl.gz")
	must(t, err)
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	must(t, err)
	have := map[string]string{}
	for d := json.NewDecoder(z); ; {
		var l struct{ DID, Kind, Operation, Collection, Rkey, Subject string }
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return have
		} else if err != nil {
			t.Fatal(err)
		}
		if l.Kind != "commit" {
			continue
		}
		if path := l.DID + " " + l.Collection + " " + l.Rkey; l.Operation == "delete" {
			delete(have, path)
		} else {
			have[path] = l.Subject
		}
	}
}

// must ends a test with an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// indexed returns the records of a store in the same form.
func indexed(t testing.TB, store kv.Store) map[string]string {
	t.Helper()
	var b bytes.Buffer
	if _, err := export.Write(context.Background(), store, &b, nil); err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for d := json.NewDecoder(&b); ; {
		var l struct {
			DID, Kind string
			Records   [][2]string
		}
		if err := d.Decode(&l); errors.Is(err, io.EOF) {
			return have
		} else if err != nil {
			t.Fatal(err)
		}
		for _, r := range l.Records {
			have[l.DID+" "+kinds.ByName(l.Kind).Collection+" "+r[0]] = r[1]
		}
	}
}

// server is an archive that serves the segment in testdata.
type server struct {
	t        testing.TB
	segment  []byte
	header   header
	frames   [][]byte
	blocks   bool // plans blocks instead of segments
	perPage  int  // blocks per plan; 0: all
	key      string
	fail     func(w http.ResponseWriter, r *http.Request) bool // answers the request, or returns false
	requests atomic.Int64
	checksum string // a wrong one for plans; "": the right one
}

func newServer(t testing.TB) *server {
	t.Helper()
	b, err := os.ReadFile("testdata/seg_0000000000.jss")
	must(t, err)
	s := &server{t: t, segment: b}
	if s.header, s.frames, err = frames(b); err != nil {
		t.Fatal(err)
	}
	return s
}

const method = "/xrpc/network.bsky.jetstream."

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests.Add(1)
	if s.key != "" && r.Header.Get("Authorization") != "Bearer "+s.key {
		http.Error(w, `{"error":"AuthMissing"}`, http.StatusUnauthorized)
		return
	}
	if s.fail != nil && s.fail(w, r) {
		return
	}
	switch r.URL.Path {
	case method + "planSnapshot":
		s.plan(w, r)
	case method + "getSegment":
		w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprintf("%016x", s.header.checksum)))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.segment))
	case method + "getBlock":
		n, err := strconv.Atoi(r.URL.Query().Get("blockIndex"))
		if err != nil || n >= len(s.frames) {
			http.Error(w, `{"error":"BlockNotFound"}`, http.StatusNotFound)
			return
		}
		_, _ = w.Write(s.frames[n])
	default:
		http.NotFound(w, r)
	}
}

func (s *server) plan(w http.ResponseWriter, r *http.Request) {
	var in struct {
		AfterSeq, BeforeSeq int64
		Collections         []string
		Kinds               []string
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || len(in.Collections) != len(kinds.BuiltIn.Collections()) || in.Kinds != nil || r.Method != http.MethodPost {
		s.t.Errorf("request to planSnapshot: %+v: %v", in, err)
	}
	checksum := fmt.Sprintf("%016x", s.header.checksum)
	if s.checksum != "" {
		checksum = s.checksum
	}
	tip := maxSeq(s.t, s.frames[len(s.frames)-1])
	seg := map[string]any{"name": "seg_0000000000.jss", "index": 0, "checksum": checksum, "minSeq": 1, "maxSeq": tip, "mode": "segment"}
	out := map[string]any{"plannedThroughSeq": tip, "sealedTipSeq": tip, "segments": []any{seg}, "stats": map[string]int{}}
	if in.AfterSeq >= tip {
		out["segments"] = []any{}
	} else if s.blocks {
		first, last, through := -1, -1, tip
		for n, frame := range s.frames {
			max := maxSeq(s.t, frame)
			if max <= in.AfterSeq {
				continue
			}
			if first < 0 {
				first = n
			}
			if last, through = n, max; s.perPage > 0 && n-first+1 == s.perPage {
				break
			}
		}
		seg["mode"], seg["blocks"] = "blocks", []any{map[string]int{"first": first, "last": last}}
		if last < len(s.frames)-1 {
			out["plannedThroughSeq"] = through
		}
	}
	_ = json.NewEncoder(w).Encode(out)
}

func maxSeq(t testing.TB, frame []byte) int64 {
	t.Helper()
	d := newDecoder()
	defer d.Close()
	var b block
	must(t, b.unpack(d, frame))
	var r row
	for b.next(&r) {
	}
	return r.seq
}

func open(t testing.TB) (kv.Store, *graph.Store) {
	t.Helper()
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
	g, err := graph.Open(context.Background(), store, graph.Options{})
	must(t, err)
	return store, g
}

func (s *server) read(ctx context.Context, g *graph.Store, o Options) error {
	srv := httptest.NewServer(s)
	defer srv.Close()
	o.URL, o.Store, o.Dropped = "http://archive.example.com", g, ignore
	if o.Until == nil {
		o.Until = func() time.Time { return time.Time{} }
	}
	r, err := New(o)
	must(s.t, err)
	r.client.base = srv.URL // the port changes with every start, but it is the same archive
	r.client.delay = time.Millisecond
	return r.Run(ctx)
}

// The archive in testdata yields what jetstream's own client prints, whether planned by
// segments or by blocks, page by page; the next run reads nothing more.
func TestArchive(t *testing.T) {
	want := expected(t)
	for name, change := range map[string]func(*server){
		"segments":     func(*server) {},
		"blocks":       func(s *server) { s.blocks = true },
		"pages of one": func(s *server) { s.blocks, s.perPage = true, 1 },
		"with a key":   func(s *server) { s.key = "opaque" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			change(s)
			store, g := open(t)
			must(t, s.read(t.Context(), g, Options{Key: s.key}))
			got := indexed(t, store)
			if !maps.Equal(got, want) {
				t.Fatalf("%d records, want %d", len(got), len(want))
			}
			must(t, check.Store(t.Context(), store, func(p string) { t.Error(p) }, nil))
			s.requests.Store(0)
			if err := s.read(t.Context(), g, Options{Key: s.key}); err != nil || s.requests.Load() != 1 {
				t.Errorf("second run: %d requests: %v", s.requests.Load(), err)
			}
			if c, ok := g.Cursor("archive http://archive.example.com"); !ok || c.Seq != 49258 || c.Time.UnixMicro() < 1795286021697909 {
				t.Errorf("cursor %+v, %v", c, ok)
			}
		})
	}
}

// errInterrupt ends a read like a kill.
var errInterrupt = errors.New("interrupted")

// failing fails the n-th write.
type failing struct {
	kv.Store

	left int
}

func (f *failing) Update(ctx context.Context, fn func(kv.Txn) error) error {
	if f.left--; f.left == 0 {
		return errInterrupt
	}
	return f.Store.Update(ctx, fn)
}

// slow delays each write, and then checks whether it was canceled.
type slow struct{ kv.Store }

func (s slow) Update(ctx context.Context, fn func(kv.Txn) error) error {
	time.Sleep(3 * time.Millisecond)
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.Store.Update(ctx, fn)
}

// The records of one page of the plan are applied while the next page is read.
func TestWriteOutlivesItsPage(t *testing.T) {
	s := newServer(t)
	s.blocks, s.perPage = true, 1
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
	g, err := graph.Open(t.Context(), slow{store}, graph.Options{})
	must(t, err)
	must(t, s.read(t.Context(), g, Options{Ops: 100}))
	if got, want := indexed(t, store), expected(t); !maps.Equal(got, want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
}

// A read that is interrupted at any write continues from there, with the same result.
func TestInterrupted(t *testing.T) {
	want := expected(t)
	for n := 1; ; n++ {
		s := newServer(t)
		s.blocks = true
		store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
		o := graph.Options{}
		g, err := graph.Open(t.Context(), store, o)
		must(t, err)
		must(t, g.Close(t.Context()))
		f := &failing{Store: store, left: n}
		ended := false
		if g, err = graph.Open(t.Context(), f, o); err == nil {
			err = s.read(t.Context(), g, Options{Ops: 5000})
			ended = err == nil
		}
		if err != nil && !errors.Is(err, errInterrupt) {
			t.Fatal(err)
		}
		if g, err = graph.Open(t.Context(), store, o); err != nil {
			t.Fatal(err)
		}
		must(t, s.read(t.Context(), g, Options{}))
		if got := indexed(t, store); !maps.Equal(got, want) {
			t.Fatalf("interrupted at write %d: %d records, want %d", n, len(got), len(want))
		}
		if ended {
			t.Logf("%d writes", n-1)
			return
		}
	}
}

// The Reader retries with an archive that is slow or busy, breaks off, or was compacted
// meanwhile, and stops if the archive refuses the request.
func TestFailures(t *testing.T) {
	want := expected(t)
	first := func(method string, do func(w http.ResponseWriter, s *server)) func(*server) {
		return func(s *server) {
			s.blocks = strings.Contains(method, "Block")
			var done atomic.Bool
			s.fail = func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, method) || done.Swap(true) {
					return false
				}
				do(w, s)
				return true
			}
		}
	}
	answer := func(code int) func(http.ResponseWriter, *server) {
		return func(w http.ResponseWriter, _ *server) { w.WriteHeader(code) }
	}
	cut := func(w http.ResponseWriter, s *server) {
		w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprintf("%016x", s.header.checksum)))
		w.Header().Set("Content-Length", strconv.Itoa(len(s.segment)))
		_, _ = w.Write(s.segment[:len(s.segment)/2])
		panic(http.ErrAbortHandler)
	}
	for name, c := range map[string]struct {
		change func(*server)
		want   error
	}{
		"busy":              {first("getSegment", answer(http.StatusTooManyRequests)), nil},
		"not ready":         {first("planSnapshot", answer(http.StatusServiceUnavailable)), nil},
		"block missing":     {first("getBlock", answer(http.StatusNotFound)), nil},
		"segment missing":   {first("getSegment", answer(http.StatusNotFound)), nil},
		"broken connection": {first("getSegment", cut), nil},
		"no archive":        {first("planSnapshot", answer(http.StatusNotFound)), ErrArchive},
		"no key":            {func(s *server) { s.key = "wanted" }, ErrArchive},
		"bad request":       {first("planSnapshot", answer(http.StatusBadRequest)), ErrArchive},
		"always compacted":  {func(s *server) { s.checksum = "0123456789abcdef" }, errReplan},
		"always busy": {func(s *server) {
			s.fail = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusBadGateway); return true }
		}, &outward.Answer{Code: http.StatusBadGateway}},
		"damaged segment":   {func(s *server) { s.segment[len(s.segment)-9] ^= 1 }, ErrSegment},
		"damaged block":     {func(s *server) { s.segment[5000] ^= 1 }, ErrSegment},
		"truncated segment": {func(s *server) { s.segment = s.segment[:len(s.segment)-1] }, ErrSegment},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.segment = bytes.Clone(s.segment)
			c.change(s)
			store, g := open(t)
			err := s.read(t.Context(), g, Options{Tries: 4})
			if st, ok := errors.AsType[*outward.Answer](c.want); ok {
				if got, ok := errors.AsType[*outward.Answer](err); !ok || got.Code != st.Code {
					t.Fatalf("%v, want %v", err, c.want)
				}
				return
			}
			if !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if c.want == nil {
				if got := indexed(t, store); !maps.Equal(got, want) {
					t.Fatalf("%d records, want %d", len(got), len(want))
				}
			}
		})
	}
}

// The Reader polls an archive that has not sealed the needed events yet.
func TestUntil(t *testing.T) {
	s := newServer(t)
	_, g := open(t)
	plans := 0
	s.fail = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "planSnapshot") {
			plans++
		}
		return false
	}
	asked := 0
	err := s.read(t.Context(), g, Options{Poll: time.Millisecond, Until: func() time.Time {
		if asked++; asked < 8 {
			return time.UnixMicro(1<<62 - 1)
		}
		return time.UnixMicro(1795286046137175)
	}})
	if err != nil || plans < 3 {
		t.Errorf("%d plans: %v", plans, err)
	}
	asked = 0 // the next process has nothing to read, and nothing to wait for
	if err := s.read(t.Context(), g, Options{Poll: time.Millisecond, Until: func() time.Time {
		if asked++; asked == 2 {
			t.Error("it waits")
			return time.Time{}
		}
		return time.UnixMicro(1795286046137175)
	}}); err != nil {
		t.Error(err)
	}
	late := 1
	s.fail = func(w http.ResponseWriter, _ *http.Request) bool {
		if late--; late < 0 {
			return false
		}
		_, err := io.WriteString(w, `{"plannedThroughSeq":5,"sealedTipSeq":5,"segments":[]}`)
		return err == nil
	}
	if err := s.read(t.Context(), g, Options{}); err != nil || late > 0 {
		t.Errorf("a replica that is late: %v", err)
	}
	late = 2
	if err := s.read(t.Context(), g, Options{Tries: 2}); !errors.Is(err, ErrRestarted) {
		t.Errorf("an archive that begins again: %v", err)
	}
	must(t, g.SetFuture(t.Context(), "archive http://archive.example.com"))
	s.fail = nil // its new numbers have passed those that were read
	if err := s.read(t.Context(), g, Options{}); !errors.Is(err, ErrRestarted) {
		t.Errorf("an archive that was begun again: %v", err)
	}
}

// Malformed blocks are errors; all others are readable.
func FuzzBlock(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0})
	s := newServer(f)
	last, err := newDecoder().DecodeAll(s.frames[len(s.frames)-1], nil)
	must(f, err)
	f.Add(last)
	f.Fuzz(func(t *testing.T, buf []byte) {
		b := block{buf: buf}
		if b.parse() != nil {
			return
		}
		var batch batch.Batch
		fold := newFolder(kinds.BuiltIn, all, 0, ignore)
		fold.add(&b, &batch)
		for i := range batch.Events() {
			if len(batch.Bytes(batch.Event(i).DID)) == 0 {
				t.Error("an event without an account")
			}
		}
	})
}

func FuzzSegment(f *testing.F) {
	f.Add(newServer(f).segment[:8000])
	f.Add(slices.Concat([]byte(magic), make([]byte, 300)))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _, _ = frames(b) })
}
