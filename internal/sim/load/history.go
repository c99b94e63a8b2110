package load

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"skein.blue/consumer/archive"
	"skein.blue/consumer/backfill"
	"skein.blue/internal/app"
	"skein.blue/internal/sim/network"
)

// history fills a store from the archive of the network's history, as skein backfill --archive does. A store
// that has only a part of it, because an earlier load was interrupted, gets the rest; one that has all of it,
// and perhaps events of the stream after it, stays as it is.
func (r *run) history(ctx context.Context) error {
	if r.o.Network.History == 0 {
		return nil
	}
	so := r.o.Store
	so.Create, so.Backfill = true, &backfill.Options{AllowPrivateHosts: true}
	x, err := app.OpenIndex(ctx, so)
	if err != nil {
		return err
	}
	err = r.readArchive(ctx, x)
	return errors.Join(err, x.Close(ctx))
}

func (r *run) readArchive(ctx context.Context, x *app.Index) error {
	address, read, err := interrupted(x)
	if err != nil || address == "" && len(x.Graph.Cursors()) > 0 { // r.open checks whose they are
		return err
	}
	sim, err := r.o.Archive(ctx, address, r.o.Network)
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ready, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- x.Backfill.Run(running, func() { close(ready) }) }()
	<-ready
	begun := time.Now()
	if address == "" { // else Run continues it
		err = x.Backfill.Archive(running, "http://"+sim.Address())
	}
	for said := begun; err == nil && ctx.Err() == nil; {
		st := x.Backfill.StatusNow()
		done := max(st.ArchiveSeq, read+st.Records)
		if !st.Busy {
			if how := st.Ended["archive"]; how != "ok" {
				err = errors.Join(err, fmt.Errorf("reading the archive: %s", how))
			}
			r.say("history: %d records in %v, %.0f/s", done-read, time.Since(begun).Round(time.Second), float64(done-read)/time.Since(begun).Seconds())
			break
		}
		if time.Since(said) > 10*time.Second {
			said = time.Now()
			_, peak := usage()
			r.say("history: %d of %d records, %.0f/s, %d MiB on disk, peak memory %d MiB", done, st.ArchiveTip,
				float64(done-read)/time.Since(begun).Seconds(), x.KV.DiskBytes()>>20, peak>>20)
		}
		<-time.After(100 * time.Millisecond)
	}
	stop()
	return errors.Join(err, ctx.Err(), <-stopped, sim.Stop())
}

// interrupted returns the address of the archive that an earlier load has begun to read, and how many records it
// has read; the address is "" if there is none. The archive is continued under the same address, because its
// cursor and the job that reads it contain the address.
func interrupted(x *app.Index) (address string, read int64, err error) {
	job := x.Graph.Backfill().Archive
	if job == "" {
		return "", 0, nil
	}
	source, err := archive.Source(job)
	if err != nil {
		return "", 0, fmt.Errorf("the archive that the store is reading: %w", err)
	}
	cursor, _ := x.Graph.Cursor(source)
	_, address, _ = strings.Cut(job, "://")
	return address, int64(cursor.Seq), nil
}

// addHistory gives the model the records of the network's history, computing them in parallel.
func (m *model) addHistory(ctx context.Context, o network.Options) error {
	if o.History == 0 {
		return nil
	}
	const parts, step = 4, 4096
	var mu sync.Mutex
	var wg sync.WaitGroup
	for part := range parts {
		wg.Go(func() {
			n := network.New(o)
			for first := part * step; first < n.Accounts() && ctx.Err() == nil; first += parts * step {
				for account := first; account < min(first+step, n.Accounts()); account++ {
					h := n.Repo(account)
					for k := range h.Count {
						op := n.Record(&h, k)
						if m.actor(int32(account)) || m.subject(op.Subject, op.SubjectTID) {
							mu.Lock()
							m.put(int32(account), &op, 0)
							mu.Unlock()
						}
					}
					if h.Count > 0 { // each account is in one part
						m.repos[account].Rev = n.RevOf(account)
					}
				}
			}
		})
	}
	wg.Wait()
	return ctx.Err()
}
