package dict_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	indigo "github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/intern/dict"
)

// corpus has strings at the edges of the syntax.
func corpus() []string {
	long := strings.Repeat("a", 63)
	all := []string{
		"", "did:", "did:plc", "did:plc:", "did:plc:a", "did:plc:ewvi7nxzyoun6zhxrhs64oiz", "did:web:example.com", "did:web:a%3A80",
		"did:web:a%", "did:web:a:", "did:Web:a", "did::a", "did:w3b:a", "DID:plc:a", "did:plc:a b", "did:plc:é", "did:x:" + strings.Repeat("a", 2042), "did:x:" + strings.Repeat("a", 2043),
		"at://", "at://did:plc:a", "at://did:plc:a/", "at://did:plc:a/app.bsky.feed.post", "at://did:plc:a/app.bsky.feed.post/",
		"at://did:plc:a/app.bsky.feed.post/self", "at://did:plc:a/app.bsky.feed.post/a/b", "at://did:plc:a/app.bsky.feed.post/.", "at://did:plc:a/app.bsky.feed.post/..",
		"at://did:plc:a/app.bsky.feed.post/...", "at://did:plc:a/app.bsky/x", "at://did:plc:a/app/x", "at://did:plc:a/app.bsky.3/x", "at://did:plc:a/a-.b.c/x", "at://did:plc:a/3a.b.c/x",
		"at://did:plc:a/a.3.c/x", "at://did:plc:a/a.b.c-d/x", "at://did:plc:a/a.b." + long, "at://did:plc:a/a.b." + long + "a", "at://handle.example.com/app.bsky.feed.post/x",
		"at://handle/app.bsky.feed.post/x", "at://-a.com", "at://a-.com", "at://a.c-", "at://a.1", "at://a..com", "at://" + long + ".com", "at://" + long + "a.com",
		"at://did:plc:a?x", "at://did:plc:a#x", "at:/did:plc:a", "https://example.com", "at://did:plc:a//x",
		".", "..", "...", "self", "whats-hot", "Custom.key_1~x:y-Z", "a/b", "a b", strings.Repeat("k", 512), strings.Repeat("k", 513), "3jzfcijpj2z2a", "3jzfcijpj2z2", "zjzfcijpj2z2a", "3jzfcijpj2z21",
		"at://did:plc:a/app.bsky.feed.post/" + strings.Repeat("k", 512), "at://did:x:" + strings.Repeat("a", 2042) + "/a.b.c",
	}
	for i := 250; i < 256; i++ {
		all = append(all, "at://"+strings.Repeat("a.", i/2)+"com"[:i%3+1], "at://did:plc:a/a."+strings.Repeat("b.", i/2+30)+"c")
	}
	return all
}

func compareSyntax(t *testing.T, s string) {
	t.Helper()
	_, did := indigo.ParseDID(s)
	_, uri := indigo.ParseATURI(s)
	_, rkey := indigo.ParseRecordKey(s)
	_, tid := indigo.ParseTID(s)
	for _, c := range []struct {
		what string
		got  bool
		want error
	}{
		{"DID", dict.ValidDID(s), did},
		{"AT URI", dict.ValidURI(s), uri},
		{"record key", dict.ValidRkey(s), rkey},
		{"TID", dict.ValidTID(s), tid},
	} {
		if c.got != (c.want == nil) {
			t.Errorf("%q as a %s: %v, indigo says %v", s, c.what, c.got, c.want)
		}
	}
}

func TestSyntaxAgainstIndigo(t *testing.T) {
	all := corpus()
	for _, s := range all {
		compareSyntax(t, s)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 50_000 { // change random bytes
		s := all[rng.IntN(len(all))]
		if len(s) > 600 {
			continue
		}
		b := []byte(s)
		for range rng.IntN(3) {
			c := "abz019.:-_~%/AZ \x00é#"[rng.IntN(20)]
			switch i := rng.IntN(len(b) + 1); rng.IntN(3) {
			case 0:
				b = slices.Insert(b, i, c)
			case 1:
				if i < len(b) {
					b[i] = c
				}
			default:
				b = b[:i]
			}
		}
		compareSyntax(t, string(b))
	}
}

func FuzzSyntax(f *testing.F) {
	for _, s := range corpus() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { compareSyntax(t, s) })
}

// URIs of spaces and of records in them, by proposal 0016. None is an AT URI to indigo, so
// that no string is both.
func TestSpaceURIs(t *testing.T) {
	const space = "at://did:plc:a/space/com.example.forum/self"
	for s, want := range map[string]bool{
		space: true,
		space + "/did:web:b.example.com/app.bsky.feed.post/3kx": true,
		"at://did:plc:a/space/com.example.forum":                true,
		"at://did:plc:a/space/":                                 true,
		"at://did:plc:a/space":                                  false,
		"at://did:plc:a/spaces/com.example.forum/self":          false,
		"at://a.example.com/space/com.example.forum/self":       false,
		"https://did:plc:a/space/com.example.forum/self":        false,
		"did:plc:a/space/com.example.forum/self":                false,
		"":                                                      false,
	} {
		if got := dict.IsSpaceURI([]byte(s)); got != want {
			t.Errorf("%q: %v", s, got)
		}
		if _, err := indigo.ParseATURI(s); want && (err == nil || dict.ValidURI(s)) {
			t.Errorf("%q is an AT URI of a record as well", s)
		}
	}
}
