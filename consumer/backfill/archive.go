package backfill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"skein.blue/consumer/archive"
	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/batch"
)

// An archiver reads archives.
type archiver struct {
	o       *Options
	jobs    *jobs
	fetcher *fetcher // counts what was read

	reader atomic.Pointer[archive.Reader] // of the archive that is being read
}

// errUnsigned means that an archive cannot be read with a Verifier.
var errUnsigned = errors.New("an archive has no signatures, so it cannot be read with --verify full; fetch repos instead")

// start starts to read an archive in the background, or continues the one that is stored.
func (a *archiver) start(ctx context.Context, address string) error {
	r, err := archive.New(archive.Options{
		URL: address, Key: a.o.ArchiveKey, Store: a.o.Store, Ops: a.o.ArchiveOps, Until: a.until,
		Logger: a.o.Logger.With("archive", address), Dropped: func(reason wire.Reason) { a.o.Metrics.dropped(reason, 1) },
	})
	if err != nil {
		return err
	}
	if a.o.Verifier != nil {
		return errUnsigned
	}
	if old := a.o.Store.Backfill().Archive; old != "" {
		source, err := archive.Source(old)
		if _, begun := a.o.Store.Cursor(source); err != nil || begun && source != r.Source() {
			return fmt.Errorf("part of another archive, %s, was read: continue it, or fetch repos instead", old)
		}
	}
	running, err := a.jobs.reserve(jobArchive)
	if err != nil {
		return err
	}
	err = a.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) {
		if b.Archive != address {
			b.Archive, b.Begun = address, a.o.streamNow().UTC()
		}
	})
	if err != nil {
		a.jobs.end(jobArchive, "")
		return err
	}
	ctx = running
	a.reader.Store(r)
	a.jobs.wg.Go(func() {
		heard := a.o.Store.Unbroken()
		err := a.o.awaitStream(ctx)
		if err == nil && !heard { // it is read up to the stream, which has begun only now
			err = a.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) { b.Begun = a.o.streamNow().UTC() })
		}
		a.o.Archiving(true)
		if err == nil {
			err = r.Run(ctx)
		}
		if err == nil {
			err = a.end(ctx)
		}
		a.o.Archiving(false) // before the next archive can begin
		p := r.Progress()
		next := "the next start, or skein backfill --archive, continues"
		if _, begun := a.o.Store.Cursor(r.Source()); err != nil && ctx.Err() == nil && !begun {
			next = "when it can be reached, or with another address or SKEIN_ARCHIVE_KEY, run skein backfill --archive again"
			err = errors.Join(err, a.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) { b.Archive, b.Begun = "", time.Time{} }))
		}
		if errors.Is(err, archive.ErrRestarted) {
			next = "fetch repos: skein backfill"
			err = errors.Join(err, a.o.Store.SetFuture(ctx, r.Source())) // its new numbers may pass those that were read
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			a.o.Logger.Error("reading the archive failed", "next", next, "archive", address, "seq", p.Seq, "error", err)
		default:
			a.o.Logger.Info("archive read completely", "archive", address, "seq", p.Seq, "records", p.Records, "bytes", p.Bytes)
		}
		a.fetcher.records.Add(p.Records)
		a.fetcher.bytes.Add(p.Bytes)
		a.reader.Store(nil)
		a.jobs.end(jobArchive, outcomeOf(ctx, err))
	})
	return nil
}

// report adds the archive that is being read to a Status.
func (a *archiver) report(st *Status) {
	r := a.reader.Load()
	if r == nil {
		return
	}
	p := r.Progress()
	st.Archive, st.ArchiveSeq, st.ArchiveTip = strings.TrimPrefix(r.Source(), "archive "), p.Seq, p.Tip
	st.Records += p.Records
	st.Bytes += p.Bytes
	if !p.Witnessed.IsZero() {
		st.ArchiveLag = time.Since(p.Witnessed).Seconds()
	}
}

// until returns the time up to which to read an archive: the start of the stream in this
// run, or the start of the archive job if the stream was already running then. Without a stream
// it is the zero time, which stands for everything that is sealed now.
func (a *archiver) until() time.Time {
	begun := a.o.Store.Backfill().Begun
	since, ok := a.o.Listening()
	switch {
	case ok && since.IsZero(): // no stream
		return since
	case !ok: // the stream already ran when the job started
		since = begun
	case since.After(begun) && time.Since(since) > 0: // a later process, which continues the job, does not know this
		if err := a.o.Store.ChangeBackfill(context.Background(), func(b *graph.Backfill) { b.Begun = since.UTC() }); err != nil {
			a.o.Logger.Error("storing the start of the stream failed", "error", err)
		}
	}
	return since.Add(archiveMargin)
}

// streamNow returns the current time: that of the newest applied event if there is one, because
// this machine's clock may be wrong. Later events have later times.
func (o *Options) streamNow() time.Time {
	if newest, _ := o.Store.Newest(""); newest.Time.Unix() > 0 {
		return newest.Time
	}
	return time.Now()
}

// archiveMargin is how far past the start of the stream to read an archive, because the archive
// may have seen earlier events late.
const archiveMargin = time.Minute

// end marks the accounts of the archive as complete, and queues the doubtful ones.
func (a *archiver) end(ctx context.Context) error {
	doubtful, err := a.o.Store.EndArchive(ctx)
	if err != nil {
		return err
	}
	err = a.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) {
		b.Roster = graph.Roster{AsOf: b.Begun, Source: graph.RosterArchive + b.Archive, Unconfirmed: a.o.Relay != "", Archived: a.o.Relay != ""}
		b.Archive, b.Begun = "", time.Time{}
	})
	if err != nil {
		return err
	}
	return a.o.resync(ctx, batch.Cause{Reason: "archive_doubtful"}, doubtful...)
}
