package app

import "syscall"

// systemMemory returns the memory of the machine, 0 if it is unknown.
func systemMemory() int64 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}
