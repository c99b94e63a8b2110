package backup

import (
	"runtime"
	"syscall"
)

// niceness is the priority of the threads that read and send parts: indexing and answering go
// first.
const niceness = 15

// beNice gives the calling goroutine a thread of its own with a low priority. The thread ends with
// the goroutine.
func beNice() {
	runtime.LockOSThread()
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, niceness) // of this thread; without it, it is only slower for others
}
