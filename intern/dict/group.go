package dict

import (
	"cmp"
	"encoding/binary"
)

// The strings of 64 neighbouring ids are a group, which is one row. Such strings were first
// seen at about the same time, and their entries are merged into the row as they get their
// ids. A row is, ascending by id,
//
//	kind << 6 | the id's lowest six bits (1)
//	kind 0: the 15 bytes of a packed DID
//	kind 1: a post of the shorter form: its 6 bytes and its author's id, each as
//	        the difference to the previous such entry in the row, zigzag uvarint;
//	        for the first, to 0
//	kind 2: uvarint length, another form (pack.go)
//	kind 3: nothing: the form has over 256 bytes and a row of its own, under the
//	        group's key followed by the id's lowest six bits (1)
//
// An operand and a stored row have the same form.
const (
	GroupBits = 6
	GroupMask = 1<<GroupBits - 1

	KindPLC  = 0
	kindPost = 1
	kindForm = 2
	KindOwn  = 3

	maxInGroup = 256 // bytes; 64 times as much is far below the limits of all engines
)

// AppendGroupKey appends the key of the group that has an id's string.
func AppendGroupKey(dst []byte, ns Namespace, id ID) []byte {
	return AppendID(append(dst, KeyString, byte(ns)), id&^GroupMask)
}

// AppendOwnKey appends the key of the row that a long string has of its own.
func AppendOwnKey(dst []byte, ns Namespace, id ID) []byte {
	return append(AppendGroupKey(dst, ns, id), byte(id&GroupMask))
}

// Entry is an id's string in a group.
type Entry struct {
	ID     ID     // only in an entry to write
	At     uint8  // the id's lowest six bits
	Kind   uint8  // how the row stores the string
	post   uint64 // the 6 bytes of kindPost
	author ID     // of kindPost
	Form   []byte // of any other kind
}

// ErrGroup is returned for a malformed group of strings.
var ErrGroup error = Malformed("dict: malformed group of strings")

// Zigzag maps differences near 0, positive and negative, to small numbers.
func Zigzag(n uint64) uint64 { return n<<1 ^ uint64(int64(n)>>63) }

// Unzigzag is the inverse of Zigzag.
func Unzigzag(n uint64) uint64 { return n>>1 ^ -(n & 1) }

// EntryOf makes the entry of a string from its form.
func EntryOf(ns Namespace, id ID, form []byte) Entry {
	e := Entry{ID: id, At: uint8(id & GroupMask), Kind: kindForm, Form: form}
	switch {
	case ns == DID && len(form) == PackedDIDLen:
		e.Kind = KindPLC
	case ns == URI && (len(form) == packedPost || len(form) == packedPostLong):
		e.Kind, e.post = kindPost, binary.BigEndian.Uint64(form)>>16
		e.author, _ = ReadID(form[6:])
	case len(form) > maxInGroup:
		e.Kind = KindOwn
	}
	return e
}

// AppendForm appends the form of the string.
func (e *Entry) AppendForm(dst []byte) []byte {
	if e.Kind != kindPost {
		return append(dst, e.Form...)
	}
	dst = binary.BigEndian.AppendUint64(dst, e.post<<16)
	return AppendID(dst[:len(dst)-2], e.author)
}

// GroupWriter appends entries, which must ascend by id.
type GroupWriter struct{ post, author uint64 }

// Append appends an entry.
func (w *GroupWriter) Append(dst []byte, e *Entry) []byte {
	dst = append(dst, e.Kind<<GroupBits|e.At)
	switch e.Kind {
	case KindPLC:
		return append(dst, e.Form...)
	case kindPost:
		dst = binary.AppendUvarint(dst, Zigzag(e.post-w.post))
		dst = binary.AppendUvarint(dst, Zigzag(uint64(e.author)-w.author))
		w.post, w.author = e.post, uint64(e.author)
		return dst
	case KindOwn:
		return dst
	}
	return append(binary.AppendUvarint(dst, uint64(len(e.Form))), e.Form...)
}

// EachEntry calls each for the entries of a group, until each returns false. Their forms point
// into v.
func EachEntry(v []byte, each func(*Entry) bool) error {
	var post, author uint64
	e := new(Entry) // one for all entries: each may copy it
	for len(v) > 0 {
		*e = Entry{At: v[0] & GroupMask, Kind: v[0] >> GroupBits}
		v = v[1:]
		switch e.Kind {
		case KindPLC:
			if len(v) < PackedDIDLen {
				return ErrGroup
			}
			e.Form, v = v[:PackedDIDLen:PackedDIDLen], v[PackedDIDLen:]
		case kindPost:
			p, n := binary.Uvarint(v)
			a, m := binary.Uvarint(v[max(n, 0):])
			if n <= 0 || m <= 0 {
				return ErrGroup
			}
			post, author, v = post+Unzigzag(p), author+Unzigzag(a), v[n+m:]
			e.post, e.author = post, ID(author)
		case kindForm:
			l, n := binary.Uvarint(v)
			if n <= 0 || l > uint64(len(v)-n) {
				return ErrGroup
			}
			e.Form, v = v[n:n+int(l):n+int(l)], v[n+int(l):]
		default:
		}
		if !each(e) {
			return nil
		}
	}
	return nil
}

// FoldGroups appends the group that the groups in values, oldest first, fold to. The store's
// Merger calls it for keys that begin with KeyString.
func FoldGroups(dst []byte, values [][]byte) ([]byte, error) {
	var slots [1 << GroupBits]Entry
	var found [1 << GroupBits]bool
	for _, v := range values {
		if err := EachEntry(v, func(e *Entry) bool {
			slots[e.At], found[e.At] = *e, true
			return true
		}); err != nil {
			return nil, err
		}
	}
	var w GroupWriter
	for i := range slots {
		if found[i] {
			dst = w.Append(dst, &slots[i])
		}
	}
	return dst, nil
}

// CompareEntries orders entries by id.
func CompareEntries(x, y Entry) int { return cmp.Compare(x.ID, y.ID) }
