package consumer

import (
	"testing"
	"time"
)

// A time is plausible if it agrees with those before, or lies between them and the
// present. A host with a wrong clock, or that lies, changes nothing.
func TestEventTimes(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	text := func(at time.Time) []byte { return []byte(at.UTC().Format("2006-01-02T15:04:05.000Z")) }
	for name, c := range map[string]struct {
		clock time.Duration // error of the machine's clock
		start time.Duration // position of the stream, relative to now
	}{"live": {0, 0}, "behind": {-24 * time.Hour, 0}, "ahead": {24 * time.Hour, 0}, "a backlog": {0, -50 * time.Hour}, "a backlog, ahead": {time.Hour, -50 * time.Hour}} {
		at := now.Add(c.start)
		e := eventTimes{now: func() time.Time { return at.Add(-c.start).Add(c.clock) }}
		if _, known := e.began(); known {
			t.Fatalf("%s: start known before the first event", name)
		}
		began := at
		var last time.Time
		for i := range 600 {
			at = at.Add(500 * time.Millisecond)
			lie := time.Time{}
			switch i % 7 {
			case 3:
				lie = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)
			case 6:
				lie = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
			}
			if !lie.IsZero() {
				if got := e.usable(text(lie)); i > 20 && string(got) == string(text(lie)) {
					t.Fatalf("%s: %s counts as plausible", name, got)
				}
				continue
			}
			got := e.usable(text(at))
			if i > 20 && string(got) != string(text(at)) {
				t.Fatalf("%s: event %d has time %s, but got %s", name, i, text(at), got)
			}
			must(t, last.UnmarshalText(got))
		}
		since, known := e.began()
		if d := since.Sub(began); !known || d < 0 || d > time.Minute {
			t.Errorf("%s: started %v after the first event, known %v", name, d, known)
		}
		if e.plausible(at.Add(100*24*time.Hour)) || e.plausible(began.Add(-time.Hour)) {
			t.Errorf("%s: a distant time is plausible", name)
		}
		want := e.now()
		if at.After(want) {
			want = at
		}
		if _, present := e.span(); present.Sub(want).Abs() > time.Minute {
			t.Errorf("%s: the present is %s, want %s", name, present, want)
		}
	}
	// Few events: the arrival of the first or their median time, whichever is later.
	local := now
	e := eventTimes{now: func() time.Time { return local }}
	e.usable(text(time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC)))
	if _, known := e.began(); known {
		t.Error("one event settles since when the stream is received")
	}
	local = local.Add(time.Minute)
	if since, known := e.began(); !known || !since.Equal(now) {
		t.Errorf("after one event of 1990: started at %v, known %v", since, known)
	}
}
