package harness

import (
	"bytes"
	"slices"
	"testing"
)

// The notation of the golden files is reversible.
func TestHexRuns(t *testing.T) {
	for want, v := range map[string][]byte{
		"-":                nil,
		"01":               {1},
		"00*8":             make([]byte, 8),
		"00000000000000":   make([]byte, 7),
		"0102 00*9 03":     slices.Concat([]byte{1, 2}, make([]byte, 9), []byte{3}),
		"ff*12 00*8":       slices.Concat(bytes.Repeat([]byte{0xff}, 12), make([]byte, 8)),
		"0a*8 0b0b0c 0d*8": slices.Concat(bytes.Repeat([]byte{10}, 8), []byte{11, 11, 12}, bytes.Repeat([]byte{13}, 8)),
	} {
		got := HexRuns(v)
		back, err := ParseHexRuns(got)
		if got != want || !bytes.Equal(back, v) || err != nil {
			t.Errorf("%x is encoded as %q, and decoded as %x, %v; want %q", v, got, back, err, want)
		}
	}
}
