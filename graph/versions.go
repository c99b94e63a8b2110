package graph

import (
	"skein/intern"
	"skein/intern/dict"
	"skein/internal/kv"
)

// readCounts adds up the counts of all lanes, and the strings that were claimed.
func readCounts(r kv.Reader) (Counts, error) {
	total := Counts{}.clone()
	err := eachWithPrefix(r, keyCounts, func(_, v []byte) error {
		c, err := decodeCounts(v)
		total.add(c)
		return err
	})
	if err != nil {
		return total, err
	}
	claimed, err := intern.Claimed(r)
	for _, ns := range dict.Namespaces {
		total.Strings[ns.String()] += claimed[ns]
	}
	return total, err
}

// hiddenVersion returns the version of the hidden set: the sum of those of its
// parts, which only grow, so that in two states that have one sum all are the
// same.
func (l layout) hiddenVersion(r kv.Reader) (version uint64, err error) {
	if !l.shared() {
		return readVersion(r, keyHidden)
	}
	err = eachWithPrefix(r, keyHidden, func(_, v []byte) error {
		n, err := decodeVersion(v)
		version += n
		return err
	})
	return version, err
}

func readVersion(r kv.Reader, key []byte) (uint64, error) {
	v, ok, err := r.Get(key)
	if err != nil || !ok {
		return 0, err
	}
	return decodeVersion(v)
}

// writeAccounts writes a group's accounts that changed.
func (l layout) writeAccounts(tx kv.Txn, key, group []byte) {
	if l.shared() {
		tx.Set(key, group)
		return
	}
	tx.Merge(key, group)
}

func eachWithPrefix(r kv.Reader, prefix []byte, each func(k, v []byte) error) error {
	return r.Scan(prefix, kv.PrefixEnd(prefix), false, func(k, v []byte) (bool, error) {
		err := each(k, v)
		return err == nil, err
	})
}
