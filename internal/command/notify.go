package command

import "github.com/coreos/go-systemd/v22/daemon"

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

func notify(state string) { _, _ = daemon.SdNotify(false, state) }
