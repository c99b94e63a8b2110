//go:build !linux

package fdbtest

import "os/exec"

// dieWithParent does nothing: only Linux can tie the server's life to the tests'.
func dieWithParent(*exec.Cmd) {}
