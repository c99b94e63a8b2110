package harness

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Clock sets the wall clock of a program that BuildWithClock built.
type Clock struct{ file string }

// clockVariable names the file that has the seconds by which the program's clock is wrong.
const clockVariable = "SKEIN_TEST_CLOCK"

// clockReader is added to the program. It reads the file every ten milliseconds.
const clockReader = `package main

import (
	"os"
	"strconv"
	"time"
)

func init() {
	file := os.Getenv("` + clockVariable + `")
	if file == "" {
		return
	}
	read := func() {
		text, err := os.ReadFile(file)
		if err != nil {
			return
		}
		if seconds, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			time.TestOffset.Store(seconds)
		}
	}
	read()
	go func() {
		for ; ; time.Sleep(10 * time.Millisecond) {
			read()
		}
	}()
}
`

// BuildWithClock builds a command of this module, given its folder, whose wall clock can be set.
// It compiles the command with a changed copy of Go's package time (go build -overlay), so all of
// the program sees the wrong time. The monotonic clock is not changed, as on a machine whose
// clock is set. It returns the binary and its clock.
func BuildWithClock(t *testing.T, folder string) (binary string, clock *Clock) {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(out)), "src", "time", "time.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	const now = "sec, nsec, mono := runtimeNow()"
	if strings.Count(string(text), now) != 1 || !strings.Contains(string(text), "\t\"math/bits\"\n") {
		t.Fatalf("%s is not as this test knows it: adapt faults.BuildWithClock", source)
	}
	changed := strings.Replace(string(text), now, now+"\n\tsec += TestOffset.Load()", 1)
	changed = strings.Replace(changed, "\t\"math/bits\"\n", "\t\"math/bits\"\n\t\"sync/atomic\"\n", 1)
	changed += "\n// TestOffset is added to the wall clock, in seconds.\nvar TestOffset atomic.Int64\n"
	absolute, err := filepath.Abs(folder)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{filepath.Join(dir, "time.go"): changed, filepath.Join(dir, "clock.go"): clockReader}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{
		source: filepath.Join(dir, "time.go"),
		filepath.Join(absolute, "clock_of_tests.go"): filepath.Join(dir, "clock.go"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	files[filepath.Join(dir, "overlay.json")] = string(overlay)
	for name, content := range files {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary = filepath.Join(dir, "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, folder).CombinedOutput(); err != nil {
		t.Fatalf("building %s with another clock: %v\n%s", folder, err, out)
	}
	return binary, &Clock{filepath.Join(dir, "clock")}
}

// Env returns the variable that the program needs.
func (c *Clock) Env() string { return clockVariable + "=" + c.file }

// Set sets the program's wall clock to the machine's plus an offset, and waits until the program
// must have read it.
func (c *Clock) Set(t *testing.T, offset time.Duration) {
	t.Helper()
	if err := os.WriteFile(c.file+".new", []byte(strconv.FormatInt(int64(offset/time.Second), 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(c.file+".new", c.file); err != nil {
		t.Fatal(err)
	}
	<-time.After(100 * time.Millisecond)
}
