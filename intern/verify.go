package intern

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"skein/internal/kv"
)

// Verify reads the whole dictionary and calls report for every invariant that
// does not hold: it is one to one, every form is the only one of its string,
// every id lies in the used part of a leased block. tick is called with every
// row. It returns how many strings there are, by namespace.
func Verify(r kv.Reader, report func(problem string), tick func() error) (strings [len(Namespaces) + 1]int64, err error) {
	v := &verifier{r: r, report: report, used: map[blockKey]uint32{}}
	var found bool
	if v.settings, found, err = ReadSettings(r); err != nil || !found {
		return strings, errors.Join(errors.New("intern: the store has no dictionary"), err)
	}
	for _, part := range []struct {
		keyspace byte
		check    func(k, value []byte) error
	}{
		{KeyID, v.id},
		{KeyString, v.string},
		{KeyLease, v.lease},
	} {
		prefix := []byte{part.keyspace}
		err := r.Scan(prefix, kv.PrefixEnd(prefix), false, func(k, value []byte) (bool, error) {
			if err := tick(); err != nil {
				return false, err
			}
			return true, part.check(k, value)
		})
		if err != nil {
			return strings, fmt.Errorf("intern: checking keyspace %q: %w", part.keyspace, err)
		}
	}
	for b := range v.used {
		v.broken("dictionary: %d ids (%s) lie in block %d of shard %d, which was never leased", v.used[b], b.ns, b.block, b.shard)
	}
	return v.strings, nil
}

// blockKey names a block of ids.
type blockKey struct {
	ns    Namespace
	shard uint32
	block uint64
}

type verifier struct {
	r        kv.Reader
	report   func(string)
	settings Settings
	strings  [len(Namespaces) + 1]int64
	used     map[blockKey]uint32 // ids that stand for a string
	key      []byte
	groupKey []byte // of the group read last
	group    []byte
}

func (v *verifier) broken(format string, args ...any) { v.report(fmt.Sprintf(format, args...)) }

func (v *verifier) id(k, value []byte) error {
	id, n := ReadID(value)
	if len(k) < 3 || (Namespace(k[1]) != DID && Namespace(k[1]) != URI) || n == 0 || n != len(value) {
		v.broken("dictionary row %x → %x is malformed", k, value)
		return nil
	}
	ns, form := Namespace(k[1]), k[2:]
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

// form checks that a form is that of a valid string, and its only one.
func (v *verifier) form(ns Namespace, form []byte) error {
	var s, again []byte
	if ns == DID {
		s = appendUnpackedDID(nil, form)
		again = appendPackedDID(nil, s)
	} else {
		tid, author, collection, packed, err := unpackURI(form)
		if err != nil {
			v.broken("%v", err)
			return nil
		}
		if packed {
			var did []byte
			if err := v.stringOf(DID, author, func(form []byte) { did = appendUnpackedDID(nil, form) }); err != nil {
				return err
			}
			if did == nil {
				v.broken("dictionary: the author %d of URI %x has no string", author, form)
				return nil
			}
			s = appendURI(nil, did, collection, tid)
			if p, ok := splitURI(s); ok {
				again = appendPackedURI(nil, p.tid, author, p.collection)
			}
		} else {
			s = unpackRaw(form)
			if !ns.Valid(s) {
				v.broken("dictionary: %q is not valid in namespace %s", s, ns)
				return nil
			}
			if _, ok := splitURI(s); !ok {
				again = appendRaw(nil, ns, s)
			}
		}
	}
	if !ns.Valid(s) {
		v.broken("dictionary: %q is not valid in namespace %s", s, ns)
	} else if !bytes.Equal(form, again) {
		v.broken("dictionary: %q lies as %x, it should be %x", s, form, again)
	}
	return nil
}

// leased notes that an id is used, for the check of its lease.
func (v *verifier) leased(ns Namespace, id ID, form []byte) {
	v.used[blockKey{ns, v.settings.Shard(id), v.settings.Block(id)}]++
	if ns != DID || v.settings.Partitions == 1 {
		return
	}
	if len(form) != packedDID {
		form = unpackRaw(form)
	}
	if want, got := v.settings.partitionOfForm(form), v.settings.PartitionOfID(id); want != got {
		v.broken("dictionary: DID %x is of partition %d, its id %d of %d", form, want, id, got)
	}
}

// stringOf calls found with the form of an id's string, if it has one.
func (v *verifier) stringOf(ns Namespace, id ID, found func(form []byte)) error {
	v.key = appendGroupKey(v.key[:0], ns, id)
	if !bytes.Equal(v.key, v.groupKey) { // ids of neighbours come one after the other, now and then
		group, _, err := v.r.Get(v.key)
		if err != nil {
			return err
		}
		v.groupKey, v.group = append(v.groupKey[:0], v.key...), append(v.group[:0], group...)
	}
	var own bool
	err := eachEntry(v.group, func(e *groupEntry) bool {
		mine := e.at == uint8(id&groupMask)
		if own = mine && e.kind == kindOwn; mine && !own {
			found(e.appendForm(nil))
		}
		return !mine
	})
	if err != nil || !own {
		return err
	}
	form, ok, err := v.r.Get(appendOwnKey(nil, ns, id))
	if err == nil && ok {
		found(bytes.Clone(form))
	}
	return err
}

func (v *verifier) string(k, value []byte) error {
	first, n := ReadID(k[2:])
	switch {
	case n == 0 || first&groupMask != 0 || len(k)-2 > n+1:
		v.broken("dictionary row %x is malformed", k)
		return nil
	case len(k)-2 == n+1: // a long string's own row
		return v.names(k[1], value, first|ID(k[len(k)-1]))
	}
	var entries []groupEntry
	if err := eachEntry(value, func(e *groupEntry) bool { entries = append(entries, *e); return true }); err != nil {
		v.broken("dictionary row %x: %v", k, err)
		return nil
	}
	if again, err := FoldStrings(nil, [][]byte{value}); err != nil || !bytes.Equal(again, value) {
		v.broken("dictionary row %x is %x, it should be %x", k, value, again)
	}
	for i := range entries {
		if entries[i].kind == kindOwn {
			continue // its row is checked by itself
		}
		if err := v.names(k[1], entries[i].appendForm(nil), first|ID(entries[i].at)); err != nil {
			return err
		}
	}
	return nil
}

// names checks that a form has the id that stands for it.
func (v *verifier) names(ns byte, form []byte, id ID) error {
	v.key = append(append(v.key[:0], KeyID, ns), form...)
	back, ok, err := v.r.Get(v.key)
	if err != nil {
		return err
	}
	if got, _ := ReadID(back); !ok || got != id {
		v.broken("dictionary: id %d stands for %x, whose id is %x", id, form, back)
	}
	return nil
}

func (v *verifier) lease(k, value []byte) error {
	var l Lease
	if err := l.decode(k, value); err != nil {
		v.broken("%v", err)
		return nil
	}
	b := blockKey{l.Namespace, l.Shard, l.Block}
	if n := v.used[b]; l.Closed && n != l.Used {
		v.broken("block %d of shard %d (%s) was closed with %d ids used, and %d stand for strings", l.Block, l.Shard, l.Namespace, l.Used, n)
	}
	delete(v.used, b)
	v.key = AppendNextKey(v.key[:0], l.Namespace, l.Shard)
	next, ok, err := v.r.Get(v.key)
	if err == nil && (!ok || len(next) != 8 || binary.BigEndian.Uint64(next) <= l.Block) {
		v.broken("block %d of shard %d (%s) is leased, but the shard's counter says %x", l.Block, l.Shard, l.Namespace, next)
	}
	return err
}
