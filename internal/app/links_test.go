package app_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	markdownLink = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	markdownID   = regexp.MustCompile(`<a id="([^"]+)">`)
	// A document of the repository named in a comment, a message or a script, such as
	// docs/asking.md or docs/decisions/0006.
	namedDocument = regexp.MustCompile(`\bdocs/(?:decisions/\d{4}|[a-z/-]+\.md)`)
	// A file or folder of the repository in inline code, such as `graph/kinds`.
	namedPath = regexp.MustCompile("`((?:cmd|consumer|graph|intern|query|internal|deploy|clients|examples|docs|\\.ci)/[\\w./-]*)`")
)

// TestDocumentLinks checks that every relative link in a Markdown file leads to a file, and to a
// heading or an anchor in it, and that the documents, files and folders that texts name exist.
func TestDocumentLinks(t *testing.T) {
	const root = "../.."
	links, names := 0, 0
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch name := e.Name(); {
		case err != nil:
			return err
		case e.IsDir() && path != root && (name == "node_modules" || name == "testdata" || strings.HasPrefix(name, ".") && name != ".ci" && name != ".github"):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".md"):
			for _, m := range markdownLink.FindAllStringSubmatch(withoutCode(fileText(t, path)), -1) {
				links++
				checkLink(t, path, m[1])
			}
			for _, m := range namedPath.FindAllStringSubmatch(fileText(t, path), -1) {
				names++
				if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
					t.Errorf("%s names %s, which does not exist", path, m[1])
				}
			}
		case strings.HasSuffix(name, ".go"), strings.HasSuffix(name, ".js"), strings.HasSuffix(name, ".yml"), strings.HasSuffix(name, ".service"), name == "run":
			for _, doc := range namedDocument.FindAllString(fileText(t, path), -1) {
				names++
				if found, err := filepath.Glob(filepath.Join(root, strings.TrimSuffix(doc, ".md")) + "*.md"); err != nil || len(found) == 0 {
					t.Errorf("%s names %s, which does not exist", path, doc)
				}
			}
		}
		return nil
	})
	must(t, err)
	if links < 50 || names < 10 {
		t.Errorf("only %d links and %d names of documents were found", links, names)
	}
}

// withoutCode returns a Markdown text without its fenced blocks and inline code.
func withoutCode(text string) string {
	text = regexp.MustCompile("(?s)\n```.*?\n```").ReplaceAllString(text, "")
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllString(text, "")
}

func checkLink(t *testing.T, from, link string) {
	t.Helper()
	if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
		return
	}
	file, anchor, _ := strings.Cut(link, "#")
	target := from
	if file != "" {
		target = filepath.Join(filepath.Dir(from), file)
	}
	if _, err := os.Stat(target); err != nil {
		t.Errorf("%s links to %s, which does not exist", from, link)
		return
	}
	if anchor != "" && !anchors(fileText(t, target))[anchor] {
		t.Errorf("%s links to %s: %s has no such heading or anchor", from, link, target)
	}
}

// anchors returns the ids of a Markdown text, as GitHub derives them from headings, and its
// explicit ones.
func anchors(text string) map[string]bool {
	ids := map[string]bool{}
	for _, m := range markdownID.FindAllStringSubmatch(text, -1) {
		ids[m[1]] = true
	}
	for line := range strings.Lines(regexp.MustCompile("(?s)\n```.*?\n```").ReplaceAllString(text, "")) {
		title, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !isHeading || !strings.HasPrefix(line, "#") {
			continue
		}
		ids[strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(title))] = true
	}
	return ids
}
