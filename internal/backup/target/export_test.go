package target

import "skein.blue/internal/outward"

// SetPace sets the least that a server moves, of targets that are opened until the returned function
// is called.
func SetPace(p outward.Pace) (restore func()) {
	was := pace
	pace = p
	return func() { pace = was }
}
