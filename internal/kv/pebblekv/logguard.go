package pebblekv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"

	"skein.blue/internal/kv"
)

// Pebble cannot distinguish a write-ahead log torn by a crash from one damaged later:
// it reads the newest log up to the first broken record, and serves the result as the
// newest state. So the guard also records, for each log, how many bytes were synced and
// their CRC-32C:
//
//	{"manifest":"MANIFEST-000012","bytes":3410,"begun":true,
//	 "logs":[{"log":"000017.log","bytes":5242880,"crc":2914098370}]}
//
// The guard is written after every sync of a log, never before. So a crash leaves at
// least what the guard says, and never looks like damage. A clean stop flushes the
// memtables into tables and empties the list: then nothing depends on a log.
//
// The guard may list deleted logs, because it is only written after the next sync. The
// manifest says which logs matter: those from its newest log number on. All earlier logs
// were flushed into tables, which the manifest lists.
const (
	logSuffix  = ".log"
	lostSuffix = ".lost" // appended to the name of a log that was set aside
	allLogs    = "logs"  // LostWrites.Log if no log is left
)

// logMark records the synced part of a log.
type logMark struct {
	Log   string `json:"log"`   // its file name
	Bytes int64  `json:"bytes"` // how many bytes, from the beginning
	CRC   uint32 `json:"crc"`   // their CRC-32C
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// LostWrites is the kv.ErrDamaged of a store whose write-ahead logs have lost synced
// writes.
type LostWrites struct {
	Dir string // the store's folder
	// Log is the file name of the first damaged log, or "logs" if no log is left. Set
	// Options.AcceptLoss to it to open the store without the lost writes.
	Log  string
	What string // the damage
	// Bytes is the size of the lost writes: the synced bytes of Log behind the damage,
	// and of all later logs. 0 means unknown.
	Bytes int64

	readable int64 // length of the undamaged records at the beginning of Log
}

// Error implements error.
func (l *LostWrites) Error() string {
	if l.Bytes == 0 {
		return fmt.Sprintf("pebblekv: %s: %v: %s; the writes since the last clean stop may be lost", l.Dir, kv.ErrDamaged, l.What)
	}
	return fmt.Sprintf("pebblekv: %s: %v: %s; the newest writes, %d bytes of the log, are lost", l.Dir, kv.ErrDamaged, l.What, l.Bytes)
}

// Is reports whether target is kv.ErrDamaged.
func (l *LostWrites) Is(target error) bool { return target == kv.ErrDamaged }

// markLog records the synced part of a log in memory. saveLogs writes the guard.
func (fs *storeFS) markLog(m logMark) {
	fs.guarding.Lock()
	defer fs.guarding.Unlock()
	fs.unsaved = true
	if i := slices.IndexFunc(fs.guard.Logs, func(l logMark) bool { return l.Log == m.Log }); i >= 0 {
		fs.guard.Logs[i] = m
		return
	}
	fs.guard.Logs = append(fs.guard.Logs, m)
}

// forgetLog drops the mark of a log that Pebble no longer needs.
func (fs *storeFS) forgetLog(name string) {
	fs.guarding.Lock()
	defer fs.guarding.Unlock()
	fs.guard.Logs = slices.DeleteFunc(fs.guard.Logs, func(l logMark) bool { return l.Log == name })
}

// saveLogs writes the guard if a log was synced since the last time. If the disk is
// full, the older guard stays: it promises less, and is correct. The next sync tries
// again.
func (fs *storeFS) saveLogs() error {
	fs.guarding.Lock()
	unsaved := fs.unsaved
	fs.guarding.Unlock()
	if !unsaved {
		return nil
	}
	err := fs.writeGuard(func(*guard) {})
	if noRoom(err) {
		return nil
	}
	return err
}

// noLogs records, after a clean stop, that nothing depends on a log.
func (fs *storeFS) noLogs() error {
	err := fs.writeGuard(func(g *guard) { g.Logs = nil })
	if noRoom(err) {
		return nil
	}
	return err
}

// flushPatience limits how long Close waits for the flush of the memtables. The process
// must end within ten seconds.
const flushPatience = 5 * time.Second

// flush writes the memtables to tables, and reports whether it succeeded. If not, the next
// Open reads the writes from the logs. It only tries if the disk has space and files can be
// made: Pebble panics if it cannot make a log.
func (s *Store) flush() bool {
	if !s.wrote { // Open has flushed what it found
		return true
	}
	if s.fs.full() != nil || s.fs.writeGuard(func(*guard) {}) != nil {
		return false
	}
	select {
	case <-s.failed: // discard an earlier failure
	default:
	}
	done, err := s.db.AsyncFlush()
	if err != nil {
		return false
	}
	select {
	case <-done:
		return true
	case <-s.failed:
		return false
	case <-time.After(flushPatience):
		return false
	}
}

// proveLogs checks that the logs hold all synced writes. oldest is the number of the first
// log that matters. Lost writes are a *LostWrites; if accept names its log, proveLogs
// accepts the loss instead.
func (fs *storeFS) proveLogs(oldest uint64, accept string, log *slog.Logger) error {
	lost, err := fs.lostWrites(oldest)
	if err != nil || lost == nil {
		return err
	}
	if lost.Log != accept {
		return lost
	}
	if err := fs.acceptLoss(lost); err != nil {
		return err
	}
	log.Warn("store opened without the writes of its damaged log, because of --accept-loss; the damaged logs stay in the folder", "log", lost.Log, "damage", lost.What, "lost_bytes", lost.Bytes, "kept_as", "*"+logSuffix+lostSuffix)
	return nil
}

// lostWrites compares the logs with the guard. It returns nil if nothing is lost.
func (fs *storeFS) lostWrites(oldest uint64) (lost *LostWrites, err error) {
	marks := slices.Clone(fs.guard.Logs)
	slices.SortFunc(marks, func(a, b logMark) int { return strings.Compare(a.Log, b.Log) })
	for _, m := range marks {
		n, ok := logNumber(m.Log)
		switch {
		case !ok || n < oldest:
			continue
		case lost != nil: // writes after a loss cannot be applied
			lost.Bytes += m.Bytes
			continue
		}
		if lost, err = fs.compareLog(m); err != nil {
			return nil, err
		}
	}
	if lost != nil || !fs.guard.Begun {
		return lost, nil
	}
	logs, err := fs.logsFrom(0)
	if err == nil && len(logs) == 0 { // a store always keeps its newest log
		lost = &LostWrites{Dir: fs.dir, Log: allLogs, What: "its write-ahead logs (*.log) are gone"}
	}
	return lost, err
}

// compareLog compares a log with its mark. It returns nil if the log holds everything
// that was synced.
func (fs *storeFS) compareLog(m logMark) (*LostWrites, error) {
	lost := &LostWrites{Dir: fs.dir, Log: m.Log, Bytes: m.Bytes}
	f, err := fs.FS.Open(fs.PathJoin(fs.dir, m.Log))
	switch {
	case errors.Is(err, os.ErrNotExist):
		lost.What = fmt.Sprintf("the write-ahead log %s is gone; %d bytes of it were synced", m.Log, m.Bytes)
		return lost, nil
	case errors.Is(err, os.ErrPermission):
		return nil, forbidden(fs.dir, err)
	case err != nil:
		return nil, fmt.Errorf("pebblekv: opening %s: %w", m.Log, err)
	}
	defer func() { _ = f.Close() }() // opened for reading only
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("pebblekv: reading %s: %w", m.Log, err)
	}
	sum := crc32.New(castagnoli)
	if _, err = io.CopyN(sum, f, m.Bytes); err == nil && sum.Sum32() == m.CRC {
		return nil, nil // nothing is lost
	}
	end, why := fs.readableLog(m.Log)
	if end >= m.Bytes { // only padding differs
		return nil, nil // nothing is lost
	}
	lost.readable, lost.Bytes = end, m.Bytes-end
	if st.Size() < m.Bytes {
		lost.What = fmt.Sprintf("the write-ahead log %s has %d bytes, and %d were synced", m.Log, st.Size(), m.Bytes)
	} else {
		lost.What = fmt.Sprintf("the write-ahead log %s cannot be read from byte %d on (%v), and %d bytes were synced", m.Log, end, why, m.Bytes)
	}
	return lost, nil
}

// readableLog returns the end of the last record of a log that Pebble can read, and the
// error that stops it there: io.EOF at the end of the log.
func (p place) readableLog(name string) (end int64, why error) {
	logs, err := wal.Scan(wal.Dir{FS: p.FS, Dirname: p.dir})
	if err != nil {
		return 0, err
	}
	n, _, _ := wal.ParseLogFilename(name)
	log, ok := logs.Get(n)
	if !ok {
		return 0, os.ErrNotExist
	}
	r := log.OpenForRead()
	defer func() { _ = r.Close() }() // opened for reading only
	for {
		rec, at, err := r.NextRecord()
		end = at.PreviousFilesBytes + at.Physical
		if err == nil {
			_, err = io.Copy(io.Discard, rec)
		}
		if err != nil {
			return end, err
		}
	}
}

// acceptLoss truncates the damaged log after its last undamaged record, and renames all
// later logs so that Pebble ignores them. The store then has the state before the first
// lost write. The removed data stays in the folder under other names. After a crash,
// acceptLoss can be repeated.
func (fs *storeFS) acceptLoss(lost *LostWrites) error {
	fail := func(err error) error {
		return fmt.Errorf("pebblekv: %s: setting damaged logs aside: %w", fs.dir, err)
	}
	first, _ := logNumber(lost.Log)
	logs, err := fs.logsFrom(first)
	if err != nil {
		return fail(err)
	}
	slices.Reverse(logs) // truncate the damaged log last: until then, Open detects the loss
	for _, name := range logs {
		at := fs.PathJoin(fs.dir, name)
		if name != lost.Log {
			err = fs.FS.Rename(at, at+lostSuffix)
		} else {
			err = fs.cutLog(at, lost.readable)
		}
		if err != nil {
			return fail(err)
		}
	}
	err = fs.syncFolder()
	if err == nil {
		err = fs.writeGuard(func(g *guard) {
			g.Begun = false // the marker may be lost; the next write records it
			g.Logs = slices.DeleteFunc(g.Logs, func(m logMark) bool { n, _ := logNumber(m.Log); return n >= first })
		})
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// cutLog truncates a log atomically. The whole log stays under another name if the file
// system supports hard links.
func (p place) cutLog(name string, readable int64) error {
	old, err := p.FS.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = old.Close() }() // opened for reading only
	cut, err := p.FS.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.CopyN(cut, old, readable)
	if err = errors.Join(err, cut.Sync(), cut.Close()); err != nil {
		return err
	}
	_ = p.FS.Link(name, name+lostSuffix) // for the operator; nothing depends on it
	return p.FS.Rename(name+".new", name)
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
	slices.Sort(logs)
	return logs, nil
}

// logNumber returns the number in the name of a log.
func logNumber(name string) (uint64, bool) {
	n, _, ok := wal.ParseLogFilename(name)
	return uint64(n), ok
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
	number, n := binary.Uvarint(edit[n:])
	if n <= 0 {
		return 0
	}
	return number
}
