package pebblekv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
)

// otherProcess is the environment variable with the folder that the child process of
// TestOtherProcess opens.
const otherProcess = "SKEIN_TEST_OPEN"

// While a store is open, another process cannot open it, not even read-only. After Close it
// can.
func TestOtherProcess(t *testing.T) {
	if dir := os.Getenv(otherProcess); dir != "" {
		for _, readOnly := range []bool{false, true} {
			s, err := Open(Options{Dir: dir, Merger: kvtest.LastByte{}, ReadOnly: readOnly})
			fmt.Printf("locked: %v, %v\n", errors.Is(err, kv.ErrLocked), err)
			if err == nil {
				must(t, s.Close())
			}
		}
		return
	}
	program, err := os.Executable()
	must(t, err)
	dir := t.TempDir()
	ask := func() string {
		cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestOtherProcess$")
		cmd.Env = append(os.Environ(), otherProcess+"="+dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	s := openForTest(t, Options{Dir: dir, Create: true})
	if out := ask(); strings.Count(out, "locked: true") != 2 {
		t.Errorf("while open: %s", out)
	}
	must(t, s.Close())
	if out := ask(); strings.Count(out, "locked: false, <nil>") != 2 {
		t.Errorf("when closed: %s", out)
	}
}

type anotherMerger struct{ kvtest.LastByte }

func (anotherMerger) Name() string { return "another" }

// A failed Open leaves no lock behind.
func TestFailedOpenUnlocks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b") // Open makes the parent folders too
	o := Options{Dir: dir, Create: true, Merger: kvtest.LastByte{}, Memory: 8 << 20}
	s := openForTest(t, o)
	set(t, s, "a", "1")
	for range 2 {
		for _, readOnly := range []bool{false, true} {
			second := o
			second.ReadOnly = readOnly
			if _, err := Open(second); !errors.Is(err, kv.ErrLocked) || !strings.Contains(err.Error(), dir) {
				t.Errorf("read-only %v: %v", readOnly, err)
			}
		}
	}
	must(t, s.Close())
	for _, readOnly := range []bool{false, true} {
		other := o
		other.Merger, other.ReadOnly = anotherMerger{}, readOnly
		if _, err := Open(other); err == nil || errors.Is(err, kv.ErrLocked) || !strings.Contains(err.Error(), "another") {
			t.Errorf("with another Merger: %v", err)
		}
	}
	if v := get(t, openForTest(t, o), "a"); v != "1" {
		t.Errorf("a is %q", v)
	}
	// No folder, an empty one, a file instead of a folder, and a folder of another program.
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, []byte("not a store"), 0o600))
	for _, dir := range []string{file + "s", t.TempDir(), file, filepath.Dir(file)} {
		if _, err := Open(Options{Dir: dir, Merger: kvtest.LastByte{}}); !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("the folder of another program has %v, %v", left, err)
	}
}
