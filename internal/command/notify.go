package command

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notifications to the service manager, by sd_notify(3): the unit is Type=notify. Without a
// manager ($NOTIFY_SOCKET is not set) they do nothing. A failed notification does not end the
// daemon: the manager itself reports that the start took too long.

// NotifyReady tells the service manager that the daemon answers. status is for operators.
func NotifyReady(status string) { notify(daemon.SdNotifyReady + "\nSTATUS=" + status) }

// NotifyReloading tells it that the daemon is reloading its configuration. NotifyReady ends that.
func NotifyReloading() {
	notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec()) // Type=notify-reload needs the time
}

// NotifyStopping tells it that the daemon is committing what it has read, and will exit.
func NotifyStopping() { notify(daemon.SdNotifyStopping) }

// KeepAlive tells the service manager that the daemon is alive until ctx ends, as often as the
// manager asks for ($WATCHDOG_USEC; the unit has WatchdogSec). Before each notification it calls
// check, which must return soon in a daemon that works: if it hangs, the manager restarts the
// daemon.
func KeepAlive(ctx context.Context, check func()) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every <= 0 {
		return // nobody watches
	}
	for ticker := time.NewTicker(every / 3); ; {
		check()
		notify(daemon.SdNotifyWatchdog)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			ticker.Stop()
			return
		}
	}
}

func notify(state string) { _, _ = daemon.SdNotify(false, state) }
