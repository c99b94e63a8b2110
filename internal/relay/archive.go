package relay

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/xxh3"

	"skein.blue/internal/network"
	"skein.blue/internal/syntax"
)

// An Archive is the archive of a network, as Jetstream v2 keeps and serves it
// (consumer/archive describes the files): the repos of its accounts, one after the other.
// It implements http.Handler.
type Archive struct {
	dir      string
	segments []archived
}

type archived struct {
	Name     string `json:"name"`
	Index    int    `json:"index"`
	Checksum string `json:"checksum"`
	MinSeq   uint64 `json:"minSeq"`
	MaxSeq   uint64 `json:"maxSeq"`
	Mode     string `json:"mode"`
}

// The sizes of jetstream's own archives.
const (
	archiveBlock   = 4096
	archiveSegment = 256 << 20
)

// WriteArchive writes an archive of that many records, or a few more, into a folder.
func WriteArchive(dir string, o network.Options, records int64, mean int, progress func(records int64)) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	n := network.New(o)
	w := &archiveWriter{dir: dir, enc: encoder{n: n}}
	var err error
	if w.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	var ops []network.Op
	for account := 0; int64(w.seq) < records && account < n.Accounts(); account++ {
		ops = n.Repo(account, mean, ops[:0])
		slices.SortFunc(ops, func(x, y network.Op) int {
			return cmp.Or(cmp.Compare(collection(x.Kind), collection(y.Kind)), cmp.Compare(x.TID, y.TID))
		})
		ops = slices.CompactFunc(ops, func(x, y network.Op) bool { return x.Kind == y.Kind && x.TID == y.TID })
		if err := w.repo(account, ops); err != nil {
			return err
		}
		if account%1000 == 0 && progress != nil {
			progress(int64(w.seq))
		}
	}
	if int64(w.seq) < records {
		return fmt.Errorf("relay: a network of %d accounts has only %d of %d records; use more --accounts", n.Accounts(), w.seq, records)
	}
	return w.close()
}

type archiveWriter struct {
	dir  string
	enc  encoder
	zstd *zstd.Encoder

	seq      uint64
	segments int
	file     *os.File
	out      *bufio.Writer
	size     int
	first    uint64 // first seq of the segment
	rows     uint32
	index    []byte
	blocks   uint32

	n                                              int // in the block
	fixed                                          [9][]byte
	collections, dids, rkeys, revs, payloads, body []byte
}

// repo adds an account's records.
func (w *archiveWriter) repo(account int, ops []network.Op) error {
	top := uint64(0)
	for i := range ops {
		top = max(top, ops[i].TID)
	}
	did := w.enc.n.AppendDID(nil, account)
	rev := syntax.AppendTID(nil, top+1<<20)
	le := binary.LittleEndian
	for i := range ops {
		o := &ops[i]
		w.seq++
		record := w.enc.record(w.body[:0], o)
		w.body = record
		name := collection(o.Kind)
		f := &w.fixed
		f[0] = le.AppendUint64(f[0], w.seq)
		f[1] = le.AppendUint64(f[1], uint64(time.Now().UnixMicro()))
		f[2] = le.AppendUint64(f[2], 0)
		f[3], f[4], f[5] = append(f[3], 1), append(f[4], byte(len(name))), le.AppendUint16(f[5], uint16(len(did)))
		f[6], f[7], f[8] = append(f[6], 13), append(f[7], byte(len(rev))), le.AppendUint32(f[8], uint32(len(record)))
		w.collections, w.dids = append(w.collections, name...), append(w.dids, did...)
		w.rkeys, w.revs = syntax.AppendTID(w.rkeys, o.TID), append(w.revs, rev...)
		w.payloads = append(w.payloads, record...)
		if w.n++; w.n == archiveBlock {
			if err := w.block(); err != nil {
				return err
			}
		}
	}
	return nil
}

// block writes the added rows.
func (w *archiveWriter) block() error {
	if w.n == 0 {
		return nil
	}
	if w.file == nil {
		f, err := os.Create(filepath.Join(w.dir, fmt.Sprintf("seg_%010d.jss", w.segments)))
		if err != nil {
			return fmt.Errorf("relay: %w", err)
		}
		w.file, w.out, w.size, w.index, w.blocks, w.rows = f, bufio.NewWriterSize(f, 1<<20), headerLen, nil, 0, 0
		w.first = w.seq - uint64(w.n) + 1
		if _, err := w.out.Write(make([]byte, headerLen)); err != nil {
			return fmt.Errorf("relay: %w", err)
		}
	}
	le := binary.LittleEndian
	b := le.AppendUint32(nil, uint32(w.n))
	for i := range w.fixed {
		b = append(b, w.fixed[i]...)
		w.fixed[i] = w.fixed[i][:0]
	}
	for _, c := range []*[]byte{&w.collections, &w.dids, &w.rkeys, &w.revs, &w.payloads} {
		b = append(b, *c...)
		*c = (*c)[:0]
	}
	frame := w.zstd.EncodeAll(b, nil)
	w.index = le.AppendUint64(w.index, uint64(w.size))
	w.index = le.AppendUint32(le.AppendUint32(le.AppendUint32(w.index, uint32(len(frame))), uint32(len(b))), uint32(w.n))
	w.index = append(le.AppendUint64(le.AppendUint64(w.index, w.seq-uint64(w.n)+1), w.seq), make([]byte, 16)...)
	w.blocks++
	w.rows += uint32(w.n)
	w.n = 0
	if _, err := w.out.Write(append(le.AppendUint64(nil, uint64(len(frame))), frame...)); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	if w.size += 8 + len(frame); w.size >= archiveSegment {
		return w.seal()
	}
	return nil
}

const headerLen = 256

// seal completes a segment.
func (w *archiveWriter) seal() error {
	if w.file == nil {
		return nil
	}
	le := binary.LittleEndian
	h := make([]byte, headerLen)
	copy(h, "jss0")
	le.PutUint16(h[12:], 1)
	le.PutUint32(h[14:], w.blocks)
	le.PutUint32(h[18:], w.rows)
	le.PutUint64(h[26:], w.first)
	le.PutUint64(h[34:], w.seq)
	for at := 58; at < 98; at += 8 {
		le.PutUint64(h[at:], uint64(w.size))
	}
	sum := xxh3.New()
	_, _ = sum.Write(h[12:])
	_, _ = sum.Write(w.index)
	le.PutUint64(h[4:], sum.Sum64())
	_, err := w.out.Write(w.index)
	err = errors.Join(err, w.out.Flush())
	_, werr := w.file.WriteAt(h, 0)
	err = errors.Join(err, werr, w.file.Close())
	w.file = nil
	w.segments++
	return err
}

func (w *archiveWriter) close() error { return errors.Join(w.block(), w.seal()) }

// OpenArchive opens the archive in a folder.
func OpenArchive(dir string) (*Archive, error) {
	a := &Archive{dir: dir}
	names, err := filepath.Glob(filepath.Join(dir, "seg_*.jss"))
	if err != nil {
		return nil, fmt.Errorf("relay: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("relay: no archive in %s: %w", dir, fs.ErrNotExist)
	}
	slices.Sort(names)
	for i, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("relay: %w", err)
		}
		h := make([]byte, headerLen)
		_, err = f.ReadAt(h, 0)
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("relay: %s: %w", name, err)
		}
		le := binary.LittleEndian
		a.segments = append(a.segments, archived{
			Name: filepath.Base(name), Index: i, Checksum: fmt.Sprintf("%016x", le.Uint64(h[4:])), MinSeq: le.Uint64(h[26:]), MaxSeq: le.Uint64(h[34:]), Mode: "segment",
		})
	}
	return a, nil
}

// ServeHTTP implements http.Handler: planSnapshot, with one page, and getSegment.
func (a *Archive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/xrpc/network.bsky.jetstream.planSnapshot":
		var in struct{ AfterSeq uint64 }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			refuse(w, "InvalidRequest")
			return
		}
		tip := a.segments[len(a.segments)-1].MaxSeq
		left := slices.DeleteFunc(slices.Clone(a.segments), func(s archived) bool { return s.MaxSeq <= in.AfterSeq })
		reply(w, http.StatusOK, map[string]any{"plannedThroughSeq": tip, "sealedTipSeq": tip, "segments": left, "stats": map[string]int{}})
	case "/xrpc/network.bsky.jetstream.getSegment":
		http.ServeFile(w, r, filepath.Join(a.dir, filepath.Base(r.URL.Query().Get("name"))))
	default:
		http.NotFound(w, r)
	}
}
