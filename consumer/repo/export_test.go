package repo

// Allocated returns how many bytes the Reader has allocated.
func (r *Reader) Allocated() int { return r.allocated }

// Limits for the tests.
const (
	MaxKey   = maxKey
	OwnBytes = ownBytes
)
