package check

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
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
// It reads the two directions each in its own order, and compares the sums of the hashes of their rows. Only
// if these differ does it look up single strings and ids, to find the wrong ones.
type dictionary struct {
	pass

	settings dict.Settings
	forms    []kinds.Form             // of the strings in the URIs' namespace
	used     map[dict.BlockKey]uint32 // ids that stand for a string

	// known are the ids that have a string, one bit each: ids are handed out in blocks.
	known             [len(dict.Namespaces) + 1]*roaring64.Bitmap
	seed              uint64
	forward, backward [len(dict.Namespaces) + 1]edgeSum // of the rows of ids, and of strings

	key, buf []byte
	groupKey []byte // the key of group
	group    []byte // the last group read
}

func newDictionary(p pass, settings dict.Settings, t *kinds.Table) *dictionary {
	v := &dictionary{pass: p, settings: settings, forms: []kinds.Form{kinds.ATURI}, used: map[dict.BlockKey]uint32{}, seed: rand.Uint64()}
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

// readIDs reads the ids of strings, compares them with the strings of ids, which were read before, and reads the leases.
func (v *dictionary) readIDs() error {
	if err := v.scan([]byte{dict.KeyID}, v.id); err != nil {
		return err
	}
	for _, ns := range dict.Namespaces {
		if v.forward[ns] == v.backward[ns] {
			continue
		}
		if err := v.scan([]byte{dict.KeyID}, func(k, value []byte) error {
			ns, form, id, ok := parseID(k, value)
			if !ok {
				return nil
			}
			return v.lookUpString(ns, form, id)
		}); err != nil {
			return err
		}
		if err := v.scan([]byte{dict.KeyString}, func(k, value []byte) error {
			return v.eachString(k, value, false, v.lookUpID)
		}); err != nil {
			return err
		}
		break // both namespaces are compared
	}
	if err := v.scan([]byte{dict.KeyLease}, v.lease); err != nil {
		return err
	}
	for b := range v.used {
		v.broken("dictionary: %d ids (%s) are in block %d of shard %d, which was never leased", v.used[b], b.Namespace, b.Block, b.Shard)
	}
	return nil
}

// add adds a string and its id to a sum.
func (v *dictionary) add(s *edgeSum, form []byte, id dict.ID) {
	v.buf = binary.BigEndian.AppendUint64(append(v.buf[:0], form...), uint64(id))
	s.add(v.buf, v.seed)
}

// parseID reads a row of KeyID. ok is false if it is malformed.
func parseID(k, value []byte) (ns dict.Namespace, form []byte, id dict.ID, ok bool) {
	id, n := dict.ReadID(value)
	if len(k) < 3 || (dict.Namespace(k[1]) != dict.DID && dict.Namespace(k[1]) != dict.URI) || n == 0 || n != len(value) {
		return 0, nil, 0, false
	}
	return dict.Namespace(k[1]), k[2:], id, true
}

func (v *dictionary) id(k, value []byte) error {
	ns, form, id, ok := parseID(k, value)
	if !ok {
		v.broken("dictionary row %x → %x is malformed", k, value)
		return nil
	}
	v.add(&v.forward[ns], form, id)
	v.leased(ns, id, form)
	return v.form(ns, form)
}

// lookUpString looks up the string of an id.
func (v *dictionary) lookUpString(ns dict.Namespace, form []byte, id dict.ID) error {
	named := false
	err := v.stringOf(ns, id, func(back []byte) {
		if named = true; !bytes.Equal(back, form) {
			v.broken("dictionary: %s %x has id %d, which stands for %x", ns, form, id, back)
		}
	})
	if err == nil && !named {
		v.broken("dictionary: %s %x has id %d, which has no string", ns, form, id)
	}
	return err
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
			if !v.valid(ns, s) {
				v.broken("dictionary: %q is not valid in namespace %s", s, ns)
				return nil
			}
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

// stringOf calls found with the form of an id's string, if it has one.
func (v *dictionary) stringOf(ns dict.Namespace, id dict.ID, found func(form []byte)) error {
	v.key = dict.AppendGroupKey(v.key[:0], ns, id)
	if !bytes.Equal(v.key, v.groupKey) { // neighbouring ids sometimes follow each other
		group, _, err := v.r.Get(v.key)
		if err != nil {
			return err
		}
		v.groupKey, v.group = append(v.groupKey[:0], v.key...), append(v.group[:0], group...)
	}
	var own bool
	err := dict.EachEntry(v.group, func(e *dict.Entry) bool {
		mine := e.At == uint8(id&dict.GroupMask)
		if own = mine && e.Kind == dict.KindOwn; mine && !own {
			found(e.AppendForm(nil))
		}
		return !mine
	})
	if err != nil {
		v.broken("dictionary row %x: %v", v.key, err)
		return nil
	}
	if !own {
		return nil
	}
	form, ok, err := v.r.Get(dict.AppendOwnKey(nil, ns, id))
	if err == nil && ok {
		found(bytes.Clone(form))
	}
	return err
}

func (v *dictionary) string(k, value []byte) error {
	return v.eachString(k, value, true, func(ns dict.Namespace, form []byte, id dict.ID) error {
		if ns != dict.DID && ns != dict.URI {
			v.broken("dictionary row %x is malformed", k)
			return nil
		}
		v.add(&v.backward[ns], form, id)
		v.known[ns].Add(uint64(id))
		return nil
	})
}

// eachString calls each with the forms in a row of KeyString, and their ids. The first time, it reports what
// is malformed.
func (v *dictionary) eachString(k, value []byte, first bool, each func(ns dict.Namespace, form []byte, id dict.ID) error) error {
	broken := func(format string, args ...any) {
		if first {
			v.broken(format, args...)
		}
	}
	if len(k) < 2 {
		broken("dictionary row %x is malformed", k)
		return nil
	}
	ns := dict.Namespace(k[1])
	group, n := dict.ReadID(k[2:])
	switch {
	case n == 0 || group&dict.GroupMask != 0 || len(k)-2 > n+1:
		broken("dictionary row %x is malformed", k)
		return nil
	case len(k)-2 == n+1: // a long string's own row
		return each(ns, value, group|dict.ID(k[len(k)-1]))
	}
	var entries []dict.Entry
	if err := dict.EachEntry(value, func(e *dict.Entry) bool { entries = append(entries, *e); return true }); err != nil {
		broken("dictionary row %x: %v", k, err)
		return nil
	}
	if again, err := dict.FoldGroups(nil, [][]byte{value}); err != nil || !bytes.Equal(again, value) {
		broken("dictionary row %x is %x; expected %x", k, value, again)
	}
	for i := range entries {
		if entries[i].Kind == dict.KindOwn {
			continue // the string has a row of its own, which is checked later
		}
		if err := each(ns, entries[i].AppendForm(nil), group|dict.ID(entries[i].At)); err != nil {
			return err
		}
	}
	return nil
}

// lookUpID looks up the id of a string.
func (v *dictionary) lookUpID(ns dict.Namespace, form []byte, id dict.ID) error {
	v.key = append(append(v.key[:0], dict.KeyID, byte(ns)), form...)
	back, ok, err := v.r.Get(v.key)
	if err != nil {
		return err
	}
	if got, _ := dict.ReadID(back); !ok || got != id {
		v.broken("dictionary: id %d stands for %x, whose id is %x", id, form, back)
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
