package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
)

// Checkpoint makes dir, which must not exist, a copy of the store as it is now, without holding
// writes up. Tables are hard links to those of the store where the file system can (so dir should
// be inside the store's folder); the rest is copied, and is small, because the memtables are
// flushed first. The copy is what a crash at this moment would leave, everything committed
// included, and Open opens it like any store. It keeps tables that the store no longer needs on the
// disk until it is removed.
func (s *Store) Checkpoint(ctx context.Context, dir string) error {
	if !s.gate.enter() {
		return kv.ErrClosed
	}
	defer s.gate.leave()
	if err := s.usable(ctx); err != nil {
		return err
	}
	if full := s.fs.full(); full != nil { // the links keep tables that compactions would free
		return full
	}
	if s.readOnly {
		return fmt.Errorf("pebblekv: %s is open for reading only: it cannot be copied", s.fs.dir)
	}
	if flushed, err := s.db.AsyncFlush(); err == nil {
		select {
		case <-flushed:
		case <-time.After(flushPatience): // the writes are in the logs, which are copied
		case <-s.gate.closing:
			return kv.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := s.db.Checkpoint(dir, pebble.WithFlushedWAL()); err != nil {
		return fmt.Errorf("pebblekv: copying %s to %s: %w", s.fs.dir, dir, err)
	}
	if err := (place{s.fs.FS, dir}).guardCopy(); err != nil {
		return errors.Join(err, s.fs.FS.RemoveAll(dir))
	}
	return nil
}

// flushPatience limits how long Checkpoint waits for a flush, which fails while the disk does.
const flushPatience = time.Minute

// guardCopy writes the guard of a checkpoint: all of the manifest and of the logs that it has.
func (p place) guardCopy() error {
	names, err := p.FS.List(p.dir)
	if err != nil {
		return fmt.Errorf("pebblekv: the guard of %s: %w", p.dir, err)
	}
	var all []mark
	for _, name := range names {
		if !strings.HasSuffix(name, logSuffix) && !strings.HasPrefix(name, manifestPrefix) {
			continue
		}
		m, err := p.markOf(name)
		if err != nil {
			return fmt.Errorf("pebblekv: the guard of %s: %w", p.dir, err)
		}
		all = append(all, m)
	}
	return p.writeMarks(all)
}

// markOf returns the mark of a whole file.
func (p place) markOf(name string) (m mark, err error) {
	f, err := p.FS.Open(p.PathJoin(p.dir, name))
	if err != nil {
		return m, err
	}
	sum := crc32.New(castagnoli)
	n, err := io.Copy(sum, f)
	return mark{name, n, sum.Sum32()}, errors.Join(err, f.Close())
}

// CheckFile reads a file of a checkpoint of a store with the Merger m to its end, and returns a kv.ErrCorrupt if it is damaged.
// Of tables, it compares each block with its checksum; other files are not read, because Open does
// that.
func CheckFile(ctx context.Context, m kv.Merger, path string) error {
	if !strings.HasSuffix(path, ".sst") {
		return nil
	}
	f, err := vfs.Default.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("pebblekv: %w", err)
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		return errors.Join(fmt.Errorf("pebblekv: %s: %w", path, err), f.Close())
	}
	r, err := sstable.NewReader(ctx, readable, sstable.ReaderOptions{Mergers: sstable.Mergers{m.Name(): pebbleMerger(m)}})
	if err != nil {
		return errors.Join(fmt.Errorf("pebblekv: %w: %s: %w", kv.ErrCorrupt, path, err), readable.Close())
	}
	if err := errors.Join(r.ValidateBlockChecksums(), r.Close()); err != nil {
		return fmt.Errorf("pebblekv: %w: %s: %w", kv.ErrCorrupt, path, err)
	}
	return nil
}
