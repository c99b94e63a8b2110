package consumer

import "time"

// SetAllDroppedFor changes how long a stream may bring only dropped events
// before that is logged as an error, and returns a function that undoes the
// change.
func SetAllDroppedFor(d time.Duration) (undo func()) {
	was := allDroppedFor
	allDroppedFor = d
	return func() { allDroppedFor = was }
}
