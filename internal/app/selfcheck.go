package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/graph/check"
)

// This file checks the store while the daemon runs, as skein check does, but slowly.

// Bounds of a check beside other work.
const (
	checkShare = 4                // a check rests this many times as long as it reads: a fifth of the time of its goroutines
	firstCheck = time.Hour        // after the start, if checks are that rare
	mostLogged = 20               // problems of one check
	longestNap = 10 * time.Second // so that a stop does not wait
)

type checkMetrics struct{ problems, finished, seconds prometheus.Gauge }

func newCheckMetrics(reg prometheus.Registerer) *checkMetrics {
	m := &checkMetrics{
		problems: prometheus.NewGauge(prometheus.GaugeOpts{Name: "skein_check_problems", Help: "Problems that the last check of the store by this process found (--check-every)."}),
		finished: prometheus.NewGauge(prometheus.GaugeOpts{Name: "skein_check_last_timestamp_seconds", Help: "Time at which this process's last check of the store ended; 0: none."}),
		seconds:  prometheus.NewGauge(prometheus.GaugeOpts{Name: "skein_check_last_seconds", Help: "How long that check took, rests included."}),
	}
	reg.MustRegister(m.problems, m.finished, m.seconds)
	return m
}

// checkStore checks the store again and again, the first time an hour after the start or earlier.
func (x *Index) checkStore(ctx context.Context, every time.Duration, m *checkMetrics) {
	wait := time.NewTimer(min(every, firstCheck))
	defer wait.Stop()
	for {
		select {
		case <-wait.C:
		case <-ctx.Done():
			return
		}
		x.checkOnce(ctx, m)
		wait.Reset(every)
	}
}

// checkOnce checks the store, and logs what it finds.
func (x *Index) checkOnce(ctx context.Context, m *checkMetrics) {
	log := x.log.With("component", "check")
	start := time.Now()
	problems, keys := 0, int64(0)
	last := start
	err := check.Store(ctx, x.KV, func(problem string) {
		if problems++; problems <= mostLogged {
			log.Error("the store is inconsistent", "problem", problem)
		}
	}, func(n int64) {
		keys = n
		select {
		case <-time.After(min(checkShare*time.Since(last), longestNap)):
		case <-ctx.Done():
		}
		last = time.Now()
	})
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		log.Error("checking the store failed", "error", err)
		return
	case problems > 0:
		log.Error("the store has problems: answers may be wrong. Stop skein and run skein check for all of them; then restore the store from a backup, or index into a new one", "problems", problems)
	default:
		log.Info("store checked: no problems", "keys", keys, "took", time.Since(start).Round(time.Second).String())
	}
	m.problems.Set(float64(problems))
	m.finished.SetToCurrentTime()
	m.seconds.Set(time.Since(start).Seconds())
}
