package format

import "skein.blue/intern/dict"

// A Folder folds whatever is merged into a store: rows, containers, chunks, groups
// of accounts, and groups of strings. It holds the scratch of a fold, and is for one
// goroutine at a time.
type Folder struct {
	rows   rowFolder
	chunks chunkFolder
}

// A Folded says how large a value has become, for who decides whether it is spilled.
type Folded struct {
	// Entries are the records of a chunk, or the members of a row, those that are
	// kept as removed included. 0 for values that are never spilled.
	Entries int
	// Bytes are those of a chunk; 0 for other values.
	Bytes int
}

// Fold appends to dst what the values of a key, oldest first, come to. base says that
// there is nothing older (kv.Merger). An error means that a value is malformed.
func (f *Folder) Fold(dst, key []byte, values [][]byte, base bool) (out []byte, size Folded, err error) {
	switch {
	case len(key) > 2 && key[0] == KeyRecord:
		out, size.Entries, err = f.chunks.fold(dst, key, values, base)
		size.Bytes = len(out) - len(dst)
		if _, _, _, depth, kerr := ParseChunkKey(key); kerr != nil || depth >= MaxChunkDepth {
			size = Folded{} // it cannot go deeper
		}
	case isRowKey(key):
		subject, _ := dict.ReadID(key[2:])
		out, size.Entries, err = f.rows.fold(dst, subject, values, base)
	case len(key) > 0 && key[0] == KeyAccount:
		out, err = foldAccounts(dst, values)
	case len(key) > 0 && key[0] == dict.KeyString:
		out, err = dict.FoldGroups(dst, values)
	default:
		out, err = foldContainers(dst, values, base)
	}
	return out, size, err
}
