package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"skein.blue/consumer"
	"skein.blue/internal/app"
	"skein.blue/internal/backup/target"
	"skein.blue/internal/human"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/network"
)

// A BackupReport says what a backup cost beside indexing and small questions, compared with the time
// before it.
type BackupReport struct {
	Seconds    float64 `json:"seconds"`
	StoreBytes int64   `json:"store_bytes"`
	SentBytes  int64   `json:"sent_bytes"`
	// WrittenBytes is what the engine wrote to tables since the backup before: flushes and compactions.
	WrittenBytes int64 `json:"written_bytes,omitempty"`

	EventsPerSecond       float64   `json:"events_per_second"`        // beside the backup
	EventsPerSecondBefore float64   `json:"events_per_second_before"` // in the quiet part before it
	Questions             Quantiles `json:"questions_ms"`
	QuestionsBefore       Quantiles `json:"questions_ms_before"`
}

// askers is how many clients ask small questions, askPause how long each waits after an answer.
const (
	askers   = 4
	askPause = 10 * time.Millisecond
)

// backups divides the run into parts: quiet, a backup, quiet, a backup. It returns at the end of the
// run, or after the second backup.
func (r *run) backups(ctx context.Context, c *consumer.Consumer) error {
	to, err := target.Open(r.o.BackupTo)
	if err != nil {
		return err //nolint:wrapcheck // it names the target
	}
	api, stop, err := r.answers(ctx)
	if err != nil {
		return err
	}
	defer stop()
	dids := r.someAccounts()
	quiet := r.o.Duration / 4
	var written int64
	for range 2 {
		var b BackupReport
		if b.EventsPerSecondBefore, b.QuestionsBefore, err = r.part(ctx, c, api, dids, func(ctx context.Context) error {
			select {
			case <-time.After(quiet):
			case <-ctx.Done():
			}
			return nil
		}); err != nil || ctx.Err() != nil {
			return err
		}
		start := time.Now()
		b.EventsPerSecond, b.Questions, err = r.part(ctx, c, api, dids, func(ctx context.Context) (err error) {
			point, err := r.x.Checkpoint(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, point.Remove()) }()
			job := app.BackupJob{Target: to, Program: "skein-sim load", InDaemon: true}
			done, err := job.Run(ctx, point)
			b.StoreBytes, b.SentBytes = done.Bytes, done.Sent
			return err
		})
		if err != nil {
			return err
		}
		b.Seconds = time.Since(start).Seconds()
		if p, ok := r.x.KV.(*pebblekv.Store); ok {
			now := int64(0)
			for _, n := range p.Written().Levels {
				now += n
			}
			if written > 0 {
				b.WrittenBytes = now - written
			}
			written = now
		}
		r.report.Backups = append(r.report.Backups, b)
		r.say("backup of %s in %.1f s, %s sent, %s written since the one before; %.0f events/s beside it, %.0f before; small queries p99 %.1f ms beside it, %.1f before", human.Bytes(b.StoreBytes), b.Seconds, human.Bytes(b.SentBytes), human.Bytes(b.WrittenBytes), b.EventsPerSecond, b.EventsPerSecondBefore, b.Questions.P99, b.QuestionsBefore.P99)
	}
	return nil
}

// part runs do while clients ask questions, and returns the rate of events and how long the
// questions took.
func (r *run) part(ctx context.Context, c *consumer.Consumer, api string, dids []string, do func(context.Context) error) (rate float64, took Quantiles, err error) {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	var h histogram
	var clients sync.WaitGroup
	failed := make(chan error, askers)
	for i := range askers {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 4))
			for asking.Err() == nil {
				start := time.Now()
				if err := askSmall(asking, api, dids, rng); err != nil && asking.Err() == nil {
					failed <- err
					return
				}
				h.add(time.Since(start), 1)
				select {
				case <-time.After(askPause):
				case <-asking.Done():
				}
			}
		})
	}
	first, start := r.event(c.Progress().Applied), time.Now()
	err = do(ctx)
	rate = float64(r.event(c.Progress().Applied)-first) / time.Since(start).Seconds()
	stop()
	clients.Wait()
	select {
	case e := <-failed:
		err = errors.Join(err, e)
	default:
	}
	return rate, h.quantiles(), err
}

// askClient keeps a connection for each of the askers.
var askClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: askers}, Timeout: time.Minute}

// askSmall asks whom two accounts both follow.
func askSmall(ctx context.Context, api string, dids []string, rng *rand.Rand) error {
	set := fmt.Sprintf("intersect(follows(%s),follows(%s))", dids[rng.IntN(len(dids))], dids[rng.IntN(len(dids))])
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, api+"/xrpc/blue.skein.graph.query?"+url.Values{"set": {set}, "limit": {"20"}}.Encode(), nil)
	if err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	resp, err := askClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking %s: %s", set, resp.Status) //nolint:err113 // it ends the run
	}
	return nil
}

// someAccounts returns the DIDs of some accounts of the network.
func (r *run) someAccounts() (dids []string) {
	n := network.New(r.o.Network)
	rng := rand.New(rand.NewPCG(1, 4))
	for range 20_000 {
		dids = append(dids, string(n.AppendDID(nil, rng.IntN(r.o.Network.Accounts))))
	}
	return dids
}

// answers serves the query API of the index, and returns its address.
func (r *run) answers(ctx context.Context) (api string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	ready, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- r.x.Serve(ctx, app.ServeOptions{Listen: "127.0.0.1:0", Version: "load", Ready: func(api, _ net.Addr) { ready <- api }})
	}()
	select {
	case at := <-ready:
		return "http://" + at.String(), func() {
			cancel()
			if err := <-ended; err != nil {
				r.say("the query API ended with %v", err)
			}
		}, nil
	case err := <-ended:
		cancel()
		return "", nil, err
	}
}
