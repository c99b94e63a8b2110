package repo

// Kept returns how many bytes the Reader has allocated, and Work how many bytes of keys and
// records the last Walk has compared, copied or decoded.
func (r *Reader) Kept() int { return r.kept }

// Work is beside Kept.
func (r *Reader) Work() int { return r.walk.work }

// What tests are about.
const (
	MaxKey   = maxKey
	OwnBytes = ownBytes
)
