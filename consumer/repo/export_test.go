package repo

// Allocated returns how many bytes the Reader has allocated.
func (r *Reader) Allocated() int { return r.allocated }

// Work returns how many bytes of keys and records the last Walk has compared, copied or
// decoded.
func (r *Reader) Work() int { return r.walk.work }

// Limits for the tests.
const (
	MaxKey   = maxKey
	OwnBytes = ownBytes
)
