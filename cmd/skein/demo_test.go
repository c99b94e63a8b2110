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
	t.Setenv("CGO_ENABLED", "0")
	code, out, errs := skein(t, "demo", "--listen", "127.0.0.1:0", "--for", "10ms")
	if code != 0 || errs != "" {
		t.Fatalf("%d: %s\n%s", code, errs, out)
	}
	for _, want := range []string{`http://127\.0\.0\.1:\d+/\n`, `in a second terminal, in \S+/cmd/skein\n`, `    CGO_ENABLED=0 go run \./cmd/skein query --server http://127\.0\.0\.1:\d+ 'intersect`, `    CGO_ENABLED=0 go run \./cmd/skein serve --around`, `(?s)follows both.*did:plc:.*… \d+ in all`, `(?s)liked a post\?.*      did:plc:`, `(?s)in the last 24 hours\?.*liked by \d of these accounts.*For you: .*weigh=score.*liked by \d`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in the output:\n%s", want, out)
		}
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	run(t, 64, "takes no arguments", "demo", "x")
}

// A proposed command starts the program as the user did.
func TestStarted(t *testing.T) {
	t.Setenv("CGO_ENABLED", "1")
	for program, want := range map[string]string{
		"bin/skein": "bin/skein", "/tmp/go-build1/b001/exe/skein": "CGO_ENABLED=1 go run ./cmd/skein", "/home/x/.cache/go-build/d2/d2f9-d/skein": "CGO_ENABLED=1 go run ./cmd/skein",
	} {
		if got := started(program); got != want {
			t.Errorf("%s: %s", program, got)
		}
	}
}
