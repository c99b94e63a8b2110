package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"skein.blue/consumer/backfill"
	"skein.blue/graph"
	"skein.blue/internal/sim/network"
)

// fetchPast starts to fetch all repos if the run has a past. ended waits until
// nothing is left to fetch.
func (r *run) fetchPast(ctx context.Context) (ended func() error) {
	if r.o.Backfill == 0 {
		return func() error { return nil }
	}
	m := r.x.Backfill
	running, stop := context.WithCancel(ctx)
	began, stopped := make(chan struct{}), make(chan error, 1)
	begun := time.Now()
	go func() { stopped <- m.Run(running, func() { close(began) }) }()
	<-began
	var err error
	if r.part == nil {
		err = m.Hosts(ctx)
	}
	var took time.Duration
	var watching sync.WaitGroup
	watching.Go(func() { // until the first fetch of all repos is over
		for st := m.StatusNow(); st.Busy && running.Err() == nil; st = m.StatusNow() {
			<-time.After(20 * time.Millisecond)
		}
		took = time.Since(begun)
		st := m.StatusNow()
		r.report.Repos, r.report.ReposPerSecond = st.Fetched, float64(st.Fetched)/took.Seconds()
		r.report.RepoRecordsPerSecond = float64(st.Records) / took.Seconds()
		r.say("%d repos fetched, %d records, %d MiB in %.1f s; given up: %v", st.Fetched, st.Records, st.Bytes>>20, took.Seconds(), st.Failed)
	})
	return func() error {
		defer stop()
		st := m.StatusNow()
		r.say("stream ended; %d repos fetched, %d waiting", st.Fetched, st.Waiting)
		for waited := time.Now(); err == nil && ctx.Err() == nil && (st.Busy || st.Waiting > 0); st = m.StatusNow() {
			if time.Since(waited) > fetchTime {
				err = fmt.Errorf("repos still not fetched: %+v", st)
			}
			<-time.After(50 * time.Millisecond)
		}
		stop()
		watching.Wait()
		return errors.Join(err, <-stopped)
	}
}

// fetchTime bounds the fetching after the end of the stream.
const fetchTime = 5 * time.Minute

// aroundOf returns the part around the most active accounts.
func aroundOf(o network.Options, centers int) *backfill.Around {
	n := network.New(o)
	a := graph.Around{Hops: 1}
	const mostActive = 4096 // one in so many accounts: see Network.active
	for i := range centers {
		a.Centers = append(a.Centers, string(n.AppendDID(nil, i*mostActive%n.Accounts())))
	}
	return backfill.NewAround(a)
}

// awaitPart waits until the part of the network is in place.
func (r *run) awaitPart(ctx context.Context) {
	for quiet := 0; quiet < 50 && ctx.Err() == nil; quiet++ {
		if st := r.x.Backfill.StatusNow(); st.Waiting > 0 || r.part.Part.Members() <= len(r.part.Centers) {
			quiet = 0
		}
		<-time.After(100 * time.Millisecond)
	}
	st := r.x.Backfill.StatusNow()
	r.report.Repos = st.Fetched
	_, peak := usage()
	r.say("%d accounts in place, %d records, peak memory %d MiB; given up: %v", r.part.Part.Members(), st.Records, peak>>20, st.Failed)
}
