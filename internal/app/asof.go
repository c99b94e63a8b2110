package app

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"skein.blue/consumer"
	"skein.blue/query"
)

// AsOfHeader is the header of each answer: the time of the newest event in the index (RFC 3339). It
// is absent before the first event.
const AsOfHeader = "Skein-As-Of"

// newest returns the time of the newest event that the store had at most a second ago, zero before the first.
func (s *server) newest() time.Time {
	if us := s.stored.Load(); us > 0 {
		return time.UnixMicro(us)
	}
	return time.Time{}
}

// status returns the status of the consumer, or of a process without one. Without an event of the
// consumer's own, the index is as far behind as the newest event of others is old.
func (s *server) status() query.Status {
	st := consumer.Status{State: consumer.NotConsuming}
	if c := s.consumer.Load(); c != nil && s.o.Consume != nil {
		st = c.Status()
	} else if s.o.Space != nil {
		st.State = consumer.Full
	}
	if at := s.newest(); !st.HasLag && !at.IsZero() {
		st.Lag, st.HasLag = max(0, time.Since(at)), true
	}
	return query.Status{State: string(st.State), Lag: st.Lag, HasLag: st.HasLag}
}

// within returns an error if the index is further behind than a duration, such as 1m30s, or nothing
// tells how far.
func (s *server) within(most string) error {
	limit, err := time.ParseDuration(most)
	if err != nil {
		return fmt.Errorf("maxLag: %w", err)
	}
	st, at := s.status(), s.newest()
	if c := s.consumer.Load(); c != nil && s.part && !at.IsZero() { // other writers may be further behind
		st.Lag += max(0, c.Status().Newest.Sub(at))
	}
	switch {
	case !st.HasLag:
		return errors.New("no event has been indexed yet")
	case st.Lag > limit:
		return fmt.Errorf("the index is %v behind, which is more than %v", st.Lag.Round(time.Second), limit)
	}
	return s.written()
}

// written returns an error if a part of the network has no living writer.
func (s *server) written() error {
	if percent := s.Graph.Unwritten().Percent(); percent > 0 {
		return fmt.Errorf("%d %% of the network is not indexed: a writer has stopped", percent)
	}
	return nil
}

// dated returns h with AsOfHeader in each answer. The time is that of the beginning, so that the
// answer includes all events up to it.
func (s *server) dated(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at := s.newest(); !at.IsZero() {
			w.Header().Set(AsOfHeader, at.UTC().Format(time.RFC3339))
		}
		h.ServeHTTP(w, r)
	})
}
