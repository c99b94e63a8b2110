package check

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/zeebo/xxh3"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A Progress keeps how far a check has come in a file, so that a check that was interrupted can go on from
// there. It cannot if the store has changed since, or if it had found problems: the list would not be complete.
type Progress struct {
	// File is the name of the file. It is written once a minute and when the check is interrupted, and removed when
	// the check ends.
	File string
	// Program is the version of the program. Another version starts over, since what it adds up may differ.
	Program string
	// Resumed, if not nil, is called before a check goes on, with the time at which the file was written, and the
	// number of keys that had been read.
	Resumed func(at time.Time, keys int64)
	// Warn, if not nil, is called when a file cannot be used, and the first time when it cannot be written. The check goes on.
	Warn func(error)

	keeping func(p pass) bool // for tests: whether to keep what a pass has added up; nil: after keepEvery
}

const (
	writeEvery = time.Minute     // the file, which has a bit for each string
	keepEvery  = 5 * time.Second // what a pass has added up, in memory
)

// A pass is a scan of a keyspace that can go on from any key that begins a new actor or set.
type pass int

const (
	passStrings pass = iota // the strings of ids
	passDates               // the dates, for the edges to skip
	passRecords             // the four passes from here on run at the same time
	passSets
	passIDs // the ids of strings
	passSums
	passes
	noPass = passes // another scan
)

// saved is the part of the file that is not a bitmap. For each pass there is the key from which it goes on, and what it has
// added up from the keys before.
type saved struct {
	Program string
	Store   string // stateOf the store
	Time    time.Time
	Keys    int64
	Seed    uint64
	From    [passes][]byte // nil: from the start
	Large   []kinds.Kind   // with large sets, one bitmap each

	Backward       [len(dict.Namespaces) + 1]edgeSum // by passStrings
	Below          uint64                            // by passDates
	Counted        map[string]int64                  // by passRecords
	Records, Dates map[kinds.Kind]edgeSum
	Sets, Members  map[kinds.Kind]edgeSum // by passSets
	Hidden         []byte                 // a bitmap of the accounts that were not yet met in the hidden set
	Strings        [len(dict.Namespaces) + 1]int64
	Forward        [len(dict.Namespaces) + 1]edgeSum // by passIDs
	Used           map[dict.BlockKey]uint32
	Dated, Stored  map[kinds.Kind]edgeSum // by passSums
}

// A saver gathers what the passes of one check have added up, and writes the file.
type saver struct {
	*Progress

	v     *checker // its bitmaps grow in the first two passes, whose goroutine also writes the file
	looks [passes]uint8
	kept  [passes]time.Time

	mu      sync.Mutex // guards the fields below
	state   saved
	written time.Time
	saved   bool // the file is this check's
	failing bool // the file could not be written the last time
	frozen  bool // what is added up from now on is not kept
	foreign bool // the file is something else's
	over    bool // there was a problem: the file is not written
}

// stateOf returns a state of the store that everything changes that a pass depends on.
func stateOf(r kv.Reader) (string, error) {
	sum := xxh3.New()
	header, ok, err := r.Get(format.HeaderKey)
	if err != nil || !ok {
		return "", err
	}
	_, _ = sum.Write(header)
	state, err := read.WriteState(r)
	_, _ = sum.WriteString(state)
	for _, keyspace := range []byte{dict.KeyLease, dict.KeyNext, dict.KeyClaims} {
		err = errors.Join(err, kv.ScanPrefix(r, []byte{keyspace}, func(k, v []byte) error {
			_, _ = sum.Write(k)
			_, _ = sum.Write(v)
			return nil
		}))
	}
	return fmt.Sprintf("%x", sum.Sum128().Bytes()), err
}

// newSaver returns a saver for a store in a state, and the file of an interrupted check of this state, if there is one.
func (p *Progress) newSaver(state string) (s *saver, file []byte) {
	s = &saver{Progress: p, written: time.Now()}
	file, err := os.ReadFile(p.File)
	if err == nil {
		err = s.state.decode(file)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, errDamaged):
		s.warn(fmt.Errorf("%s: %w; the check starts over", p.File, err))
		s.remove()
	case err != nil:
		s.foreign = true
		s.warn(fmt.Errorf("%s cannot keep the progress of the check: %w", p.File, err))
	case s.state.Program == p.Program && s.state.Store == state:
		s.saved = true
		return s, file
	default:
		s.warn(fmt.Errorf("%s: the store or skein has changed since the check was interrupted at %s; the check starts over", p.File, s.state.Time.UTC().Format(time.DateTime)))
		s.remove()
	}
	s.state = saved{Program: p.Program, Store: state}
	return s, nil
}

func (s *saver) warn(err error) {
	if s.Warn != nil {
		s.Warn(err)
	}
}

// due reports whether it is time to keep what a pass has added up. The caller is the goroutine of the pass.
func (s *saver) due(p pass) bool {
	if s == nil || p == noPass {
		return false
	}
	const looks = 128 // keys; a look at the clock takes as long as a few
	if s.keeping != nil {
		return s.keeping(p)
	}
	s.looks[p]++
	return s.looks[p]%looks == 0 && time.Since(s.kept[p]) >= keepEvery
}

// keep keeps what a pass has added up from the keys before from, and writes the file if it is time.
func (s *saver) keep(p pass, from []byte, v *checker) {
	if s == nil || p == noPass {
		return
	}
	s.kept[p] = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen {
		return
	}
	s.state.From[p] = bytes.Clone(from)
	s.state.Keys = v.progress.keys.Load()
	switch x := &s.state; p {
	case passStrings:
		x.Backward = v.dictionary.backward
	case passDates, passes: // write takes what it needs
	case passRecords:
		x.Counted, x.Records, x.Dates = maps.Clone(v.counts.Records), maps.Clone(v.records), maps.Clone(v.dates.fromRecs)
	case passSets:
		x.Sets, x.Members = maps.Clone(v.sets), maps.Clone(v.dates.members)
		x.Hidden, _ = v.unmet.MarshalBinary() // into memory
	case passIDs:
		x.Strings, x.Forward, x.Used = v.dictionary.strings, v.dictionary.forward, maps.Clone(v.dictionary.used)
	case passSums:
		x.Dated, x.Stored = maps.Clone(v.dates.dated), maps.Clone(v.dates.stored)
	}
	if time.Since(s.written) >= writeEvery {
		s.write()
	}
}

// scan reads a keyspace, from where the pass of an interrupted check was. If a pass reads several, it reads them in the order of
// their keys.
func (v *checker) scan(p pass, keyspace byte, each func(key, value []byte) error) error {
	from, end := v.saver.from(p, keyspace), kv.PrefixEnd([]byte{keyspace})
	if bytes.Compare(from, end) >= 0 {
		return nil
	}
	return v.r.Scan(from, end, false, func(key, value []byte) (bool, error) {
		return true, each(key, value)
	})
}

// end keeps that a pass has read its whole keyspace.
func (s *saver) end(p pass, keyspace byte, v *checker) { s.keep(p, []byte{keyspace + 1}, v) }

// resumes reports whether a pass goes on from where an interrupted check was.
func (s *saver) resumes(p pass) bool { return s != nil && p != noPass && len(s.state.From[p]) > 0 }

// from returns the key from which a pass reads a keyspace; it lies behind the keyspace if the pass has read all of it.
func (s *saver) from(p pass, keyspace byte) []byte {
	if s.resumes(p) && s.state.From[p][0] >= keyspace {
		return s.state.From[p]
	}
	return []byte{keyspace}
}

// summed returns p if the checker adds up; later it reads the same keys to find what is wrong.
func (v *checker) summed(p pass) pass {
	if v.summing {
		return p
	}
	return noPass
}

// restore gives v what an interrupted check has added up, and the bitmaps of its file.
func (s *saver) restore(v *checker, file []byte) (err error) {
	x, d := &s.state, v.dictionary
	v.seed, d.seed, v.dates.seed = x.Seed, x.Seed, x.Seed
	d.backward, d.forward, d.strings = x.Backward, x.Forward, x.Strings
	for to, from := range map[*map[kinds.Kind]edgeSum]map[kinds.Kind]edgeSum{
		&v.records: x.Records, &v.dates.fromRecs: x.Dates, &v.sets: x.Sets, &v.dates.members: x.Members,
		&v.dates.dated: x.Dated, &v.dates.stored: x.Stored,
	} {
		if from != nil {
			*to = maps.Clone(from)
		}
	}
	if x.Used != nil {
		d.used = maps.Clone(x.Used)
	}
	v.dates.below = x.Below
	for _, k := range x.Large {
		v.dates.large[k] = roaring64.New()
	}
	r := bytes.NewReader(file[headLen+int(binary.LittleEndian.Uint32(file[len(fileMagic):])) : len(file)-sumLen])
	for _, b := range s.bitmaps(v) {
		if _, err := b.ReadFrom(r); err != nil {
			return fmt.Errorf("reading a bitmap: %w", err)
		}
	}
	v.dates.skips = v.dates.skipped.GetCardinality()
	v.progress.keys.Store(x.Keys)
	if s.Resumed != nil {
		s.Resumed(x.Time, x.Keys)
	}
	return nil
}

// A bitmap is either kind of Roaring bitmap.
type bitmap interface {
	io.WriterTo
	ReadFrom(r io.Reader) (int64, error)
}

// roaring32 hides that ReadFrom of a bitmap of 32 bits accepts a cookie.
type roaring32 struct{ d *dates }

// WriteTo implements io.WriterTo.
func (b roaring32) WriteTo(w io.Writer) (int64, error) { return b.d.skipped.WriteTo(w) }

// ReadFrom implements io.ReaderFrom.
func (b roaring32) ReadFrom(r io.Reader) (int64, error) { return b.d.skipped.ReadFrom(r) }

// bitmaps returns the bitmaps of the file, in their order.
func (s *saver) bitmaps(v *checker) (all []bitmap) {
	for _, ns := range dict.Namespaces {
		all = append(all, v.dictionary.known[ns])
	}
	all = append(all, roaring32{&v.dates})
	for _, k := range s.state.Large {
		all = append(all, v.dates.large[k])
	}
	return all
}

// The file consists of fileMagic, the length of saved (4 bytes, little endian), saved as a gob, the bitmaps in Roaring's
// format, and the XXH3 of all of this (8 bytes, little endian).
const (
	fileMagic = "skeinck1"
	headLen   = len(fileMagic) + 4
	sumLen    = 8
)

// Errors of decode: the first is for a file that something else may have written.
var (
	errForeign = errors.New("the file exists, and is not the progress of a check")
	errDamaged = errors.New("the file is damaged")
)

// decode reads saved from a file.
func (x *saved) decode(file []byte) error {
	body := len(file) - sumLen
	if !bytes.HasPrefix(file, []byte(fileMagic)) {
		return errForeign
	}
	if body < headLen || xxh3.Hash(file[:body]) != binary.LittleEndian.Uint64(file[body:]) {
		return errDamaged
	}
	size := int(binary.LittleEndian.Uint32(file[len(fileMagic):]))
	if size > body-headLen {
		return errDamaged
	}
	if err := gob.NewDecoder(bytes.NewReader(file[headLen : headLen+size])).Decode(x); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return nil
}

// write writes the file. The caller holds mu.
func (s *saver) write() {
	s.written = time.Now()
	if s.over || s.foreign || s.v == nil {
		return
	}
	v := s.v
	s.state.Time, s.state.Seed, s.state.Below = s.written, v.seed, v.dates.below
	s.state.Large = slices.Sorted(maps.Keys(v.dates.large))
	if err := s.writeFile(); err != nil { // an older file stays, and the next write may succeed
		if !s.failing {
			s.warn(fmt.Errorf("the progress of the check cannot be saved: %w", err))
		}
		s.failing = true
		return
	}
	s.saved, s.failing = true, false
}

func (s *saver) writeFile() (err error) {
	temporary := s.File + ".new"
	if there, err := os.ReadFile(temporary); err == nil && len(there) > 0 && !bytes.HasPrefix(there, []byte(fileMagic)) {
		return fmt.Errorf("%s: %w", temporary, errForeign)
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	sum := xxh3.New()
	w := bufio.NewWriterSize(io.MultiWriter(f, sum), 1<<16)
	var head bytes.Buffer
	err = gob.NewEncoder(&head).Encode(&s.state)
	if err == nil {
		_, err = w.Write(append(binary.LittleEndian.AppendUint32([]byte(fileMagic), uint32(head.Len())), head.Bytes()...))
	}
	for _, b := range s.bitmaps(s.v) {
		if err == nil {
			_, err = b.WriteTo(w)
		}
	}
	if err = errors.Join(err, w.Flush()); err == nil {
		_, err = f.Write(binary.LittleEndian.AppendUint64(nil, sum.Sum64()))
	}
	// Without the sync, a power failure could leave an empty file under the name.
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(temporary, s.File)
	}
	if err != nil {
		_ = os.Remove(temporary) // the next write truncates it
	}
	return err
}

// unread notes that a pass has left something out that it could not read: because the check is being interrupted, or because
// of what another pass will report. From then on, keep does nothing.
func (s *saver) unread() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frozen = true
}

// problem notes that the check has found a problem, so that nothing is saved.
func (s *saver) problem() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// close writes the file if the check was interrupted, which err tells, and removes it if it has ended, or found a problem.
// It reports whether a check can go on from what was kept.
func (s *saver) close(err error) (resumable bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && !s.over {
		s.write()
		return s.saved && !s.failing
	}
	if s.saved {
		s.remove()
	}
	return false
}

// remove removes the file, which nothing can go on from.
func (s *saver) remove() {
	if err := os.Remove(s.File); err != nil {
		s.warn(err)
	}
}

// Interrupted is the error of a check whose context has ended, and that goes on from its file if it is run again.
type Interrupted struct {
	Keys int64 // that were read
	err  error
}

// Error implements error.
func (i *Interrupted) Error() string { return fmt.Sprintf("interrupted after %d keys", i.Keys) }

// Unwrap returns the error of the context.
func (i *Interrupted) Unwrap() error { return i.err }

// Resume is Store with a file that keeps its progress. If p is nil, it is Store.
func Resume(ctx context.Context, store kv.Store, p *Progress, report func(problem string), progress func(keys int64)) error {
	var before, after string
	var s *saver
	crossed, err := store.ViewAcross(ctx, func(r kv.Reader) error {
		before, _ = read.WriteState(r) // Verify reports an unreadable row
		var file []byte
		if state, err := stateOf(r); p != nil && err == nil {
			s, file = p.newSaver(state)
		}
		err := verify(r, s, file, report, progress)
		after, _ = read.WriteState(r)
		return err
	})
	if s != nil && s.close(err) && ctx.Err() != nil {
		return &Interrupted{s.state.Keys, err}
	}
	if err == nil && crossed > 0 && before != after {
		return &Mixed{crossed + 1}
	}
	return err
}
