//go:build !linux

package simulate

import "net"

// unpaced is for Linux.
func unpaced(net.Conn) {}
