package upgrade

import (
	"bytes"
	"fmt"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// openPacked begins a slice of the step to format.FormatPacked, which packs chunks. Their keys stay: the packed form differs from every older one.
func openPacked(tx kv.Txn, _ format.Header) (visit func(key, value []byte) (int, error), end func() error) {
	var folder format.Folder
	var packed []byte
	return func(key, value []byte) (written int, err error) {
		if packed, _, err = folder.Fold(packed[:0], key, [][]byte{value}, true); err != nil {
			return 0, fmt.Errorf("chunk %x: %w", key, err)
		}
		if !bytes.Equal(packed, value) {
			tx.Set(bytes.Clone(key), bytes.Clone(packed))
		}
		return len(key) + len(value), nil
	}, func() error { return nil }
}

// finishPacked writes the new version.
func finishPacked(_ kv.Txn, h format.Header, _ Tally) ([]byte, error) {
	h.Version = format.FormatPacked
	return h.Append(nil), nil
}
