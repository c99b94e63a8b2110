package app

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// systemMemory returns the memory of the machine, 0 if it is unknown.
func systemMemory() int64 {
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// groupMemory returns the tightest limit of the process's control groups below a root folder, at most
// most. In a container, the folders of the outer groups are missing, and the mount point has the limit.
func groupMemory(root string, most int64) int64 {
	groups, _ := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		folder, file := "sys/fs/cgroup", "memory.max"
		if slices.Contains(strings.Split(controllers, ","), "memory") { // version 1
			folder, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if !ok || controllers != "" {
			continue
		}
		for group = path.Join("/", group); ; group = path.Dir(group) {
			limit, err := os.ReadFile(path.Join(root, folder, group, file))
			if n, bad := strconv.ParseInt(strings.TrimSpace(string(limit)), 10, 64); err == nil && bad == nil && n > 0 {
				most = min(most, n)
			}
			if group == "/" {
				break
			}
		}
	}
	return most
}
