package check

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// dictionary checks the dictionary: it is one to one, every string is stored in its only form, every id lies in the used
// part of a leased block. The author of every AT URI has an id.
//
// The URIs' namespace has the sets of labels, too. It may have other strings only if kinds have such
// subjects.
//
// It reads the two directions each in its own order (comparison).
type dictionary struct {
	pass

	settings dict.Settings
	forms    []kinds.Form             // of the strings in the URIs' namespace
	used     map[dict.BlockKey]uint32 // ids that stand for a string

	// known are the ids that have a string, one bit each: ids are handed out in blocks.
	known [len(dict.Namespaces) + 1]*roaring64.Bitmap
	ids   [len(dict.Namespaces) + 1]int64 // of strings
	rows  *comparison
	own   []dict.ID // of the last group: those whose strings have rows of their own, which come next

	key, buf []byte
}

func newDictionary(p pass, settings dict.Settings, t *kinds.Table, rows *comparison) *dictionary {
	v := &dictionary{pass: p, settings: settings, forms: []kinds.Form{kinds.ATURI}, used: map[dict.BlockKey]uint32{}, rows: rows}
	for i := range t.All {
		if f := t.All[i].To.Form; f != kinds.DID && !slices.Contains(v.forms, f) {
			v.forms = append(v.forms, f)
		}
	}
	for _, ns := range dict.Namespaces {
		v.known[ns] = roaring64.New()
	}
	return v
}

// readIDs reads the ids of strings, and the leases.
func (v *dictionary) readIDs() error {
	if err := cmp.Or(v.scan([]byte{dict.KeyID}, v.id), v.scan([]byte{dict.KeyLease}, v.lease)); err != nil {
		return err
	}
	for b := range v.used {
		v.broken("dictionary: %d ids (%s) are in block %d of shard %d, which was never leased", v.used[b], b.Namespace, b.Block, b.Shard)
	}
	return nil
}

// both reads the strings of ids and the ids of strings again.
func (v *dictionary) both() error {
	return cmp.Or(v.scan([]byte{dict.KeyString}, v.string), v.scan([]byte{dict.KeyID}, v.id))
}

// add adds a string and its id.
func (v *dictionary) add(side int, ns dict.Namespace, form []byte, id dict.ID) {
	v.buf = binary.BigEndian.AppendUint64(append(append(v.buf[:0], byte(ns)), form...), uint64(id))
	v.rows.add(side, v.buf)
}

// id checks a row of KeyID.
func (v *dictionary) id(k, value []byte) error {
	id, n := dict.ReadID(value)
	if len(k) < 3 || dict.Namespace(k[1]) != dict.DID && dict.Namespace(k[1]) != dict.URI || n == 0 || n != len(value) {
		v.broken("dictionary row %x → %x is malformed", k, value)
		return nil
	}
	ns, form := dict.Namespace(k[1]), k[2:]
	v.ids[ns]++
	v.add(0, ns, form, id)
	v.leased(ns, id, form)
	return v.form(ns, form)
}

// anyDID stands for the author of a URI: the form of a URI does not depend on it.
var anyDID = []byte("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa")

// form checks that a form belongs to a valid string, and is the string's only form.
func (v *dictionary) form(ns dict.Namespace, form []byte) error {
	var s, again []byte
	if ns == dict.DID {
		s = dict.AppendDID(nil, form)
		again = dict.PackDID(nil, s)
	} else {
		tid, author, collection, packed, err := dict.UnpackURI(form)
		if err != nil {
			v.broken("%v", err)
			return nil
		}
		if packed {
			if !v.known[dict.DID].Contains(uint64(author)) {
				v.broken("dictionary: the author %d of URI %x has no string", author, form)
				return nil
			}
			s = dict.AppendURI(nil, anyDID, collection, tid)
			if p, ok := dict.SplitURI(s); ok {
				again = dict.AppendPackedURI(nil, p.TID, author, p.Collection)
			}
		} else {
			s = dict.UnpackRaw(form)
			if _, ok := dict.SplitURI(s); !ok {
				again = dict.AppendRaw(nil, ns, s)
			}
			if did, ok := dict.AuthorOf(s); ok {
				v.key = dict.PackDID(append(v.key[:0], dict.KeyID, byte(dict.DID)), did)
				if _, ok, err := v.r.Get(v.key); err != nil {
					return err
				} else if !ok {
					v.broken("dictionary: the author of URI %q has no id", s)
				}
			}
		}
	}
	if !v.valid(ns, s) {
		v.broken("dictionary: %q is not valid in namespace %s", s, ns)
	} else if !bytes.Equal(form, again) {
		v.broken("dictionary: %q is stored as %x; expected %x", s, form, again)
	}
	return nil
}

// valid reports whether a string may be in a namespace.
func (v *dictionary) valid(ns dict.Namespace, s []byte) bool {
	return ns == dict.DID && dict.ValidDID(s) ||
		ns == dict.URI && (kinds.ValidLabelSet(s) || slices.ContainsFunc(v.forms, func(f kinds.Form) bool { return f.Valid(s) }))
}

// leased counts an id as used, for the check of its lease, and checks its partition.
func (v *dictionary) leased(ns dict.Namespace, id dict.ID, form []byte) {
	v.used[v.settings.BlockOf(ns, id)]++
	if ns != dict.DID || v.settings.Partitions == 1 {
		return
	}
	if len(form) != dict.PackedDIDLen {
		form = dict.UnpackRaw(form)
	}
	if want, got := v.settings.PartitionOfForm(form), v.settings.PartitionOfID(id); want != got {
		v.broken("dictionary: DID %x is in partition %d, its id %d in %d", form, want, id, got)
	}
}

// string checks a row of KeyString.
func (v *dictionary) string(k, value []byte) error {
	if len(k) < 2 || dict.Namespace(k[1]) != dict.DID && dict.Namespace(k[1]) != dict.URI {
		v.broken("dictionary row %x is malformed", k)
		return nil
	}
	ns := dict.Namespace(k[1])
	group, n := dict.ReadID(k[2:])
	add := func(form []byte, low uint8) {
		if v.add(1, ns, form, group|dict.ID(low)); v.rows.left == nil { // else it is known, and others ask
			v.known[ns].Add(uint64(group) | uint64(low))
		}
	}
	switch {
	case n == 0 || group&dict.GroupMask != 0 || len(k)-2 > n+1:
		v.broken("dictionary row %x is malformed", k)
		return nil
	case len(k)-2 == n+1: // a long string's own row
		if id := group | dict.ID(k[len(k)-1]); !slices.Contains(v.own, id) {
			v.broken("dictionary: the group of id %d does not say that its string has a row of its own", id)
		}
		add(value, k[len(k)-1])
		return nil
	}
	var entries []dict.Entry
	if err := dict.EachEntry(value, func(e *dict.Entry) bool { entries = append(entries, *e); return true }); err != nil {
		v.broken("dictionary row %x: %v", k, err)
		return nil
	}
	if again, err := dict.FoldGroups(nil, [][]byte{value}); err != nil || !bytes.Equal(again, value) {
		v.broken("dictionary row %x is %x; expected %x", k, value, again)
	}
	v.own = v.own[:0]
	for i := range entries {
		if entries[i].Kind == dict.KindOwn {
			v.own = append(v.own, group|dict.ID(entries[i].At))
		} else {
			add(entries[i].AppendForm(nil), entries[i].At)
		}
	}
	return nil
}

func (v *dictionary) lease(k, value []byte) error {
	l, err := dict.DecodeLease(k, value)
	if err != nil {
		v.broken("%v", err)
		return nil
	}
	delete(v.used, l.BlockKey)
	v.key = dict.AppendNextKey(v.key[:0], l.Namespace, l.Shard)
	next, ok, err := v.r.Get(v.key)
	if err == nil && (!ok || len(next) != 8 || binary.BigEndian.Uint64(next) <= l.Block) {
		v.broken("block %d of shard %d (%s) is leased, but the shard's counter is %x", l.Block, l.Shard, l.Namespace, next)
	}
	return err
}
