//go:build !linux

package kvtest

import "os/exec"

// dieWithParent does nothing: only Linux can tie the server's life to the tests'.
func dieWithParent(*exec.Cmd) {}

func start(cmd *exec.Cmd) error { return cmd.Start() }
