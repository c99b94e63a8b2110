package main

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skein.blue/internal/command"
	"skein.blue/internal/sim/harness"
)

// stuckVariable makes the test binary a command that never stops after a signal.
const stuckVariable = "SKEIN_TEST_STUCK"

func stuck() {
	command.MostStopping = 300 * time.Millisecond
	ctx := new(command.Stopping).Listen(os.Stderr)
	fmt.Println("listening")
	<-ctx.Done()
	select {} // the store does not answer
}

// needsHangup skips a test where SIGHUP is ignored, as under nohup: child processes inherit that.
func needsHangup(t *testing.T) {
	t.Helper()
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored here (nohup)")
	}
}

// SIGHUP does not end a daemon. It stops a replay cleanly.
func TestHangup(t *testing.T) {
	needsHangup(t)
	store := filepath.Join(t.TempDir(), "store")
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1"}, "--store", store)
	for range 3 {
		if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.admin+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || resp.Body.Close() != nil {
		t.Fatalf("after SIGHUP: %v", err)
	}
	if _, log := d.stop(); !strings.Contains(log, "SIGHUP") {
		t.Errorf("no SIGHUP in the log: %s", log)
	}
	replay := exec.CommandContext(t.Context(), binary, "replay", "--frames", plainPDS, "--store", store, "--rate", "200")
	var errs strings.Builder
	replay.Stderr = &errs
	if err := replay.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if err := replay.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := replay.Wait(); replay.ProcessState.ExitCode() != command.ExitFailed || !strings.Contains(errs.String(), "to resume there") {
		t.Errorf("%v: %s", err, errs.String())
	}
	if code, out, errs := skein(t, "check", "--store", store); code != 0 {
		t.Errorf("%s%s", out, errs)
	}
}

// A signal right after the start stops the program cleanly.
func TestEarlySignalStopsCleanly(t *testing.T) {
	t.Parallel()
	handled := 0
	for i := range 10 {
		store := filepath.Join(t.TempDir(), "store")
		cmd := exec.CommandContext(t.Context(), binary, "serve", "--store", store, "--relay", "ws://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
		var errs strings.Builder
		cmd.Stderr = &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		// The runtime and the initialization of our packages take some milliseconds, and more on a busy
		// machine. A signal before that kills any program.
		wait := time.Duration(60*math.Pow(1.35, float64(i))) * time.Millisecond
		time.Sleep(wait)
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		err := cmd.Wait()
		if err == nil {
			handled++
			continue
		}
		// On a busy machine the program may not have reached its first line by then.
		if _, none := os.Stat(store); none == nil || errs.Len() > 0 || !strings.Contains(err.Error(), "signal: terminated") {
			t.Errorf("after %v: %v\n%s", wait, err, errs.String())
		}
	}
	if handled == 0 {
		t.Error("every signal came before the program had begun: the test proves nothing")
	}
}

// A command that does not stop in time after a signal is ended.
func TestStuckCommandIsEnded(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), stuckVariable+"=1")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != command.ExitFailed || !strings.Contains(errs.String(), "committed data is safe") {
		t.Errorf("%v: %s", err, errs.String())
	}
}

// On a disk without a free byte, the daemon answers, also after a restart, without a panic. A command
// that writes fails with one clear message. With space again, everything resumes.
func TestDiskFills(t *testing.T) {
	disk := t.TempDir()
	if err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", disk).Run(); err != nil {
		t.Skipf("cannot mount a file system here: %v", err)
	}
	t.Cleanup(func() { _ = exec.Command("umount", "-l", disk).Run() })
	filled := harness.NewFault(t, "disk without a free byte", 1)
	store := filepath.Join(disk, "store")
	args := []string{"--store", store, "--memory", "32MiB", "--relay", "ws://127.0.0.1:1", "--min-free", "0"}
	replay := []string{"replay", "--frames", plainPDS, "--store", store, "--memory", "32MiB", "--min-free", "0"}
	if code, _, errs := skein(t, append(replay, "--until", "1000")...); code != 0 {
		t.Fatal(errs)
	}
	d := serveDaemon(t, nil, args...)
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 160<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	filled.Happened()
	const followers = "/xrpc/blue.skein.graph.query?set=followers(did:plc:6tnmqzyj3aj56cfk2uw7mi5e)"
	answers := func() {
		t.Helper()
		eventually(t, 10*time.Second, "the daemon notices", func() bool { return stateOf(t, d.api) == "full" })
		if code, body := askAt(t, d.admin+"/readyz"); code != http.StatusOK || !strings.Contains(body, "ready, but not indexing") {
			t.Errorf("/readyz on a full disk: %d %s", code, body)
		}
		if code, body := askAt(t, d.api+followers); code != http.StatusOK || !strings.Contains(body, `"total"`) {
			t.Errorf("a query on a full disk: %d %s", code, body)
		}
	}
	answers()
	_, log := d.stop()
	d = serveDaemon(t, nil, args...)
	answers()
	_, again := d.stop()
	if log += again; strings.Contains(log, "goroutine ") {
		t.Errorf("the log:\n%s", log)
	}
	code, _, errs := skein(t, replay...)
	if code != command.ExitFailed || !strings.Contains(errs, "the disk is full") || strings.Contains(errs, "goroutine") || strings.Count(errs, "\n") > 2 {
		t.Errorf("replay: %d\n%s", code, errs)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := skein(t, replay...); code != 0 {
		t.Errorf("with space again: %d\n%s", code, errs)
	}
	if code, out, errs := skein(t, "check", "--store", store); code != 0 {
		t.Errorf("%s%s", out, errs)
	}
	d = serveDaemon(t, nil, args...)
	if state := stateOf(t, d.api); state == "full" {
		t.Error("full with space again")
	}
	d.stop()
}

// limitedVariable makes the tests' program print its memory budget, and end.
const limitedVariable = "SKEIN_TEST_CGROUP"

// The process sees the memory limit of its control group, also if an outer group sets it.
func TestNestedMemoryLimit(t *testing.T) {
	// Version 1 of control groups has a hierarchy for memory alone, version 2 one for all.
	root, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(root); err != nil {
		root, file = "/sys/fs/cgroup", "memory.max"
	}
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
		t.Skipf("no control groups here: %v", err)
	}
	outer := filepath.Join(root, fmt.Sprintf("skein-test-%d", os.Getpid()))
	inner := filepath.Join(outer, "inner")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Skipf("cannot create a control group here: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(inner); _ = os.Remove(outer) })
	if err := os.WriteFile(filepath.Join(outer, file), []byte("800000000"), 0o600); err != nil {
		t.Skipf("cannot set a memory limit here: %v", err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `echo $$ >"$1/cgroup.procs" || exit 77; exec "$2"`, "sh", inner, self)
	cmd.Env = append(os.Environ(), limitedVariable+"=1")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() == 77 {
		t.Skipf("cannot put a process in a control group here: %s", out)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(string(out), "budget 99") && !strings.Contains(string(out), "budget 100") { // an eighth of the limit, rounded to pages
		t.Errorf("%s", out)
	}
}
