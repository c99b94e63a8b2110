package read

import (
	"errors"
	"fmt"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// ErrFormat is returned by FindHeader and Header for a store that this program cannot read.
var ErrFormat = errors.New("this program cannot read the store")

// FindHeader reads the header of a store. found is false if there is none. A header of
// another version is an error.
func FindHeader(r kv.Reader) (h format.Header, found bool, err error) {
	v, ok, err := r.Get(format.HeaderKey)
	if err != nil || !ok {
		return h, false, err
	}
	if len(v) > 0 && format.Version(v[0]) != format.Newest {
		return h, true, fmt.Errorf("%w: it has format %d, and this program reads %d: %s", ErrFormat, v[0], format.Newest, format.Advice)
	}
	if h, err = format.DecodeHeader(v); err != nil {
		return h, true, err
	}
	v, _, err = r.Get(format.KeyKinds)
	if err != nil {
		return h, true, err
	}
	if h.Table, err = format.DecodeKinds(v); err != nil {
		return h, true, err
	}
	for _, k := range h.Kinds {
		if h.Table.Info(k) == nil {
			return h, true, fmt.Errorf("%w: the store has records of the unknown kind %d: a newer skein wrote it; use that version", ErrFormat, k)
		}
	}
	return h, true, nil
}

// Header reads the header of a store that must have a graph and no unfinished import.
func Header(r kv.Reader) (format.Header, error) {
	h, found, err := FindHeader(r)
	if err != nil {
		return h, err
	}
	if !found {
		return h, fmt.Errorf("%w: there is no graph in the store", ErrFormat)
	}
	return h, NotImporting(r)
}

// NotImporting returns an error if an import into the store did not finish.
func NotImporting(r kv.Reader) error {
	_, importing, err := r.Get(format.KeyImport)
	if err == nil && importing {
		err = errors.New("an import into this store did not finish: run skein import again, from the beginning")
	}
	return err
}

// JSON reads the row under a key, nil if there is none.
func JSON[T any](r kv.Reader, key []byte) (*T, error) {
	v, ok, err := r.Get(key)
	if err != nil || !ok {
		return nil, err
	}
	x, err := format.FromJSON[T](v)
	return &x, err
}

// FindAccount reads the state of an account, and reports whether there is one.
func FindAccount(r kv.Reader, l format.Layout, actor dict.ID) (s format.RepoState, found bool, err error) {
	v, ok, err := r.Get(l.AccountKey(nil, actor))
	if err != nil || !ok {
		return s, false, err
	}
	return l.AccountIn(v, actor)
}
