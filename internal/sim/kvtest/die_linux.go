package kvtest

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// dieWithParent makes the kernel kill the process when the thread that starts it ends.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// start starts a process that ends with the tests, even if they crash. The runtime ends a thread with the goroutine that is locked to
// it, so one that never ends starts all processes.
func start(cmd *exec.Cmd) error {
	dieWithParent(cmd)
	failed := make(chan error)
	starter() <- func() { failed <- cmd.Start() }
	return <-failed
}

var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for fn := range work {
			fn()
		}
	}()
	return work
})
