package app

import (
	"cmp"
	"os"
	"runtime/debug"
)

// DefaultMemory returns the default memory budget in bytes: an eighth of the memory available to
// this process, at most 1 GiB.
func DefaultMemory() int64 { return max(min(AvailableMemory()/8, 1<<30), 64<<20) }

// AvailableMemory returns the memory available to this process: the machine's, or the tightest
// limit of its control groups at any depth (systemd's MemoryMax, a container's limit).
func AvailableMemory() int64 {
	return min(groupMemory("/", cmp.Or(systemMemory(), 4<<30)), 1<<50)
}

// engine returns the engine of the store.
func (o *StoreOptions) engine() *Engine { return EngineOf(o.Store) }

// budget divides the memory of the process.
func (o *StoreOptions) budget() Budget { return o.engine().Budget(o.memory()) }

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
		limitMemory(o, o.budget().Archive)
	} else {
		limitMemory(o, 0)
		debug.FreeOSMemory()
	}
}

// LimitMemory sets the garbage collector's soft limit (Budget.Collector), unless GOMEMLIMIT is
// set.
func LimitMemory(o StoreOptions) { limitMemory(o, 0) }

func limitMemory(o StoreOptions, more int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := o.budget().Collector + more
	// The system's limit takes precedence over the budget's.
	debug.SetMemoryLimit(min(limit, AvailableMemory()*9/10))
}
