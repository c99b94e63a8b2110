// Package command holds what the programs of this module share: running a command line and
// reporting its errors (command.go), signals (signals.go), common flags (flags.go) and
// what is made of them (options.go), progress on
// a terminal (progress.go) and the version.
package command
