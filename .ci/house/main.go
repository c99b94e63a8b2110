// Command house measures the code against its budget, and fails above it:
//
//	go run ./.ci/house [-v]
//
// Every capability finds its lines inside the budget. Statements stand beside lines, so that longer
// lines and fewer comments gain nothing. What takes time to measure (tests, CI, a first build) is not
// here: see docs/performance.md.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A measure has the most that the budget allows.
type measure struct {
	name string
	most int
}

var budget = []measure{
	{"Go outside tests, simulators and build tools (lines)", 60_000},
	{"simulators and test tools (lines)", 11_000},
	{"tests (lines)", 64_000},
	{"packages", 50},
	{"words in Markdown", 40_000},
	{"third-party packages of the daemon", 320},
	{"modules of the daemon", 65},
	{"stripped binary (MB)", 40},
	{"flags of serve", 44},
	{"lines of the largest package", 4_000},
	{"methods of the largest type", 30},
	{"fields of the largest type", 25},
	{"lines of the longest function", 80},
}

// writers are the packages that write data. Their own tests have at least tested of the lines of
// their code.
var writers = []string{"graph", "graph/format", "graph/write", "intern", "internal/backup", "internal/kv/pebblekv", "internal/kv/fdbkv"}

const tested = 0.6

// wing reports whether a folder is a part of the simulators and test tools, tool whether it holds
// programs of the build.
func wing(dir string) bool {
	return strings.HasPrefix(dir, "internal/sim/") || dir == "cmd/skein-sim"
}

func tool(dir string) bool { return strings.HasPrefix(dir, ".ci/") }

type largest struct {
	n    int
	name string
}

func (l *largest) add(n int, name string) {
	if n > l.n {
		*l = largest{n, name}
	}
}

// house is what was measured.
type house struct {
	verbose           bool
	product, sim      int // lines
	tests             int
	statements        int // of the product
	lines, ownTests   map[string]int
	methods           map[string]int
	kind, field, long largest
	functions         []int // their lines
}

func main() {
	verbose := flag.Bool("v", false, "list the packages, and every function and type above the budget")
	flag.Parse()
	over, err := run(os.Stdout, *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
	if over > 0 {
		fmt.Fprintf(os.Stderr, "house: %d measures are above the budget\n", over)
		os.Exit(1)
	}
}

func output(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd.Output()
}

func run(w io.Writer, verbose bool) (over int, err error) {
	h := &house{verbose: verbose, lines: map[string]int{}, ownTests: map[string]int{}, methods: map[string]int{}}
	files, err := output("git", "ls-files", "-co", "--exclude-standard", "*.go", "*.md")
	if err != nil {
		return 0, err
	}
	words := 0
	for file := range strings.Lines(string(files)) {
		file = strings.TrimSuffix(file, "\n")
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // deleted, not committed
		} else if err != nil {
			return 0, err
		}
		if strings.HasSuffix(file, ".md") {
			words += len(bytes.Fields(text))
		} else if err := h.read(file, text); err != nil {
			return 0, err
		}
	}
	measured := map[string]int{
		"Go outside tests, simulators and build tools (lines)": h.product,
		"simulators and test tools (lines)":                    h.sim,
		"tests (lines)":                                        h.tests,
		"packages":                                             len(h.lines),
		"words in Markdown":                                    words,
		"methods of the largest type":                          h.kind.n,
		"fields of the largest type":                           h.field.n,
		"lines of the longest function":                        h.long.n,
	}
	for _, dir := range slices.Sorted(maps.Keys(h.lines)) {
		n := h.lines[dir]
		measured["lines of the largest package"] = max(measured["lines of the largest package"], n)
		if verbose {
			fmt.Fprintf(w, "%6d %6d  %s\n", n, h.ownTests[dir], dir)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.methods)) {
		n := h.methods[name]
		h.kind.add(n, name)
		h.exceeds(n, "methods of the largest type", name)
	}
	measured["methods of the largest type"] = h.kind.n
	if err := daemon(measured); err != nil {
		return 0, err
	}
	for _, m := range budget {
		mark := ""
		if measured[m.name] > m.most {
			mark, over = "  ABOVE", over+1
		}
		fmt.Fprintf(w, "%-55s %8d of %8d%s\n", m.name, measured[m.name], m.most, mark)
	}
	for _, dir := range writers {
		share, mark := float64(h.ownTests[dir])/float64(max(h.lines[dir], 1)), ""
		if share < tested {
			mark, over = "  BELOW", over+1
		}
		fmt.Fprintf(w, "%-55s %8.2f of %8.2f%s\n", "own tests by lines of code, "+dir, share, tested, mark)
	}
	slices.Sort(h.functions)
	at := func(share int) int { return h.functions[(len(h.functions)-1)*share/100] }
	fmt.Fprintf(w, "statements of the product: %d; lines of a function at p50, p90, p99: %d, %d, %d\n", h.statements, at(50), at(90), at(99))
	fmt.Fprintf(w, "largest: type %s, by fields %s, function %s\n", h.kind.name, h.field.name, h.long.name)
	return over, nil
}

// exceeds lists what is above the budget.
func (h *house) exceeds(n int, of, name string) {
	i := slices.IndexFunc(budget, func(m measure) bool { return m.name == of })
	if h.verbose && n > budget[i].most {
		fmt.Printf("above %s: %d %s\n", of, n, name)
	}
}

// read counts a file.
func (h *house) read(file string, text []byte) error {
	dir, lines := path.Dir(file), bytes.Count(text, []byte("\n"))
	if strings.HasSuffix(file, "_test.go") {
		h.tests += lines
		h.ownTests[dir] += lines
		return nil
	}
	if tool(dir) {
		return nil
	}
	h.lines[dir] += lines
	if wing(dir) {
		h.sim += lines
		return nil
	}
	h.product += lines
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, file, text, 0)
	if err != nil {
		return err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
		case ast.Stmt:
			h.statements++
		case *ast.FuncDecl:
			name := dir + "." + n.Name.Name
			if n.Recv != nil {
				name = dir + "." + receiver(n.Recv.List[0].Type)
				h.methods[name]++
				name += "." + n.Name.Name
			}
			size := set.Position(n.End()).Line - set.Position(n.Pos()).Line + 1
			h.functions = append(h.functions, size)
			h.long.add(size, name)
			h.exceeds(size, "lines of the longest function", name)
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok {
				h.field.add(s.Fields.NumFields(), dir+"."+n.Name.Name)
				h.exceeds(s.Fields.NumFields(), "fields of the largest type", dir+"."+n.Name.Name)
			}
		}
		return true
	})
	return nil
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// daemon measures what the daemon links, and its flags.
func daemon(measured map[string]int) error {
	deps, err := output("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}{{end}}", "./cmd/skein")
	if err != nil {
		return err
	}
	modules := map[string]bool{}
	for line := range strings.Lines(string(deps)) {
		if of := strings.Fields(line); len(of) == 2 && of[1] != "skein.blue" {
			measured["third-party packages of the daemon"]++
			modules[of[1]] = true
		}
	}
	measured["modules of the daemon"] = len(modules)
	dir, err := os.MkdirTemp("", "house")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "skein")
	if _, err := output("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "./cmd/skein"); err != nil {
		return err
	}
	info, err := os.Stat(binary)
	if err != nil {
		return err
	}
	measured["stripped binary (MB)"] = int((info.Size() + 999_999) / 1_000_000)
	help, err := output(binary, "serve", "--help")
	if err != nil {
		return err
	}
	measured["flags of serve"] = len(regexp.MustCompile(`(?m)^   --(?:[a-z])`).FindAll(help, -1)) - 1 // not --help
	return nil
}
