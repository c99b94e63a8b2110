package say

import (
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/runes"
	"golang.org/x/text/transform"
)

// Strangers' texts (from hosts, relays, servers, records) reach an operator's terminal in error
// messages, logs and lists. A terminal obeys control characters: they move the cursor, set its
// title, hide text or reverse it. All text that skein prints goes through shown, by Line, a Writer
// or EscapeJSON.

// shown reports whether a terminal shows a character instead of obeying it. It obeys control
// characters (C0, DEL, C1), characters that change the direction of text, and line separators.
func shown(r rune) bool {
	return !unicode.IsControl(r) && !unicode.Is(unicode.Bidi_Control, r) && r != '\u2028' && r != '\u2029'
}

// Line returns s as one line that is safe for a terminal. Line breaks and tabs become spaces;
// other characters that a terminal would obey, and bytes that are not UTF-8, become U+FFFD.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\r', r == '\t', r == '\u2028', r == '\u2029':
			return ' '
		case !shown(r):
			return utf8.RuneError
		}
		return r
	}, s)
}

// Short returns the beginning of a stranger's text, as UTF-8.
func Short[S ~string | ~[]byte](s S) string {
	const most = 300
	text := strings.ToValidUTF8(string(s), "?")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// A Writer writes lines of text to a terminal, or to a file that a terminal may show later. It
// keeps line breaks and tabs, and replaces other characters as Line does. Any goroutine may write.
type Writer struct {
	mu sync.Mutex // held during a write
	w  *transform.Writer
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: transform.NewWriter(w, runes.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !shown(r) {
			return utf8.RuneError
		}
		return r
	}))}
}

// Write implements io.Writer.
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(b) // writers do not wrap
}

// EscapeJSON returns JSON with the characters that a terminal would obey escaped as \u…, without
// changing its value. encoding/json does not escape DEL, C1 and characters that change the
// direction of text. The line break after a value stays.
func EscapeJSON(b []byte) []byte {
	const hex = "0123456789abcdef"
	var out []byte
	from := 0
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		if r != '\n' && !shown(r) { // all of them are below U+10000
			out = append(out, b[from:i]...)
			out = append(out, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
			from = i + n
		}
		i += n
	}
	if out == nil {
		return b
	}
	return append(out, b[from:]...)
}
