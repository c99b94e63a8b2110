//go:build !linux

package synth

import "net"

// unpaced does nothing outside Linux.
func unpaced(net.Conn) {}
