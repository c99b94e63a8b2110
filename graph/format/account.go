package format

import (
	"encoding/binary"
	"errors"
	"fmt"

	"skein.blue/intern/dict"
	"skein.blue/internal/syntax"
)

// A Rev is the revision of a repo: the number of a TID, which compare as it.
type Rev uint64

// NoRev is the highest TID: that of no commit that another comes after.
const NoRev Rev = 1<<64 - 1

// String returns the TID.
func (r Rev) String() string { return string(syntax.AppendTID(nil, uint64(r))) }

// A Root is what is kept of a repo's root: the first 8 bytes of its CID's SHA-256. Two
// roots that differ agree in them once in 2^64; an account that makes its own
// agree hides nothing but its own repo's being desynchronized.
type Root [8]byte

// The states of accounts are kept in groups of 256 neighbouring ids, which are
// those of accounts that were met about the same time, as package intern keeps
// their DIDs: a batch of events changes most accounts that are awake, and a write
// of some hundred bytes to a group costs little more than one to a row of its own
// (docs/decisions/0006). A group is, by id, ascending,
//
//	the id's lowest eight bits (1), the row's length (1), the row (repoState)
//
// An operand and a stored group have the same form; of what is said of one
// account, the newest stands. In a store that several processes write, which is
// FoundationDB, a merge of more than some bytes reads what it merges into: there
// an account is a group of its own, with 0 for the bits, and is set.
const accountBits = 8

// AppendAccount appends an account to its group.
func (l Layout) AppendAccount(dst []byte, actor dict.ID, s *RepoState) []byte {
	start := len(dst) + 2
	dst = s.Append(append(dst, byte(actor&l.AccountMask()), 0))
	dst[start-1] = byte(len(dst) - start) // at most 77
	return dst
}

// EachAccount calls each for the accounts of a group, with their lowest bits and
// rows, until it returns false.
func EachAccount(v []byte, each func(low byte, row []byte) bool) error {
	for last := -1; len(v) > 0; {
		if len(v) < 2 || len(v) < 2+int(v[1]) || int(v[0]) <= last {
			return fmt.Errorf("format: group of accounts is malformed at %x", v)
		}
		n := 2 + int(v[1])
		if !each(v[0], v[2:n:n]) {
			return nil
		}
		last, v = int(v[0]), v[n:]
	}
	return nil
}

// AccountIn returns the state of an account, and whether the group has it.
func (l Layout) AccountIn(v []byte, actor dict.ID) (s RepoState, ok bool, err error) {
	at := byte(actor & l.AccountMask())
	var failed error
	err = EachAccount(v, func(low byte, row []byte) bool {
		if ok = low == at; ok {
			s, failed = DecodeRepoState(row)
		}
		return !ok
	})
	return s, ok, errors.Join(err, failed)
}

// EachState calls each for the accounts of a group with their ids and states.
func (l Layout) EachState(key, v []byte, each func(actor dict.ID, s RepoState) error) error {
	first, err := ParseActorKey(key)
	if err != nil {
		return err
	}
	if first&l.AccountMask() != 0 {
		return fmt.Errorf("format: account key %x is that of no group", key)
	}
	var failed error
	err = EachAccount(v, func(low byte, row []byte) bool {
		if dict.ID(low)&^l.AccountMask() != 0 {
			failed = fmt.Errorf("format: group %x has an account at %d", key, low)
			return false
		}
		var s RepoState
		if s, failed = DecodeRepoState(row); failed == nil {
			failed = each(first|dict.ID(low), s)
		}
		return failed == nil
	})
	return errors.Join(err, failed)
}

// foldAccounts appends what the groups in values, oldest first, come to.
func foldAccounts(dst []byte, values [][]byte) ([]byte, error) {
	var rows [1 << accountBits][]byte
	for _, v := range values {
		if err := EachAccount(v, func(low byte, row []byte) bool { rows[low] = row; return true }); err != nil {
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

// RepoState is what is known of one account and its repo. Its row in a group is
//
//	flags(1) uvarint source, uvarint seq      of the last commit, sync or deletion
//	uvarint source, uvarint seq               of the last #account, if flagAccount
//	uvarint source, uvarint seq               of the last deletion, if flagDeleted
//	rev(8) data(8)                            if flagHasRev
//	top(8)                                    if flagAhead
//	low(2)                                    if it is known
//	more flags(1)                             if any is set: the upper eight
//
// top is the highest TID that is, or was, the key of an indexed record, where
// that is above rev. It is seldom: a PDS draws a commit's rev after its keys.
// A new record's key above both is that of no record we have.
//
// low is 1 + the lowest bucket that a record may lie in, where all keys of the
// account's records have been TIDs since it was first heard of, or lowNone if
// there were none. With top, it says where all its records are.
type RepoState struct {
	Flags                 uint16
	Source, AccountSource uint32
	Seq, AccountSeq       Seq
	DeletionSource        uint32
	DeletionSeq           Seq
	Rev                   Rev
	Data                  Root
	Top                   uint64
	LowBucket             uint16
}

// LowNone is the low of an account that never had a record.
const LowNone = 0xffff

// The flags of a RepoState. Those that say that a part of its row is there, append
// sets.
const (
	FlagHasRev  uint16 = 1 << iota // rev and data are those of the last applied commit
	FlagPartial                    // the repo's past was never seen
	FlagDesync                     // something of the repo was missed
	FlagHidden                     // the last #account said active: false
	FlagErasing                    // deleted, and not all of it is erased yet
	flagAccount                    // an #account was seen
	flagDeleted                    // it was deleted once
	flagAhead                      // top is above rev
	FlagResync                     // it has a row in the queue of resyncs (resync.go)
	FlagNoRoot                     // rev is that of an archive's row, and data is not known
	FlagBehind                     // the stream announced a state newer than rev that was not applied
)

// Has reports whether a flag is set.
func (s *RepoState) Has(flag uint16) bool { return s.Flags&flag != 0 }

// Complete reports whether the index has exactly the records of the repo, as far as anyone
// has told it: nothing is known to be missing, and no fetch of the repo is queued or under
// way. A fetch is queued where something may have been missed, and while its snapshot is put
// in place in parts the account holds records of two states.
func (s *RepoState) Complete() bool { return s.Whole() && !s.Has(FlagResync) }

// Whole reports whether nothing of the repo is known to be missing, whether or not it is
// queued to be fetched.
func (s *RepoState) Whole() bool { return s.Flags&(FlagHasRev|FlagPartial|FlagDesync) == FlagHasRev }

// Incomplete reports whether answers about everybody may lack something of the account: it is
// active, and something of it is known to be missing, or in doubt.
func (s *RepoState) Incomplete() bool {
	return s.Flags&(FlagPartial|FlagDesync|FlagResync) != 0 && !s.Has(FlagHidden)
}

// MayHold reports whether the repo may have a record of the path already.
func (s *RepoState) MayHold(p Path) bool {
	return s.Has(FlagHasRev) && (p.Raw != nil || p.TID <= max(uint64(s.Rev), s.Top))
}

// NoteLow notes that a record is put under a path.
func (s *RepoState) NoteLow(p Path) {
	switch {
	case s.LowBucket == 0: // not known
	case p.Raw != nil:
		s.LowBucket = 0
	default:
		s.LowBucket = min(s.LowBucket, p.Bucket()+1)
	}
}

// Buckets returns in which buckets all of the account's records lie, if that is
// known and they are few.
func (s *RepoState) Buckets() (low, high uint16, ok bool) {
	const few = 4
	if s.LowBucket == 0 || s.LowBucket == LowNone || !s.Has(FlagHasRev) {
		return 0, 0, false
	}
	low, high = s.LowBucket-1, Path{TID: max(uint64(s.Rev), s.Top)}.Bucket()
	return low, high, high >= low && high-low < few
}

// Append appends the row.
func (s *RepoState) Append(dst []byte) []byte {
	flags := s.Flags &^ (flagAccount | flagDeleted | flagAhead)
	if s.AccountSource != 0 {
		flags |= flagAccount
	}
	if s.DeletionSource != 0 {
		flags |= flagDeleted
	}
	if s.Has(FlagHasRev) && s.Top > uint64(s.Rev) {
		flags |= flagAhead
	}
	dst = append(dst, byte(flags))
	dst = binary.AppendUvarint(dst, uint64(s.Source))
	dst = binary.AppendUvarint(dst, uint64(s.Seq))
	if flags&flagAccount != 0 {
		dst = binary.AppendUvarint(dst, uint64(s.AccountSource))
		dst = binary.AppendUvarint(dst, uint64(s.AccountSeq))
	}
	if flags&flagDeleted != 0 {
		dst = binary.AppendUvarint(dst, uint64(s.DeletionSource))
		dst = binary.AppendUvarint(dst, uint64(s.DeletionSeq))
	}
	if flags&FlagHasRev != 0 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(s.Rev))
		dst = append(dst, s.Data[:]...)
	}
	if flags&flagAhead != 0 {
		dst = binary.BigEndian.AppendUint64(dst, s.Top)
	}
	if s.LowBucket != 0 {
		dst = binary.BigEndian.AppendUint16(dst, s.LowBucket)
	}
	if more := byte(flags >> 8); more != 0 {
		dst = append(dst, more)
	}
	return dst
}

// DecodeRepoState reads a row.
func DecodeRepoState(v []byte) (s RepoState, err error) {
	bad := func() (RepoState, error) {
		return s, fmt.Errorf("format: account row %x is malformed", v)
	}
	if len(v) == 0 {
		return bad()
	}
	flags, rest := uint16(v[0]), v[1:]
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
	pair(&s.Source, &s.Seq)
	if flags&flagAccount != 0 {
		pair(&s.AccountSource, &s.AccountSeq)
	}
	if flags&flagDeleted != 0 {
		pair(&s.DeletionSource, &s.DeletionSeq)
	}
	if flags&FlagHasRev != 0 {
		if len(rest) < 16 {
			return bad()
		}
		s.Rev = Rev(binary.BigEndian.Uint64(rest))
		copy(s.Data[:], rest[8:])
		rest = rest[16:]
	}
	if flags&flagAhead != 0 {
		if len(rest) < 8 {
			return bad()
		}
		s.Top, rest = binary.BigEndian.Uint64(rest), rest[8:]
	}
	if len(rest) >= 2 {
		s.LowBucket, rest = binary.BigEndian.Uint16(rest), rest[2:]
	}
	if len(rest) == 1 && rest[0] != 0 {
		flags, rest = flags|uint16(rest[0])<<8, nil
	}
	if !ok || len(rest) != 0 || flags >= FlagBehind<<1 || s.LowBucket > RawBucket && s.LowBucket != LowNone {
		return bad()
	}
	s.Flags = flags &^ (flagAccount | flagDeleted | flagAhead)
	return s, nil
}
