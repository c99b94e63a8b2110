package app

import (
	"os"
	"path/filepath"
	"testing"
)

// The tightest limit of a process's control groups counts, of both versions, at any depth and in containers that do
// not see the outer groups.
func TestGroupMemory(t *testing.T) {
	const most = 1 << 40
	for name, c := range map[string]struct {
		want  int64
		files map[string]string
	}{
		"no groups": {most, nil},
		"no limit":  {most, map[string]string{"proc/self/cgroup": "0::/a.slice/b\n", "sys/fs/cgroup/a.slice/b/memory.max": "max\n"}},
		"its own": {1 << 30, map[string]string{
			"proc/self/cgroup": "0::/a.slice/b\n", "sys/fs/cgroup/a.slice/b/memory.max": "1073741824\n", "sys/fs/cgroup/a.slice/memory.max": "2147483648\n",
		}},
		"an outer one": {1 << 29, map[string]string{
			"proc/self/cgroup": "0::/a.slice/b\n", "sys/fs/cgroup/a.slice/b/memory.max": "max\n", "sys/fs/cgroup/a.slice/memory.max": "536870912\n",
		}},
		"a container": {1 << 30, map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n"}},
		"version 1 in a container": {1 << 30, map[string]string{
			"proc/self/cgroup": "12:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n0::/docker/x\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n",
		}},
		"version 1 without a limit": {most, map[string]string{
			"proc/self/cgroup": "4:memory:/user\n", "sys/fs/cgroup/memory/user/memory.limit_in_bytes": "9223372036854771712\n",
		}},
	} {
		root := t.TempDir()
		for path, text := range c.files {
			path = filepath.Join(root, path)
			must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
		}
		if got := groupMemory(root, most); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if n := systemMemory(); n < 64<<20 {
		t.Errorf("the machine has %d bytes", n)
	}
}
