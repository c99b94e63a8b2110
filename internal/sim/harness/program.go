// Package harness is what the tests stand on: it builds and runs this module's programs (program.go) and an S3 server
// (bucket.go), injects faults (faults.go, disk.go, clock.go, crashmem.go), scales attacks (abuse.go), and compares
// encodings with golden files (golden.go, codec.go). It does not know the index.
package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"skein.blue/internal/kv/fdbkv"
)

// Main builds the named commands of cmd/, calls use with a function that returns their
// paths, runs the tests, eight parallel ones at a time, and returns the exit code for os.Exit.
func Main(m *testing.M, use func(path func(name string) string), names ...string) int {
	dir, err := os.MkdirTemp("", "skein-test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	args := []string{"build", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)} // without debug information, linking takes less time
	if fdbkv.Built {
		args = append(args, "-tags", "fdb")
	}
	for _, name := range names {
		args = append(args, "skein.blue/cmd/"+name)
	}
	if out, err := exec.CommandContext(context.Background(), "go", args...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building %v: %v\n%s", names, err, out)
		return 1
	}
	use(func(name string) string { return filepath.Join(dir, name) })
	Waiting()
	return m.Run()
}

// Run runs a program to its end.
func Run(t *testing.T, binary string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String(), errs.String()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, out.String(), errs.String()
}
