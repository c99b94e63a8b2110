package consumer

import "syscall"

// wakeFrom sets how many bytes make a socket readable to epoll. A system that cannot do that wakes the process for each packet.
func wakeFrom(fd uintptr, bytes int) {
	_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes)
}
