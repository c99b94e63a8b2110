package app_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every message that docs/runbook.md explains occurs in the source code ("…" stands for any text), and so does every test that
// docs/trust.md names.
func TestDocumentedMessages(t *testing.T) {
	page := fileText(t, "../../docs/runbook.md")
	_, page, found := strings.Cut(page, "\n## Messages\n")
	page, _, end := strings.Cut(page, "\n## ")
	if !found || !end {
		t.Fatal("docs/runbook.md has no section Messages, or no section after it")
	}
	var code, tests strings.Builder
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && strings.HasPrefix(e.Name(), ".") && path != "../..":
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			code.WriteString(fileText(t, path))
		case strings.HasSuffix(path, "_test.go"):
			tests.WriteString(fileText(t, path))
		}
		return nil
	})
	must(t, err)
	for _, name := range regexp.MustCompile(`\b(Test|Fuzz)[A-Z]\w*`).FindAllString(fileText(t, "../../docs/trust.md"), -1) {
		if !strings.Contains(tests.String(), "func "+name+"(") {
			t.Errorf("docs/trust.md names %s, a test that does not exist", name)
		}
	}
	message := regexp.MustCompile("`([^`]+)`")
	n := 0
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 || !strings.Contains(cells[1], "`") {
			continue
		}
		for _, m := range message.FindAllStringSubmatch(cells[1], -1) {
			n++
			for part := range strings.SplitSeq(m[1], "…") {
				if !strings.Contains(code.String(), strings.TrimSpace(part)) {
					t.Errorf("docs/runbook.md explains %q, but the source code does not contain %q", m[1], part)
				}
			}
		}
	}
	if n < 20 {
		t.Errorf("only %d messages were found", n)
	}
}
