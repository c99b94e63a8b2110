package kvtest

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel kill the server when the thread that started it
// ends. The Go runtime keeps its threads, so the server ends with the tests,
// even if they crash.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
