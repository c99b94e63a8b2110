package graph

import (
	"skein/graph/format"
	"skein/intern"
	"skein/intern/dict"
	"skein/internal/kv"
)

// readCounts adds up the counts of all lanes, and the strings that were claimed.
func readCounts(r kv.Reader) (format.Counts, error) {
	total := format.Counts{}.Clone()
	err := eachWithPrefix(r, format.KeyCounts, func(_, v []byte) error {
		c, err := format.DecodeCounts(v)
		total.Add(c)
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
func hiddenVersion(l format.Layout, r kv.Reader) (version uint64, err error) {
	if !l.Shared() {
		return readVersion(r, format.KeyHidden)
	}
	err = eachWithPrefix(r, format.KeyHidden, func(_, v []byte) error {
		n, err := format.DecodeVersion(v)
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
	return format.DecodeVersion(v)
}

// writeAccounts writes a group's accounts that changed.
func writeAccounts(l format.Layout, tx kv.Txn, key, group []byte) {
	if l.Shared() {
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
