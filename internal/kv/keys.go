package kv

// Keys collects the keys of a MultiGet in one arena. The zero value is empty and ready to
// use; Reset keeps its memory.
type Keys struct {
	list  [][]byte
	arena []byte
}

// Reset empties k. Later Adds overwrite the keys that List returned before.
func (k *Keys) Reset() { k.list, k.arena = k.list[:0], k.arena[:0] }

// Add appends a copy of key.
func (k *Keys) Add(key []byte) {
	start := len(k.arena)
	k.arena = append(k.arena, key...) // if it grows, earlier keys stay in the old array
	k.list = append(k.list, k.arena[start:len(k.arena):len(k.arena)])
}

// List returns the keys, valid until Reset.
func (k *Keys) List() [][]byte { return k.list }
