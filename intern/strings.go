package intern

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"skein/internal/kv"
)

// The way back from ids to strings is kept in groups of 64 neighbouring ids,
// which are those of strings that were met about the same time: one row for
// each, merged together as its ids are given. A row is, by id, ascending,
//
//	kind << 6 | the id's lowest six bits (1)
//	kind 0: the 15 bytes of a packed DID
//	kind 1: a post of the shorter form: its 6 bytes and its author's id, each
//	        as the difference to those of the last such in the row, zigzag
//	        uvarint; at first to 0
//	kind 2: uvarint length, another form (pack.go)
//	kind 3: nothing: the form has over 256 bytes, and a row of its own, whose key
//	        is the group's and then the id's lowest six bits (1)
//
// An operand and a stored row have the same form.
const (
	groupBits = 6
	groupMask = 1<<groupBits - 1

	kindPLC  = 0
	kindPost = 1
	kindForm = 2
	kindOwn  = 3

	maxInGroup = 256 // bytes: 64 such are far below what an engine takes
)

// appendGroupKey appends the key of the group that an id's string lies in.
func appendGroupKey(dst []byte, ns Namespace, id ID) []byte {
	return AppendID(append(dst, KeyString, byte(ns)), id&^groupMask)
}

// appendOwnKey appends the key of the row of an id's string that has one.
func appendOwnKey(dst []byte, ns Namespace, id ID) []byte {
	return append(appendGroupKey(dst, ns, id), byte(id&groupMask))
}

// groupEntry is an id's string in a group.
type groupEntry struct {
	id     ID // of an entry to be written
	at     uint8
	kind   uint8
	post   uint64 // of kindPost: the 6 bytes
	author ID
	form   []byte // else
}

var errGroup = errors.New("intern: malformed group of strings")

func zigzag(n uint64) uint64   { return n<<1 ^ uint64(int64(n)>>63) }
func unzigzag(n uint64) uint64 { return n>>1 ^ -(n & 1) }

// entryOf takes the form of a string apart for a group.
func entryOf(ns Namespace, id ID, form []byte) groupEntry {
	e := groupEntry{id: id, at: uint8(id & groupMask), kind: kindForm, form: form}
	switch {
	case ns == DID && len(form) == packedDID:
		e.kind = kindPLC
	case ns == URI && (len(form) == packedPost || len(form) == packedPostLong):
		e.kind, e.post = kindPost, binary.BigEndian.Uint64(form)>>16
		e.author, _ = ReadID(form[6:])
	case len(form) > maxInGroup:
		e.kind = kindOwn
	}
	return e
}

// appendForm appends the form of the string.
func (e *groupEntry) appendForm(dst []byte) []byte {
	if e.kind != kindPost {
		return append(dst, e.form...)
	}
	dst = binary.BigEndian.AppendUint64(dst, e.post<<16)
	return AppendID(dst[:len(dst)-2], e.author)
}

// groupWriter appends entries, which ascend.
type groupWriter struct{ post, author uint64 }

func (w *groupWriter) append(dst []byte, e *groupEntry) []byte {
	dst = append(dst, e.kind<<groupBits|e.at)
	switch e.kind {
	case kindPLC:
		return append(dst, e.form...)
	case kindPost:
		dst = binary.AppendUvarint(dst, zigzag(e.post-w.post))
		dst = binary.AppendUvarint(dst, zigzag(uint64(e.author)-w.author))
		w.post, w.author = e.post, uint64(e.author)
		return dst
	case kindOwn:
		return dst
	}
	return append(binary.AppendUvarint(dst, uint64(len(e.form))), e.form...)
}

// eachEntry calls each for the entries of a group until it returns false.
// Their forms lie in v.
func eachEntry(v []byte, each func(*groupEntry) bool) error {
	var post, author uint64
	for len(v) > 0 {
		e := groupEntry{at: v[0] & groupMask, kind: v[0] >> groupBits}
		v = v[1:]
		switch e.kind {
		case kindPLC:
			if len(v) < packedDID {
				return errGroup
			}
			e.form, v = v[:packedDID:packedDID], v[packedDID:]
		case kindPost:
			p, n := binary.Uvarint(v)
			a, m := binary.Uvarint(v[max(n, 0):])
			if n <= 0 || m <= 0 {
				return errGroup
			}
			post, author, v = post+unzigzag(p), author+unzigzag(a), v[n+m:]
			e.post, e.author = post, ID(author)
		case kindForm:
			l, n := binary.Uvarint(v)
			if n <= 0 || l > uint64(len(v)-n) {
				return errGroup
			}
			e.form, v = v[n:n+int(l):n+int(l)], v[n+int(l):]
		default:
		}
		if !each(&e) {
			return nil
		}
	}
	return nil
}

// FoldStrings appends what the groups in values, oldest first, come to. It is
// the part of the store's Merger that belongs to this package: for keys that
// begin with KeyString.
func FoldStrings(dst []byte, values [][]byte) ([]byte, error) {
	var slots [1 << groupBits]groupEntry
	var found [1 << groupBits]bool
	for _, v := range values {
		if err := eachEntry(v, func(e *groupEntry) bool {
			slots[e.at], found[e.at] = *e, true
			return true
		}); err != nil {
			return nil, err
		}
	}
	var w groupWriter
	for i := range slots {
		if found[i] {
			dst = w.append(dst, &slots[i])
		}
	}
	return dst, nil
}

// Merger folds what this package merges, for stores that hold nothing else.
type Merger struct{}

// Name implements kv.Merger.
func (Merger) Name() string { return "skein.intern.v2" }

// Fold implements kv.Merger.
func (Merger) Fold(dst, _ []byte, values [][]byte, _ bool) ([]byte, error) {
	return FoldStrings(dst, values)
}

// A maker writes strings with their new ids, both ways.
type maker struct {
	entries []groupEntry
	buf     []byte
}

// add writes string to id, and keeps the way back for write. form must live
// until then.
func (m *maker) add(tx kv.Txn, ns Namespace, id ID, key []byte) {
	m.buf = AppendID(m.buf[:0], id)
	tx.Set(key, m.buf)
	m.entries = append(m.entries, entryOf(ns, id, key[2:]))
}

// write merges the way back into the groups.
func (m *maker) write(tx kv.Txn, ns Namespace) {
	if !slices.IsSortedFunc(m.entries, compareEntries) {
		slices.SortFunc(m.entries, compareEntries)
	}
	var key, value []byte
	for entries := m.entries; len(entries) > 0; {
		var w groupWriter
		value = value[:0]
		group := entries[0].id &^ groupMask
		for ; len(entries) > 0 && entries[0].id&^groupMask == group; entries = entries[1:] {
			e := &entries[0]
			value = w.append(value, e)
			if e.kind == kindOwn {
				tx.Set(appendOwnKey(nil, ns, e.id), e.form)
			}
		}
		key = appendGroupKey(key[:0], ns, group)
		tx.Merge(key, value)
	}
	m.entries = m.entries[:0]
}

func compareEntries(x, y groupEntry) int { return cmp.Compare(x.id, y.id) }

// forms reads the stored forms of the strings of ids, each group once if they
// ascend.
func forms(r kv.Reader, ns Namespace, ids []ID, each func(i int, form []byte) error) error {
	buf := make([]byte, 0, 11*len(ids))
	keys := make([][]byte, 0, len(ids))
	starts := make([]int, 0, len(ids)+1) // of each group, in ids
	for i, id := range ids {
		if i > 0 && id&^groupMask == ids[i-1]&^groupMask {
			continue
		}
		start := len(buf)
		buf = appendGroupKey(buf, ns, id)
		keys = append(keys, buf[start:len(buf):len(buf)])
		starts = append(starts, i)
	}
	starts = append(starts, len(ids))
	type span struct{ start, end int }
	var arena []byte
	spans := make([]span, len(ids))
	var own []int
	err := r.MultiGet(keys, func(k int, v []byte, _ bool) error {
		for i := starts[k]; i < starts[k+1]; i++ {
			var found bool
			err := eachEntry(v, func(e *groupEntry) bool {
				if found = e.at == uint8(ids[i]&groupMask); found {
					start := len(arena)
					arena = e.appendForm(arena)
					spans[i] = span{start, len(arena)}
					if e.kind == kindOwn {
						own = append(own, i)
					}
				}
				return !found
			})
			if err == nil && !found {
				err = noString(ns, ids[i])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, i := range own {
		v, ok, err := r.Get(appendOwnKey(nil, ns, ids[i]))
		if err != nil || !ok {
			return errors.Join(err, noString(ns, ids[i]))
		}
		start := len(arena)
		arena = append(arena, v...)
		spans[i] = span{start, len(arena)}
	}
	for i, s := range spans {
		if err := each(i, arena[s.start:s.end]); err != nil {
			return err
		}
	}
	return nil
}

func noString(ns Namespace, id ID) error {
	return fmt.Errorf("intern: %s id %d has no string; run skein check", ns, id)
}

// Named reports whether an id has a string.
func Named(r kv.Reader, ns Namespace, id ID) (found bool, err error) {
	v, _, err := r.Get(appendGroupKey(nil, ns, id))
	if err != nil {
		return false, err
	}
	err = eachEntry(v, func(e *groupEntry) bool {
		found = found || e.at == uint8(id&groupMask)
		return !found
	})
	return found, err
}
