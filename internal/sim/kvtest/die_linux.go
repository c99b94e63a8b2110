package kvtest

import (
	"os/exec"
	"runtime"
	"syscall"
)

// dieWithParent makes the kernel kill the process when the thread that starts it ends.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// start starts a process that ends with the tests, even if they crash. The runtime ends a thread with the goroutine that is locked to
// it: that of the process never ends.
func start(cmd *exec.Cmd) error {
	dieWithParent(cmd)
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		failed <- cmd.Start()
		select {}
	}()
	return <-failed
}
