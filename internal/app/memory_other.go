//go:build !linux

package app

import "golang.org/x/sys/unix"

// systemMemory returns the memory of the machine, 0 if it is unknown.
func systemMemory() int64 {
	n, _ := unix.SysctlUint64("hw.memsize") // of macOS
	return int64(n)
}

// groupMemory returns most: there are no control groups.
func groupMemory(_ string, most int64) int64 { return most }
