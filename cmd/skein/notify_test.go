package main

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A service manager receives a notification when the daemon answers, reloads its configuration,
// has reloaded it, and stops.
func TestServiceManagerIsNotified(t *testing.T) {
	needsHangup(t)
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	next := func(want ...string) {
		t.Helper()
		if err := manager.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		n, err := manager.Read(b)
		if err != nil {
			t.Fatalf("no notification, want %q: %v", want, err)
		}
		for _, w := range want {
			if !strings.Contains("\n"+string(b[:n]), "\n"+w) {
				t.Errorf("notification %q, want %q", b[:n], w)
			}
		}
	}
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1", "NOTIFY_SOCKET=" + socket}, "--store", filepath.Join(t.TempDir(), "store"))
	next("READY=1", "STATUS=")
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	next("RELOADING=1", "MONOTONIC_USEC=")
	next("READY=1")
	d.stop()
	next("STOPPING=1")
}

// A daemon that the service manager watches says again and again that it is alive. One that stands
// still does not.
func TestWatchdogOfServiceManager(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	alive := func(within time.Duration) (n int) {
		t.Helper()
		if err := manager.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		for b := make([]byte, 4096); ; {
			k, err := manager.Read(b)
			if err != nil {
				return n
			}
			if strings.Contains("\n"+string(b[:k]), "\nWATCHDOG=1") {
				n++
			}
		}
	}
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1", "NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=300000"}, "--store", filepath.Join(t.TempDir(), "store"))
	if n := alive(2 * time.Second); n < 3 {
		t.Errorf("%d signs of life in two seconds, want one each 100 ms", n)
	}
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	alive(200 * time.Millisecond) // those on their way
	if n := alive(time.Second); n > 0 {
		t.Errorf("%d signs of life of a daemon that stands still", n)
	}
	if err := d.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if n := alive(2 * time.Second); n < 3 {
		t.Errorf("%d signs of life after it was continued", n)
	}
	d.stop()
}

// A failed start is reported in one line.
func TestFailedStartIsOneLine(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	store := filepath.Join(t.TempDir(), "store")
	for what, args := range map[string][]string{
		"address in use":       {"--listen", taken.Addr().String(), "--admin-listen", "127.0.0.1:0"},
		"admin address in use": {"--listen", "127.0.0.1:0", "--admin-listen", taken.Addr().String()},
		"no store":             {"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--consume=false", "--store", store + "-none"},
		"no feeds":             {"--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--feeds", store + "-none"},
	} {
		code, out, errs := skein(t, append([]string{"serve", "--relay", "ws://127.0.0.1:1", "--store", store}, args...)...)
		if code == 0 || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, in %d lines:\n%s%s", what, code, strings.Count(errs, "\n"), out, errs)
		}
	}
}
