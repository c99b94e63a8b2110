package backfill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"skein.blue/consumer/archive"
	"skein.blue/consumer/wire"
	"skein.blue/graph/format"
)

// Archive begins to read an archive.
func (m *Manager) Archive(ctx context.Context, address string) error {
	if _, err := archive.Source(address); err != nil {
		return err
	}
	m.mu.Lock()
	busy := m.archive != nil
	running := m.running
	m.mu.Unlock()
	if busy {
		return fmt.Errorf("reading an archive: %w", ErrBusy)
	}
	if running == nil {
		return errors.New("backfill: it does not run")
	}
	err := m.o.Store.ChangeBackfill(ctx, func(b *format.Backfill) {
		if b.Archive != address {
			b.Archive, b.Begun = address, m.streamNow().UTC()
		}
	})
	if err != nil {
		return err
	}
	return m.beginArchive(running, address)
}

func (m *Manager) beginArchive(ctx context.Context, address string) error {
	ops := m.o.ArchiveOps
	if m.o.Listening != nil { // the stream waits for each write
		ops /= 2
	}
	r, err := archive.New(archive.Options{
		URL: address, Key: m.o.ArchiveKey, Store: m.o.Store, Ops: ops, Until: m.archiveUntil, Poll: m.o.ArchivePoll,
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
		defer m.o.Archiving(false)
		err := r.Run(ctx)
		if err == nil {
			err = m.endArchive(ctx)
		}
		p := r.Progress()
		m.records.Add(p.Records)
		m.bytes.Add(p.Bytes)
		m.mu.Lock()
		m.archive = nil
		if ctx.Err() == nil {
			m.ended["archive"] = said(err)
		}
		m.mu.Unlock()
		switch {
		case ctx.Err() != nil:
		case err != nil:
			m.log.Error("reading the archive failed: it is gone on with at the next start, or with skein backfill --archive", "archive", address, "seq", p.Seq, "error", err)
		default:
			m.log.Info("the archive has been read", "archive", address, "seq", p.Seq, "records", p.Records, "bytes", p.Bytes)
		}
		m.poke()
	})
	return nil
}

func said(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// archiveUntil returns what an archive must reach: what happened before the index began
// to listen, or if it has since long listened, before the archive was begun. Where
// nobody listens, that is what is sealed now.
func (m *Manager) archiveUntil() time.Time {
	if m.o.Listening == nil {
		return time.Time{}
	}
	begun := m.o.Store.Backfill().Begun
	since, ok := m.o.Listening()
	switch {
	case !ok: // the stream was heard before the archive was begun
		since = begun
	case since.After(begun) && time.Since(since) > 0: // a process that goes on with it does not know
		if err := m.o.Store.ChangeBackfill(context.Background(), func(b *format.Backfill) { b.Begun = since.UTC() }); err != nil {
			m.log.Error("since when the stream is heard could not be written", "error", err)
		}
	}
	return since.Add(archiveMargin)
}

// streamNow returns what time it is: that of the newest event applied, if one was, because this
// machine's clock may be wrong. Whatever the index hears from here on is later.
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

// archiveMargin is how much further an archive is read than when the index began to
// listen: the archive may have seen late what happened before.
const archiveMargin = time.Minute

// endArchive makes complete what the archive was about.
func (m *Manager) endArchive(ctx context.Context) error {
	doubtful, err := m.o.Store.EndArchive(ctx)
	if err != nil {
		return err
	}
	err = m.o.Store.ChangeBackfill(ctx, func(b *format.Backfill) {
		if b.Done == nil {
			b.Done = map[string]time.Time{}
		}
		b.Done[format.DoneArchive+b.Archive] = time.Now().UTC()
		b.Archive, b.Begun = "", time.Time{}
	})
	if err != nil {
		return err
	}
	return m.Resync(ctx, "archive_doubtful", doubtful...)
}
