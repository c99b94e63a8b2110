package graph

import (
	"encoding/binary"
	"fmt"
)

// A Rev is the revision of a repo: a TID, which compare as bytes.
type Rev [13]byte

// A Digest is the SHA-256 of a CID. Only the roots of repos are kept by it.
type Digest [32]byte

// repoState is what is known of one account and its repo. Its row is
//
//	flags(1) uvarint source, uvarint seq      of the last commit, sync or deletion
//	uvarint source, uvarint seq               of the last #account
//	uvarint source, uvarint seq               of the last deletion
//	rev(13) data(32)                          if flagHasRev
type repoState struct {
	flags           byte
	source, acctSrc uint32
	seq, acctSeq    Seq
	delSrc          uint32
	delSeq          Seq
	rev             Rev
	data            Digest
}

const (
	flagHasRev  byte = 1 << iota // rev and data are those of the last applied commit
	flagPartial                  // the repo's past was never seen
	flagDesync                   // something of the repo was missed
	flagHidden                   // the last #account said active: false
	flagErasing                  // deleted, and not all of it is erased yet
)

func (s *repoState) has(flag byte) bool { return s.flags&flag != 0 }

func (s *repoState) append(dst []byte) []byte {
	dst = append(dst, s.flags)
	dst = binary.AppendUvarint(dst, uint64(s.source))
	dst = binary.AppendUvarint(dst, uint64(s.seq))
	dst = binary.AppendUvarint(dst, uint64(s.acctSrc))
	dst = binary.AppendUvarint(dst, uint64(s.acctSeq))
	dst = binary.AppendUvarint(dst, uint64(s.delSrc))
	dst = binary.AppendUvarint(dst, uint64(s.delSeq))
	if s.has(flagHasRev) {
		dst = append(append(dst, s.rev[:]...), s.data[:]...)
	}
	return dst
}

func decodeRepoState(v []byte) (s repoState, err error) {
	bad := fmt.Errorf("graph: account row %x is malformed", v)
	if len(v) == 0 {
		return s, bad
	}
	s.flags, v = v[0], v[1:]
	var n [6]uint64
	for i := range n {
		x, w := binary.Uvarint(v)
		if w <= 0 {
			return s, bad
		}
		n[i], v = x, v[w:]
	}
	s.source, s.seq, s.acctSrc, s.acctSeq = uint32(n[0]), Seq(n[1]), uint32(n[2]), Seq(n[3])
	s.delSrc, s.delSeq = uint32(n[4]), Seq(n[5])
	if s.has(flagHasRev) {
		if len(v) != len(s.rev)+len(s.data) {
			return s, bad
		}
		copy(s.rev[:], v)
		copy(s.data[:], v[len(s.rev):])
	} else if len(v) != 0 {
		return s, bad
	}
	return s, nil
}
