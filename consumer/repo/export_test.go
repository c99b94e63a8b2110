package repo

// Allocated returns how many bytes the Reader has allocated.
func (r *Reader) Allocated() int { return r.allocated }

// InUse returns how many bytes Readers hold now.
func (m *Memory) InUse() int64 {
	n := m.all - m.one - m.free.Load()
	if len(m.turn) > 0 {
		n += m.one
	}
	return n
}

// Limits for the tests.
const (
	MaxKey   = maxKey
	OwnBytes = ownBytes
)
