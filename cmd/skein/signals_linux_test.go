package main

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"skein.blue/internal/command"
	"skein.blue/internal/sim/harness"
)

// SIGHUP does not end a daemon. It stops a replay cleanly.
func TestHangup(t *testing.T) {
	t.Parallel()
	needsHangup(t)
	store := filepath.Join(t.TempDir(), "store")
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1"}, "--store", store)
	d.signal(syscall.SIGHUP)
	d.logs("SIGHUP")
	if code, body := askAt(t, d.admin+"/healthz"); code != http.StatusOK {
		t.Fatalf("after SIGHUP: %d %s", code, body)
	}
	d.stop()
	run(t, 0, "cursor 100", "replay", "--frames", plainPDS, "--store", store, "--until", "100")
	logs := func() (all []string) {
		all, err := filepath.Glob(filepath.Join(store, "*.log"))
		must(t, err)
		return slices.DeleteFunc(all, func(name string) bool { st, err := os.Stat(name); return err != nil || st.Size() == 0 })
	}
	before := logs()
	replay := program(t, "replay", "--frames", plainPDS, "--store", store, "--rate", "200")
	var errs lockedBuffer
	replay.Stderr = &errs
	must(t, replay.Start())
	eventually(t, 30*time.Second, "events are applied", func() bool {
		return slices.ContainsFunc(logs(), func(name string) bool { return !slices.Contains(before, name) })
	})
	must(t, replay.Process.Signal(syscall.SIGHUP))
	if err := replay.Wait(); exitCode(err) != command.ExitFailed || !strings.Contains(errs.String(), "replay: stopped ") {
		t.Errorf("%v: %s", err, errs.String())
	}
	run(t, 0, "no problems found", "check", "--store", store)
}

// A signal right after the start stops the program cleanly.
func TestEarlySignalStopsCleanly(t *testing.T) {
	t.Parallel()
	handled := 0
	for i := range 7 {
		store := filepath.Join(t.TempDir(), "store")
		cmd := program(t, "serve", "--store", store, "--relay", "ws://127.0.0.1:1", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
		var errs strings.Builder
		cmd.Stderr = &errs
		must(t, cmd.Start())
		// The runtime and the initialization of our packages take some milliseconds, and more on a busy
		// machine. A signal before that kills any program.
		wait := time.Duration(60*math.Pow(1.5, float64(i))) * time.Millisecond
		time.Sleep(wait)
		must(t, cmd.Process.Signal(syscall.SIGTERM))
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
	cmd := program(t)
	cmd.Env = append(cmd.Env, programVariable+"=stuck")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = out.Read(make([]byte, 10))
	must(t, err)
	must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); exitCode(err) != command.ExitFailed || !strings.Contains(errs.String(), "committed data is safe") {
		t.Errorf("%v: %s", err, errs.String())
	}
}

// On a disk without a free byte, the daemon answers, also after a restart, without a panic. A command
// that writes fails with one clear message. With space again, everything resumes.
func TestDiskFills(t *testing.T) {
	t.Parallel()
	disk := t.TempDir()
	as := "env" // root needs no sudo
	if os.Geteuid() != 0 {
		as = "sudo"
	}
	if err := exec.CommandContext(t.Context(), as, "mount", "-t", "tmpfs", "-o", fmt.Sprint("size=160m,uid=", os.Geteuid()), "tmpfs", disk).Run(); err != nil {
		t.Skipf("cannot mount a file system here: %v", err)
	}
	t.Cleanup(func() { _ = exec.Command(as, "umount", "-l", disk).Run() })
	filled := harness.NewFault(t, "disk without a free byte", 1)
	store := filepath.Join(disk, "store")
	args := []string{"--store", store, "--memory", "32MiB", "--relay", "ws://127.0.0.1:1", "--min-free", "0"}
	replay := []string{"replay", "--frames", plainPDS, "--store", store, "--memory", "32MiB", "--min-free", "0"}
	if out, err := program(t, append(replay, "--until", "1000")...).CombinedOutput(); err != nil {
		t.Fatalf("%s", out)
	}
	d := serveDaemon(t, nil, args...)
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 160<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	filled.Happened()
	answers := func() {
		t.Helper()
		eventually(t, 10*time.Second, "the daemon notices", func() bool { return d.state() == "full" })
		if code, body := askAt(t, d.admin+"/readyz"); code != http.StatusOK || !strings.Contains(body, "ready, but not indexing") {
			t.Errorf("/readyz on a full disk: %d %s", code, body)
		}
		d.answers()
	}
	answers()
	_, log := d.stop()
	d = serveDaemon(t, nil, args...)
	answers()
	_, again := d.stop()
	if log += again; strings.Contains(log, "goroutine ") {
		t.Errorf("the log:\n%s", log)
	}
	out, err := program(t, replay...).CombinedOutput()
	if exitCode(err) != command.ExitFailed || !strings.Contains(string(out), "the disk is full") || strings.Contains(string(out), "goroutine") || strings.Count(string(out), "\n") > 2 {
		t.Errorf("replay: %v\n%s", err, out)
	}
	must(t, os.Remove(ballast))
	if out, err := program(t, replay...).CombinedOutput(); err != nil {
		t.Errorf("with space again: %s", out)
	}
	run(t, 0, "no problems found", "check", "--store", store)
	d = serveDaemon(t, nil, args...)
	if state := d.state(); state == "full" {
		t.Error("full with space again")
	}
	d.stop()
}
