package graph

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein/intern"
	"skein/internal/kv"
)

// Verify reads the whole store and calls report for every invariant that does
// not hold. It needs little memory, and a look-up or two per key. progress,
// which may be nil, is told how many keys have been read. skein check and the
// tests use it.
//
// What it proves: the dictionary is one to one, and every id lies in a leased
// block; records, the same by subject, and the sets agree edge by edge; the
// accounts, the hidden set and the erase jobs agree; the counts are right.
func Verify(ctx context.Context, store kv.Store, report func(problem string), progress func(keys int64)) error {
	return store.View(ctx, func(r kv.Reader) error {
		v := &verifier{
			ctx: ctx, r: r, report: report, progress: progress,
			counts: Counts{}.clone(), hidden: roaring64.New(), erasing: map[intern.ID]bool{},
		}
		return v.run()
	})
}

type verifier struct {
	ctx      context.Context //nolint:containedctx // lives as long as the one call of Verify
	r        kv.Reader
	report   func(string)
	progress func(int64)
	keys     int64
	settings intern.Settings
	counts   Counts
	hidden   *roaring64.Bitmap // by the accounts' rows
	erasing  map[intern.ID]bool
	buf      []byte
}

func (v *verifier) broken(format string, args ...any) { v.report(fmt.Sprintf(format, args...)) }

func (v *verifier) run() error {
	f, ok, err := v.r.Get(keyFormat)
	if err != nil {
		return err
	}
	if !ok || len(f) != 1 || f[0] != formatVersion {
		return fmt.Errorf("%w: %x", ErrFormat, f)
	}
	if v.settings, ok, err = intern.ReadSettings(v.r); err != nil || !ok {
		return fmt.Errorf("graph: the store has no dictionary settings: %w", err)
	}
	// Erase jobs and accounts first: the edges of accounts that are being
	// erased are half gone, and not looked at.
	for _, part := range []struct {
		keyspace byte
		check    func(k, value []byte) error
	}{
		{keyErase, v.eraseJob},
		{keyAccount, v.account},
		{intern.KeyID, v.stringToID},
		{intern.KeyString, v.idToString},
		{intern.KeyLease, v.lease},
		{keyRecord, v.record},
		{keyForward, v.forward},
		{keyReverse, v.reverse},
	} {
		if err := eachWithPrefix(v.r, []byte{part.keyspace}, func(k, value []byte) error {
			if v.keys++; v.keys%65536 == 0 {
				if v.progress != nil {
					v.progress(v.keys)
				}
				if err := v.ctx.Err(); err != nil {
					return err
				}
			}
			return part.check(k, value)
		}); err != nil {
			return fmt.Errorf("graph: checking keyspace %q: %w", part.keyspace, err)
		}
	}
	if err := v.totals(); err != nil {
		return err
	}
	return v.keyspaces()
}

// keyspaces looks for keys that belong to nobody.
func (v *verifier) keyspaces() error {
	const known = "acdefghilmnrsv"
	for lo := []byte{0}; ; {
		var key []byte
		if err := v.r.Scan(lo, nil, false, func(k, _ []byte) (bool, error) { key = bytes.Clone(k); return false, nil }); err != nil {
			return err
		}
		if key == nil {
			return nil
		}
		if bytes.IndexByte([]byte(known), key[0]) < 0 {
			v.broken("key %x belongs to no keyspace", key)
		}
		if lo = kv.PrefixEnd(key[:1]); lo == nil {
			return nil
		}
	}
}

func (v *verifier) get(key []byte) ([]byte, bool, error) { return v.r.Get(key) }

func (v *verifier) eraseJob(k, _ []byte) error {
	if len(k) != 9 {
		v.broken("erase row %x is malformed", k)
		return nil
	}
	v.erasing[intern.ID(binary.BigEndian.Uint64(k[1:]))] = true
	return nil
}

func (v *verifier) account(k, value []byte) error {
	if len(k) != 9 {
		v.broken("account key %x is malformed", k)
		return nil
	}
	id := intern.ID(binary.BigEndian.Uint64(k[1:]))
	st, err := decodeRepoState(value)
	if err != nil {
		v.broken("%v", err)
		return nil
	}
	v.counts.Accounts++
	if st.has(flagHidden) {
		v.counts.Hidden++
		v.hidden.Add(uint64(id))
	}
	if st.has(flagPartial) {
		v.counts.Partial++
	}
	if st.has(flagDesync) {
		v.counts.Desynchronized++
	}
	if st.has(flagErasing) != v.erasing[id] {
		v.broken("account %d: its row says erasing=%v, its job %v", id, st.has(flagErasing), v.erasing[id])
	}
	return v.named(intern.DID, id, "account")
}

// named checks that an id has a string.
func (v *verifier) named(ns intern.Namespace, id intern.ID, what string) error {
	v.buf = binary.BigEndian.AppendUint64(append(v.buf[:0], intern.KeyString, byte(ns)), uint64(id))
	_, ok, err := v.get(v.buf)
	if err == nil && !ok {
		v.broken("%s %d has no string", what, id)
	}
	return err
}

func (v *verifier) stringToID(k, value []byte) error {
	if len(k) < 3 || len(value) != 8 {
		v.broken("dictionary row %x → %x is malformed", k, value)
		return nil
	}
	ns, id := intern.Namespace(k[1]), intern.ID(binary.BigEndian.Uint64(value))
	v.counts.Strings[ns.String()]++
	if (ns != intern.DID && ns != intern.URI) || !ns.Valid(k[2:]) {
		v.broken("dictionary: %q is not valid in namespace %s", k[2:], ns)
	}
	v.buf = append(append(v.buf[:0], intern.KeyString, byte(ns)), value...)
	back, ok, err := v.get(v.buf)
	if err == nil && (!ok || !bytes.Equal(back, k[2:])) {
		v.broken("dictionary: %q has id %d, which stands for %q", k[2:], id, back)
	}
	if err != nil {
		return err
	}
	return v.leased(ns, id)
}

// leased checks that an id lies in a block that was leased, before what a
// clean close said was used.
func (v *verifier) leased(ns intern.Namespace, id intern.ID) error {
	v.buf = intern.AppendLeaseKey(v.buf[:0], ns, v.settings.Shard(id), v.settings.Block(id))
	row, ok, err := v.get(v.buf)
	if err != nil {
		return err
	}
	if !ok {
		v.broken("dictionary: id %d (%s) lies in a block that was never leased", id, ns)
		return nil
	}
	l, err := intern.DecodeLease(v.buf, row)
	if err != nil {
		v.broken("%v", err)
		return nil
	}
	if at := uint32(uint64(id) & uint64(v.settings.LeaseSize-1)); l.Closed && at >= l.Used {
		v.broken("dictionary: id %d (%s) lies beyond the %d used of its block", id, ns, l.Used)
	}
	return nil
}

func (v *verifier) idToString(k, value []byte) error {
	if len(k) != 10 {
		v.broken("dictionary row %x is malformed", k)
		return nil
	}
	v.buf = append(append(v.buf[:0], intern.KeyID, k[1]), value...)
	id, ok, err := v.get(v.buf)
	if err == nil && (!ok || !bytes.Equal(id, k[2:])) {
		v.broken("dictionary: id %x stands for %q, whose id is %x", k[2:], value, id)
	}
	return err
}

func (v *verifier) lease(k, value []byte) error {
	l, err := intern.DecodeLease(k, value)
	if err != nil {
		v.broken("%v", err)
		return nil
	}
	v.buf = intern.AppendNextKey(v.buf[:0], l.Namespace, l.Shard)
	next, ok, err := v.get(v.buf)
	if err == nil && (!ok || len(next) != 8 || binary.BigEndian.Uint64(next) <= l.Block) {
		v.broken("block %d of shard %d (%s) is leased, but the shard's counter says %x", l.Block, l.Shard, l.Namespace, next)
	}
	return err
}

// kindAndActor takes a record or forward key apart; info is nil if it cannot.
func (v *verifier) kindAndActor(k []byte, min int) (info *KindInfo, actor intern.ID) {
	if len(k) <= min {
		v.broken("key %x is too short", k)
		return nil, 0
	}
	if info = Kind(k[1]).Info(); info == nil {
		v.broken("key %x is of an unknown kind", k)
	}
	return info, intern.ID(binary.BigEndian.Uint64(k[2:]))
}

func (v *verifier) record(k, value []byte) error {
	info, actor := v.kindAndActor(k, recordKeyPrefix)
	if info == nil {
		return nil
	}
	v.counts.Records[info.Name]++
	rkey := k[recordKeyPrefix:]
	if !intern.ValidRkey(rkey) {
		v.broken("record %x has an invalid record key %q", k, rkey)
	}
	subject, err := decodeSubject(value)
	if err != nil {
		v.broken("record %x: %v", k, err)
		return nil
	}
	if err := v.named(intern.DID, actor, "actor"); err != nil || subject == intern.None {
		return err
	}
	if err := v.named(info.SubjectIs, subject, "subject"); err != nil {
		return err
	}
	v.buf = appendForwardKey(v.buf[:0], info.Kind, actor, subject, rkey)
	_, ok, err := v.get(v.buf)
	if err == nil && !ok {
		v.broken("%s record %q of actor %d names %d, but is not found by subject", info.Name, rkey, actor, subject)
	}
	return err
}

func (v *verifier) forward(k, _ []byte) error {
	info, actor := v.kindAndActor(k, forwardKeyPrefix)
	if info == nil {
		return nil
	}
	subject := intern.ID(binary.BigEndian.Uint64(k[10:]))
	v.buf = appendRecordKey(v.buf[:0], info.Kind, actor, k[forwardKeyPrefix:])
	value, ok, err := v.get(v.buf)
	if err != nil {
		return err
	}
	if !ok || !bytes.Equal(value, k[10:18]) {
		v.broken("by subject %d there is a %s record %q of actor %d, whose row says %x", subject, info.Name, k[forwardKeyPrefix:], actor, value)
	}
	if v.erasing[actor] {
		return nil
	}
	v.buf = appendReverseKey(v.buf[:0], info.Kind, subject, blockOf(actor))
	set, _, err := v.get(v.buf)
	if err != nil {
		return err
	}
	if has, err := containerHas(set, uint16(actor)); err != nil || !has {
		v.broken("actor %d has a %s record of %d, but is not in the subject's set (%v)", actor, info.Name, subject, err)
	}
	return nil
}

func (v *verifier) reverse(k, value []byte) error {
	base, err := reverseBase(k)
	if err != nil {
		v.broken("%v", err)
		return nil
	}
	members, err := appendMembers(nil, base, value)
	if err != nil {
		v.broken("set %x: %v", k, err)
		return nil
	}
	for i, m := range members {
		if i > 0 && members[i-1] >= m {
			v.broken("set %x is not ascending", k)
			break
		}
	}
	kind, subject := Kind(k[1]), intern.ID(binary.BigEndian.Uint64(k[2:]))
	if kind == hiddenKind {
		for _, m := range members {
			if !v.hidden.Contains(m) {
				v.broken("account %d is in the hidden set, but its row says active", m)
			}
			v.hidden.Remove(m)
		}
		return nil
	}
	if kind.Info() == nil {
		v.broken("set %x is of an unknown kind", k)
		return nil
	}
	for _, m := range members {
		if v.erasing[intern.ID(m)] {
			continue
		}
		has, err := hasForward(v.r, kind, intern.ID(m), subject)
		if err != nil {
			return err
		}
		if !has {
			v.broken("actor %d is in the %s set of %d, but no record of it says so", m, kind, subject)
		}
	}
	return nil
}

func (v *verifier) totals() error {
	if !v.hidden.IsEmpty() {
		v.broken("%d accounts are hidden by their rows, but not in the hidden set", v.hidden.GetCardinality())
	}
	stored, err := readCounts(v.r)
	if err != nil {
		v.broken("%v", err)
		return nil
	}
	if got, want := fmt.Sprintf("%+v", stored), fmt.Sprintf("%+v", v.counts); got != want {
		v.broken("the counts say %s, the store holds %s", got, want)
	}
	return nil
}
