package synth

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"skein.blue/consumer/wire"
)

// ReadFrames returns all messages of a .frames file.
func ReadFrames(path string) (all [][]byte, err error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for r := wire.NewReader(bytes.NewReader(file)); ; {
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
