package main

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// manager is a service manager.
type manager struct {
	socket string
	conn   *net.UnixConn
}

func newManager(t *testing.T) *manager {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &manager{socket, conn}
}

// next returns the next notification, a line break before each line. ok is false if there is none until end.
func (m *manager) next(t *testing.T, end time.Time) (message string, ok bool) {
	t.Helper()
	must(t, m.conn.SetReadDeadline(end))
	b := make([]byte, 4096)
	n, err := m.conn.Read(b)
	return "\n" + string(b[:n]), err == nil
}

// A service manager receives a notification when the daemon answers, and when it stops.
func TestServiceManagerIsNotified(t *testing.T) {
	m := newManager(t)
	next := func(want ...string) {
		t.Helper()
		message, ok := m.next(t, time.Now().Add(20*time.Second))
		for _, w := range want {
			if !ok || !strings.Contains(message, "\n"+w) {
				t.Errorf("notification %q, want %q", message, w)
			}
		}
	}
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1", "NOTIFY_SOCKET=" + m.socket}, "--store", filepath.Join(t.TempDir(), "store"))
	next("READY=1", "STATUS=")
	d.stop()
	next("STOPPING=1")
}

// A daemon that the service manager watches says again and again that it is alive. One that stands
// still does not.
func TestWatchdogOfServiceManager(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	alive := func(within time.Duration) (n int) {
		t.Helper()
		for end := time.Now().Add(within); ; {
			switch message, ok := m.next(t, end); {
			case !ok:
				return n
			case strings.Contains(message, "\nWATCHDOG=1"):
				n++
			}
		}
	}
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1", "NOTIFY_SOCKET=" + m.socket, "WATCHDOG_USEC=60000"}, "--store", filepath.Join(t.TempDir(), "store"))
	if n := alive(time.Second); n < 3 {
		t.Errorf("%d signs of life in a second, want one each 20 ms", n)
	}
	d.signal(syscall.SIGSTOP)
	alive(200 * time.Millisecond) // those on their way
	if n := alive(300 * time.Millisecond); n > 0 {
		t.Errorf("%d signs of life of a daemon that stands still", n)
	}
	d.signal(syscall.SIGCONT)
	if n := alive(time.Second); n < 3 {
		t.Errorf("%d signs of life after it was continued", n)
	}
	time.Sleep(500 * time.Millisecond) // nobody reads: the socket's queue is full
	d.stop()
}
