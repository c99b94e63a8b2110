package format

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"skein/internal/testing/golden"
)

// ranges says which numbers are in a list: "[3 5-9]".
func ranges[N uint16 | uint64](list []N) string {
	var parts []string
	for i := 0; i < len(list); {
		n := 1
		for i+n < len(list) && list[i+n] == list[i]+N(n) {
			n++
		}
		if n > 2 {
			parts = append(parts, fmt.Sprintf("%d-%d", list[i], list[i+n-1]))
			i += n
			continue
		}
		parts = append(parts, fmt.Sprint(list[i]))
		i++
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// The notation of the golden files says what it was made from.
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
		got := golden.HexRuns(v)
		back, err := golden.ParseHexRuns(got)
		if got != want || !bytes.Equal(back, v) || err != nil {
			t.Errorf("%x is %q, which is %x, %v; want %q", v, got, back, err, want)
		}
	}
	if got := ranges([]uint64{1, 3, 4, 7, 8, 9, 1 << 63}); got != "[1 3 4 7-9 9223372036854775808]" {
		t.Error(got)
	}
}
