package dict

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// roundTrip packs and unpacks s in each namespace in which it is valid.
func roundTrip(t *testing.T, s string, author ID) (forms []string) {
	t.Helper()
	if ValidDID(s) {
		form := PackDID(nil, []byte(s))
		if got := AppendDID(nil, form); string(got) != s {
			t.Errorf("%q became %x became %q", s, form, got)
		}
		forms = append(forms, string(form))
	}
	if !ValidURI(s) {
		return forms
	}
	p, packs := SplitURI([]byte(s))
	form := AppendRaw(nil, URI, []byte(s))
	if packs {
		form = AppendPackedURI(nil, p.TID, author, p.Collection)
	}
	tid, a, collection, packed, err := UnpackURI(form)
	switch {
	case err != nil || packed != packs:
		t.Errorf("%q became %x: %v, packed %v", s, form, err, packed)
	case packed:
		if got := AppendURI(nil, p.Author, collection, tid); string(got) != s || a != author {
			t.Errorf("%q of %d became %x became %q of %d", s, author, form, got, a)
		}
	case string(UnpackRaw(form)) != s:
		t.Errorf("%q became %x", s, form)
	}
	return append(forms, string(form))
}

func TestPack(t *testing.T) {
	const did = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"
	for s, size := range map[string]int{
		did:                                 15,
		"did:plc:ewvi7nxzyoun6zhxrhs64oi1":  32, // not base32
		"did:plc:EWVI7NXZYOUN6ZHXRHS64OIZ":  32,
		"did:web:abc.xyz":                   16, // as long as a packed form
		"did:web:abcd.xyz":                  16,
		"did:plc:ewvi7nxzyoun6zhxrhs64oiza": 33,
		"at://" + did + "/app.bsky.feed.post/3jzfcijpj2z2a":                                                14,
		"at://" + did + "/app.bsky.feed.post/" + string(AppendTID(nil, 1_767_225_600_123_000<<10|31)):      11,
		"at://" + did + "/app.bsky.feed.post/" + string(AppendTID(nil, 1_767_225_600_123_000<<10|32)):      14,
		"at://" + did + "/app.bsky.feed.post/" + string(AppendTID(nil, 1_767_225_600_123_001<<10|31)):      14,
		"at://" + did + "/app.bsky.feed.generator/" + string(AppendTID(nil, 1_767_225_600_123_000<<10|31)): 14,
		"at://did:web:example.com/app.bsky.feed.post/3jzfcijpj2z2a":                                        14,
		"at://" + did + "/app.bsky.feed.post/self":                                                         61,
		"at://" + did + "/app.bsky.feed.post/zjzfcijpj2z2a":                                                70, // not a TID
		"at://" + did + "/app.bsky.feed.other/3jzfcijpj2z2a":                                               71,
		"at://" + did + "/app.bsky.feed.generator/Custom.key_1~x:y-Z":                                      80,
		"at://handle.example.com/app.bsky.feed.post/3jzfcijpj2z2a":                                         56,
		"at://" + did + "/app.bsky.feed.post":                                                              56,
		"at://" + did:                                                                                      37,
		"at://abc.defgh":                                                                                   16, // as long as a packed form
		"at://abcd.efghijkl":                                                                               19, "at://a.bcd": 10, "at://ab.cde": 12, "at://abc.defghi": 16,
		"at://" + did + "/app.bsky.feed.post/2222222222222":                             11,
		"at://" + did + "/app.bsky.feed.post/jzzzzzzzzzzzz":                             14,
		"at://did:x:" + strings.Repeat("a", 2042) + "/app.bsky.feed.post/3jzfcijpj2z2a": 14,
	} {
		forms := roundTrip(t, s, 7)
		if len(forms) != 1 || len(forms[0]) != size {
			t.Errorf("%q: %x, want %d bytes", s, forms, size)
		}
	}
	if forms := roundTrip(t, "at://"+did+"/app.bsky.feed.post/3jzfcijpj2z2a", 1<<63|5); len(forms[0]) != packedURILong {
		t.Errorf("%x", forms)
	}
	for range 2000 {
		roundTrip(t, "did:plc:"+randomOf(Base32Alphabet, 24), 1)
	}
}

func randomOf(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[rand.IntN(len(alphabet))]
	}
	return string(b)
}

func FuzzPack(f *testing.F) {
	f.Add("did:plc:ewvi7nxzyoun6zhxrhs64oiz", "at://did:plc:ewvi7nxzyoun6zhxrhs64oiz/app.bsky.feed.post/3jzfcijpj2z2a")
	f.Add("did:web:abc.xyz", "at://abc.defgh")
	f.Fuzz(func(t *testing.T, a, b string) {
		// Different strings have different forms.
		for _, x := range roundTrip(t, a, 3) {
			for _, y := range roundTrip(t, b, 3) {
				pa, oka := splitIfURI(a)
				pb, okb := splitIfURI(b)
				sameAuthor := oka && okb && bytes.Equal(pa.Author, pb.Author)
				if x == y && a != b && ValidDID(a) == ValidDID(b) && (!oka || !okb || sameAuthor) {
					t.Errorf("%q and %q are both %x", a, b, x)
				}
			}
		}
	})
}

func splitIfURI(s string) (URIParts, bool) {
	if !ValidURI(s) {
		return URIParts{}, false
	}
	return SplitURI([]byte(s))
}
