package main

import (
	"os"
	"regexp"
	"testing"
)

// The demo answers four queries and leaves nothing behind.
func TestDemo(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	code, out, errs := skein(t, "demo", "--listen", "127.0.0.1:0", "--for", "10ms")
	if code != 0 || errs != "" {
		t.Fatalf("%d: %s\n%s", code, errs, out)
	}
	for _, want := range []string{`http://127\.0\.0\.1:\d+/\n`, `(?s)follows both.*did:plc:.*… \d+ in all`, `(?s)liked a post\?.*      did:plc:`, `(?s)in the last 24 hours\?.*liked by \d of these accounts.*For you: .*weigh=score.*liked by \d`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in the output:\n%s", want, out)
		}
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	run(t, 64, "takes no arguments", "demo", "x")
}
