package consumer

import "time"

// SetDeafAfter changes for how long a stream may bring nothing that is taken
// before that is called an error, and returns what undoes that.
func SetDeafAfter(d time.Duration) (undo func()) {
	was := deafAfter
	deafAfter = d
	return func() { deafAfter = was }
}
