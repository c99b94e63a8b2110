package xrpc

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
)

var (
	words = language.NewVocabulary(kinds.BuiltIn)
	noon  = time.Date(2026, 11, 22, 12, 0, 0, 123_456_789, time.UTC)
)

func parsed(t *testing.T, text string, now time.Time) *language.Expr {
	t.Helper()
	e, err := words.Parse(text, language.MaxForm, now)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// sets are expressions with and without ages, and with more strings than fit into a byte.
var sets = []string{
	"follows(did:web:a.example.com)", "followers(did:web:a.example.com)", "follows(did:web:b.example.com)", " follows(did:web:a.example.com)",
	"follows(did:web:a.example.com,since=1d)", "follows(did:web:a.example.com,since=24h)", "members(did:web:a.example.com)", "members(did:web:a.example.com,did:web:a.example.com)",
	"members(" + strings.Repeat("did:web:a.example.com,", 8) + "did:web:b.example.com)", "union(likes(did:web:a.example.com,since=1h),likes(did:web:b.example.com,until=1h))",
}

// A cursor opens to its content for the same set, in the same order, on the same server only. The same page has the same cursor.
func TestCursorsReturn(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	c, stranger := NewCursors([]byte("secret")), NewCursors([]byte("secret2"))
	mores := []string{"", "newest", "oldest", "newest did:web:a.example.com", "newest did:web:a.example.com did:web:b.example.com", "newest\x00"}
	for range 300 {
		text, more := sets[rng.IntN(len(sets))], mores[rng.IntN(len(mores))]
		e := parsed(t, text, noon)
		p := algebra.Place{Begun: true, Sorted: rng.IntN(2) == 0, Micros: rng.Uint64(), ID: dict.ID(rng.Uint64()), Now: rng.Int64N(2) * rng.Int64N(1<<60)}
		if e.HasAge {
			p.Now = noon.Truncate(time.Microsecond).UnixMicro()
		}
		cursor := c.SealList(e, more, p)
		later := parsed(t, text, noon.Add(time.Hour))
		got, place, err := c.OpenList(later, more, cursor)
		if e.HasAge != (got != later) || e.HasAge && !got.Now.Equal(noon.Truncate(time.Microsecond)) {
			t.Fatalf("%s: ages are counted back from %v", text, got.Now)
		}
		if err != nil || place != p || !reflect.DeepEqual(got.Root, e.Root) {
			t.Fatalf("%s %q: %v, %+v, want %+v", text, more, err, place, p)
		}
		for _, wrong := range mores {
			if _, _, err := c.OpenList(e, wrong, cursor); (err == nil) != (wrong == more) {
				t.Fatalf("%s: a cursor of %q for %q: %v", text, more, wrong, err)
			}
		}
		for _, of := range sets {
			if _, _, err := c.OpenList(parsed(t, of, noon), more, cursor); (err == nil) != (of == text) {
				t.Fatalf("a cursor of %s for %s: %v", text, of, err)
			}
		}
		if _, _, err := stranger.OpenList(e, more, cursor); !errors.Is(err, ErrCursor) {
			t.Fatalf("a cursor of another store: %v", err)
		}
		if again := c.SealList(e, more, p); again != cursor {
			t.Fatalf("%s: the same page has the cursors %s and %s", text, cursor, again)
		}
	}
}

// A cursor that is changed in one bit, shortened, extended, or of another form is an error.
func TestDamagedCursors(t *testing.T) {
	c := NewCursors([]byte("secret"))
	for _, text := range sets {
		e := parsed(t, text, noon)
		cursor := c.SealList(e, "", algebra.Place{ID: 1234})
		sealed, err := base64.RawURLEncoding.DecodeString(cursor)
		if err != nil {
			t.Fatal(err)
		}
		var bad []string
		for i := range sealed {
			for bit := range 8 {
				b := bytes.Clone(sealed)
				b[i] ^= 1 << bit
				bad = append(bad, base64.RawURLEncoding.EncodeToString(b))
			}
			bad = append(bad, base64.RawURLEncoding.EncodeToString(sealed[:i]), base64.RawURLEncoding.EncodeToString(slices.Insert(bytes.Clone(sealed), i, 0)))
		}
		for i := range cursor {
			bad = append(bad, cursor[:i], cursor[i+1:], cursor[:i]+"!"+cursor[i+1:], cursor[:i]+"\n"+cursor[i:])
		}
		last := strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", cursor[len(cursor)-1])
		if len(sealed)%3 != 0 { // the last character has bits that encode nothing
			bad = append(bad, cursor[:len(cursor)-1]+"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"[last^1:last^1+1])
		}
		bad = append(bad, cursor+"=", cursor+"==", " "+cursor, cursor+cursor, strings.Repeat("A", 100_000), base64.StdEncoding.EncodeToString(sealed)+"=")
		for n := range 64 { // of another version
			if n != binary.Size(algebra.Place{}) {
				bad = append(bad, c.Seal("list \x00"+e.Question(), make([]byte, n)))
			}
		}
		for _, b := range bad {
			if _, _, err := c.OpenList(e, "", b); !errors.Is(err, ErrCursor) {
				t.Fatalf("%s: %q, damaged from %q: %v", text, b, cursor, err)
			}
		}
		if _, _, err := c.OpenList(e, "", cursor); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A nonce must never serve two contents: with AES-GCM, that would give both away.
func TestNoncesDiffer(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	c := NewCursors([]byte("secret"))
	nonces := map[string]string{}
	check := func(text []byte, question string, numbers ...uint64) {
		t.Helper()
		sealed, err := base64.RawURLEncoding.DecodeString(c.Seal(question, numbers, text...))
		if err != nil {
			t.Fatal(err)
		}
		nonce, content := string(sealed[:c.aead.NonceSize()]), fmt.Sprintf("%q %q %v", text, question, numbers)
		if was, ok := nonces[nonce]; ok && was != content {
			t.Fatalf("%q and %q share a nonce", was, content)
		}
		nonces[nonce] = content
	}
	const text = "many linkDid list did:web:a.example.com"
	for i := range len(text) { // the same bytes, divided differently
		check([]byte(text[:i]), text[i:])
	}
	for range 5000 {
		b := make([]byte, rng.IntN(6))
		for i := range b {
			b[i] = "ab\x00"[rng.IntN(3)]
		}
		cut := rng.IntN(len(b) + 1)
		check(b[:cut], string(b[cut:]))
		check(b[:cut], string(b[cut:]), make([]uint64, rng.IntN(3))...)
	}
}

// A cursor opens to the numbers and the text that were sealed.
func TestCursorsHoldNumbersAndText(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	c := NewCursors([]byte("secret"))
	for n := range 300 {
		numbers, text := make([]uint64, n%7), make([]byte, n%5)
		for i := range numbers {
			numbers[i] = rng.Uint64() >> rng.IntN(65)
		}
		for i := range text {
			text[i] = byte(rng.Uint32())
		}
		gotNumbers := make([]uint64, len(numbers))
		gotText, err := c.Open("question", c.Seal("question", numbers, text...), gotNumbers)
		if err != nil || !slices.Equal(gotNumbers, numbers) || !bytes.Equal(gotText, text) {
			t.Fatalf("%v %q: %v %q, %v", numbers, text, gotNumbers, gotText, err)
		}
	}
}
