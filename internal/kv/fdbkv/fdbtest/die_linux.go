package fdbtest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel end the server with the thread that started it,
// which the Go runtime keeps, so with the tests, however they end.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
