package command

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// A progress bar takes at most one line of the terminal, measured in characters, not bytes.
func TestProgressFitsTheTerminal(t *testing.T) {
	var out bytes.Buffer
	bar := &Progress{to: &out, width: func() int { return 20 }, things: "records", began: time.Now()}
	bar.Of(30, 100, strings.Repeat("ö", 50))
	if line := strings.TrimPrefix(out.String(), clearLine); utf8.RuneCountInString(line) != 19 {
		t.Errorf("%q", out.String())
	}
	if got := cut("as it is", 0); got != "as it is" {
		t.Errorf("unknown width: %q", got)
	}
}

// A progress bar has a count and a rate; with a total, which may be an estimate, it has the share and the time left, too.
func TestProgressLine(t *testing.T) {
	p := &Progress{things: "records"}
	for _, c := range []struct {
		n, total int64
		want     string
	}{
		{0, 0, "0 records, 0/s, 10s"},
		{2000, 0, "2.0 k records, 200/s, 10s"},
		{2000, 8000, " 25 % [======                   ] 2.0 k records, 200/s, 10s, 30s left"},
		{2000, 2000, "2.0 k records, 200/s, 10s"},
	} {
		if got := p.line(c.n, c.total, 10*time.Second); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.n, c.total, got, c.want)
		}
	}
	p = &Progress{things: "bytes"}
	if got := p.line(1<<20, 0, time.Second); got != "1.0 MiB, 1.0 MiB/s, 1s" {
		t.Errorf("%q", got)
	}
}

// A stranger's text in a progress bar or the log neither moves the cursor nor
// begins a line.
func TestAbuseProgress(t *testing.T) {
	const hostile = "host\x1b]0;owned\x07\x1b[2J\u009b2J\u202e\nskein: all is well"
	var out bytes.Buffer
	bar := &Progress{to: &out, width: func() int { return 0 }}
	bar.Of(1, 10, hostile)
	e := &Environment{Stderr: &out, Level: "info", Format: "text"}
	e.wrap()
	log, err := e.logger()
	if err != nil {
		t.Fatal(err)
	}
	log.Info("a host failed", "error", errors.New(hostile), "host", hostile+"\x7f", "bare", "del\x7f")
	said := strings.ReplaceAll(out.String(), clearLine, "")
	if strings.Count(said, "owned") < 3 {
		t.Errorf("the text is missing: %q", said)
	}
	if strings.ContainsAny(said, "\x07\x7f\u009b\u202e") || strings.Contains(said, "\x1b]") || strings.Contains(said, "\x1b[2J") || strings.Contains(said, "\nskein") {
		t.Errorf("a terminal would obey it: %q", said)
	}
}

// The log shows durations in units for people, also in JSON, whose default is nanoseconds.
func TestDurationsInTheLog(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		e := &Environment{Stderr: &out, Level: "info", Format: format}
		e.wrap()
		log, err := e.logger()
		if err != nil {
			t.Fatal(err)
		}
		log.Info("waiting", "for", 5*time.Second, slog.Group("more", "took", 1500*time.Millisecond))
		if s := out.String(); strings.Contains(s, "000000") || !strings.Contains(s, "5s") || !strings.Contains(s, "1.5s") {
			t.Errorf("%s: %s", format, s)
		}
	}
}
