//go:build !linux && !windows

package app

import "golang.org/x/sys/unix"

// systemMemory returns the memory of the machine, 0 if it is unknown.
func systemMemory() int64 {
	n, _ := unix.SysctlUint64("hw.memsize") // of macOS
	return int64(n)
}
