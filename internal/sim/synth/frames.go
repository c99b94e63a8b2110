package synth

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"skein.blue/consumer/wire"
)

// ReadFrames returns all messages of a .frames file.
func ReadFrames(path string) (all [][]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := wire.NewReader(f)
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

// AppendFrame appends a message of a .frames file to dst.
func AppendFrame(dst, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(message))), message...)
}
