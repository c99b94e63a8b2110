package rank

import "testing"

// Scores beyond the largest integer are the largest integer, and do not wrap.
func TestScoresAreBounded(t *testing.T) {
	for _, c := range []struct {
		by           string
		accounts, of uint64
		e            Result
		want         uint64
	}{
		{ByShare, 0, 0, Result{counted{1, 3}, 4}, 750_000},
		{ByLift, 100, 10, Result{counted{1, 5}, 10}, 5_000_000},
		{ByLift, 1 << 62, 1, Result{counted{1, 1 << 31}, 1}, 1<<63 - 1},
		{ByLift, 1 << 50, 1 << 40, Result{counted{1, 1}, 1 << 40}, 0},
	} {
		st := &Standing{Accounts: c.accounts, Of: c.of}
		if got := st.Score(c.by, &c.e); got != c.want {
			t.Errorf("%s of %+v, %d accounts, %d members: %d, want %d", c.by, c.e, c.accounts, c.of, got, c.want)
		}
	}
}
