package app_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every row of docs/bugs.md has five cells. The commits that it names exist, and so do the tests,
// in the packages that it names.
func TestBugTable(t *testing.T) {
	const root = "../.."
	commit := regexp.MustCompile("^`[0-9a-f]{7,40}`(, `[0-9a-f]{7,40}`)*$")
	tests := regexp.MustCompile("`([\\w./-]+)`((?: (?:Test|Fuzz)\\w+,?)*)")
	hasHistory := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", "2b7e85c").Run() == nil
	if !hasHistory {
		t.Log("the history is not here, so the commits are not looked up")
	}
	rows := 0
	seen := map[string]bool{}
	for line := range strings.Lines(fileText(t, filepath.Join(root, "docs", "bugs.md"))) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "| ") || line == "| Defect | Since | Fixed | Found by | Test |" {
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != 5 {
			t.Errorf("%d cells: %s", len(cells), line)
			continue
		}
		rows++
		for i, c := range cells {
			cells[i] = strings.TrimSpace(c)
		}
		if cells[0] == "" || cells[3] == "" || seen[cells[0]] {
			t.Errorf("a cell is empty, or the defect is there twice: %s", line)
		}
		seen[cells[0]] = true
		for _, commits := range cells[1:3] {
			if !commit.MatchString(commits) {
				t.Errorf("%q is not a list of commits: %s", commits, line)
				continue
			}
			for id := range strings.SplitSeq(commits, ", ") {
				if id = strings.Trim(id, "`"); hasHistory && exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", id+"^{commit}").Run() != nil {
					t.Errorf("there is no commit %s: %s", id, line)
				}
			}
		}
		named := tests.FindAllStringSubmatch(cells[4], -1)
		if len(named) == 0 {
			t.Errorf("no test: %s", line)
		}
		for _, m := range named {
			if !strings.HasPrefix(m[1], "clients/") && m[2] == "" {
				t.Errorf("%s without a test: %s", m[1], line)
			}
			checkTests(t, filepath.Join(root, m[1]), strings.FieldsFunc(m[2], func(r rune) bool { return r == ' ' || r == ',' }))
		}
	}
	if rows < 80 {
		t.Errorf("%d defects; the table has not been read", rows)
	}
}

// checkTests checks that the Go tests in a folder have functions of these names.
func checkTests(t *testing.T, dir string, names []string) {
	t.Helper()
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
		return
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, f := range files {
		code.WriteString(fileText(t, f))
	}
	for _, name := range names {
		if !strings.Contains(code.String(), "\nfunc "+name+"(") {
			t.Errorf("%s has no %s", dir, name)
		}
	}
}
