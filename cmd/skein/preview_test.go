package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"skein.blue/internal/command"
)

// --feed-preview answers as any viewer: where the query listener is not on loopback, and where
// there are no feeds, it is wrong usage, by flag and by environment, and nothing is begun.
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
		if code, said := run("--feeds", "feeds", "--feed-preview", "--listen", listen); code != command.ExitUsage || !strings.Contains(said, "listen on 127.0.0.1:3210") {
			t.Errorf("%s: %d %s", listen, code, said)
		}
	}
	if code, said := run("--feed-preview"); code != command.ExitUsage || !strings.Contains(said, "give --feeds FILE") {
		t.Errorf("without feeds: %d %s", code, said)
	}
	t.Setenv("SKEIN_FEED_PREVIEW", "true")
	if code, said := run("--feeds", "feeds", "--listen", ":0"); code != command.ExitUsage || !strings.Contains(said, "--feed-preview") {
		t.Errorf("by environment: %d %s", code, said)
	}
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0", "localhost:0", "127.8.8.8:1"} {
		if err := (&command.Settings{FeedPreview: true, FeedFile: "feeds", Listen: listen}).CheckPreview(); err != nil {
			t.Errorf("%s: %v", listen, err)
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) != 1 {
		t.Errorf("a store was made: %v, %v", left, err)
	}
}
