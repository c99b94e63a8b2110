package pebblekv_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"skein.blue/internal/kv"
	"skein.blue/internal/kv/kvtest"
	"skein.blue/internal/kv/pebblekv"
)

// otherProcess is set for a process that TestOtherProcess starts: the folder that it
// opens.
const otherProcess = "SKEIN_TEST_OPEN"

// Another process is kept out while a store is open, whether it wants to write or
// not, and let in when it is closed.
func TestOtherProcess(t *testing.T) {
	if dir := os.Getenv(otherProcess); dir != "" {
		for _, readOnly := range []bool{false, true} {
			s, err := pebblekv.Open(pebblekv.Options{Dir: dir, Merger: kvtest.LastByte{}, ReadOnly: readOnly})
			fmt.Printf("locked: %v, %v\n", errors.Is(err, kv.ErrLocked), err)
			if err == nil {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
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
	s := pebblekv.OpenForTest(t, pebblekv.Options{Dir: dir, Create: true})
	if out := ask(); strings.Count(out, "locked: true") != 2 {
		t.Errorf("while it is open: %s", out)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if out := ask(); strings.Count(out, "locked: false, <nil>") != 2 {
		t.Errorf("when it is closed: %s", out)
	}
}

type anotherMerger struct{ kvtest.LastByte }

func (anotherMerger) Name() string { return "another" }

// What cannot be opened is not kept locked: who comes next opens it.
func TestRefusalsUnlock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b") // folders above are made, too
	o := pebblekv.Options{Dir: dir, Create: true, Merger: kvtest.LastByte{}, Memory: 8 << 20}
	s := pebblekv.OpenForTest(t, o)
	if err := s.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("a"), []byte("1")); return nil }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, readOnly := range []bool{false, true} {
			second := o
			second.ReadOnly = readOnly
			if _, err := pebblekv.Open(second); !errors.Is(err, kv.ErrLocked) || !strings.Contains(err.Error(), dir) {
				t.Errorf("read-only %v: %v", readOnly, err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{false, true} {
		other := o
		other.Merger, other.ReadOnly = anotherMerger{}, readOnly
		if _, err := pebblekv.Open(other); err == nil || errors.Is(err, kv.ErrLocked) || !strings.Contains(err.Error(), "another") {
			t.Errorf("with another Merger: %v", err)
		}
	}
	s = pebblekv.OpenForTest(t, o)
	err := s.View(t.Context(), func(r kv.Reader) error {
		v, _, err := r.Get([]byte("a"))
		if string(v) != "1" {
			t.Errorf("a is %q", v)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// A file in the folder's place, and a folder of something else.
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("not a store"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := pebblekv.Open(pebblekv.Options{Dir: file, Merger: kvtest.LastByte{}}); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("a file: %v", err)
	}
	if _, err := pebblekv.Open(pebblekv.Options{Dir: filepath.Dir(file), Merger: kvtest.LastByte{}}); !errors.Is(err, kv.ErrNotFound) {
		t.Errorf("a folder of something else: %v", err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("in the folder of something else are %v, %v", left, err)
	}
}

// A free disk is told of, where it is known.
func TestFreeBytes(t *testing.T) {
	s := pebblekv.OpenForTest(t, pebblekv.Options{Dir: t.TempDir(), Create: true})
	if n, known := s.FreeBytes(); !known || n == 0 {
		t.Errorf("%d bytes are free, %v", n, known)
	}
	var _ kv.Monitored = s
	if err := s.Healthy(); err != nil {
		t.Error(err)
	}
}
