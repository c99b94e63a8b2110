package format

import (
	"fmt"
	"strings"
	"testing"
)

// ranges formats an ascending list of numbers: "[3 5-9]".
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

func TestRanges(t *testing.T) {
	if got := ranges([]uint64{1, 3, 4, 7, 8, 9, 1 << 63}); got != "[1 3 4 7-9 9223372036854775808]" {
		t.Error(got)
	}
}
