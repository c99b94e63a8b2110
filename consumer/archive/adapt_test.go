package archive

import (
	"testing"
	"time"
)

// Batches become smaller while the stream waits for them, down to a bound, and grow again when it does not.
func TestAdapt(t *testing.T) {
	const most = 800_000
	a := &applier{r: &Reader{o: Options{Ops: most}}, ops: most}
	if a.adapt(2 * longestWait); a.ops != most/2 {
		t.Errorf("after a long wait: %d", a.ops)
	}
	if a.adapt(longestWait * 3 / 4); a.ops != most/2 {
		t.Errorf("after a wait that is short enough: %d", a.ops)
	}
	for range 10 {
		a.adapt(time.Minute)
	}
	if a.ops != leastOps {
		t.Errorf("after long waits: %d", a.ops)
	}
	for range 30 {
		a.adapt(0)
	}
	if a.ops != most {
		t.Errorf("without waits: %d", a.ops)
	}
	small := &applier{r: &Reader{o: Options{Ops: 100}}, ops: 100}
	if small.adapt(time.Minute); small.ops != 100 {
		t.Errorf("of small batches: %d", small.ops)
	}
}
