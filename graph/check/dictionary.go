package check

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Dictionary reads the whole dictionary and calls report for every violated invariant: it is
// one to one, every string is stored in its only form, every id lies in the used part of a
// leased block. It calls tick for every row, and returns the number of strings by namespace.
//
// The URIs' namespace has the sets of labels, too. It may have other strings only if kinds of t have such
// subjects.
func Dictionary(r kv.Reader, settings dict.Settings, t *kinds.Table, report func(problem string), tick func() error) (strings [len(dict.Namespaces) + 1]int64, err error) {
	v := &dictionary{r: r, settings: settings, forms: []kinds.Form{kinds.ATURI}, report: report, used: map[dict.BlockKey]uint32{}}
	for i := range t.All {
		if f := t.All[i].To.Form; f != kinds.DID && !slices.Contains(v.forms, f) {
			v.forms = append(v.forms, f)
		}
	}
	for _, part := range []struct {
		keyspace byte
		check    func(k, value []byte) error
	}{
		{dict.KeyID, v.id},
		{dict.KeyString, v.string},
		{dict.KeyLease, v.lease},
	} {
		prefix := []byte{part.keyspace}
		err := r.Scan(prefix, kv.PrefixEnd(prefix), false, func(k, value []byte) (bool, error) {
			if err := tick(); err != nil {
				return false, err
			}
			return true, part.check(k, value)
		})
		if err != nil {
			return strings, fmt.Errorf("checking keyspace %q of the dictionary: %w", part.keyspace, err)
		}
	}
	for b := range v.used {
		v.broken("dictionary: %d ids (%s) are in block %d of shard %d, which was never leased", v.used[b], b.Namespace, b.Block, b.Shard)
	}
	return v.strings, nil
}

type dictionary struct {
	r        kv.Reader
	report   func(string)
	settings dict.Settings
	forms    []kinds.Form // of the strings in the URIs' namespace
	strings  [len(dict.Namespaces) + 1]int64
	used     map[dict.BlockKey]uint32 // ids that stand for a string
	key      []byte
	groupKey []byte // the key of group
	group    []byte // the last group read
}

func (v *dictionary) broken(format string, args ...any) { v.report(fmt.Sprintf(format, args...)) }

func (v *dictionary) id(k, value []byte) error {
	id, n := dict.ReadID(value)
	if len(k) < 3 || (dict.Namespace(k[1]) != dict.DID && dict.Namespace(k[1]) != dict.URI) || n == 0 || n != len(value) {
		v.broken("dictionary row %x → %x is malformed", k, value)
		return nil
	}
	ns, form := dict.Namespace(k[1]), k[2:]
	v.strings[ns]++
	named := false
	err := v.stringOf(ns, id, func(back []byte) {
		if named = true; !bytes.Equal(back, form) {
			v.broken("dictionary: %s %x has id %d, which stands for %x", ns, form, id, back)
		}
	})
	if err != nil {
		return err
	}
	if !named {
		v.broken("dictionary: %s %x has id %d, which has no string", ns, form, id)
	}
	if err := v.form(ns, form); err != nil {
		return err
	}
	v.leased(ns, id, form)
	return nil
}

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
			var did []byte
			if err := v.stringOf(dict.DID, author, func(form []byte) { did = dict.AppendDID(nil, form) }); err != nil {
				return err
			}
			if did == nil {
				v.broken("dictionary: the author %d of URI %x has no string", author, form)
				return nil
			}
			s = dict.AppendURI(nil, did, collection, tid)
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
	return ns == dict.DID && kinds.DID.Valid(s) ||
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
	if len(k) < 2 {
		v.broken("dictionary row %x is malformed", k)
		return nil
	}
	first, n := dict.ReadID(k[2:])
	switch {
	case n == 0 || first&dict.GroupMask != 0 || len(k)-2 > n+1:
		v.broken("dictionary row %x is malformed", k)
		return nil
	case len(k)-2 == n+1: // a long string's own row
		return v.names(k[1], value, first|dict.ID(k[len(k)-1]))
	}
	var entries []dict.Entry
	if err := dict.EachEntry(value, func(e *dict.Entry) bool { entries = append(entries, *e); return true }); err != nil {
		v.broken("dictionary row %x: %v", k, err)
		return nil
	}
	if again, err := dict.FoldGroups(nil, [][]byte{value}); err != nil || !bytes.Equal(again, value) {
		v.broken("dictionary row %x is %x; expected %x", k, value, again)
	}
	for i := range entries {
		if entries[i].Kind == dict.KindOwn {
			continue // the string has a row of its own, which is checked later
		}
		if err := v.names(k[1], entries[i].AppendForm(nil), first|dict.ID(entries[i].At)); err != nil {
			return err
		}
	}
	return nil
}

// names checks that a form has the id that stands for it.
func (v *dictionary) names(ns byte, form []byte, id dict.ID) error {
	v.key = append(append(v.key[:0], dict.KeyID, ns), form...)
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
	var l dict.Lease
	if err := l.Decode(k, value); err != nil {
		v.broken("%v", err)
		return nil
	}
	b := l.BlockKey()
	if n := v.used[b]; l.Closed && n != l.Used {
		v.broken("block %d of shard %d (%s) was closed with %d ids used, but %d stand for strings", l.Block, l.Shard, l.Namespace, l.Used, n)
	}
	delete(v.used, b)
	v.key = dict.AppendNextKey(v.key[:0], l.Namespace, l.Shard)
	next, ok, err := v.r.Get(v.key)
	if err == nil && (!ok || len(next) != 8 || binary.BigEndian.Uint64(next) <= l.Block) {
		v.broken("block %d of shard %d (%s) is leased, but the shard's counter is %x", l.Block, l.Shard, l.Namespace, next)
	}
	return err
}
