package command

import "github.com/coreos/go-systemd/v22/daemon"

// What a service manager is told, by sd_notify(3): the unit is Type=notify. Where none
// listens ($NOTIFY_SOCKET is not set), nothing is told. A manager that cannot be told is no
// reason to end: it then says itself that the start took too long.

// NotifyReady tells the service manager that the daemon answers, and status for an operator.
func NotifyReady(status string) { notify(daemon.SdNotifyReady + "\nSTATUS=" + status) }

// NotifyReloading tells it that the configuration is being read again. NotifyReady ends that.
func NotifyReloading() {
	notify(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec()) // Type=notify-reload wants the time
}

// NotifyStopping tells it that the daemon commits what it has read, and ends.
func NotifyStopping() { notify(daemon.SdNotifyStopping) }

func notify(state string) { _, _ = daemon.SdNotify(false, state) }
