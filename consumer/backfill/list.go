package backfill

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"skein.blue/internal/say"

	"golang.org/x/sync/errgroup"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/intern/dict"
	"skein.blue/internal/outward"
)

// A lister reads the lists of repos of hosts, and queues those that the index does not have, or has
// in an older state than listed.
type lister struct {
	o        *Options
	queue    *Queue
	client   *client
	jobs     *jobs
	comparer *comparer

	mu    sync.Mutex          // guards lists, and the HostBackfill of each
	lists map[string]*listing // of the last job, by host
}

// listJob is a round over the lists of hosts.
type listJob struct {
	from  time.Time                     // start of the job, even if a later process continues it
	hosts map[string]graph.HostBackfill // where to continue, by address
	named bool                          // an operator named the hosts
	holes uint64                        // of the stream, at the start
}

// listing is the progress in a host's list.
type listing struct {
	graph.HostBackfill

	pages    int64
	took     time.Duration // to send them
	waited   time.Duration // for room among the host's own repos
	foreign  int64         // listed repos that are not on the host
	own      int64         // repos that were unknown, and are on the host
	rechecks []recheck

	moved, stayed int64 // as foreign and own, but of known accounts
}

// Bounds for wrong entries in a host's list. Before the backfill stores anything of an unknown
// repo, it reads the repo's DID document, which costs the PLC directory a request. So it stops
// reading the list of a host that lists more foreign repos than mostForeign and than its own,
// few repos on many pages, or too many repos. Known accounts may have moved: above the same bound,
// it only stops reading their documents. It waits for mostWaiting while the host does not give away the repos that it listed, or a second for each.
const (
	mostForeign      = 1_000
	fewPages         = 1_000
	leastPerPage     = 10
	mostListedByHost = 2_000_000
	mostWaiting      = 6 * time.Hour
)

// listers is how many hosts' lists are read at once.
const listers = 16

// job makes a new job over hosts, or over those of the relay: all, or those that the roster lacks.
func (l *lister) job(ctx context.Context, hosts []string) (job *listJob, err error) {
	job = &listJob{named: len(hosts) > 0, hosts: map[string]graph.HostBackfill{}, from: time.Now().UTC()}
	back := l.o.Store.Backfill()
	unlisted := back.Roster.Unlisted
	if !job.named {
		if hosts, err = l.client.hostsOfRelay(ctx); err != nil {
			return nil, err
		}
		if slices.Contains(unlisted, l.o.Relay) || back.Archive != "" && !l.jobs.has(jobArchive) { // its own list stood for those of its hosts, or an archive broke off
			unlisted = nil
		}
		for _, host := range unlisted {
			job.hosts[host] = graph.HostBackfill{Done: true} // unless the relay still lists it
		}
	}
	for _, h := range hosts {
		if at := HTTPAddress(h); job.named || len(unlisted) == 0 || slices.Contains(unlisted, at) || len(hosts) == 1 && at == l.o.Relay {
			job.hosts[at] = graph.HostBackfill{}
		}
	}
	job.holes, _ = l.o.Store.Holes()
	return job, l.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) {
		b.Hosts, b.Named, b.ListingFrom, b.ListingHoles = job.hosts, job.named, job.from, job.holes
	})
}

// begin reads the lists of a job in the background.
func (l *lister) begin(ctx context.Context, job *listJob) {
	l.mu.Lock()
	l.queue.mu.Lock()
	clear(l.lists)
	for host, at := range job.hosts {
		l.lists[host] = &listing{HostBackfill: at}
		l.queue.named[host] = l.queue.named[host] || job.named
	}
	l.queue.mu.Unlock()
	l.mu.Unlock()
	l.jobs.wg.Go(func() {
		err := l.o.awaitStream(ctx)
		if err == nil {
			err = l.sweep(ctx, job)
		}
		if err == nil {
			l.readLists(ctx, job)
		}
		if ctx.Err() == nil {
			l.end(ctx, job, err)
		} else {
			l.jobs.end(jobRepos, "") // it continues in the next run
		}
	})
}

// awaitStream waits until the stream is heard, if there is one: what is written while a list or an archive is read is then in
// the stream.
func (o *Options) awaitStream(ctx context.Context) (err error) {
	for waits := 1; err == nil; waits++ {
		if since, ok := o.Listening(); ok && since.IsZero() || o.Store.Unbroken() {
			return nil
		}
		if waits == 500 {
			o.Logger.Warn("the stream is not heard yet; lists of repos and archives are read once it is, because what is written meanwhile must be in it", "relay", o.Relay)
		}
		err = outward.Wait(ctx, 20*time.Millisecond)
	}
	return err
}

// end records that the lists of a job were read.
func (l *lister) end(ctx context.Context, job *listJob, err error) {
	var unlisted []string
	unread := false // by a list that is not read again
	l.mu.Lock()
	for host, list := range l.lists {
		if list.Failed != "" {
			unlisted = append(unlisted, host)
		}
		unread = unread || list.Unread && list.Failed == "" && l.o.Relay != ""
	}
	hosts := len(l.lists)
	l.mu.Unlock()
	slices.Sort(unlisted)
	noted, _ := l.o.Store.Holes()
	if err == nil && !job.named && l.o.Store.Backfill().Archive != "" && !l.jobs.has(jobArchive) { // what an archive that broke off has left, which no other may complete
		_, err = l.queue.addAccounts(ctx, l.o, dict.None, batch.Cause{Reason: "backfill"}, func(_ dict.ID, st *graph.RepoState) bool {
			return st.Has(graph.FlagPartial) && !st.Has(graph.FlagResync)
		}, nil)
	}
	if err == nil {
		err = l.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) {
			b.Hosts, b.Named = nil, false
			again := b.Roster.Known() // only hosts that the roster lacked
			for host := range job.hosts {
				again = again && slices.Contains(b.Roster.Unlisted, host)
			}
			if job.named || again {
				b.Roster.Unconfirmed = b.Roster.Unconfirmed || unread
				b.Roster.Unlisted = slices.DeleteFunc(b.Roster.Unlisted, func(host string) bool {
					_, listed := job.hosts[host]
					return listed && !slices.Contains(unlisted, host)
				})
				return
			}
			unread = unread || b.Roster.Unconfirmed // an archive that ended meanwhile
			archived := b.Archive != "" || b.Roster.Archived
			// One that broke off is no longer needed.
			if !l.jobs.has(jobArchive) {
				b.Archive, b.Begun = "", time.Time{}
			}
			unread = unread || noted > job.holes && l.o.Relay != ""
			b.Roster = graph.Roster{AsOf: job.from, Source: graph.RosterRepos, Unlisted: unlisted, Unconfirmed: unread, Archived: unread && archived}
		})
	}
	outcome := outcomeOf(ctx, err)
	if err == nil && len(unlisted) > 0 {
		outcome = fmt.Sprintf("%d of %d hosts could not be listed", len(unlisted), hosts)
	}
	if err != nil {
		l.o.Logger.Error("reading the lists of repos failed; start again with skein backfill", "error", err)
	} else {
		l.o.Logger.Info("lists of repos read completely", "hosts", hosts, "hosts_failed", len(unlisted), "queued", l.queue.waiting())
	}
	l.jobs.end(jobRepos, outcome)
}

// report adds the progress to a Status.
func (l *lister) report(st *Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	st.Hosts = len(l.lists)
	for _, list := range l.lists {
		if list.Done {
			st.HostsDone++
		}
		st.Listed += list.Listed
	}
}

func (l *lister) readLists(ctx context.Context, job *listJob) {
	stop := l.saveLists(ctx)
	defer stop()
	l.mu.Lock()
	todo := maps.Clone(l.lists)
	maps.DeleteFunc(todo, func(_ string, list *listing) bool { return list.Done })
	l.mu.Unlock()
	var reading errgroup.Group
	reading.SetLimit(listers)
	for host, list := range todo {
		reading.Go(func() error {
			err := l.readList(ctx, job, host, list)
			if ctx.Err() != nil {
				return nil
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if list.Done = true; err != nil {
				list.Failed = say.Short(err.Error())
				l.o.Logger.Warn("listing the repos of a host failed", "host", host, "error", list.Failed)
			}
			return nil
		})
	}
	_ = reading.Wait()
}

// saveLists stores the progress of the lists now and then. After a kill, repos listed since
// then are listed again, and skipped.
func (l *lister) saveLists(ctx context.Context) (stop func()) {
	save := func() {
		hosts := map[string]graph.HostBackfill{}
		l.mu.Lock()
		for host, list := range l.lists {
			hosts[host] = list.HostBackfill
		}
		l.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if err := l.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) { b.Hosts = hosts }); err != nil {
			l.o.Logger.Error("storing the progress of the lists failed", "error", err)
		}
	}
	saving, end := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for outward.Wait(saving, 5*time.Second) == nil {
			save()
		}
		save()
	})
	return func() { end(); done.Wait() }
}
