//go:build !unix

package pebblekv

import "io"

// flock does nothing: here folders cannot be locked, and Pebble's lock file must suffice.
func flock(string) (io.Closer, error) { return io.NopCloser(nil), nil }
