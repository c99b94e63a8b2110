package wire

// Files of frames: recorded messages of a relay, each as a 4-byte big-endian length followed by the
// bytes of one binary websocket message, unchanged.

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
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
	var head [4]byte
	switch _, err := io.ReadFull(r.r, head[:]); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("%w, at byte %d", ErrTruncated, r.offset)
	case err != nil:
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[:]))
	if n > MaxFrame {
		at := r.offset
		if _, err := r.r.Discard(n); err != nil {
			return nil, fmt.Errorf("%w: a message of %d bytes at byte %d; is this a .frames file?", ErrTruncated, n, at)
		}
		r.offset += 4 + int64(n)
		return nil, fmt.Errorf("%w: %d bytes at byte %d", ErrTooLarge, n, at)
	}
	if cap(r.buf) < n {
		r.buf = make([]byte, n, max(n, 1<<16))
	}
	r.buf = r.buf[:n]
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%w: a message of %d bytes at byte %d", ErrTruncated, n, r.offset)
		}
		return nil, err
	}
	r.offset += 4 + int64(n)
	return r.buf, nil
}

// ReadFile returns all messages of a file.
func ReadFile(path string) (all [][]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := NewReader(f)
	for {
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, append([]byte(nil), m...))
	}
}

// Append appends a message with its length to dst.
func Append(dst, message []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(message)))
	return append(dst, message...)
}
