package format

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A Rev is the revision of a repo: the number of its TID, which sorts like the TID.
type Rev uint64

// NoRev is the highest TID. No commit that has a successor has it.
const NoRev Rev = 1<<64 - 1

// maxAhead is how far ahead of the present a rev may be. indigo's relay and Bluesky's own
// index allow the same.
const maxAhead = 5 * time.Minute

// LatestRev returns the highest rev that is believed at a time. The author of a commit chooses its rev, and one
// of the far future would order everything after it: all later commits would be replays. Pass
// the later of the clock and the times of the stream: a machine may begin with no clock.
func LatestRev(now time.Time) Rev { return Rev(max(now.Add(maxAhead).UnixMicro(), 0)) << 10 }

// String returns the TID.
func (r Rev) String() string { return string(dict.AppendTID(nil, uint64(r))) }

// A Root identifies the root of a repo: the first 8 bytes of its CID's SHA-256. Two
// different roots agree with probability 2^-64. An account that forges such a pair hides
// only that its own repo is desynchronized.
type Root [8]byte

// The states of accounts lie in
// groups of 256 neighbouring ids (dict.Settings.Group). Those belong to accounts that were first seen at about the
// same time; package intern groups their DIDs the same way. A batch of events changes most
// accounts that are awake, and writing some hundred bytes to a group costs little more than
// writing one row of its own (docs/decisions/0006). A group is, ascending by id,
//
//	the id's lowest eight bits (1), the row's length (1), the row (RepoState)
//
// An operand and a stored group have the same form; the newest row of an account wins. A group of one account, with 0 for the bits, is set.

// AppendAccount appends an account to its group.
func (l Layout) AppendAccount(dst []byte, actor dict.ID, s *RepoState) []byte {
	start := len(dst) + 2
	dst = s.Append(append(dst, byte(actor&l.AccountMask()), 0))
	dst[start-1] = byte(len(dst) - start) // at most 108
	return dst
}

// EachAccount calls each with the lowest bits and the row of every account in a group, until
// each returns false, or an error.
func EachAccount(v []byte, each func(low byte, row []byte) (more bool, err error)) error {
	for last := -1; len(v) > 0; {
		if len(v) < 2 || len(v) < 2+int(v[1]) || int(v[0]) <= last {
			return fmt.Errorf("format: group of accounts is malformed at %x", v)
		}
		n := 2 + int(v[1])
		if more, err := each(v[0], v[2:n:n]); err != nil || !more {
			return err
		}
		last, v = int(v[0]), v[n:]
	}
	return nil
}

// AccountIn returns the state of an account, and whether the group contains it.
func (l Layout) AccountIn(v []byte, actor dict.ID) (s RepoState, ok bool, err error) {
	at := byte(actor & l.AccountMask())
	err = EachAccount(v, func(low byte, row []byte) (more bool, err error) {
		if ok = low == at; ok {
			s, err = DecodeRepoState(row)
		}
		return !ok, err
	})
	return s, ok, err
}

// EachState calls each with the id and the state of every account in a group.
func (l Layout) EachState(key, v []byte, each func(actor dict.ID, s RepoState) error) error {
	first, err := ParseActorKey(key)
	if err != nil {
		return err
	}
	if first&l.AccountMask() != 0 {
		return fmt.Errorf("format: account key %x is not the key of a group", key)
	}
	return EachAccount(v, func(low byte, row []byte) (bool, error) {
		if dict.ID(low)&^l.AccountMask() != 0 {
			return false, fmt.Errorf("format: group %x has an unexpected account at %d", key, low)
		}
		s, err := DecodeRepoState(row)
		if err == nil {
			err = each(first|dict.ID(low), s)
		}
		return true, err
	})
}

// foldAccounts appends the group that the groups in values, oldest first, fold to.
func foldAccounts(dst []byte, values [][]byte) ([]byte, error) {
	var rows [dict.MaxGroup][]byte
	for _, v := range values {
		if err := EachAccount(v, func(low byte, row []byte) (bool, error) { rows[low] = row; return true, nil }); err != nil {
			return nil, err
		}
	}
	if len(values) == 1 {
		return append(dst, values[0]...), nil
	}
	for low, row := range rows {
		if row != nil {
			dst = append(append(dst, byte(low), byte(len(row))), row...)
		}
	}
	return dst, nil
}

// RepoState is the state of one account and its repo. Its row in a group is
//
//	uvarint flags
//	uvarint source, uvarint seq      of the last commit, sync or deletion
//	uvarint source, uvarint seq      of the last #account, if flagAccount
//	uvarint source, uvarint seq      of the last deletion, if flagDeleted
//	rev(8) data(8)                   if flagHasRev
//	top(8)                           if flagAhead
//	uvarint records of each kind     in the order of kinds; zeros at the end are left out
//
// top is the highest TID that is, or was, the key of an indexed record, if it is above rev.
// That is rare: a PDS draws a commit's rev after its keys, so it takes a repo that was put
// back to an older state. A new record whose key is above both is not in the index yet.
type RepoState struct {
	Flags                 uint16
	Source, AccountSource uint32
	Seq, AccountSeq       Seq
	DeletionSource        uint32
	DeletionSeq           Seq
	Rev                   Rev
	Data                  Root
	Top                   uint64
	// Records are the numbers of the account's stored records, by built-in kind, from kind 1 on. Each write that
	// stores or erases records counts them.
	Records [kinds.LastBuiltIn]uint32
}

// The flags of a RepoState. Append sets those that announce a part of the row.
const (
	FlagHasRev   uint16 = 1 << iota // rev and data are those of the last applied commit
	FlagPartial                     // the repo's past was never seen
	FlagDesync                      // the index missed something of the repo
	FlagHidden                      // the last #account said active: false
	FlagErasing                     // its records are being erased
	flagAccount                     // an #account was seen
	flagDeleted                     // the account was deleted once
	flagAhead                       // top is above rev
	FlagResync                      // it has a row in the queue of resyncs (resync.go)
	FlagNoRoot                      // rev is not of a commit that follows from another: from a row of an archive, or of an account outside the part that the store holds
	FlagBehind                      // the stream announced a state newer than rev that was not applied
	FlagRecords                     // the store has, or had, a record of the account
	FlagReturned                    // it is active again, and nothing has shown yet what it wrote meanwhile
)

// Has reports whether a flag, or one of several, is set.
func (s *RepoState) Has(flag uint16) bool { return s.Flags&flag != 0 }

// Complete reports whether, by all evidence, the index has exactly the records of the repo:
// nothing is known to be missing, it has not just returned, and no fetch of the repo is queued or under way. A repo is
// queued when something may be missing; while a snapshot is put in place in several writes,
// the account holds records of two states.
func (s *RepoState) Complete() bool { return s.Whole() && !s.Has(FlagResync|FlagReturned) }

// Whole reports whether nothing of the repo is known to be missing, even if it is queued.
func (s *RepoState) Whole() bool { return s.Flags&(FlagHasRev|FlagPartial|FlagDesync) == FlagHasRev }

// Incomplete reports whether answers about the whole network may lack something of the
// account: it is active, and something of it is missing or in doubt.
func (s *RepoState) Incomplete() bool {
	return s.Has(FlagPartial|FlagDesync|FlagResync|FlagReturned) && !s.Has(FlagHidden)
}

// Missed reports whether the index may have missed something of the account since it first heard of it: it is active, and
// an event was or may be missed, or its repo is fetched again for another reason than its unknown past.
func (s *RepoState) Missed() bool {
	again := s.Flags&(FlagHasRev|FlagPartial|FlagResync) == FlagHasRev|FlagResync
	return (s.Has(FlagDesync|FlagReturned) || again) && !s.Has(FlagHidden)
}

// MoveTo makes rev and root those of the newest commit that the index has. Change Rev by no other
// means: a rev bounds the keys of the records stored so far, and this bound must not fall with it.
func (s *RepoState) MoveTo(rev Rev, root Root) {
	s.Top = max(s.Top, uint64(s.Rev))
	s.Rev, s.Data = rev, root
	s.Flags |= FlagHasRev
}

// SetPartial notes that only some commits of the repo arrive: no root can be known.
func (s *RepoState) SetPartial() {
	if s.Flags |= FlagPartial; s.Has(FlagHasRev) {
		s.Flags |= FlagNoRoot
	}
}

// MayHold reports whether the repo may have a record of the path already.
func (s *RepoState) MayHold(p Path) bool {
	return s.Has(FlagHasRev) && (p.Raw != nil || p.TID <= max(uint64(s.Rev), s.Top))
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
	dst = binary.AppendUvarint(dst, uint64(flags))
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
	n := len(s.Records)
	for n > 0 && s.Records[n-1] == 0 {
		n--
	}
	for _, records := range s.Records[:n] {
		dst = binary.AppendUvarint(dst, uint64(records))
	}
	return dst
}

// DecodeRepoState reads a row.
func DecodeRepoState(v []byte) (s RepoState, err error) {
	rest, ok := v, true
	number := func(most uint64) uint64 {
		n, size := binary.Uvarint(rest)
		if ok = ok && size > 0 && n <= most; ok {
			rest = rest[size:]
		}
		return n
	}
	eight := func() (b [8]byte) {
		if ok = ok && len(rest) >= 8; ok {
			b, rest = [8]byte(rest), rest[8:]
		}
		return b
	}
	flags := uint16(number(uint64(FlagReturned<<1 - 1)))
	pair := func(source *uint32, seq *Seq) {
		*source, *seq = uint32(number(math.MaxUint32)), Seq(number(math.MaxUint64))
	}
	pair(&s.Source, &s.Seq)
	if flags&flagAccount != 0 {
		pair(&s.AccountSource, &s.AccountSeq)
	}
	if flags&flagDeleted != 0 {
		pair(&s.DeletionSource, &s.DeletionSeq)
	}
	if flags&FlagHasRev != 0 {
		rev := eight()
		s.Rev, s.Data = Rev(binary.BigEndian.Uint64(rev[:])), eight()
	}
	if flags&flagAhead != 0 {
		top := eight()
		s.Top = binary.BigEndian.Uint64(top[:])
	}
	for i := range s.Records {
		if len(rest) == 0 {
			break
		}
		s.Records[i] = uint32(number(math.MaxUint32))
		ok = ok && (len(rest) > 0 || s.Records[i] > 0) // the last one is not 0
	}
	if !ok || len(rest) != 0 {
		return s, fmt.Errorf("format: account row %x is malformed", v)
	}
	s.Flags = flags &^ (flagAccount | flagDeleted | flagAhead)
	return s, nil
}
