package load

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// usage returns the CPU time of this process, and its peak resident memory in
// bytes.
func usage() (cpu time.Duration, peak int64) { return UsageOf("self") }

// UsageOf returns the same for a process by its number, from /proc; zeros without
// /proc.
func UsageOf(pid string) (cpu time.Duration, peak int64) {
	const perTick = 10 * time.Millisecond // USER_HZ is 100 everywhere
	if b, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil {
		// After the name, which is in parentheses and may contain anything.
		if f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:])); len(f) > 12 {
			user, _ := strconv.ParseInt(f[11], 10, 64)
			system, _ := strconv.ParseInt(f[12], 10, 64)
			cpu = time.Duration(user+system) * perTick
		}
	}
	if b, err := os.ReadFile("/proc/" + pid + "/status"); err == nil {
		_, kb, _ := strings.Cut(string(b), "\nVmHWM:")
		_, _ = fmt.Sscan(kb, &peak)
		peak <<= 10
	}
	return cpu, peak
}
