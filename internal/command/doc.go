// Package command is what the programs of this module have in common: how a command line is
// run and its errors are said (command.go), signals (signals.go), the flags that several
// commands share (flags.go), progress on a terminal and the version.
package command
