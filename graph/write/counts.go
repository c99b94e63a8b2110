package write

import (
	"encoding/json"
	"fmt"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// Counts writes the counts of a lane.
func Counts(tx kv.Txn, key []byte, c format.Counts) error {
	v, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("graph: writing the counts: %w", err)
	}
	tx.Set(key, v)
	return nil
}
