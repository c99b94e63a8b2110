package command

import (
	"context"
	"net"
	"os"
	"strconv"
	"time"

	"skein.blue/internal/outward"
)

// Notifications to the service manager, by sd_notify(3): the unit is Type=notify. Without a
// manager ($NOTIFY_SOCKET is not set) they do nothing. A failed notification does not end the
// daemon: the manager itself reports that the start took too long.

// NotifyReady tells the service manager that the daemon answers. status is for operators.
func NotifyReady(status string) { notify("READY=1\nSTATUS=" + status) }

// NotifyStopping tells it that the daemon is committing what it has read, and will exit.
func NotifyStopping() { notify("STOPPING=1") }

// KeepAlive tells the service manager that the daemon is alive until ctx ends, as often as the
// manager asks for ($WATCHDOG_USEC; the unit has WatchdogSec). Before each notification it calls
// check, which must return soon in a daemon that works: if it hangs, the manager restarts the
// daemon.
func KeepAlive(ctx context.Context, check func()) {
	micros, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if err != nil || micros <= 0 || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return // nobody watches
	}
	for err == nil {
		check()
		notify("WATCHDOG=1")
		err = outward.Wait(ctx, time.Duration(micros)*time.Microsecond/3)
	}
}

func notify(state string) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // a manager that does not read must not hold up the end of the process
	_, _ = conn.Write([]byte(state))
	_ = conn.Close()
}
