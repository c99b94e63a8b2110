package outward

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfter(t *testing.T) {
	now := time.Unix(2_000_000_000, 0)
	for _, c := range []struct {
		header [2]string
		more   [2]string
		want   time.Duration
	}{
		{[2]string{"Retry-After", "7"}, [2]string{}, 7 * time.Second},
		{[2]string{"Retry-After", now.Add(time.Minute).UTC().Format(http.TimeFormat)}, [2]string{}, time.Minute},
		{[2]string{"Ratelimit-Remaining", "0"}, [2]string{"Ratelimit-Reset", "2000000030"}, 30 * time.Second},
		{[2]string{"Ratelimit-Remaining", "0"}, [2]string{"Ratelimit-Reset", "30"}, 30 * time.Second},
		{[2]string{"Ratelimit-Remaining", "5"}, [2]string{"Ratelimit-Reset", "30"}, 0},
		{[2]string{"Retry-After", "soon"}, [2]string{}, 0},
		{[2]string{"Retry-After", "-5"}, [2]string{}, 0},
		{[2]string{"Retry-After", "9223372036854775807"}, [2]string{}, time.Hour},
		{[2]string{"Retry-After", now.Add(-time.Minute).UTC().Format(http.TimeFormat)}, [2]string{}, 0},
	} {
		h := http.Header{}
		h.Set(c.header[0], c.header[1])
		if c.more[0] != "" {
			h.Set(c.more[0], c.more[1])
		}
		if got := RetryAfter(h, now); got != c.want {
			t.Errorf("%v: %v, want %v", h, got, c.want)
		}
	}
}
