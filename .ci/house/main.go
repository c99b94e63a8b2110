// Command house measures the layout of the code: the sizes of files and functions, the dependencies
// between files of a package and how many of them run back up, the names used across packages, the
// modules that the programs link, and the amount of tests.
//
//	go run ./.ci/house [-dir ANOTHER_CHECKOUT]
//
// An arrow goes from a file to another file of its package if it uses a name that the other
// declares. The files are in the order with the fewest arrows back up that a search finds. The
// result is the same in every run.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
)

type pkg struct {
	ImportPath, Dir, Export string
	GoFiles, TestGoFiles    []string
	XTestGoFiles            []string
	Module                  *struct{ Path string }
	Standard                bool
}

func main() {
	dir := flag.String("dir", ".", "checkout to measure")
	verbose := flag.Bool("v", false, "list the arrows that run back up")
	flag.Parse()
	if err := run(*dir, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func list(dir string, args ...string) ([]*pkg, error) {
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Dir,Export,GoFiles,TestGoFiles,XTestGoFiles,Module,Standard"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []*pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(pkg)
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

func run(dir string, verbose bool) error {
	all, err := list(dir, "-export", "-deps", "./...")
	if err != nil {
		return err
	}
	exports := map[string]string{}
	var own []*pkg
	for _, p := range all {
		exports[p.ImportPath] = p.Export
		if strings.HasPrefix(p.ImportPath, "skein") {
			own = append(own, p)
		}
	}
	sort.Slice(own, func(i, j int) bool { return own[i].ImportPath < own[j].ImportPath })
	h := &house{dir: dir, verbose: verbose, exports: exports, uses: map[string]map[string]bool{}}
	for _, p := range own {
		if err := h.read(p); err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
	}
	h.sizes()
	h.arrows()
	h.walls()
	h.tests(own)
	h.shared(own)
	return h.daemon()
}

type house struct {
	dir       string
	verbose   bool
	exports   map[string]string
	functions []int // lines
	files     []int
	graphs    []fileGraph
	uses      map[string]map[string]bool // by package: its names that other packages use
}

// fileGraph is the files of a package, and the arrows between them.
type fileGraph struct {
	path  string
	files []string
	arrow [][]bool
}

func (h *house) read(p *pkg) error {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	look := func(path string) (io.ReadCloser, error) { return os.Open(h.exports[path]) }
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", look), Error: func(error) {}}
	checked, err := conf.Check(p.ImportPath, fset, files, info)
	if err != nil && checked == nil {
		return err
	}
	g := fileGraph{path: strings.TrimPrefix(p.ImportPath, p.Module.Path+"/")}
	index := map[string]int{}
	for _, f := range files {
		name := fset.Position(f.Pos()).Filename
		index[name] = len(g.files)
		g.files = append(g.files, filepath.Base(name))
		if !h.testOnly(p.ImportPath) {
			h.files = append(h.files, fset.Position(f.End()).Line)
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
					h.functions = append(h.functions, fset.Position(fn.End()).Line-fset.Position(fn.Pos()).Line+1)
				}
			}
		}
	}
	g.arrow = make([][]bool, len(files))
	for i := range g.arrow {
		g.arrow[i] = make([]bool, len(files))
	}
	for id, obj := range info.Uses {
		if obj.Pkg() == nil {
			continue
		}
		if obj.Pkg() != checked {
			if path := obj.Pkg().Path(); strings.HasPrefix(path, "skein") && obj.Exported() {
				if h.uses[path] == nil {
					h.uses[path] = map[string]bool{}
				}
				h.uses[path][obj.Name()] = true
			}
			continue
		}
		if v, ok := obj.(*types.Var); ok && !v.IsField() && obj.Parent() != checked.Scope() {
			continue // a local variable
		}
		from, known := index[fset.Position(id.Pos()).Filename]
		to, found := index[fset.Position(obj.Pos()).Filename]
		if known && found && from != to {
			g.arrow[from][to] = true
		}
	}
	h.graphs = append(h.graphs, g)
	return nil
}

func percentile(of []int, p int) int {
	slices.Sort(of)
	return of[min(len(of)-1, len(of)*p/100)]
}

func (h *house) sizes() {
	fmt.Printf("files: %d; lines p50 %d, p90 %d, max %d\n", len(h.files), percentile(h.files, 50), percentile(h.files, 90), percentile(h.files, 100))
	fmt.Printf("functions: %d; lines p50 %d, p90 %d, max %d\n", len(h.functions), percentile(h.functions, 50), percentile(h.functions, 90), percentile(h.functions, 100))
}

func (h *house) arrows() {
	fmt.Println("\narrows between files of a package, of all pairs, and how many run back up")
	pairs, linked, total := 0, 0, 0
	for _, g := range h.graphs {
		if g.path != "graph" && !strings.HasPrefix(g.path, "graph/") && g.path != "intern" && !strings.HasPrefix(g.path, "intern/") {
			continue
		}
		n := len(g.files)
		arrows, back, order := 0, 0, g.order()
		var up []string
		for i, from := range order {
			for _, to := range order[:i] {
				if g.arrow[from][to] {
					back++
					up = append(up, g.files[from]+" → "+g.files[to])
				}
			}
		}
		for i := range n {
			for j := range n {
				if g.arrow[i][j] && (!g.arrow[j][i] || i < j) {
					arrows++
				}
			}
		}
		fmt.Printf("  %-14s %3d files, %3d of %3d, %2d back up\n", g.path, n, arrows, n*(n-1)/2, back)
		if h.verbose {
			fmt.Printf("    %s\n", strings.Join(up, "\n    "))
		}
		if strings.HasPrefix(g.path, "graph") {
			pairs, linked, total = pairs+n*(n-1)/2, linked+arrows, total+back
		}
	}
	fmt.Printf("  graph, all     %d of %d, %d back up; Go allows none between packages\n", linked, pairs, total)
}

// order returns the best order of the files that a search finds.
func (g *fileGraph) order() (best []int) {
	n := len(g.files)
	least := 1 << 30
	rng := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		order := rng.Perm(n)
		cost := g.cost(order)
		for better := true; better; {
			better = false
			for i := range n { // move one file elsewhere
				for j := range n {
					if i == j {
						continue
					}
					moved := slices.Insert(slices.Delete(slices.Clone(order), i, i+1), j, order[i])
					if c := g.cost(moved); c < cost {
						order, cost, better = moved, c, true
					}
				}
			}
		}
		if cost < least {
			best, least = order, cost
		}
	}
	return best
}

func (g *fileGraph) cost(order []int) (n int) {
	for i, from := range order {
		for _, to := range order[:i] {
			if g.arrow[from][to] {
				n++
			}
		}
	}
	return n
}

func (h *house) walls() {
	fmt.Println("\nexported names of a package that other packages use")
	for _, path := range slices.Sorted(func(yield func(string) bool) {
		for p := range h.uses {
			if !yield(p) {
				return
			}
		}
	}) {
		short := strings.TrimPrefix(path, "skein.blue/")
		if strings.HasPrefix(short, "graph") || strings.HasPrefix(short, "intern") {
			fmt.Printf("  %-14s %3d\n", short, len(h.uses[path]))
		}
	}
}

// testOnly reports whether a package is for tests.
func (h *house) testOnly(path string) bool {
	for _, name := range []string{"/testing/", "/kvtest", "/fdbtest", "/internal/model", "/internal/truth", "/internal/vary", "/internal/peers", "/internal/scale"} {
		if strings.Contains(path+"/", name+"/") || strings.Contains(path, name) {
			return true
		}
	}
	return false
}

func lines(dir string, names []string) (n int) {
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil {
			n += bytes.Count(b, []byte("\n"))
		}
	}
	return n
}

func (h *house) tests(own []*pkg) {
	fmt.Println("\nlines of tests to lines of code")
	groups := []string{"graph", "intern", "internal/kv"}
	code, test := map[string]int{}, map[string]int{}
	for _, p := range own {
		short := strings.TrimPrefix(p.ImportPath, p.Module.Path+"/")
		for _, g := range append(groups, "") {
			if g != "" && short != g && !strings.HasPrefix(short, g+"/") {
				continue
			}
			// Files with build tags count as well.
			files, err := filepath.Glob(filepath.Join(p.Dir, "*.go"))
			if err != nil {
				continue
			}
			for _, f := range files {
				if strings.HasSuffix(f, "_test.go") || h.testOnly(p.ImportPath) {
					test[g] += lines("", []string{f})
				} else {
					code[g] += lines("", []string{f})
				}
			}
		}
	}
	for _, g := range append(groups, "") {
		name := g
		if g == "" {
			name = "all"
		}
		fmt.Printf("  %-12s %6d : %6d = %.2f\n", name, test[g], code[g], float64(test[g])/float64(max(code[g], 1)))
	}
}

var asks = regexp.MustCompile(`\b[sS]hared\(\)`)

func (h *house) shared(own []*pkg) {
	n := 0
	for _, p := range own {
		for _, name := range p.GoFiles {
			b, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(b)) {
				if !strings.HasPrefix(line, "func") {
					n += len(asks.FindAllString(line, -1))
				}
			}
		}
	}
	fmt.Printf("\nplaces that check whether several processes write to the store: %d\n", n)
}

func (h *house) daemon() error {
	tmp, err := os.MkdirTemp("", "house")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	programs, err := filepath.Glob(filepath.Join(h.dir, "cmd", "*"))
	if err != nil {
		return err
	}
	fmt.Println()
	for _, program := range programs {
		name := "./cmd/" + filepath.Base(program)
		deps, err := list(h.dir, "-deps", name)
		if err != nil {
			return err
		}
		modules, packages := map[string]bool{}, 0
		for _, p := range deps {
			if p.Module != nil {
				modules[p.Module.Path] = true
			}
			if !p.Standard {
				packages++
			}
		}
		out := filepath.Join(tmp, "program")
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, name)
		build.Dir, build.Stderr = h.dir, os.Stderr
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if err := build.Run(); err != nil {
			return err
		}
		st, err := os.Stat(out)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d modules, %d packages besides Go's, %d bytes without symbols\n", filepath.Base(program), len(modules), packages, st.Size())
	}
	return nil
}
