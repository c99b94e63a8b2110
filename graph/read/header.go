package read

import (
	"errors"
	"fmt"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// ErrFormat is returned by Open for a store that this program cannot read.
var ErrFormat = errors.New("unknown store format")

// FindHeader reads the header of a store, and refuses one of another version. found is
// false where there is none.
func FindHeader(r kv.Reader) (h format.Header, found bool, err error) {
	v, ok, err := r.Get(format.HeaderKey)
	if err != nil || !ok {
		return h, false, err
	}
	if format.UpgradingHeader(v) != nil {
		return h, true, fmt.Errorf("%w: the store was begun to be brought up to date, and that was not finished: run skein upgrade again", ErrFormat)
	}
	version, err := format.HeaderVersion(v)
	switch {
	case err != nil:
		return h, true, err
	case version < format.Version:
		return h, true, fmt.Errorf("%w: the store has format %d, this program reads %d: bring it up to date with skein upgrade", ErrFormat, version, format.Version)
	case version > format.Version:
		return h, true, fmt.Errorf("%w: the store has format %d, this program reads %d: it was written by a newer skein; use that one", ErrFormat, version, format.Version)
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
			return h, true, fmt.Errorf("%w: the store has records of kind %d, which this program does not know: it was written by a newer skein; use that one", ErrFormat, k)
		}
	}
	return h, true, nil
}

// Header reads the header of a store that holds a whole graph.
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

// NotImporting makes sure that no import was begun and not finished.
func NotImporting(r kv.Reader) error {
	_, importing, err := r.Get(format.KeyImport)
	if err == nil && importing {
		err = errors.New("an import into this store was not finished: run skein import again, from the beginning")
	}
	return err
}

// Account reads the state of an account, the zero state if there is none.
func Account(r kv.Reader, l format.Layout, actor dict.ID) (format.RepoState, error) {
	s, _, err := FindAccount(r, l, actor)
	return s, err
}

// FindAccount reads the state of an account, and reports whether there is one.
func FindAccount(r kv.Reader, l format.Layout, actor dict.ID) (s format.RepoState, found bool, err error) {
	v, ok, err := r.Get(l.AccountKey(nil, actor))
	if err != nil || !ok {
		return s, false, err
	}
	return l.AccountIn(v, actor)
}
