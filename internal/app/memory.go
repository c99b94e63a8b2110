package app

import (
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// DefaultMemory returns the memory budget, in bytes, for this machine: an
// eighth of what this process may have, and at most 1 GiB.
func DefaultMemory() int64 { return max(min(AvailableMemory()/8, 1<<30), 64<<20) }

// AvailableMemory returns how much memory this process may have: what the machine
// has, or the tightest limit of the control groups that the process is in, however
// deep they are nested (systemd's MemoryMax, a container's).
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

// budget is how the memory is divided.
type budget struct{ engine, strings, filters, states, sets int64 }

// split divides the budget into sixteen parts: nine for the engine's cache and
// memtables, two for the dictionary's cache, one for its filters, three for the
// accounts' states, half of one for large sets that are asked for often, and half of
// one for the batches, which needs no number of its own: they are bounded. At a hundred million edges a look-up that
// misses the caches costs as much as ten events that do not (docs/decisions/0007).
func split(memory int64) budget {
	if memory <= 0 {
		memory = DefaultMemory()
	}
	part := memory / 16
	return budget{9 * part, 2 * part, part, 3 * part, part / 2}
}

// splitFDB divides the budget where the engine is another process: a quarter each
// for the dictionary's cache and the large sets, an eighth for the accounts'
// states, the rest for batches and what is under way to the cluster.
func splitFDB(memory int64) budget {
	if memory <= 0 {
		memory = DefaultMemory()
	}
	return budget{0, memory / 4, 0, memory / 8, memory / 4}
}

// repoMemory returns how much of all repos that are being read is kept at one time: half as
// much as the budget, which they have besides it; the collector's limit allows for that. On
// FoundationDB they have a quarter of the budget, which splitFDB leaves free.
func repoMemory(o StoreOptions) int64 {
	if o.fdb() {
		return o.memory() / 4
	}
	return o.memory() / 2
}

// archiveOps returns how many operations of an archive are applied in one write: as many
// as take as much memory as the budget, which they have besides it for as long as an
// archive is read. On FoundationDB a write has a few thousand at most.
func archiveOps(o StoreOptions) int {
	if o.fdb() {
		return 0
	}
	const each = 1 << 10 // bytes; what a batch and its write hold of one
	return int(min(max(o.memory()/each, 30_000), 2_000_000))
}

func (o *StoreOptions) memory() int64 {
	if o.Memory <= 0 {
		return DefaultMemory()
	}
	return o.Memory
}

// archiveMemory gives the collector room for an archive's batches and segments, and takes it
// back.
func archiveMemory(o StoreOptions, begins bool) {
	if begins {
		limitMemory(o, o.memory()+o.memory()/4)
	} else {
		limitMemory(o, 0)
		debug.FreeOSMemory()
	}
}

// LimitMemory tells the garbage collector to work harder when the process
// nears what the budget allows for it, unless GOMEMLIMIT says otherwise: half as
// much again as the budget. With cgo the engine's share lies outside the
// collector's heap, in the C library's, where it takes up to twice its size, so
// builds without cgo, as the image and the Makefile make them, take less. On
// FoundationDB the collector has the budget.
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
	// A limit that the system enforces comes before one that the budget asks for.
	debug.SetMemoryLimit(min(limit, AvailableMemory()*9/10))
}
