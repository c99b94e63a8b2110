package command

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"
)

// A line that changes never takes more than one line of the terminal, in characters and not in
// bytes; the log above it is whole.
func TestWidth(t *testing.T) {
	var out bytes.Buffer
	s := &screen{to: &out, width: func() int { return 20 }}
	s.status(strings.Repeat("ö", 50))
	if line := strings.TrimPrefix(out.String(), clearLine); utf8.RuneCountInString(line) != 19 {
		t.Errorf("%d columns of 20: %q", utf8.RuneCountInString(line), line)
	}
	out.Reset()
	logged := strings.Repeat("x", 70) + "\n"
	if n, err := s.Write([]byte(logged)); n != len(logged) || err != nil || !strings.HasPrefix(out.String(), clearLine+logged) || len(out.String()) > len(clearLine)+len(logged)+2*19 {
		t.Errorf("%d, %v: %q", n, err, out.String())
	}
	out.Reset()
	bar := &oneLine{&out, s.width}
	if n, err := bar.Write([]byte("\r" + strings.Repeat("a", 30) + "\rb")); n != 33 || err != nil || out.String() != "\r"+strings.Repeat("a", 19)+"\rb" {
		t.Errorf("%d, %v: %q", n, err, out.String())
	}
	if got := cut("as it is", 0); got != "as it is" {
		t.Errorf("of a width that is not known: %q", got)
	}
}
