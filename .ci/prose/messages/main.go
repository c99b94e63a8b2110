// Command messages writes the texts that a program shows to people into files that a
// prose linter can read: the string literals of Go files, and the descriptions in
// lexicons. It does not check them.
//
//	messages OUT FILE…
//
// FILE's texts are written to OUT/FILE.txt, each on the line on which it stands in
// FILE, so that the linter's line numbers are FILE's.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: messages OUT FILE…")
		os.Exit(64)
	}
	for _, name := range os.Args[2:] {
		if err := extract(os.Args[1], name); err != nil {
			fmt.Fprintln(os.Stderr, "messages:", err)
			os.Exit(1)
		}
	}
}

// extract writes the texts of one file.
func extract(out, name string) error {
	src, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	texts := goTexts
	if strings.HasSuffix(name, ".json") {
		texts = descriptions
	}
	lines, err := texts(name, src)
	if err != nil || len(lines) == 0 {
		return err
	}
	var b strings.Builder
	last := 0
	for n := range lines {
		last = max(last, n)
	}
	for n := 1; n <= last; n++ {
		b.WriteString(strings.Join(lines[n], " "))
		b.WriteByte('\n')
	}
	to := filepath.Join(out, name+".txt")
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, []byte(b.String()), 0o644)
}

// prose is a text of two words or more. Names, keys and formats are not.
var prose = regexp.MustCompile(`\pL{2,}[,;:]? \pL{1,}`)

// goTexts returns the string literals of a Go file, by line.
func goTexts(name string, src []byte) (map[int][]string, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	lines := map[int][]string{}
	ast.Inspect(f, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(lit.Value)
		if err != nil {
			return true
		}
		first := fset.Position(lit.Pos()).Line
		for i, line := range strings.Split(text, "\n") {
			if prose.MatchString(line) {
				at := first
				if lit.Value[0] == '`' {
					at += i
				}
				lines[at] = append(lines[at], line)
			}
		}
		return true
	})
	return lines, nil
}

var description = regexp.MustCompile(`"description":\s*("(?:[^"\\]|\\.)*")`)

// descriptions returns the descriptions of a lexicon, by line.
func descriptions(_ string, src []byte) (map[int][]string, error) {
	lines := map[int][]string{}
	for i, line := range strings.Split(string(src), "\n") {
		for _, m := range description.FindAllStringSubmatch(line, -1) {
			text, err := strconv.Unquote(m[1])
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			lines[i+1] = append(lines[i+1], text)
		}
	}
	return lines, nil
}
