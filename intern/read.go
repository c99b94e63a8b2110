package intern

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Lookup finds the ids of the strings of b. It does not create any.
func Lookup(r kv.Reader, b *Batch) error {
	for _, ns := range dict.Namespaces {
		if err := b.lookUp(r, b.missing(ns, nil)); err != nil {
			return fmt.Errorf("intern: looking up strings: %w", err)
		}
	}
	return nil
}

// Strings calls each with the string of every id, in order. s is valid only during the call.
// At an id without a string it ends with an error: the store is corrupt. Strings takes one batched read,
// and one more for the authors of URIs.
func Strings(r kv.Reader, ns dict.Namespace, ids []dict.ID, each func(i int, s []byte) error) error {
	if ns == dict.DID {
		var buf []byte
		return forms(r, dict.DID, ids, func(i int, v []byte) error {
			buf = dict.AppendDID(buf[:0], v)
			return each(i, buf)
		})
	}
	type uri struct {
		raw        string // if "", the URI has the fields below
		author     int    // index in authors
		collection byte
		tid        uint64
	}
	uris := make([]uri, len(ids))
	index := make(map[dict.ID]int, len(ids))
	var authors []dict.ID
	err := forms(r, dict.URI, ids, func(i int, v []byte) error {
		tid, author, collection, packed, err := dict.UnpackURI(v)
		if !packed {
			uris[i].raw = string(dict.UnpackRaw(v))
			return err
		}
		n, ok := index[author]
		if !ok {
			n = len(authors)
			index[author] = n
			authors = append(authors, author)
		}
		uris[i] = uri{"", n, collection, tid}
		return err
	})
	if err != nil {
		return err
	}
	dids := make([]string, len(authors))
	err = Strings(r, dict.DID, authors, func(i int, s []byte) error { dids[i] = string(s); return nil })
	if err != nil {
		return err
	}
	var buf []byte
	for i, u := range uris {
		if buf = append(buf[:0], u.raw...); u.raw == "" {
			buf = dict.AppendURI(buf, []byte(dids[u.author]), u.collection, u.tid)
		}
		if err := each(i, buf); err != nil {
			return err
		}
	}
	return nil
}

// Authors calls each with the author of the AT URI of every id, in order, and with its record key as the number of a TID, math.MaxUint64
// if it is none. The author of any other string is dict.None. Authors takes one batched read, and more for the few URIs that are not packed.
func Authors(r kv.Reader, ids []dict.ID, each func(i int, author dict.ID, tid uint64) error) error {
	authors, tids, raw := make([]dict.ID, len(ids)), make([]uint64, len(ids)), map[int]int{}
	var b Batch // of the authors of the URIs in raw
	err := forms(r, dict.URI, ids, func(i int, v []byte) (err error) {
		var packed, ok bool
		if tids[i], authors[i], _, packed, err = dict.UnpackURI(v); packed {
			return err
		}
		s := dict.UnpackRaw(v)
		if tids[i], ok = dict.ParseTID(s[bytes.LastIndexByte(s, '/')+1:]); !ok {
			tids[i] = math.MaxUint64
		}
		if did, ok := dict.AuthorOf(s); ok {
			raw[i] = b.Add(dict.DID, did)
		}
		return nil
	})
	if err == nil {
		err = Lookup(r, &b)
	}
	for i := 0; i < len(ids) && err == nil; i++ {
		if at, ok := raw[i]; ok {
			if authors[i] = b.ID(at); authors[i] == dict.None {
				return fmt.Errorf("intern: the author of URI id %d has no id; run skein check", ids[i])
			}
		}
		err = each(i, authors[i], tids[i])
	}
	return err
}

// EachString calls each with the stored forms of all strings of a namespace and their ids, in no particular order. form is
// valid only during the call.
func EachString(r kv.Reader, ns dict.Namespace, each func(form []byte, id dict.ID) error) error {
	return kv.ScanPrefix(r, []byte{dict.KeyID, byte(ns)}, func(k, v []byte) error {
		id, err := idIn(k, v)
		if err == nil {
			err = each(k[2:], id)
		}
		return err
	})
}

// idIn returns the id in the row of a string.
func idIn(key, value []byte) (dict.ID, error) {
	id, n := dict.ReadID(value)
	if n == 0 || n != len(value) {
		return dict.None, fmt.Errorf("intern: %w: the id under %x is %x", dict.ErrMalformed, key, value)
	}
	return id, nil
}

// EachForm calls each for all ids of a namespace, ascending, with the stored forms of their strings
// (package dict, pack.go). form is valid only during the call.
func EachForm(r kv.Reader, ns dict.Namespace, each func(id dict.ID, form []byte) error) error {
	var group dict.ID
	var long uint64 // the ids of the group whose strings are in rows of their own, which are still to come
	var buf []byte
	return kv.ScanPrefix(r, []byte{dict.KeyString, byte(ns)}, func(key, v []byte) error {
		start, n := dict.ReadID(key[2:])
		switch rest := key[min(2+n, len(key)):]; {
		case n == 0 || len(rest) > 1:
			return fmt.Errorf("intern: %w: the key of a string is %x", dict.ErrMalformed, key)
		case len(rest) == 1 && (start != group || rest[0] > dict.GroupMask || long>>rest[0]&1 == 0):
			return fmt.Errorf("intern: %w: a string of id %d is in no group", dict.ErrMalformed, start|dict.ID(rest[0]))
		case len(rest) == 1: // it was read with its group
			long &^= 1 << rest[0]
			return nil
		}
		group, long = start, 0
		var failed error
		err := dict.EachEntry(v, func(e *dict.Entry) bool {
			id := start | dict.ID(e.At)
			buf = e.AppendForm(buf[:0])
			form, found := buf, true
			if e.Kind == dict.KindOwn {
				long |= 1 << e.At
				form, found, failed = r.Get(dict.AppendOwnKey(nil, ns, id))
			}
			switch {
			case failed != nil:
			case !found:
				failed = noString(ns, id)
			default:
				failed = each(id, form)
			}
			return failed == nil
		})
		return cmp.Or(failed, err)
	})
}

// forms calls each with the stored form of the string of every id, in order, as Strings does. If the ids ascend, it reads each group once.
func forms(r kv.Reader, ns dict.Namespace, ids []dict.ID, each func(i int, form []byte) error) error {
	var keys kv.Keys
	var form []byte
	starts := make([]int, 0, len(ids)+1) // the index in ids at which each group starts
	for i, id := range ids {
		if i == 0 || id&^dict.GroupMask != ids[i-1]&^dict.GroupMask {
			form = dict.AppendGroupKey(form[:0], ns, id)
			keys.Add(form)
			starts = append(starts, i)
		}
	}
	starts = append(starts, len(ids))
	var entries []dict.Entry // of one group
	var at [1 << dict.GroupBits]uint8
	return r.MultiGet(keys.List(), func(k int, v []byte, _ bool) error {
		group := ids[starts[k]:starts[k+1]]
		var missing uint64
		entries = entries[:0]
		for _, id := range group {
			missing |= 1 << (id & dict.GroupMask)
		}
		err := dict.EachEntry(v, func(e *dict.Entry) bool {
			if bit := uint64(1) << e.At; missing&bit != 0 {
				missing &^= bit
				at[e.At] = uint8(len(entries))
				entries = append(entries, *e)
			}
			return missing != 0
		})
		for i := 0; i < len(group) && err == nil; i++ {
			n := group[i] & dict.GroupMask
			if missing>>n&1 != 0 {
				return noString(ns, group[i])
			}
			e := &entries[at[n]]
			form = e.AppendForm(form[:0])
			if e.Kind == dict.KindOwn {
				own, ok, err := r.Get(dict.AppendOwnKey(nil, ns, group[i]))
				if err == nil && !ok {
					err = noString(ns, group[i])
				}
				if err != nil {
					return err
				}
				form = append(form, own...) // each may use the Reader
			}
			err = each(starts[k]+i, form)
		}
		return err
	})
}

// ErrNoString is the error for an id that has no string in the state that is read.
var ErrNoString = errors.New("has no string")

func noString(ns dict.Namespace, id dict.ID) error {
	return fmt.Errorf("intern: %s id %d %w; run skein check", ns, id, ErrNoString)
}
