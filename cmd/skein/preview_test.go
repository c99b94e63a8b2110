package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"skein.blue/internal/app"
	"skein.blue/internal/command"
)

// --feed-preview answers as any viewer, so it is a usage error unless the query listener is on
// loopback, and without feeds. The same holds for its variable. No store is created.
func TestFeedPreviewFlag(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("feeds", []byte("mine = likes($viewer)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (int, string) {
		var stdout, stderr bytes.Buffer
		code := command.Run(t.Context(), &command.Environment{Stdout: &stdout, Stderr: &stderr}, commandLine, append([]string{"skein", "serve"}, args...))
		return code, stderr.String()
	}
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0"} {
		if code, errs := run("--feeds", "feeds", "--feed-preview", "--listen", listen); code != command.ExitUsage || !strings.Contains(errs, "use 127.0.0.1:3210") {
			t.Errorf("%s: %d %s", listen, code, errs)
		}
	}
	if code, errs := run("--feed-preview"); code != command.ExitUsage || !strings.Contains(errs, "needs --feeds FILE") {
		t.Errorf("without feeds: %d %s", code, errs)
	}
	t.Setenv("SKEIN_FEED_PREVIEW", "true")
	if code, errs := run("--feeds", "feeds", "--listen", ":0"); code != command.ExitUsage || !strings.Contains(errs, "--feed-preview") {
		t.Errorf("by environment: %d %s", code, errs)
	}
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0", "localhost:0", "127.8.8.8:1"} {
		if !app.OnLoopback(listen) {
			t.Error(listen)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) != 1 {
		t.Errorf("a store was created: %v, %v", left, err)
	}
}
