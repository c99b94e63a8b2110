package query

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/read"
)

// instant reads a time: RFC 3339, a date (its first moment, UTC), or an age, such as 24h,
// 90m or 7d, which is so long before now. isAge says that it was one.
func instant(s string, now time.Time) (t time.Time, isAge bool, err error) {
	now = now.Truncate(time.Microsecond) // as cursors keep it: all pages count from one time
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, false, nil
	}
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, false, nil
	}
	if n := len(s); n > 1 {
		if each := map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour}[s[n-1]]; each > 0 {
			if days, err := strconv.ParseUint(s[:n-1], 10, 16); err == nil {
				return now.Add(-time.Duration(min(days, maxAgeDays)) * each), true, nil
			}
		}
	}
	if age, err := time.ParseDuration(s); err == nil && age >= 0 && strings.Trim(s, "0123456789.hms") == "" {
		return now.Add(-age), true, nil
	}
	return t, false, fmt.Errorf("%q is no time: give one such as 2026-11-22T06:00:00Z, a date, or an age, such as 24h or 7d", brief(s)) //nolint:err113 // it is told to whoever asks
}

// maxAgeDays bounds an age, so that it is a time that there is: a hundred years.
const maxAgeDays = 36525

// firstMicro returns the first microsecond since 1970 that is not before t. Keys count whole
// microseconds: those not before t are those from this one on.
func firstMicro(t time.Time) int64 {
	micro := t.UnixMicro() // rounded down, before 1970 as well
	if t.Nanosecond()%int(time.Microsecond) != 0 {
		micro++
	}
	return micro
}

// window makes a window of two times, of which "" is none. isAge says that one was an age.
func window(since, until string, now time.Time) (w ask.Window, isAge bool, err error) {
	if since == "" && until == "" {
		return w, false, nil
	}
	from, to := read.AnyTime()
	var first time.Time
	if since != "" {
		t, age, err := instant(since, now)
		if err != nil {
			return w, false, fmt.Errorf("since: %w", err)
		}
		first, from, isAge = t, firstMicro(t), age
	}
	if until != "" {
		t, age, err := instant(until, now)
		if err != nil {
			return w, false, fmt.Errorf("until: %w", err)
		}
		to, isAge = firstMicro(t), isAge || age
		if since != "" && !first.Before(t) {
			return w, false, fmt.Errorf("since (%s) is not before until (%s)", since, until) //nolint:err113 // it is told to whoever asks
		}
	}
	return read.WindowOf(from, to), isAge, nil
}
