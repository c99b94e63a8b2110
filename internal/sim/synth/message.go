package synth

import (
	"encoding/binary"

	"skein.blue/consumer/wire"
	"skein.blue/graph/kinds"
)

// An Op is an operation in a commit's message.
type Op struct {
	Action     string // create, update or delete
	Collection string
	Rkey       []byte
	CID        *Link // nil for a delete
	Prev       *Link // the record before; nil if the message has none
}

// A Commit is a #commit. Time usually has the 24 characters of "2006-01-02T15:04:05.000Z".
type Commit struct {
	Repo, Rev, Since []byte // Since is empty if there is none
	Seq              int64
	Time             []byte
	Ops              []Op
	CAR              [][]byte // parts, concatenated
	Root             Link     // of the CAR: the commit block
	TooBig           bool
	PrevData         *Link // nil if the message has none
}

// Append appends the message, and returns the offset of the CAR in it.
func (c *Commit) Append(dst []byte) (message []byte, carAt int) {
	dst = append(dst, "\xa2atg#commitbop\x01"...)
	dst = append(dst, 0xab)
	if c.PrevData != nil {
		dst[len(dst)-1]++
	}
	dst = wire.AppendHead(append(dst, "cops"...), 4, uint64(len(c.Ops)))
	for i := range c.Ops {
		dst = c.Ops[i].append(dst)
	}
	dst = AppendText(append(dst, "crev"...), c.Rev)
	dst = appendInt(append(dst, "cseq"...), c.Seq)
	dst = AppendText(append(dst, "drepo"...), c.Repo)
	dst = AppendText(append(dst, "dtime"...), c.Time)
	dst = append(dst, "eblobs\x80esince"...)
	if len(c.Since) == 0 {
		dst = append(dst, 0xf6)
	} else {
		dst = AppendText(dst, c.Since)
	}
	size := 0
	for _, part := range c.CAR {
		size += len(part)
	}
	dst = wire.AppendHead(append(dst, "fblocks"...), 2, uint64(size))
	carAt = len(dst)
	for _, part := range c.CAR {
		dst = append(dst, part...)
	}
	dst = AppendLink(append(dst, "fcommit"...), &c.Root)
	dst = append(dst, "frebase\xf4ftooBig"...)
	dst = appendBool(dst, c.TooBig)
	if c.PrevData != nil {
		dst = AppendLink(append(dst, "hprevData"...), c.PrevData)
	}
	return dst, carAt
}

func (o *Op) append(dst []byte) []byte {
	dst = append(dst, 0xa3)
	if o.Prev != nil {
		dst[len(dst)-1]++
	}
	if dst = append(dst, "ccid"...); o.CID == nil {
		dst = append(dst, 0xf6)
	} else {
		dst = AppendLink(dst, o.CID)
	}
	dst = wire.AppendHead(append(dst, "dpath"...), 3, uint64(len(o.Collection)+1+len(o.Rkey)))
	dst = append(append(append(dst, o.Collection...), '/'), o.Rkey...)
	if o.Prev != nil {
		dst = AppendLink(append(dst, "dprev"...), o.Prev)
	}
	return AppendText(append(dst, "faction"...), o.Action)
}

// AppendSync appends a #sync.
func AppendSync(dst []byte, did, rev []byte, seq int64, time, car []byte) []byte {
	return appendMessage(dst, "#sync", Map{{"did", string(did)}, {"rev", string(rev)}, {"seq", seq}, {"time", string(time)}, {"blocks", car}})
}

// AppendAccount appends an #account. status may be empty.
func AppendAccount(dst []byte, did []byte, seq int64, time []byte, active bool, status string) []byte {
	m := Map{{"did", string(did)}, {"seq", seq}, {"time", string(time)}, {"active", active}}
	if status != "" {
		m = append(m, Pair{"status", status})
	}
	return appendMessage(dst, "#account", m)
}

// AppendIdentity appends an #identity.
func AppendIdentity(dst []byte, did []byte, seq int64, time []byte) []byte {
	return appendMessage(dst, "#identity", Map{{"did", string(did)}, {"seq", seq}, {"time", string(time)}})
}

// AppendCommitBlock appends the commit block of a repo.
func AppendCommitBlock(dst, did, rev, sig []byte, data *Link) []byte {
	dst = AppendText(append(dst, "\xa6cdid"...), did)
	dst = AppendText(append(dst, "crev"...), rev)
	dst = append(wire.AppendHead(append(dst, "csig"...), 2, uint64(len(sig))), sig...)
	dst = AppendLink(append(dst, "ddata"...), data)
	return append(dst, "dprev\xf6gversion\x03"...)
}

// AppendRecord appends a record of a kind. cid is the CID of the record that the subject
// names, for kinds with one. An empty subject makes a malformed record.
func AppendRecord(dst []byte, k *kinds.Info, subject, cid, createdAt []byte) []byte {
	field := k.To.Field
	dst = append(dst, 0xa3)
	if len(subject) == 0 {
		dst[len(dst)-1]--
	}
	dst = AppendText(append(dst, "e$type"...), k.Collection)
	if len(subject) > 0 {
		dst = AppendText(dst, field[0])
		if len(field) > 1 {
			dst = AppendText(append(dst, "\xa2ccid"...), cid)
			dst = AppendText(dst, field[1])
		}
		dst = AppendText(dst, subject)
	}
	return AppendText(append(dst, "icreatedAt"...), createdAt)
}

// ListItem encodes the record that puts an account on a list. An empty subject or list makes a malformed record.
func ListItem(subject, list, createdAt string) []byte {
	m := Map{{"$type", "app.bsky.graph.listitem"}}
	if list != "" {
		m = append(Map{{"list", list}}, m...)
	}
	if subject != "" {
		m = append(m, Pair{"subject", subject})
	}
	return CBOR(nil, append(m, Pair{"createdAt", createdAt}))
}

// AppendLink appends a link.
func AppendLink(dst []byte, l *Link) []byte { return append(append(dst, linkHead...), l[:]...) }

// CIDHead is the part of a CID before its digest: version 1, DAG-CBOR, SHA-256.
const CIDHead = "\x01\x71\x12\x20"

const linkHead = "\xd8\x2a\x58\x25\x00" + CIDHead

// AppendCARHead appends the head of a CAR with one root, of CARHeadLen bytes.
func AppendCARHead(dst []byte, root *Link) []byte {
	dst = append(dst, CARHeadLen-1)
	dst = AppendLink(append(dst, "\xa2eroots\x81"...), root)
	return append(dst, "gversion\x01"...)
}

// CARHeadLen is the length of a CAR's head.
const CARHeadLen = 59

// AppendSection appends a block as a section of a CAR.
func AppendSection(dst []byte, cid *Link, block []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(CIDHead)+len(cid)+len(block)))
	return append(append(append(dst, CIDHead...), cid[:]...), block...)
}

// AppendText appends a text.
func AppendText[S ~string | ~[]byte](dst []byte, s S) []byte {
	return append(wire.AppendHead(dst, 3, uint64(len(s))), s...)
}

func appendInt(dst []byte, n int64) []byte {
	if n < 0 {
		return wire.AppendHead(dst, 1, uint64(-1-n))
	}
	return wire.AppendHead(dst, 0, uint64(n))
}

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 0xf5)
	}
	return append(dst, 0xf4)
}
