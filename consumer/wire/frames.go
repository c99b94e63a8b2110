package wire

// Files of frames: recorded messages of a relay, each as a 4-byte big-endian length followed by the
// bytes of one binary websocket message, unchanged.

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// MaxFrame is the size in bytes of the largest message that is read. The protocol allows 5 MB.
const MaxFrame = 8 << 20

// ErrTooLarge is returned by Next for a message over MaxFrame, which it skips.
var ErrTooLarge = errors.New("wire: message too large")

// ErrTruncated is returned by Next when the file ends within a message.
var ErrTruncated = errors.New("wire: file ends within a message")

// A Reader reads a .frames stream.
type Reader struct {
	r      *bufio.Reader
	buf    []byte
	offset int64
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 1<<18)} }

// Next returns the next message, or io.EOF after the last one. Its bytes are valid until the next
// call.
func (r *Reader) Next() ([]byte, error) {
	at := r.offset
	var head [4]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%w, at byte %d", ErrTruncated, at)
		}
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	r.offset += 4 + int64(n)
	var err error
	if n > MaxFrame {
		if _, err = r.r.Discard(n); err == nil {
			return nil, fmt.Errorf("%w: %d bytes at byte %d", ErrTooLarge, n, at)
		}
	} else {
		r.buf = slices.Grow(r.buf[:0], n)[:n]
		_, err = io.ReadFull(r.r, r.buf)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: a message of %d bytes at byte %d; is this a .frames file?", ErrTruncated, n, at)
	}
	return r.buf, err
}
