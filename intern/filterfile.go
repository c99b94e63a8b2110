package intern

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// The filters of known strings are kept in a file, so that a store that was just opened has them
// at once. The file is written every quarter of an hour, a slice after each transaction, and
// when the store is closed.
//
// A filter may only call a string new if the store does not have it. So the file lists the
// leases whose strings it has, all of them; when it is read, the strings of all other leases of
// the store are added. That is exact whatever happened in between: every string has an id of
// some lease, only the process that took a lease hands out its ids, and a lease is recognized
// by its random token. So the file may be older than the store after a crash, or of another
// store. The file also lists the leases whose strings it does not have. If it lists a lease that
// the store lacks, the file is not used: it belongs to a copy of the store that has diverged, or a
// power failure took the store's last writes. The ceiling and the floor are explained in bloom.go.
//
//	"skeinfl2"
//	the filters' secrets (4 × 8), ceiling (8) and floor (8)
//	number of leases (4), and for each: namespace (1) shard (4) block (8) token (8) and
//	    whether the filters have its strings (1)
//	number of filters (4), and for each: which (1: 0 DIDs, 1 other URIs, 2 a span) span (8)
//	    number of parts (4), and for each: number of blocks (4) room for keys (4) blocks (64 each). The i-th part has 512 << i blocks
//	CRC-32C of all that (4)
//
// Numbers are little-endian.
const filterMagic = "skeinfl2"

const (
	// saveEvery is the time from one save of the filters to the next.
	saveEvery = 15 * time.Minute
	// saveSlice is the number of bytes written after a transaction.
	saveSlice = 1 << 20
	// closePatience limits the time for the save when the store is closed. A save that takes
	// longer is given up; the file of the last one stays.
	closePatience = 3 * time.Second
	// oldCeiling is a quarter of a year. Filters whose ceiling lies less than this ahead are
	// not used: too many URIs would soon count as others.
	oldCeiling = aheadSpans / 2
	// fewLeases: a file is always used if it lacks the strings of at most this many leases.
	fewLeases = 16
)

// A leaseKey names a lease for all time.
type leaseKey struct {
	ns    dict.Namespace
	shard uint32
	block uint64
	token uint64
}

func keyOfLease(l *dict.Lease) leaseKey { return leaseKey{l.Namespace, l.Shard, l.Block, l.Token} }

const (
	filterOfDIDs = iota
	filterOfOthers
	filterOfSpan
)

// savedFilter is a filter in the file.
type savedFilter struct {
	which byte
	span  uint64
	parts []filterPart
}

// filterSave is a save under way. It shares the blocks of the filters. They only gain bits
// meanwhile, for strings of leases that the file does not list.
type filterSave struct {
	name    string // of the unfinished file
	file    *os.File
	w       *bufio.Writer
	sum     hash.Hash32
	filters []savedFilter
	at      int // the index of the filter to write
	part    int // of the part
	block   int // and of the block
	scratch []byte
}

// beginSave begins a save: it writes everything before the filters. The caller is the writer, the
// filters are ready, and they have the strings of the leases that are covered.
func (k *stringFilter) beginSave(leases []leaseKey, covered func(leaseKey) bool) (_ *filterSave, err error) {
	s := &filterSave{name: k.path + ".new", sum: crc32.New(castagnoli)}
	// The secrets are for this user only.
	if s.file, err = os.OpenFile(s.name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err != nil {
		return nil, err
	}
	s.w = bufio.NewWriterSize(io.MultiWriter(s.file, s.sum), 1<<16)
	b := []byte(filterMagic)
	for _, secret := range k.secrets {
		b = binary.LittleEndian.AppendUint64(b, secret)
	}
	b = binary.LittleEndian.AppendUint64(b, k.ceiling)
	b = binary.LittleEndian.AppendUint64(b, k.floor)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(leases)))
	for _, l := range leases {
		b = append(b, byte(l.ns))
		b = binary.LittleEndian.AppendUint32(b, l.shard)
		b = binary.LittleEndian.AppendUint64(b, l.block)
		b = binary.LittleEndian.AppendUint64(b, l.token)
		if covered(l) {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	s.filters = append(s.filters,
		savedFilter{filterOfDIDs, 0, slices.Clone(k.dids.parts)},
		savedFilter{filterOfOthers, 0, slices.Clone(k.others.parts)})
	for span, f := range k.spans {
		s.filters = append(s.filters, savedFilter{filterOfSpan, span, slices.Clone(f.parts)})
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s.filters)))
	if _, err := s.w.Write(b); err != nil {
		return nil, errors.Join(err, s.abort())
	}
	return s, nil
}

// step writes some more bytes, and reports whether the filters are written. The caller is the
// writer.
func (s *filterSave) step(size int) (done bool, err error) {
	for size > 0 && s.at < len(s.filters) {
		f := &s.filters[s.at]
		b := s.scratch[:0]
		if s.part == 0 && s.block == 0 {
			b = append(b, f.which)
			b = binary.LittleEndian.AppendUint64(b, f.span)
			b = binary.LittleEndian.AppendUint32(b, uint32(len(f.parts)))
		}
		if s.part < len(f.parts) {
			p := &f.parts[s.part]
			if s.block == 0 {
				b = binary.LittleEndian.AppendUint32(b, uint32(len(p.blocks)))
				b = binary.LittleEndian.AppendUint32(b, uint32(p.left))
			}
			end := min(len(p.blocks), s.block+1024)
			for ; s.block < end; s.block++ {
				for _, word := range p.blocks[s.block] {
					b = binary.LittleEndian.AppendUint64(b, word)
				}
			}
			if s.block == len(p.blocks) {
				s.part, s.block = s.part+1, 0
			}
		}
		if s.part == len(f.parts) {
			s.at, s.part, s.block = s.at+1, 0, 0
		}
		if _, err := s.w.Write(b); err != nil {
			return false, err
		}
		size -= len(b)
		s.scratch = b
	}
	return s.at == len(s.filters), nil
}

// finish completes the file and puts it under its name. Any goroutine may call it.
func (s *filterSave) finish(name string) error {
	err := s.w.Flush()
	if err == nil {
		_, err = s.file.Write(binary.LittleEndian.AppendUint32(nil, s.sum.Sum32()))
	}
	// Without the sync, a power failure could leave an empty file under the name.
	if err = errors.Join(err, s.file.Sync(), s.file.Close()); err == nil {
		err = os.Rename(s.name, name)
	}
	if err != nil {
		_ = os.Remove(s.name) // the next save overwrites it
	}
	return err
}

// abort removes the unfinished file.
func (s *filterSave) abort() error { return errors.Join(s.file.Close(), os.Remove(s.name)) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFilterFile is returned for a file of filters that is damaged, or of another version.
var errFilterFile = errors.New("the file is damaged, or of another version")

// readFilters reads a file of filters into k, which must be empty. It returns the leases that it lists,
// and whether the filters have their strings.
func (k *stringFilter) readFilters(file []byte) (covered map[leaseKey]bool, err error) {
	body := len(file) - 4
	if body < len(filterMagic) || string(file[:len(filterMagic)]) != filterMagic ||
		crc32.Checksum(file[:body], castagnoli) != binary.LittleEndian.Uint32(file[body:]) {
		return nil, errFilterFile
	}
	r := reader{b: file[len(filterMagic):body]}
	for i := range k.secrets {
		k.secrets[i] = r.uint64()
	}
	k.ceiling, k.floor = r.uint64(), r.uint64()
	covered = map[leaseKey]bool{}
	for range r.count(1 + 4 + 8 + 8 + 1) {
		l := leaseKey{dict.Namespace(r.byte()), r.uint32(), r.uint64(), r.uint64()}
		covered[l] = r.byte() == 1
	}
	for range r.count(1 + 8 + 4) {
		which, span := r.byte(), r.uint64()
		var f filter
		for i := range r.count(4 + 4) {
			f.parts = append(f.parts, r.part(i))
		}
		switch which {
		case filterOfDIDs:
			k.dids = f
		case filterOfOthers:
			k.others = f
		case filterOfSpan:
			k.spans[span] = &f
		default:
			return nil, errFilterFile
		}
		k.size += f.bytes()
	}
	if r.short || len(r.b) > 0 {
		return nil, errFilterFile
	}
	return covered, nil
}

// reader reads numbers. short is set if there were too few bytes.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if r.short = r.short || n > len(r.b); r.short {
		return make([]byte, min(n, 8))
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte     { return r.take(1)[0] }
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.take(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.take(8)) }

// count reads a number of items that have at least size bytes each.
func (r *reader) count(size int) int {
	n := int(r.uint32())
	if n > len(r.b)/size {
		r.short = true
	}
	if r.short {
		return 0
	}
	return n
}

// part reads the i-th part of a filter.
func (r *reader) part(i int) filterPart {
	n, left := int(r.uint32()), int(r.uint32())
	full := firstBlocks << i
	if r.short = r.short || n > len(r.b)/bytesPerBlock || n != full || left > full*keysPerBlock; r.short {
		return filterPart{}
	}
	p := filterPart{make([][8]uint64, n), left}
	b := r.take(n * bytesPerBlock)
	for i := range p.blocks {
		for j := range p.blocks[i] {
			p.blocks[i][j] = binary.LittleEndian.Uint64(b[8*j:])
		}
		b = b[bytesPerBlock:]
	}
	return p
}

// restore reads the filters from their file, if there is one. The strings of k.lacking are still
// to be added. If the file is of no use, k stays empty.
func (k *stringFilter) restore(ctx context.Context, store kv.Store) error {
	file, err := os.ReadFile(k.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var covered map[leaseKey]bool
	if err == nil {
		covered, err = k.readFilters(file)
	}
	if err != nil {
		k.reset()
		k.log.Warn("the filters of known strings cannot be read from their file; they are made again from the store", "file", k.path, "error", err)
		return nil
	}
	leases, known := 0, 0
	err = store.View(ctx, func(r kv.Reader) error {
		leases, known, k.lacking = 0, 0, nil
		return Leases(r, func(l dict.Lease) error {
			leases++
			has, listed := covered[keyOfLease(&l)]
			if listed {
				known++
			}
			if !has {
				k.lacking = append(k.lacking, l)
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("intern: reading the leases: %w", err)
	}
	now := nowSpan()
	if known < len(covered) || len(k.lacking) > max(fewLeases, leases/2) || k.ceiling < now+oldCeiling || k.ceiling > now+2*aheadSpans {
		k.reset()
		return nil
	}
	k.restored = true
	k.shrink()
	k.log.Info("filters of known strings read from their file", "file", k.path, "bytes", k.size, "leases", leases, "leases_to_read", len(k.lacking))
	return nil
}

// catchUp adds the strings of the leases that the file does not have.
func (k *stringFilter) catchUp(ctx context.Context, store kv.Store, s dict.Settings) error {
	return k.fillBy(ctx, store, func(r kv.Reader, each func(dict.Namespace, []byte) error) error {
		for i := range k.lacking {
			l := &k.lacking[i]
			first := s.Start(l.Shard, l.Block)
			last := dict.AppendGroupKey(nil, l.Namespace, first+dict.ID(s.LeaseSize)-1)
			err := eachForm(r, dict.AppendGroupKey(nil, l.Namespace, first), kv.PrefixEnd(last), func(_ dict.ID, form []byte) error { return each(l.Namespace, form) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// saveDue begins a save of the filters if the last one was long enough ago, and continues one that
// is under way. An error ends the save; the file of the last one stays.
func (d *Drawer) saveDue(ctx context.Context) {
	k := d.strings
	if k == nil || k.path == "" || !k.ready.Load() || k.saving.Load() {
		return
	}
	if k.save == nil {
		if time.Since(k.saved) < k.saveEvery {
			return
		}
		s, err := d.beginSave(ctx, false)
		if err != nil {
			k.saveFailed(err)
		}
		if s == nil { // or a lease is being fetched: the next call tries again
			return
		}
		k.save = s
	}
	done, err := k.save.step(saveSlice)
	if err != nil {
		k.abortSave()
		k.saveFailed(err)
		return
	}
	if !done {
		return
	}
	s := k.save
	k.save, k.saved = nil, time.Now()
	k.saving.Store(true)
	d.leases.inBackground(ctx, func(context.Context) {
		defer k.saving.Store(false)
		if err := s.finish(k.path); err != nil {
			k.warn(err)
		}
	})
}

// warn logs that a save failed.
func (k *stringFilter) warn(err error) {
	k.log.Warn("the filters of known strings could not be written to their file; the next start reads more of the store", "file", k.path, "error", err)
}

// saveFailed logs that a save failed. The next one is due after the usual time.
func (k *stringFilter) saveFailed(err error) {
	k.saved = time.Now()
	k.warn(err)
}

// abortSave ends a save that is under way.
func (k *stringFilter) abortSave() {
	if k.save != nil {
		_ = k.save.abort() // the next save overwrites its file
		k.save = nil
	}
}

// beginSave begins a save. It returns nil if a lease is being fetched.
func (d *Drawer) beginSave(ctx context.Context, closed bool) (*filterSave, error) {
	// The rows come first. A lease that was taken before is then among the unfinished ones, or is
	// still being fetched; one that is taken afterwards is not listed.
	var rows []leaseKey
	err := d.leases.store.View(ctx, func(r kv.Reader) error {
		rows = rows[:0]
		return Leases(r, func(l dict.Lease) error { rows = append(rows, keyOfLease(&l)); return nil })
	})
	if err != nil {
		return nil, fmt.Errorf("intern: reading the leases: %w", err)
	}
	unfinished := map[leaseKey]bool{}
	for _, ns := range dict.Namespaces {
		for _, a := range d.leases.alloc[ns] {
			if !a.unfinished(unfinished, closed) {
				return nil, nil
			}
		}
	}
	return d.strings.beginSave(rows, func(l leaseKey) bool { return !unfinished[l] && l.token != 0 })
}

// saveNow saves the filters at once, after the leases are closed.
func (d *Drawer) saveNow(ctx context.Context) {
	k := d.strings
	if k == nil || k.path == "" {
		return
	}
	k.abortSave() // this save is newer
	if !k.ready.Load() {
		return
	}
	s, err := d.beginSave(ctx, true)
	until := time.Now().Add(closePatience)
	for done := false; s != nil && err == nil && !done; {
		if done, err = s.step(saveSlice); time.Now().After(until) {
			err = errors.Join(err, context.DeadlineExceeded)
		}
	}
	switch {
	case s == nil:
	case err != nil:
		_ = s.abort() // the next save overwrites it
	default:
		err = s.finish(k.path)
	}
	if err != nil {
		k.warn(err)
	}
}

// unfinished adds the leases whose ids are not all used, or whose use is unknown, to all. After
// close nothing more is handed out: then only those with ids in transactions of unknown outcome
// count. It reports false if a lease is being fetched.
func (a *allocator) unfinished(all map[leaseKey]bool, closed bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ahead != nil {
		return false
	}
	for _, l := range a.open {
		if !closed || l.out > 0 {
			all[keyOfLease(&l.Lease)] = true
		}
	}
	return true
}
