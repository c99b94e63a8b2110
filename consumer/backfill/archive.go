package backfill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"skein.blue/consumer/archive"
	"skein.blue/consumer/wire"
	"skein.blue/graph"
)

// Archive starts to read an archive.
func (m *Manager) Archive(ctx context.Context, address string) error {
	if _, err := archive.Source(address); err != nil {
		return err
	}
	if m.o.Verifier != nil {
		return errUnsigned
	}
	m.mu.Lock()
	busy := m.archive != nil
	running := m.running
	m.mu.Unlock()
	if busy {
		return fmt.Errorf("reading an archive: %w", ErrBusy)
	}
	if running == nil {
		return errors.New("backfill is not running")
	}
	err := m.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) {
		if b.Archive != address {
			b.Archive, b.Begun = address, m.streamNow().UTC()
		}
	})
	if err != nil {
		return err
	}
	return m.beginArchive(running, address)
}

// errUnsigned means that an archive cannot be read with a Verifier.
var errUnsigned = errors.New("an archive has no signatures, so it cannot be read with --verify full; fetch repos instead")

func (m *Manager) beginArchive(ctx context.Context, address string) error {
	r, err := archive.New(archive.Options{
		URL: address, Key: m.o.ArchiveKey, Store: m.o.Store, Ops: m.o.ArchiveOps, Until: m.archiveUntil, Poll: m.o.ArchivePoll,
		Logger: m.log.With("archive", address), Dropped: func(reason wire.Reason) { m.o.Metrics.dropped(string(reason)) },
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	if m.archive != nil {
		m.mu.Unlock()
		return fmt.Errorf("reading an archive: %w", ErrBusy)
	}
	m.archive = r
	delete(m.ended, "archive")
	m.mu.Unlock()
	m.jobs.Go(func() {
		m.o.Archiving(true)
		err := r.Run(ctx)
		if err == nil {
			err = m.endArchive(ctx)
		}
		m.o.Archiving(false) // before the next archive can begin
		p := r.Progress()
		m.records.Add(p.Records)
		m.bytes.Add(p.Bytes)
		m.mu.Lock()
		m.archive = nil
		if ctx.Err() == nil {
			m.ended["archive"] = outcomeOf(err)
		}
		m.mu.Unlock()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			m.log.Error("reading the archive failed; the next start, or skein backfill --archive, continues", "archive", address, "seq", p.Seq, "error", err)
		default:
			m.log.Info("archive read completely", "archive", address, "seq", p.Seq, "records", p.Records, "bytes", p.Bytes)
		}
		m.poke()
	})
	return nil
}

func outcomeOf(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// archiveUntil returns the time up to which to read an archive: the start of the stream in this
// run, or the start of the archive job if the stream was already running then. Without a stream
// it is the zero time, which stands for everything that is sealed now.
func (m *Manager) archiveUntil() time.Time {
	if m.o.Listening == nil {
		return time.Time{}
	}
	begun := m.o.Store.Backfill().Begun
	since, ok := m.o.Listening()
	switch {
	case !ok: // the stream already ran when the job started
		since = begun
	case since.After(begun) && time.Since(since) > 0: // a later process, which continues the job, does not know this
		if err := m.o.Store.ChangeBackfill(context.Background(), func(b *graph.Backfill) { b.Begun = since.UTC() }); err != nil {
			m.log.Error("storing the start of the stream failed", "error", err)
		}
	}
	return since.Add(archiveMargin)
}

// streamNow returns the current time: that of the newest applied event if there is one, because
// this machine's clock may be wrong. Later events have later times.
func (m *Manager) streamNow() (now time.Time) {
	for _, c := range m.o.Store.Cursors() {
		if !strings.HasPrefix(c.Source, "archive ") && c.Time.After(now) {
			now = c.Time
		}
	}
	if now.Unix() <= 0 {
		return time.Now()
	}
	return now
}

// archiveMargin is how far past the start of the stream to read an archive, because the archive
// may have seen earlier events late.
const archiveMargin = time.Minute

// endArchive marks the accounts of the archive as complete, and queues the doubtful ones.
func (m *Manager) endArchive(ctx context.Context) error {
	doubtful, err := m.o.Store.EndArchive(ctx)
	if err != nil {
		return err
	}
	err = m.o.Store.ChangeBackfill(ctx, func(b *graph.Backfill) {
		if b.Done == nil {
			b.Done = map[string]time.Time{}
		}
		b.Done[graph.DoneArchive+b.Archive] = time.Now().UTC()
		b.Archive, b.Begun = "", time.Time{}
	})
	if err != nil {
		return err
	}
	return m.Resync(ctx, "archive_doubtful", doubtful...)
}
