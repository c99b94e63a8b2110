package pebblekv

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"

	"skein.blue/internal/kv"
)

// LostWrites is the kv.ErrDamaged of a store whose write-ahead logs have lost synced
// writes.
type LostWrites struct {
	Dir string // the store's folder
	// Log is the file name of the first damaged log. Set Options.AcceptLoss to it to open the store
	// without the writes of that log and of all later ones.
	Log   string
	What  string // the damage
	Bytes int64  // size of the synced writes in these logs
}

// Error implements error.
func (l *LostWrites) Error() string {
	return fmt.Sprintf("pebblekv: %s: %v: %s; the newest writes, %d bytes of the log, are lost", l.Dir, kv.ErrDamaged, l.What, l.Bytes)
}

// Is reports whether target is kv.ErrDamaged.
func (l *LostWrites) Is(target error) bool { return target == kv.ErrDamaged }

// prove compares the manifest and the logs with the guard before a store is opened.
func (fs *storeFS) prove(o Options) error {
	damaged := func(err error) error {
		if errors.Is(err, os.ErrPermission) {
			return forbidden(o.Dir, err)
		}
		return fmt.Errorf("pebblekv: %s: %w: %w", o.Dir, kv.ErrDamaged, err)
	}
	desc, err := pebble.Peek(o.Dir, fs.FS)
	if err != nil {
		return damaged(err)
	}
	if fs.guard.marks, err = fs.readMarks(); err != nil {
		return damaged(err)
	}
	manifest := fs.PathBase(desc.ManifestFilename)
	at := slices.IndexFunc(fs.guard.marks, func(m mark) bool { return m.File == manifest })
	if at < 0 {
		return damaged(fmt.Errorf("%s, which guards %s, is missing or damaged", guardFile, manifest))
	}
	if err := fs.compare(fs.guard.marks[at]); err != nil {
		return damaged(err)
	}
	oldest, err := fs.oldestLog(desc.ManifestFilename)
	if err != nil {
		return damaged(err)
	}
	lost, err := fs.lostWrites(oldest)
	if err != nil {
		return damaged(err)
	}
	if lost == nil {
		return nil
	}
	if o.ReadOnly || lost.Log != o.AcceptLoss { // accepting a loss changes the store
		return lost
	}
	if err := fs.acceptLoss(lost); err != nil {
		return fmt.Errorf("pebblekv: %s: setting damaged logs aside: %w", o.Dir, err)
	}
	o.Logger.Warn("store opened without the writes of its damaged log, because of --accept-loss; the damaged logs stay in the folder", "log", lost.Log, "damage", lost.What, "lost_bytes", lost.Bytes, "kept_as", "*"+logSuffix+lostSuffix)
	return nil
}

// errLost is wrapped by compare if a file lacks what its mark says.
var errLost = errors.New("synced bytes are lost")

// compare returns an error if a file lacks bytes that were synced.
func (p place) compare(m mark) error {
	f, err := p.FS.Open(p.PathJoin(p.dir, m.File))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %s is gone; %d bytes of it were synced", errLost, m.File, m.Bytes)
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened for reading only
	sum := crc32.New(castagnoli)
	switch n, err := io.CopyN(sum, f, m.Bytes); {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %s has %d bytes, and %d were synced", errLost, m.File, n, m.Bytes)
	case err != nil:
		return fmt.Errorf("%w: %s cannot be read from byte %d on: %w", errLost, m.File, n, err)
	case sum.Sum32() != m.CRC:
		return fmt.Errorf("%w: the first %d bytes of %s, which were synced, have changed", errLost, m.Bytes, m.File)
	}
	return nil
}

// lostWrites compares the logs with the guard. oldest is the number of the first log that matters.
// It returns nil if nothing is lost.
func (fs *storeFS) lostWrites(oldest uint64) (lost *LostWrites, err error) {
	marks := slices.Clone(fs.guard.marks)
	slices.SortFunc(marks, func(a, b mark) int { return byNumber(a.File, b.File) })
	for _, m := range marks {
		if n, ok := logNumber(m.File); !ok || n < oldest {
			continue
		}
		if lost == nil {
			switch err := fs.compare(m); {
			case err == nil:
				continue
			case !errors.Is(err, errLost):
				return nil, err
			default:
				lost = &LostWrites{Dir: fs.dir, Log: m.File, What: err.Error()}
			}
		}
		lost.Bytes += m.Bytes // writes after a loss cannot be applied
	}
	return lost, nil
}

const lostSuffix = ".lost" // appended to the name of a log that was set aside

// acceptLoss renames the damaged log and all later ones, so that Pebble ignores them. The store then has the state in
// which the damaged log began, cursors included. After a crash, acceptLoss can be repeated.
func (fs *storeFS) acceptLoss(lost *LostWrites) error {
	first, _ := logNumber(lost.Log)
	logs, err := fs.logsFrom(first)
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(logs) { // the damaged log last: until then, Open detects the loss
		at := fs.PathJoin(fs.dir, name)
		_, err := fs.FS.Stat(at + lostSuffix)
		if info, failed := fs.FS.Stat(at); err == nil && failed == nil && info.Size() == 0 { // after a crash, the one that is made below
			continue
		}
		if err := fs.FS.Rename(at, at+lostSuffix); err != nil {
			return err
		}
	}
	if err := fs.syncFolder(); err != nil { // a crash must not keep the empty log's name without the damaged one's
		return err
	}
	// An empty log keeps Pebble from giving another one the same name, whose loss would then be accepted, too.
	empty, err := fs.FS.Create(fs.PathJoin(fs.dir, lost.Log), vfs.WriteCategoryUnspecified)
	if err == nil {
		err = errors.Join(empty.Close(), fs.syncFolder())
	}
	if err != nil {
		return err
	}
	fs.guard.drop(func(m mark) bool { n, isLog := logNumber(m.File); return isLog && n >= first })
	fs.guard.unsaved = true
	return fs.saveGuard()
}

// logsFrom returns the names of the logs numbered first or higher, in ascending order.
func (p place) logsFrom(first uint64) (logs []string, err error) {
	names, err := p.FS.List(p.dir)
	if err != nil {
		return nil, fmt.Errorf("pebblekv: %s: %w", p.dir, err)
	}
	for _, name := range names {
		if n, ok := logNumber(name); ok && n >= first {
			logs = append(logs, name)
		}
	}
	slices.SortFunc(logs, byNumber)
	return logs, nil
}

// logNumber returns the number in the name of a log.
func logNumber(name string) (uint64, bool) {
	n, _, ok := wal.ParseLogFilename(name)
	return uint64(n), ok
}

// byNumber compares the names of files: those of logs by their numbers. The millionth has a digit more.
func byNumber(a, b string) int {
	x, _ := logNumber(a)
	y, _ := logNumber(b)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(a, b))
}

// oldestLog returns the number of the oldest unflushed log, as a manifest says.
func (p place) oldestLog(manifest string) (oldest uint64, err error) {
	f, err := p.FS.Open(manifest)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // opened for reading only
	for r := record.NewReader(f, 0); ; {
		rec, err := r.Next()
		if err != nil { // its end, or an edit that was not synced
			return oldest, nil
		}
		head, err := io.ReadAll(io.LimitReader(rec, editHead))
		if err != nil {
			return oldest, nil
		}
		oldest = max(oldest, flushedBelow(head))
	}
}

// The fields that come first in an edit of a manifest, each a tag and its value
// (LevelDB's format). Only the first edit has the comparer's name.
const (
	editComparer  = 1 // a length, then the bytes of the name
	editLogNumber = 2 // all logs below this number are flushed
	// editHead is enough for both.
	editHead = 128
)

// flushedBelow returns the log number of an edit of the manifest, given the edit's first
// bytes, or 0 if it has none.
func flushedBelow(edit []byte) uint64 {
	tag, n := binary.Uvarint(edit)
	if n > 0 && tag == editComparer {
		size, m := binary.Uvarint(edit[n:])
		if m <= 0 || size > uint64(len(edit)-n-m) {
			return 0
		}
		edit = edit[n+m+int(size):]
		tag, n = binary.Uvarint(edit)
	}
	if n <= 0 || tag != editLogNumber {
		return 0
	}
	number, _ := binary.Uvarint(edit[n:]) // 0 if it is cut off
	return number
}
