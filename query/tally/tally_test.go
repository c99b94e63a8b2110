package rank

import (
	"context"
	"errors"
	"testing"
)

// The timeout of a query also ends the expansion of one member.
func TestTimeoutWhileExpanding(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var ta tally
	n := 0
	err := ta.add(ctx, func(yield func(uint64) bool) {
		for n = 1; n < 50*checkEvery; n++ {
			if n == checkEvery {
				cancel()
			}
			if !yield(uint64(n)) {
				return
			}
		}
	})
	if !errors.Is(err, context.Canceled) || n > 3*checkEvery {
		t.Errorf("%v after %d results; want context.Canceled within %d", err, n, 3*checkEvery)
	}
}
