// Package command holds what the programs of this module share: running a command line and
// reporting its errors, signals, the flags of a store and its log, progress on a terminal and the
// version.
package command
