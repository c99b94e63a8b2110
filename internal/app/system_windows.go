package app

// openFiles returns how many files this process may open: Windows has no such limit.
func openFiles() int { return 1 << 14 }

// systemMemory returns 0: the memory of the machine is unknown.
func systemMemory() int64 { return 0 }
