package export_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/check"
	"skein.blue/graph/export"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// small is an export that has a line of everything.
func small(t *testing.T) string {
	t.Helper()
	p := open(t, dict.DefaultSettings, false)
	for _, did := range []string{"did:plc:a", "did:plc:b"} {
		p.commit(did, "", did[8], func() {
			p.b.AddPut(1, []byte(tid(1<<46)), []byte("did:plc:b"))
			p.b.AddPut(2, []byte("self"), []byte("at://did:plc:b/a.b.c/x"))
			p.b.AddPut(2, []byte("other"), nil)
		})
		p.b.AddDeadLetter(format.DeadLetter{Seq: p.seq, Reason: "bad"})
		p.b.AddGap(format.Gap{After: p.seq, Reason: "gap"})
		p.apply("wss://" + did[8:] + ".com")
	}
	p.account("did:plc:b", false, false)
	p.apply("wss://b.com")
	p.close()
	return exported(t, p.store)
}

// refused reads an export into a place, and checks that it cannot be.
func refused(t *testing.T, p *place, what, text string) {
	t.Helper()
	if _, err := export.Read(t.Context(), p.Store, strings.NewReader(text), nil); !errors.Is(err, graph.ErrImport) {
		t.Errorf("%s: %v", what, err)
	}
}

// unfinished checks that a store is good for nothing but the import.
func unfinished(t *testing.T, store *memkv.Store) {
	t.Helper()
	_, opened := graph.Open(t.Context(), store, graph.Options{})
	_, wrote := export.Write(t.Context(), store, io.Discard, nil)
	checked := check.Store(t.Context(), store, func(string) {}, nil)
	for i, err := range []error{opened, wrote, checked} {
		if err == nil || !strings.Contains(err.Error(), "run skein import again") {
			t.Errorf("%d: a store whose import is not finished: %v", i, err)
		}
	}
}

// finish reads the whole export at last: nothing of what was refused before is left.
func finish(t *testing.T, p *place, text string) {
	t.Helper()
	unfinished(t, p.store)
	_, err := export.Read(t.Context(), p.Store, strings.NewReader(text), nil)
	must(t, err)
	for _, other := range []string{text, strings.Replace(text, "did:plc:a", "did:plc:c", 1)} {
		refused(t, p, "into a store that is not empty", other)
	}
	p.close()
	if got := exported(t, p.store); got != text {
		t.Errorf("the export became\n%s\nand was\n%s", got, text)
	}
	must(t, check.Store(t.Context(), p.store, func(problem string) { t.Error(problem) }, nil))
}

// TestTruncated: an export that was truncated anywhere is refused.
func TestTruncated(t *testing.T) {
	text := small(t)
	for name, settings := range layouts {
		p := open(t, settings, true)
		for n := range len(text) - 1 { // the last byte ends the last line
			if n%31 == 0 {
				refused(t, p, fmt.Sprintf("%s: the first %d of %d bytes", name, n, len(text)), text[:n])
			}
		}
		finish(t, p, text)
	}
	if store := imported(t, dict.DefaultSettings, text[:len(text)-1]); exported(t, store) != text {
		t.Error("without the newline of the last line, the import differs")
	}
}

// TestChangedByte: an export with a changed byte is refused, or is imported unchanged if the
// byte does not change the meaning of its first or last line.
func TestChangedByte(t *testing.T) {
	text := small(t)
	rng := rand.New(rand.NewPCG(3, 4))
	first := strings.Index(text, "\n")
	last := strings.LastIndex(text[:len(text)-1], "\n")
	p := open(t, dict.DefaultSettings, true)
	for i := rng.IntN(3); i < len(text); i += 1 + rng.IntN(5) {
		for _, c := range []byte{text[i] ^ 1<<rng.IntN(8), []byte{byte(rng.IntN(256)), ' ', '\n'}[i%3]} {
			if c == text[i] {
				continue
			}
			changed := text[:i] + string([]byte{c}) + text[i+1:]
			what := fmt.Sprintf("byte %d of %d is %q, and was %q", i, len(text), c, text[i])
			if i >= first && i <= last {
				refused(t, p, what, changed)
				continue
			}
			fresh := open(t, dict.DefaultSettings, true)
			if _, err := export.Read(t.Context(), fresh.Store, strings.NewReader(changed), nil); err == nil {
				fresh.close()
				if got := exported(t, fresh.store); got != text {
					t.Errorf("%s, and the import gave\n%s", what, got)
				}
			} else if !errors.Is(err, graph.ErrImport) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	unfinished(t, p.store)
}

// TestRefusals: an error names the reason and the line.
func TestRefusals(t *testing.T) {
	const account = `{"account":{"did":"did:plc:a","last":{}}}`
	const end = `{"end":{"accounts":1,"records":0}}`
	for name, test := range map[string]struct{ text, says string }{
		"nothing":                             {"", "the file is empty"},
		"no export":                           {"{}", `not an export of skein: the file begins with "{}"`},
		"no JSON":                             {"hello\n", "not an export of skein"},
		"compressed":                          {"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03", "the file is compressed"},
		"without its first":                   {account + "\n" + end, "not an export of skein"},
		"only its beginning":                  {`{"export":4`, "the export is truncated: it stops in line 1"},
		"another version":                     {`{"export":5}` + "\n" + account + "\n" + end, "line 1: unknown version of an export"},
		"a version below all":                 {summed(1, `{"export":-1}`, account), "line 1: unknown version of an export"},
		"an older version":                    {summed(1, `{"export":2}`, account), "line 1: unknown version of an export"},
		"a version in line 2":                 {summed(1, `{"export":4}`, `{"export":-1}`, account), "line 2: unknown version of an export"},
		"two first lines":                     {`{"export":4}` + "\n" + `{"export":4}` + "\n" + end, "line 2: unknown version of an export"},
		"no sum":                              {`{"export":4}` + "\n" + account + "\n" + end, "the export is damaged: the sum of its bytes is "},
		"no end":                              {`{"export":4}` + "\n" + account + "\n", "truncated: it stops in line 3"},
		"too few accounts":                    {summed(1, `{"export":4}`), "the export has 0 accounts and 0 records, expected 1 and 0"},
		"too few records":                     {ended(`{"export":4}`+"\n"+account+"\n", 1, 5), "the export has 1 accounts and 0 records, expected 1 and 5"},
		"an account twice":                    {summed(2, `{"export":4}`, account, account), "the store has 1 accounts and 0 records, the export has 2 and 0"},
		"an invalid DID":                      {`{"export":4}` + "\n" + `{"account":{"did":"plc:a"}}` + "\n", `line 2: import: "plc:a" is not a DID`},
		"an invalid rev":                      {`{"export":4}` + "\n" + `{"account":{"did":"did:plc:a","rev":"1","root":"0000000000000000"}}` + "\n", "the rev or root of did:plc:a is malformed"},
		"a root too short":                    {`{"export":4}` + "\n" + `{"account":{"did":"did:plc:a","rev":"` + tid(0) + `","root":"00"}}` + "\n", "the rev or root of did:plc:a is malformed"},
		"an invalid root":                     {`{"export":4}` + "\n" + `{"account":{"did":"did:plc:a","rev":"` + tid(0) + `","root":"zz"}}` + "\n", "the rev or root of did:plc:a is malformed"},
		"an invalid top":                      {`{"export":4}` + "\n" + `{"account":{"did":"did:plc:a","top":"x"}}` + "\n", "the top of did:plc:a is malformed"},
		"records of an unknown kind":          {`{"export":4}` + "\n" + `{"did":"did:plc:a","kind":"no","records":[["x",""]]}` + "\n", `line 2: import: no records of "did:plc:a"`},
		"records of an invalid DID":           {`{"export":4}` + "\n" + `{"did":"a","kind":"like","records":[["x",""]]}` + "\n", `line 2: import: like records of "a"`},
		"an invalid record key":               {`{"export":4}` + "\n" + `{"did":"did:plc:a","kind":"like","records":[["a/b",""]]}` + "\n", `the like record "a/b" of did:plc:a names ""`},
		"a subject that does not fit likes":   {`{"export":4}` + "\n" + `{"did":"did:plc:a","kind":"like","records":[["a","did:plc:b"]]}` + "\n", `the like record "a" of did:plc:a names "did:plc:b"`},
		"a subject that does not fit follows": {`{"export":4}` + "\n" + `{"did":"did:plc:a","kind":"follow","records":[["a","at://did:plc:b/a.b.c/d"]]}` + "\n", `the follow record "a" of did:plc:a`},
		"an invalid time":                     {`{"export":4}` + "\n" + `{"cursor":{"source":"a","time":"now"}}` + "\n", "line 2: "},
	} {
		p := open(t, dict.DefaultSettings, true)
		_, err := export.Read(t.Context(), p.Store, strings.NewReader(test.text), nil)
		if !errors.Is(err, graph.ErrImport) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
		if !strings.HasPrefix(test.text, `{"export":`) { // the import did not begin
			p.close()
			if _, err := export.Write(t.Context(), p.store, io.Discard, nil); err != nil {
				t.Errorf("%s: the store changed: %v", name, err)
			}
			continue
		}
		unfinished(t, p.store)
	}
}

// limited is a writer with room for a number of bytes.
type limited int

var errFull = errors.New("full")

func (l *limited) Write(b []byte) (int, error) {
	if *l -= limited(len(b)); *l < 0 {
		return 0, errFull
	}
	return len(b), nil
}

// crossing is a store that moves to another state while it is read.
type crossing struct {
	kv.Store

	change func()
}

func (c *crossing) ViewAcross(ctx context.Context, fn func(kv.Reader) error) (crossings int, err error) {
	return 1, c.View(ctx, func(r kv.Reader) error { return fn(&crossingReader{r, c}) })
}

// crossingReader reads the current write state, and everything else from an older state.
type crossingReader struct {
	kv.Reader

	c *crossing
}

func (r *crossingReader) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) error {
	if !strings.HasPrefix(string(lo), string(format.KeyWriter)) {
		r.c.change()
		return r.Reader.Scan(lo, hi, reverse, each)
	}
	return r.c.View(context.Background(), func(now kv.Reader) error { return now.Scan(lo, hi, reverse, each) })
}

// TestWriteFails: an incomplete export is an error, and does not have an end.
func TestWriteFails(t *testing.T) {
	p := open(t, dict.DefaultSettings, false)
	p.fill(20)
	whole := len(exported(t, p.store))
	for _, room := range []int{0, 1, whole / 2, whole - 1, whole} {
		l := limited(room)
		if _, err := export.Write(t.Context(), p.store, &l, nil); (err == nil) != (room == whole) || err != nil && !errors.Is(err, errFull) {
			t.Errorf("with room for %d of %d bytes: %v", room, whole, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := export.Write(ctx, p.store, io.Discard, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	empty := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
	if _, err := export.Write(t.Context(), empty, io.Discard, nil); !errors.Is(err, read.ErrFormat) {
		t.Errorf("with an empty store: %v", err)
	}
	for _, written := range []bool{false, true} {
		var out strings.Builder
		c := &crossing{p.store, func() {
			if written {
				p.commit("did:plc:late", "", 1, func() {})
				p.apply("wss://one.example.com")
			}
		}}
		_, err := export.Write(t.Context(), c, &out, nil)
		if (err != nil) != written || written && (!strings.Contains(err.Error(), "stop the writers and export again") || strings.Contains(out.String(), `{"end":`)) {
			t.Errorf("over two states, written=%v: %v", written, err)
		}
	}
	p.close()
}
