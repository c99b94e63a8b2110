package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"skein.blue/internal/command"
)

// The demo answers four queries and leaves nothing behind.
func TestDemo(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	var stdout, stderr bytes.Buffer
	began := time.Now()
	code := command.Run(t.Context(), &command.Environment{Stdout: &stdout, Stderr: &stderr}, commandLine, []string{"skein", "demo", "--listen", "127.0.0.1:0", "--for", "10ms"})
	out := stdout.String()
	if code != 0 || stderr.Len() > 0 {
		t.Fatalf("%d after %v: %s\n%s", code, time.Since(began), stderr.String(), out)
	}
	for _, want := range []string{`http://127\.0\.0\.1:\d+/\n`, `(?s)follows both.*did:plc:.*… \d+ in all`, `(?s)liked a post\?.*      did:plc:`, `(?s)in the last 24 hours\?.*liked by \d of these accounts.*For you: .*weigh=score.*liked by \d`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in the output:\n%s", want, out)
		}
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if code := command.Run(t.Context(), &command.Environment{Stdout: &stdout, Stderr: &stderr}, commandLine, []string{"skein", "demo", "x"}); code != command.ExitUsage || !strings.Contains(stderr.String(), "takes no arguments") {
		t.Errorf("%d: %s", code, stderr.String())
	}
}

// A replay that fails before it applies anything creates no store, and does not change an
// existing one.
func TestFailedReplayLeavesNoStore(t *testing.T) {
	dir := t.TempDir()
	garbage := dir + "/garbage"
	if err := os.WriteFile(garbage, []byte("this is no file of frames, and long enough to be looked at"), 0o600); err != nil {
		t.Fatal(err)
	}
	store := dir + "/store"
	if code, _, stderr := skein(t, "replay", "--frames", garbage, "--store", store); code != 1 {
		t.Fatalf("%d: %s", code, stderr)
	}
	if _, err := os.Stat(store); !os.IsNotExist(err) {
		t.Errorf("a store is left: %v", err)
	}
	if code, _, stderr := skein(t, "replay", "--frames", plainPDS, "--store", store); code != 0 {
		t.Fatalf("%d: %s", code, stderr)
	}
	if code, _, stderr := skein(t, "replay", "--frames", garbage, "--store", store); code != 1 {
		t.Fatalf("%d: %s", code, stderr)
	}
	if code, _, stderr := skein(t, "check", "--store", store); code != 0 {
		t.Errorf("the existing store: %d: %s", code, stderr)
	}
}
