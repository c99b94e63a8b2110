// Command mutants breaks the code in small ways, one at a time, and checks that a named test
// notices each. A mutant that survives is a defect of the tests.
//
//	go run ./.ci/mutants                    # all of them
//	go run ./.ci/mutants -run write/        # those whose names contain write/
//	go run ./.ci/mutants -changed main      # those of the packages changed since a commit
//
// The files *.mutants list them:
//
//	== NAME | FILE | TESTS
//	the text to replace, which must occur exactly once in FILE
//	--
//	the text to put there
//
// TESTS is a pattern for -run, of the tests in FILE's package or, before a colon, in another one:
// graph: TestModel. Flags of the tests may follow it. A mutant that cannot be applied is an error: adapt it with the code. The
// source is not touched; the compiler receives an overlay.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

type mutant struct {
	name, file, pkg, tests, old, mutated string
}

func main() {
	run := flag.String("run", "", "only mutants whose names contain this")
	changed := flag.String("changed", "", "only mutants of files in packages that changed since this commit")
	apply := flag.Bool("apply", false, "only check that all of them can be applied")
	flag.Parse()
	if err := mutate(*run, *changed, *apply); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func mutate(run, changed string, apply bool) error {
	lists, err := filepath.Glob(".ci/mutants/*.mutants")
	if err != nil || len(lists) == 0 {
		return errors.New("no lists of mutants: run it in the repository's root")
	}
	var all []mutant
	for _, list := range lists {
		some, err := parse(list)
		if err != nil {
			return fmt.Errorf("%s: %w", list, err)
		}
		all = append(all, some...)
	}
	var bad []string
	for _, m := range all {
		if _, err := m.apply(); err != nil {
			bad = append(bad, fmt.Sprintf("%s cannot be applied: %v", m.name, err))
		}
	}
	if len(bad) > 0 {
		return errors.New(strings.Join(bad, "\n"))
	}
	if apply {
		fmt.Printf("%d mutants can be applied\n", len(all))
		return nil
	}
	if changed != "" {
		out, err := exec.Command("git", "diff", "--name-only", changed, "--", "*.go").Output()
		if err != nil {
			return fmt.Errorf("git diff %s: %w", changed, err)
		}
		dirs := map[string]bool{}
		for name := range strings.Lines(string(out)) {
			dirs[filepath.Dir(strings.TrimSpace(name))] = true
		}
		all = slices.DeleteFunc(all, func(m mutant) bool { return !dirs[filepath.Dir(m.file)] && !dirs[strings.TrimPrefix(m.pkg, "./")] })
	}
	tried := 0
	for _, m := range all {
		if !strings.Contains(m.name, run) {
			continue
		}
		tried++
		begun := time.Now()
		killed, out, err := m.try()
		if err != nil {
			bad = append(bad, m.name)
			fmt.Printf("ERROR     %-44s %v\n", m.name, err)
			continue
		}
		if !killed {
			bad = append(bad, m.name)
			fmt.Printf("SURVIVED  %-44s %s %s\n", m.name, m.pkg, m.tests)
			continue
		}
		fmt.Printf("killed    %-44s %4.1f s  %s\n", m.name, time.Since(begun).Seconds(), out)
	}
	fmt.Printf("%d mutants, %d killed, %d survived\n", tried, tried-len(bad), len(bad))
	if len(bad) > 0 {
		return fmt.Errorf("%d survived: %s", len(bad), strings.Join(bad, ", "))
	}
	return nil
}

func parse(list string) (all []mutant, err error) {
	b, err := os.ReadFile(list)
	if err != nil {
		return nil, err
	}
	_, text, _ := strings.Cut("\n"+string(b), "\n== ")
	for i, part := range strings.Split(text, "\n== ") {
		head, body, _ := strings.Cut(part, "\n")
		f := strings.Split(head, " | ")
		old, mutated, ok := strings.Cut(body, "\n--\n")
		if len(f) != 3 || !ok {
			return nil, fmt.Errorf("mutant %d, %q: expected NAME | FILE | TESTS, and -- between the texts", i+1, head)
		}
		m := mutant{name: f[0], file: f[1], pkg: "./" + filepath.Dir(f[1]), tests: f[2], old: old, mutated: strings.TrimRight(mutated, "\n")}
		if pkg, tests, ok := strings.Cut(f[2], ": "); ok {
			m.pkg, m.tests = "./"+pkg, tests
		}
		if slices.ContainsFunc(all, func(o mutant) bool { return o.name == m.name }) {
			return nil, fmt.Errorf("two mutants are called %s", m.name)
		}
		all = append(all, m)
	}
	return all, nil
}

// apply returns the source with the mutant in it.
func (m *mutant) apply() (string, error) {
	b, err := os.ReadFile(m.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(b), m.old); n != 1 {
		return "", fmt.Errorf("its text occurs %d times in %s", n, m.file)
	}
	if m.old == m.mutated {
		return "", errors.New("it changes nothing")
	}
	return strings.Replace(string(b), m.old, m.mutated, 1), nil
}

// try runs the tests on the mutant, and returns the first that failed.
func (m *mutant) try() (killed bool, by string, err error) {
	source, err := m.apply()
	if err != nil {
		return false, "", err
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return false, "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file, err := filepath.Abs(m.file)
	if err != nil {
		return false, "", err
	}
	mutated, overlay := filepath.Join(dir, "mutated.go"), filepath.Join(dir, "overlay.json")
	o, err := json.Marshal(map[string]map[string]string{"Replace": {file: mutated}})
	if err != nil {
		return false, "", err
	}
	if err := errors.Join(os.WriteFile(mutated, []byte(source), 0o600), os.WriteFile(overlay, o, 0o600)); err != nil {
		return false, "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	tests := strings.Fields(m.tests)
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-failfast", "-timeout", "90s", "-overlay", overlay, "-run", tests[0], m.pkg)
	cmd.Args = append(cmd.Args, tests[1:]...)
	out, err := cmd.CombinedOutput()
	text := string(out)
	switch {
	case err == nil && strings.Contains(text, "no tests to run"):
		return false, "", fmt.Errorf("%s has no test %s", m.pkg, m.tests)
	case err == nil:
		return false, "", nil
	case strings.Contains(text, "[build failed]") || strings.Contains(text, "[setup failed]"):
		return false, "", fmt.Errorf("it does not compile:\n%s", text)
	}
	by = "a panic, or the time limit"
	if _, after, ok := strings.Cut(text, "--- FAIL: "); ok {
		by, _, _ = strings.Cut(after, " ")
	}
	return true, by, nil
}
