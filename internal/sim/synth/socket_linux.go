package synth

import (
	"net"
	"syscall"
)

// unpaced makes a loopback connection use Reno instead of the system's congestion
// control: loopback has no wire to share, and BBR, the default of some machines,
// paces packets by timers, which costs a fifth of the relay's time
// (docs/decisions/0023). If Reno is not allowed, nothing changes.
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
