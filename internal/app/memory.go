package app

import (
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// DefaultMemory returns the default memory budget in bytes: an eighth of the memory available to
// this process, at most 1 GiB.
func DefaultMemory() int64 { return max(min(AvailableMemory()/8, 1<<30), 64<<20) }

// AvailableMemory returns the memory available to this process: the machine's, or the tightest
// limit of its control groups at any depth (systemd's MemoryMax, a container's limit).
func AvailableMemory() int64 {
	total := uint64(4 << 30)
	if n, err := memlimit.FromSystem(); err == nil && n > 0 {
		total = n
	}
	if n, err := memlimit.FromCgroup(); err == nil && n > 0 {
		total = min(total, n)
	}
	return int64(min(total, 1<<50))
}

// budget divides the memory between its users.
type budget struct{ engine, strings, filters, states, sets int64 }

// split divides the budget into sixteen parts: nine for the engine's cache and memtables, two for
// the dictionary's cache, one for its filters, three for the accounts' states, half a part for
// large sets that are queried often, and half a part for the batches, which need no limit here:
// their size is bounded. At a hundred million edges a look-up that misses the caches costs as much
// as ten events that hit them (docs/decisions/0007).
func split(memory int64) budget {
	if memory <= 0 {
		memory = DefaultMemory()
	}
	part := memory / 16
	return budget{9 * part, 2 * part, part, 3 * part, part / 2}
}

// splitFDB divides the budget for FoundationDB, whose engine is another process: a quarter each
// for the dictionary's cache and the large sets, an eighth for the accounts' states, the rest for
// batches and writes in flight to the cluster.
func splitFDB(memory int64) budget {
	if memory <= 0 {
		memory = DefaultMemory()
	}
	return budget{0, memory / 4, 0, memory / 8, memory / 4}
}

// repoMemory returns the memory for all repos that are being read at the same time: half as much
// as the budget, on top of it. The collector's limit allows for that. On FoundationDB it is a
// quarter of the budget, which splitFDB leaves free.
func repoMemory(o StoreOptions) int64 {
	if o.fdb() {
		return o.memory() / 4
	}
	return o.memory() / 2
}

// archiveOps returns how many operations of an archive go into one write: as many as fit into
// the size of the budget, on top of it while an archive is read. On FoundationDB a write has a few
// thousand at most.
func archiveOps(o StoreOptions) int {
	if o.fdb() {
		return 0
	}
	const each = 1 << 10 // bytes of a batch and its write for one operation
	return int(min(max(o.memory()/each, 30_000), 2_000_000))
}

func (o *StoreOptions) memory() int64 {
	if o.Memory <= 0 {
		return DefaultMemory()
	}
	return o.Memory
}

// archiveMemory raises the collector's limit for an archive's batches and segments, and lowers
// it again at the end.
func archiveMemory(o StoreOptions, begins bool) {
	if begins {
		limitMemory(o, o.memory()+o.memory()/4)
	} else {
		limitMemory(o, 0)
		debug.FreeOSMemory()
	}
}

// LimitMemory sets the garbage collector's soft limit to 1.5 times the budget, unless GOMEMLIMIT
// is set. With cgo the engine's share lies outside the collector's heap, in the C library's, where
// it takes up to twice its size; so builds without cgo, such as the image's and the Makefile's,
// take less memory. On FoundationDB the limit is the budget.
func LimitMemory(o StoreOptions) { limitMemory(o, 0) }

func limitMemory(o StoreOptions, more int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	memory := o.memory()
	limit := memory + memory/2
	if o.fdb() {
		limit = memory
	} else if cgo {
		limit -= 2 * split(memory).engine
	}
	limit += more
	// The system's limit takes precedence over the budget's.
	debug.SetMemoryLimit(min(limit, AvailableMemory()*9/10))
}
