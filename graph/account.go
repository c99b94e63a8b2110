package graph

import (
	"encoding/binary"
	"errors"
	"fmt"

	"skein/intern/dict"
	"skein/internal/syntax"
)

// A Rev is the revision of a repo: the number of a TID, which compare as it.
type Rev uint64

// noRev is the highest TID: that of no commit that another comes after.
const noRev Rev = 1<<64 - 1

// String returns the TID.
func (r Rev) String() string { return string(syntax.AppendTID(nil, uint64(r))) }

// A Digest is the SHA-256 of a CID. Only the roots of repos are kept by it.
type Digest [32]byte

// A root is what is kept of a repo's root: the first 8 bytes of its Digest. Two
// roots that differ agree in them once in 2^64; an account that makes its own
// agree hides nothing but its own repo's being desynchronized.
type root [8]byte

// The states of accounts are kept in groups of 256 neighbouring ids, which are
// those of accounts that were met about the same time, as package intern keeps
// their DIDs: a batch of events changes most accounts that are awake, and a write
// of some hundred bytes to a group costs little more than one to a row of its own
// (docs/performance.md). A group is, by id, ascending,
//
//	the id's lowest eight bits (1), the row's length (1), the row (repoState)
//
// An operand and a stored group have the same form; of what is said of one
// account, the newest stands. In a store that several processes write, which is
// FoundationDB, a merge of more than some bytes reads what it merges into: there
// an account is a group of its own, with 0 for the bits, and is set.
const accountBits = 8

// accountMask covers the bits of an id that tell the accounts of a group apart.
func (l layout) accountMask() dict.ID {
	if l.shared() {
		return 0
	}
	return 1<<accountBits - 1
}

// appendAccount appends an account to its group.
func (l layout) appendAccount(dst []byte, actor dict.ID, s *repoState) []byte {
	start := len(dst) + 2
	dst = s.append(append(dst, byte(actor&l.accountMask()), 0))
	dst[start-1] = byte(len(dst) - start) // at most 76
	return dst
}

// eachAccount calls each for the accounts of a group, with their lowest bits and
// rows, until it returns false.
func eachAccount(v []byte, each func(low byte, row []byte) bool) error {
	for last := -1; len(v) > 0; {
		if len(v) < 2 || len(v) < 2+int(v[1]) || int(v[0]) <= last {
			return fmt.Errorf("graph: group of accounts is malformed at %x", v)
		}
		n := 2 + int(v[1])
		if !each(v[0], v[2:n:n]) {
			return nil
		}
		last, v = int(v[0]), v[n:]
	}
	return nil
}

// accountIn returns the state of an account, and whether the group has it.
func (l layout) accountIn(v []byte, actor dict.ID) (s repoState, ok bool, err error) {
	at := byte(actor & l.accountMask())
	err = eachAccount(v, func(low byte, row []byte) bool {
		if ok = low == at; ok {
			s, err = decodeRepoState(row)
		}
		return !ok
	})
	return s, ok, err
}

// eachState calls each for the accounts of a group with their ids and states.
func (l layout) eachState(key, v []byte, each func(actor dict.ID, s repoState) error) error {
	first, err := parseActorKey(key)
	if err != nil {
		return err
	}
	if first&l.accountMask() != 0 {
		return fmt.Errorf("graph: account key %x is that of no group", key)
	}
	var failed error
	err = eachAccount(v, func(low byte, row []byte) bool {
		if dict.ID(low)&^l.accountMask() != 0 {
			failed = fmt.Errorf("graph: group %x has an account at %d", key, low)
			return false
		}
		var s repoState
		if s, failed = decodeRepoState(row); failed == nil {
			failed = each(first|dict.ID(low), s)
		}
		return failed == nil
	})
	return errors.Join(err, failed)
}

// foldAccounts appends what the groups in values, oldest first, come to.
func foldAccounts(dst []byte, values [][]byte) ([]byte, error) {
	if len(values) == 1 {
		return append(dst, values[0]...), nil
	}
	var rows [1 << accountBits][]byte
	for _, v := range values {
		if err := eachAccount(v, func(low byte, row []byte) bool { rows[low] = row; return true }); err != nil {
			return nil, err
		}
	}
	for low, row := range rows {
		if row != nil {
			dst = append(append(dst, byte(low), byte(len(row))), row...)
		}
	}
	return dst, nil
}

// repoState is what is known of one account and its repo. Its row in a group is
//
//	flags(1) uvarint source, uvarint seq      of the last commit, sync or deletion
//	uvarint source, uvarint seq               of the last #account, if flagAccount
//	uvarint source, uvarint seq               of the last deletion, if flagDeleted
//	rev(8) data(8)                            if flagHasRev
//	top(8)                                    if flagAhead
//	low(2)                                    if it is known
//
// top is the highest TID that is, or was, the key of an indexed record, where
// that is above rev. It is seldom: a PDS draws a commit's rev after its keys.
// A new record's key above both is that of no record we have.
//
// low is 1 + the lowest bucket that a record may lie in, where all keys of the
// account's records have been TIDs since it was first heard of, or lowNone if
// there were none. With top, it says where all its records are.
type repoState struct {
	flags           byte
	source, acctSrc uint32
	seq, acctSeq    Seq
	delSrc          uint32
	delSeq          Seq
	rev             Rev
	data            root
	top             uint64
	low             uint16
}

// lowNone is the low of an account that never had a record.
const lowNone = 0xffff

const (
	flagHasRev  byte = 1 << iota // rev and data are those of the last applied commit
	flagPartial                  // the repo's past was never seen
	flagDesync                   // something of the repo was missed
	flagHidden                   // the last #account said active: false
	flagErasing                  // deleted, and not all of it is erased yet
	flagAccount                  // an #account was seen
	flagDeleted                  // it was deleted once
	flagAhead                    // top is above rev
)

func (s *repoState) has(flag byte) bool { return s.flags&flag != 0 }

// mayHold reports whether the repo may have a record of the path already.
func (s *repoState) mayHold(p path) bool {
	return s.has(flagHasRev) && (p.raw != nil || p.tid <= max(uint64(s.rev), s.top))
}

// lower notes that a record is put under a path.
func (s *repoState) lower(p path) {
	switch {
	case s.low == 0: // not known
	case p.raw != nil:
		s.low = 0
	default:
		s.low = min(s.low, p.bucket()+1)
	}
}

// buckets returns in which buckets all of the account's records lie, if that is
// known and they are few.
func (s *repoState) buckets() (low, high uint16, ok bool) {
	const few = 4
	if s.low == 0 || s.low == lowNone || !s.has(flagHasRev) {
		return 0, 0, false
	}
	low, high = s.low-1, path{tid: max(uint64(s.rev), s.top)}.bucket()
	return low, high, high >= low && high-low < few
}

func (s *repoState) append(dst []byte) []byte {
	flags := s.flags &^ (flagAccount | flagDeleted | flagAhead)
	if s.acctSrc != 0 {
		flags |= flagAccount
	}
	if s.delSrc != 0 {
		flags |= flagDeleted
	}
	if s.has(flagHasRev) && s.top > uint64(s.rev) {
		flags |= flagAhead
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, uint64(s.source))
	dst = binary.AppendUvarint(dst, uint64(s.seq))
	if flags&flagAccount != 0 {
		dst = binary.AppendUvarint(dst, uint64(s.acctSrc))
		dst = binary.AppendUvarint(dst, uint64(s.acctSeq))
	}
	if flags&flagDeleted != 0 {
		dst = binary.AppendUvarint(dst, uint64(s.delSrc))
		dst = binary.AppendUvarint(dst, uint64(s.delSeq))
	}
	if flags&flagHasRev != 0 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(s.rev))
		dst = append(dst, s.data[:]...)
	}
	if flags&flagAhead != 0 {
		dst = binary.BigEndian.AppendUint64(dst, s.top)
	}
	if s.low != 0 {
		dst = binary.BigEndian.AppendUint16(dst, s.low)
	}
	return dst
}

func decodeRepoState(v []byte) (s repoState, err error) {
	bad := func() (repoState, error) {
		return s, fmt.Errorf("graph: account row %x is malformed", v)
	}
	if len(v) == 0 {
		return bad()
	}
	flags, rest := v[0], v[1:]
	ok := true
	pair := func(source *uint32, seq *Seq) {
		a, n := binary.Uvarint(rest)
		b, m := binary.Uvarint(rest[max(n, 0):])
		if n <= 0 || m <= 0 {
			ok = false
			return
		}
		*source, *seq, rest = uint32(a), Seq(b), rest[n+m:]
	}
	pair(&s.source, &s.seq)
	if flags&flagAccount != 0 {
		pair(&s.acctSrc, &s.acctSeq)
	}
	if flags&flagDeleted != 0 {
		pair(&s.delSrc, &s.delSeq)
	}
	if flags&flagHasRev != 0 {
		if len(rest) < 16 {
			return bad()
		}
		s.rev = Rev(binary.BigEndian.Uint64(rest))
		copy(s.data[:], rest[8:])
		rest = rest[16:]
	}
	if flags&flagAhead != 0 {
		if len(rest) < 8 {
			return bad()
		}
		s.top, rest = binary.BigEndian.Uint64(rest), rest[8:]
	}
	if len(rest) == 2 {
		s.low, rest = binary.BigEndian.Uint16(rest), nil
	}
	if !ok || len(rest) != 0 || s.low > rawBucket && s.low != lowNone {
		return bad()
	}
	s.flags = flags &^ (flagAccount | flagDeleted | flagAhead)
	return s, nil
}
