package load

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// usage returns the processor time that this process has used, and the most
// memory that it has had resident, in bytes.
func usage() (cpu time.Duration, peak int64) { return UsageOf("self") }

func peakMemory() int64 { _, peak := usage(); return peak }

// UsageOf returns the same of a process, by its number, from /proc. Where there
// is none it returns zeros.
func UsageOf(pid string) (cpu time.Duration, peak int64) {
	const perTick = 10 * time.Millisecond // USER_HZ is 100 everywhere
	if b, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil {
		// Behind the name, which stands in parentheses and may have anything in it.
		if f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:])); len(f) > 12 {
			user, _ := strconv.ParseInt(f[11], 10, 64)
			system, _ := strconv.ParseInt(f[12], 10, 64)
			cpu = time.Duration(user+system) * perTick
		}
	}
	if b, err := os.ReadFile("/proc/" + pid + "/status"); err == nil {
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				kb, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				peak = kb << 10
			}
		}
	}
	return cpu, peak
}
