package app

import (
	"cmp"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// DefaultMemory returns the default memory budget in bytes: an eighth of the memory available to
// this process, at most 1 GiB.
func DefaultMemory() int64 { return max(min(AvailableMemory()/8, 1<<30), 64<<20) }

// AvailableMemory returns the memory available to this process: the machine's, or the tightest
// limit of its control groups at any depth (systemd's MemoryMax, a container's limit).
func AvailableMemory() int64 {
	return min(groupMemory("/", cmp.Or(systemMemory(), 4<<30)), 1<<50)
}

// groupMemory returns the tightest limit of the process's control groups below a root folder, at most
// most. In a container, the folders of the outer groups are missing, and the mount point has the limit. Only Linux has groups.
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

// Budget divides the memory of a process, in bytes, between its users.
type Budget struct {
	Engine  int64 // the engine's cache and memtables
	Strings int64 // the dictionary's cache
	Filters int64 // the dictionary's filters
	States  int64 // the accounts' states
	Sets    int64 // large sets that are queried often

	Repos      int64 // repos that are read at the same time
	ArchiveOps int   // operations of an archive in one write; 0: as many as the engine takes
	Collector  int64 // the garbage collector's soft limit
	Archive    int64 // what an archive adds to it
}

// budget divides the memory of the process.
func (o *StoreOptions) budget() Budget {
	memory := cmp.Or(o.Memory, DefaultMemory())
	if InFolder(o.Store) {
		return embeddedBudget(memory)
	}
	return fdbBudget(memory)
}

// LimitMemory sets the garbage collector's soft limit (Budget.Collector), unless GOMEMLIMIT is
// set.
func LimitMemory(o StoreOptions) { limitMemory(o.budget().Collector) }

func limitMemory(limit int64) {
	if os.Getenv("GOMEMLIMIT") == "" { // the system's limit takes precedence over the budget's
		debug.SetMemoryLimit(min(limit, AvailableMemory()*9/10))
	}
}

// embeddedBudget divides the budget into sixteen parts: nine for the engine, two for the
// dictionary's cache, one for its filters, three for the accounts' states, half a part for large
// sets, and half a part for the batches, whose size is bounded. At a hundred million edges a
// look-up that misses the caches costs as much as ten events that hit them
// (docs/decisions/0007).
//
// On top of the budget, repos get half of it, and an archive's batches all of it again while the
// archive is read. The collector's limit allows for that. With cgo the engine's memory lies
// outside the collector's heap, in the C library's, where it takes up to twice its share: eighteen
// parts. The collector then gets twelve, for the seven that the rest takes when all caches are full, and as
// much garbage as a batch leaves. (With six, it ran without pause once they were full, and took a fourth of the
// processor time.)
func embeddedBudget(memory int64) Budget {
	const each = 1 << 10 // bytes of a batch and its write for one operation
	part := memory / 16
	b := Budget{
		Engine: 9 * part, Strings: 2 * part, Filters: part, States: 3 * part, Sets: part / 2,
		Repos: memory / 2, ArchiveOps: int(min(max(memory/each, 30_000), 2_000_000)), Collector: memory + memory/2,
		Archive: memory + memory/4,
	}
	if cgo {
		b.Collector, b.Archive = 12*part, 14*part
	}
	return b
}

// fdbBudget divides the budget for FoundationDB, whose engine is another process, into sixteen parts: five
// for the dictionary's cache, four each for the large sets and repos, two for the accounts' states, the rest for batches and writes in
// flight to the cluster. A write has a few thousand operations at most, so an archive needs no more. A writer that may have others beside
// it has no filters.
func fdbBudget(memory int64) Budget {
	return Budget{Strings: 5 * (memory / 16), States: memory / 8, Sets: memory / 4, Repos: memory / 4, Collector: memory, Archive: memory + memory/4}
}
