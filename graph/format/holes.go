package format

import (
	"encoding/json"
	"fmt"
	"time"
)

// KeyHoles is the key of the Holes of a partition.
var KeyHoles = []byte("mholes")

// Holes count the holes of the stream: gaps in which any repo may have changed (Gap.Suspect).
// They have numbers and not times, because the machine's clock may jump.
type Holes struct {
	// Noted is the number of holes so far. After hole number Compared, every repo was compared
	// with the relay's list. While Compared is below Noted, no answer is complete.
	Noted    uint64 `json:"noted"`
	Compared uint64 `json:"compared"`
	// Unbroken is since when the stream has been read without a hole: when listening began, or when the newest hole was
	// noted.
	Unbroken time.Time `json:"unbroken,omitzero"`
	// Untimed says that Unbroken is by this machine's clock, which may be behind: the stream's times have not come yet.
	Untimed bool `json:"untimed,omitempty"`
	// Floors are the last events before the newest hole, by the number of their source in
	// their partition (NoteNumber). The status that an #account up to there named may have
	// changed in the hole.
	Floors map[uint32]Seq `json:"floors,omitempty"`
	// Parts are the partitions that this row is about.
	Parts Partitions `json:"parts,omitempty"`
}

// Uncompared reports whether the repos have not been compared since the newest hole.
func (h *Holes) Uncompared() bool { return h.Noted > h.Compared }

// Known reports whether an #account of an account, whose partition is given, has come since
// the newest hole.
func (h *Holes) Known(st *RepoState, partition uint8) bool {
	return st.AccountSource != 0 && (len(h.Floors) == 0 || st.AccountSeq > h.Floors[NoteNumber(st.AccountSource, partition)])
}

// FromJSON reads a value in JSON.
func FromJSON[T any](v []byte) (x T, err error) {
	if err := json.Unmarshal(v, &x); err != nil {
		return x, fmt.Errorf("format: reading a %T: %w", x, err)
	}
	return x, nil
}
