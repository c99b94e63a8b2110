package language

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// slowAge returns the microseconds, rounded down, of an age, or nil if it is above a hundred years.
func slowAge(n int64, unit string) *big.Int {
	each := map[string]int64{"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}[unit]
	micros := new(big.Int).Mul(big.NewInt(n), big.NewInt(each*1_000_000))
	if micros.Cmp(big.NewInt(100*365*86400*1_000_000)) > 0 {
		return nil
	}
	return micros
}

// Ages count back from now, in whole microseconds. However long an age is, it lies in the past.
func TestAges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	now := noon.Add(987_654_321 * time.Nanosecond)
	whole := now.Truncate(time.Microsecond)
	for range 20_000 {
		unit := []string{"s", "m", "h", "d", "w"}[rng.IntN(5)]
		n := rng.Int64N(1 << rng.IntN(17))
		text := fmt.Sprintf("%d%s", n, unit)
		got, isAge, err := ParseTime(text, now)
		if err != nil || !isAge {
			t.Fatalf("%s: %v, an age: %v", text, err, isAge)
		}
		if got.After(now) || got.Nanosecond()%1000 != 0 {
			t.Fatalf("%s before %v is %v", text, now, got)
		}
		if want := slowAge(n, unit); want == nil && whole.Sub(got) < 99*365*24*time.Hour || want != nil && whole.Sub(got).Microseconds() != want.Int64() {
			t.Fatalf("%s before %v is %v, an age of %v", text, now, got, whole.Sub(got))
		}
	}
	for text, want := range map[string]time.Duration{"1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute, "500ms": time.Second / 2, "0": 0, "0s": 0, "00012h": 12 * time.Hour, "1w": 168 * time.Hour} {
		if got, isAge, err := ParseTime(text, now); err != nil || !isAge || whole.Sub(got) != want {
			t.Errorf("%s: %v %v %v", text, got, isAge, err)
		}
	}
}

// Whatever is neither a time nor an age is an error that shows what may be written.
func TestBadTimes(t *testing.T) {
	for _, text := range []string{
		"", " ", "1", "-1h", "+1h", "1y", "d", "w", "-1d", "+1d", "1.5d", "70000d", "1d1h", "99999999999999999999h", "1h ", "1µs", "1us", "1ns", "1e3h", "0x1h", "h", ".", "..h",
		"2026", "2026-11", "2026-13-01", "2026-02-30", "2026-11-22T", "2026-11-22T06:00:00", "2026-11-22 06:00:00Z", "2026-11-22T24:00:01Z", "26-11-22", "2026-11-22Z", "tomorrow", "now",
		"1h\x00", "١h", strings.Repeat("1h", 40_000) + "x", strings.Repeat("9", 100_000) + "d",
	} {
		_, _, err := ParseTime(text, noon)
		if err == nil || !strings.Contains(err.Error(), "is not a time; write a time such as 2026-11-22T06:00:00Z, a date such as 2026-11-22, or an age such as 24h or 7d") || len(err.Error()) > 400 {
			t.Errorf("%q: %v", Brief(text), err)
		}
	}
}

// The first whole microsecond of a time is never before it, and less than a microsecond after it.
func TestFirstMicro(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 20_000 {
		at := time.Unix(rng.Int64N(2<<33)-1<<33, rng.Int64N(1e9))
		if rng.IntN(2) == 0 {
			at = at.Truncate(time.Microsecond)
		}
		if after := time.UnixMicro(FirstMicro(at)).Sub(at); after < 0 || after >= time.Microsecond {
			t.Fatalf("the first microsecond of %v is %v after it", at, after)
		}
	}
}

// Windows that are given wrongly are errors that name the parameter.
func TestBadWindowsAreNamed(t *testing.T) {
	for _, c := range []struct{ since, until, says string }{
		{"x", "", `since: "x" is not a time`},
		{"", "x", `until: "x" is not a time`},
		{"x", "y", `since: "x"`},
		{"1d", "x", `until: "x"`},
		{"1d", "2d", "since (1d) must be earlier than until (2d)"},
		{"2026-01-02", "2026-01-01", "since (2026-01-02) must be earlier than until (2026-01-01)"},
		{"0s", "0s", "since (0s) must be earlier than until (0s)"},
	} {
		if _, _, err := ParseWindow(c.since, c.until, noon); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, c := range []struct {
		since, until string
		age          bool
	}{{"1d", "", true}, {"", "1d", true}, {"2026-01-01", "1h", true}, {"1w", "2026-11-22", true}, {"2026-01-01", "2026-01-02", false}, {"", "", false}} {
		w, isAge, err := ParseWindow(c.since, c.until, noon)
		if err != nil || isAge != c.age || c.since == "1d" && w.To != LatestAt(noon)+1 {
			t.Errorf("%+v: %+v, an age: %v, %v", c, w, isAge, err)
		}
	}
}
