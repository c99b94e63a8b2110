package format

import (
	"encoding/json"
	"fmt"
)

// KeyHoles is the key of the Holes of a partition.
var KeyHoles = []byte("mholes")

// Holes say what the index does not know of because the stream had holes: gaps of which any
// repo may be concerned (Gap.Suspect). They are counted, and not timed, because the clock of
// the machine may jump.
type Holes struct {
	// Noted is how many holes have been noted, and Compared up to which of them every repo
	// was compared with what the relay lists. While it is less, no answer is complete.
	Noted    uint64 `json:"noted"`
	Compared uint64 `json:"compared"`
	// Floors are the last events before the newest hole, by the number of their source in
	// their partition (NoteNumber). What an #account up to there said of an account may have
	// changed in the hole.
	Floors map[uint32]Seq `json:"floors,omitempty"`
}

// Uncompared reports whether a hole was noted that the repos have not been compared after.
func (h *Holes) Uncompared() bool { return h.Noted > h.Compared }

// Known reports whether the stream has said, since the newest hole, whether an account is
// active. partition is that of the account.
func (h *Holes) Known(st *RepoState, partition uint8) bool {
	return st.AccountSource != 0 && (len(h.Floors) == 0 || st.AccountSeq > h.Floors[NoteNumber(st.AccountSource, partition)])
}

// DecodeHoles reads the value of KeyHoles.
func DecodeHoles(v []byte) (h Holes, err error) {
	if err := json.Unmarshal(v, &h); err != nil {
		return h, fmt.Errorf("format: reading the holes of the stream: %w", err)
	}
	return h, nil
}
