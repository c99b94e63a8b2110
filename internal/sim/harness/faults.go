package harness

// Faults: a disk that fails, lies or is slow at named operations (Disk), and a count of each fault
// that fails a test in which the fault never happened (Fault). The tests stand next to the code that must survive: graph/faults_test.go judges
// the store by the rules in plain maps (internal/sim/oracle), cmd/skein/faults_linux_test.go judges
// the daemon by the truth of a recorded stream. Without flags each fault happens a few times, in
// go test ./... With -faults.times (make faults) it happens that often, and .ci/faults prints the
// counts of docs/reliability.md from the records.

import (
	"flag"
	"sync/atomic"
	"testing"
	"time"
)

var (
	times = flag.Int("faults.times", 0, "how often each fault happens; 0: a few times")
	pause = flag.Duration("faults.pause", 0, "how long faults with a duration last: a stopped process, an absent relay; 0: a second")
)

// Times returns how often a fault must happen: few, or what -faults.times says.
func Times(few int) int {
	if *times > 0 {
		return *times
	}
	return few
}

// Whole reports whether the faults run in full, with -faults.times. Tests that need minutes are
// skipped otherwise.
func Whole() bool { return *times > 0 }

// Pause returns how long a fault lasts that has a duration: a second, or what -faults.pause says.
func Pause() time.Duration {
	if *pause > 0 {
		return *pause
	}
	return time.Second
}

// A Fault counts how often a fault happened.
type Fault struct {
	n atomic.Int64
}

// NewFault returns a record of the named fault. At its end, the test fails if the fault happened
// less than least times; otherwise it logs the line that .ci/faults collects.
func NewFault(t testing.TB, fault string, least int) *Fault {
	t.Helper()
	r := new(Fault)
	t.Cleanup(func() {
		switch n := r.Count(); {
		case t.Skipped():
		case n < least:
			t.Errorf("the fault %q happened %d times, and the test needs %d: it proves nothing", fault, n, least)
		case !t.Failed():
			t.Logf("fault: %s: happened %d times, nothing lost", fault, n)
		}
	})
	return r
}

// Happened counts one occurrence of the fault.
func (r *Fault) Happened() { r.n.Add(1) }

// Count returns how often the fault happened.
func (r *Fault) Count() int { return int(r.n.Load()) }
