package relay

import (
	"net"
	"syscall"
)

// unpaced has a connection over loopback sent by Reno and not by the system's
// congestion control: on loopback there is no wire to share, and BBR, the default
// of some machines, paces what it sends by timers, which is a fifth of the
// relay's time (docs/decisions/0023). Where it is not allowed, nothing
// changes.
func unpaced(conn net.Conn) {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	if peer, ok := conn.RemoteAddr().(*net.TCPAddr); !ok || !peer.IP.IsLoopback() {
		return
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	const congestion = 13 // TCP_CONGESTION
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, congestion, "reno")
	})
}
