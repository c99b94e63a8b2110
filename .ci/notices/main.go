// Command notices prints the licences of everything that is linked into the programs of a release:
// of Go itself, and of each module, from its licence files in the module cache. It fails if a
// module has no licence.
//
//	go run ./.ci/notices ./cmd/skein >THIRD_PARTY_NOTICES.txt
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// platforms are the platforms in .goreleaser.yaml, which may link different modules.
var platforms = []string{"linux", "darwin"}

func main() {
	if err := run(context.Background(), os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

// module is a linked module, with its licence files by path.
type module struct {
	name, version string
	files         map[string][]byte
}

func run(ctx context.Context, out io.Writer, packages []string) error {
	if len(packages) == 0 {
		return errors.New("missing the packages of the programs, such as ./cmd/skein")
	}
	modules := map[string]*module{}
	for _, goos := range platforms {
		if err := list(ctx, goos, packages, modules); err != nil {
			return err
		}
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return fmt.Errorf("finding Go: %w", err)
	}
	goroot, version, _ := strings.Cut(strings.TrimSpace(string(root)), "\n")
	std := &module{name: "Go", version: version, files: map[string][]byte{}}
	if err := std.add(goroot, goroot); err != nil {
		return err
	}
	modules["Go"] = std
	fmt.Fprintln(out, "skein contains the following modules, each under its own licence.")
	for _, name := range slices.Sorted(maps.Keys(modules)) {
		m := modules[name]
		if len(m.files) == 0 {
			return fmt.Errorf("%s %s has no licence file; find out under which licence it may be distributed", m.name, m.version)
		}
		for _, file := range slices.Sorted(maps.Keys(m.files)) {
			fmt.Fprintf(out, "\n%[1]s\n%[2]s %[3]s: %[4]s\n%[1]s\n\n%[5]s\n", strings.Repeat("=", 80), m.name, m.version, file, bytes.TrimSpace(m.files[file]))
		}
	}
	return nil
}

// list adds the modules that packages link on an operating system.
func list(ctx context.Context, goos string, packages []string, into map[string]*module) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-json=Dir,Module"}, packages...)...)
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("listing what is linked on %s: %w", goos, err)
	}
	type goModule struct {
		Path, Version, Dir string
		Main               bool
		Replace            *goModule
	}
	for d := json.NewDecoder(bytes.NewReader(b)); ; {
		var p struct {
			Dir    string
			Module *goModule
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading the output of go list: %w", err)
		}
		from := p.Module
		if from == nil || from.Main { // the standard library, or ours
			continue
		}
		if from.Replace != nil {
			from = from.Replace
		}
		m := into[p.Module.Path]
		if m == nil {
			m = &module{p.Module.Path, from.Version, map[string][]byte{}}
			into[p.Module.Path] = m
		}
		if err := m.add(p.Dir, from.Dir); err != nil {
			return err
		}
	}
}

var licence = regexp.MustCompile(`(?i)^(un)?(licen[sc]e|copying|copyright|notice|patents)([-._].*)?$`)

// add adds the licences of a folder of a module: those in it and in its parents.
func (m *module) add(dir, root string) error {
	for ; ; dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("looking for the licences of %s: %w", m.name, err)
		}
		for _, e := range entries {
			name, err := filepath.Rel(root, filepath.Join(dir, e.Name()))
			if err != nil || !e.Type().IsRegular() || !licence.MatchString(e.Name()) || strings.HasSuffix(name, ".go") || m.files[name] != nil {
				continue
			}
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return fmt.Errorf("reading a licence of %s: %w", m.name, err)
			}
			m.files[name] = b
		}
		if rel, err := filepath.Rel(root, dir); err != nil || rel == "." || strings.HasPrefix(rel, "..") {
			return nil //nolint:nilerr // above the module
		}
	}
}
