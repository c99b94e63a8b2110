package oracle

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"skein.blue/consumer/wire"
)

// A Copy is one variation of a stream. Pass it the stream's frames in order.
type Copy struct {
	seed  uint64
	n     uint64
	roots map[[32]byte][32]byte // new roots of repos, by old root
	dids  map[string][]byte
}

// NewCopy returns the n-th variation under a seed.
func NewCopy(seed, n uint64) *Copy {
	return &Copy{seed, n, map[[32]byte][32]byte{}, map[string][]byte{}}
}

const base32 = "abcdefghijklmnopqrstuvwxyz234567"

// did returns the replacement of a did:plc identifier in this copy.
func (c *Copy) did(id []byte) []byte {
	if d, ok := c.dids[string(id)]; ok {
		return d
	}
	h := sha256.Sum256(fmt.Appendf(nil, "%d/%d/%s", c.seed, c.n, id))
	d := make([]byte, len(id))
	for i := range d {
		d[i] = base32[h[i]&31]
	}
	c.dids[string(id)] = d
	return d
}

const linkHead = "\xd8\x2aX\x25\x00\x01q\x12\x20" // a CBOR link up to its digest

// Frame returns the copy's version of a frame, with a new sequence number.
func (c *Copy) Frame(frame []byte, seq uint64) ([]byte, error) {
	out, err := setSeq(frame, seq)
	if err != nil {
		return nil, err
	}
	const method, idLen = "did:plc:", 24
	for i := 0; ; {
		j := bytes.Index(out[i:], []byte(method))
		if j < 0 || i+j+len(method)+idLen > len(out) {
			break
		}
		i += j + len(method)
		copy(out[i:], c.did(out[i:i+idLen]))
	}
	c.rkeys(out)
	for _, field := range []string{prevData, data} {
		if at := digestAt(out, field); at != nil {
			if root, ok := c.roots[[32]byte(at)]; ok {
				copy(at, root[:])
			}
		}
	}
	if err := c.rehash(out); err != nil {
		return nil, err
	}
	if was, is := digestAt(frame, data), digestAt(out, data); was != nil {
		c.roots[[32]byte(was)] = [32]byte(is)
	}
	return out, nil
}

const prevData, data = "hprevData" + linkHead, "ddata" + linkHead

// digestAt returns the digest in a link, nil if the frame has no such field.
func digestAt(frame []byte, field string) []byte {
	i := bytes.Index(frame, []byte(field))
	if i < 0 || len(frame) < i+len(field)+32 {
		return nil
	}
	return frame[i+len(field) : i+len(field)+32]
}

// rkeys changes the clock ids, the last two characters, of all record keys that
// are TIDs.
func (c *Copy) rkeys(out []byte) {
	a, b := base32[c.n&31], base32[c.n>>5&31]
	const prefix, tidLen = "app.bsky.", 13
	for i := 0; ; {
		j := bytes.Index(out[i:], []byte(prefix))
		if j < 0 {
			return
		}
		i += j + len(prefix)
		slash := bytes.IndexByte(out[i:min(i+32, len(out))], '/')
		if slash < 0 {
			continue
		}
		tid := out[i+slash+1:]
		if len(tid) >= tidLen && tid[0] == '3' && !bytes.ContainsAny(tid[:tidLen], "/._~:- ") {
			tid[tidLen-2], tid[tidLen-1] = a, b
		}
	}
}

// rehash makes all blocks of the frame's CAR hash to their CIDs again.
func (c *Copy) rehash(out []byte) error {
	var m wire.Message
	if err := wire.Parse(out, &m); err != nil {
		return fmt.Errorf("vary: %w", err)
	}
	for changed := true; changed; {
		changed = false
		err := wire.EachBlock(m.Blocks(), func(cid, block []byte) {
			sum := sha256.Sum256(block)
			old := [32]byte(cid[len(cid)-32:])
			if sum == old {
				return
			}
			changed = true
			for i := 0; ; i += 32 {
				j := bytes.Index(out[i:], old[:])
				if j < 0 {
					break
				}
				i += j
				copy(out[i:], sum[:])
			}
		})
		if err != nil {
			return fmt.Errorf("vary: %w", err)
		}
	}
	return nil
}

// setSeq returns a copy of the frame with another sequence number.
func setSeq(frame []byte, seq uint64) ([]byte, error) {
	const field = "cseq"
	i := bytes.Index(frame, []byte(field))
	if i < 0 {
		return bytes.Clone(frame), nil
	}
	i += len(field)
	width := 1
	switch info := frame[i] & 31; {
	case frame[i]>>5 != 0 || info > 27:
		return nil, fmt.Errorf("vary: seq is not a number")
	case info >= 24:
		width += 1 << (info - 24)
	}
	out := make([]byte, 0, len(frame)+8)
	out = append(append(out, frame[:i]...), 0x1b)
	out = binary.BigEndian.AppendUint64(out, seq)
	return append(out, frame[i+width:]...), nil
}
