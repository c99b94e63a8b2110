package say_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"skein.blue/internal/say"
)

// hostile has sequences that a terminal would obey: a title, colours, a cleared line, an 8-bit
// CSI, reversed text, separators, and bytes that are not UTF-8.
const hostile = "a\x1b]0;owned\x07\x1b[2K\x1b[31mb\x7f\u009b31mc\u202ed\u2066e\u200f\u061c\u2028f\x9b\x80\xff\x00g\b\b"

func obeyed(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029')
	})
}

func TestLine(t *testing.T) {
	if got := say.Line("one\r\ntwo\tthree\u2028four"); got != "one  two three four" {
		t.Errorf("%q", got)
	}
	if got := say.Line(hostile); obeyed(got) || strings.ContainsAny(got, "\n\t") || !strings.HasPrefix(got, "a�]0;owned�") {
		t.Errorf("%q", got)
	}
	for _, plain := range []string{"", "did:plc:abc", "größer – 日本語 👩\u200d👩\u200d👧"} {
		if got := say.Line(plain); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}

// A Writer replaces what a terminal would obey, and nothing else, however the text is cut into
// pieces.
func TestWriter(t *testing.T) {
	const text = hostile + "\nnext\tline größer 日本語 " + hostile + "\n"
	var whole bytes.Buffer
	if n, err := say.NewWriter(&whole).Write([]byte(text)); n != len(text) || err != nil {
		t.Fatal(n, err)
	}
	if obeyed(whole.String()) || strings.Count(whole.String(), "\n") != 2 || !strings.Contains(whole.String(), "next\tline größer 日本語 ") {
		t.Errorf("%q", whole.String())
	}
	for size := range 5 {
		var pieces bytes.Buffer
		w := say.NewWriter(&pieces)
		for rest := []byte(text); len(rest) > 0; {
			n := min(size+1, len(rest))
			if m, err := w.Write(rest[:n]); m != n || err != nil {
				t.Fatal(m, err)
			}
			rest = rest[n:]
		}
		if pieces.String() != whole.String() {
			t.Errorf("in pieces of %d: %q", size+1, pieces.String())
		}
	}
}

// Escaped JSON has the same value.
func TestEscapeJSON(t *testing.T) {
	text := strings.ToValidUTF8(hostile, "?") + "größer"
	b, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	escaped := say.EscapeJSON(append(b, '\n'))
	if obeyed(string(escaped)) || !bytes.HasSuffix(escaped, []byte("\"\n")) {
		t.Errorf("%q", escaped)
	}
	var back string
	if err := json.Unmarshal(escaped, &back); err != nil || back != text {
		t.Errorf("%q, %v", back, err)
	}
}

// Texts from strangers are kept short, valid, and otherwise as they are.
func TestShort(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		"no such repo":           "no such repo",
		"a\xffb":                 "a?b",
		strings.Repeat("x", 300): strings.Repeat("x", 300),
		strings.Repeat("x", 301): strings.Repeat("x", 300) + "…",
		"x" + strings.Repeat("é", 150) + "after": "x" + strings.Repeat("é", 149) + "…",
	} {
		if got := say.Short(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
