package backup

import (
	"time"

	"skein.blue/internal/outward"
)

// SetPause sets the first pause after a failure, until the returned function is called.
func SetPause(p time.Duration) (restore func()) {
	was := firstPause
	firstPause = p
	return func() { firstPause = was }
}

// SetPace sets the least that a server moves, of targets that are opened until the returned function
// is called.
func SetPace(p outward.Pace) (restore func()) {
	was := pace
	pace = p
	return func() { pace = was }
}
