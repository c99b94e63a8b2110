package intern

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"os"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// The filters of known strings are written to a file when the store is closed, so that the next
// start has them at once.
//
// A filter may only call a string new if the store does not have it. So after the last string, the
// writer puts a random token into the file and then into the store. The next start removes the
// token from the store, before it makes new strings, and uses the file if it has the same one. After
// a crash the store has no token, and the filters are made again from the store.
//
//	"skeinfl3"
//	the token (16), the filters' secrets (4 × 8), ceiling (8) and floor (8)
//	number of filters (4), and for each: its span (8), number of parts (4), room for keys in the
//	    last part (4), and the parts' blocks (64 each); the i-th part has 512 << i
//	CRC-32C of all that (4)
//
// Numbers are little-endian. bloom.go explains the ceiling and the floor.
const filterMagic = "skeinfl3"

// Instead of a span: the filters of DIDs and of URIs without a TID.
const (
	spanOfDIDs   = math.MaxUint64
	spanOfOthers = math.MaxUint64 - 1
)

// oldCeiling is a quarter of a year. Filters whose ceiling lies less than this ahead are
// not used: too many URIs would soon count as others.
const oldCeiling = aheadSpans / 2

type fileToken [16]byte

// fileHead is the file's beginning, and filterHead that of each filter.
type (
	fileHead struct {
		Magic          [len(filterMagic)]byte
		Token          fileToken
		Secrets        hashKey
		Ceiling, Floor uint64
		Filters        uint32
	}
	filterHead struct {
		Span        uint64
		Parts, Left uint32
	}
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errFilterFile is returned for a file of filters that is damaged, or of another version.
var errFilterFile = errors.New("the file is damaged, or of another version")

// takeToken removes the token from the store, and returns it.
func takeToken(ctx context.Context, store kv.Store) (token []byte, err error) {
	err = store.Update(ctx, func(tx kv.Txn) error {
		v, ok, err := tx.Get([]byte{dict.KeyFilter})
		if ok {
			token = bytes.Clone(v)
			tx.Delete([]byte{dict.KeyFilter})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("intern: taking the token of the filters: %w", err)
	}
	return token, nil
}

// save writes the filters to their file, after the last string. A failure is logged only.
func (k *stringFilter) save(ctx context.Context, store kv.Store) {
	var token fileToken
	_, _ = rand.Read(token[:]) // it never fails
	err := k.saveAs(token)
	if err == nil {
		err = store.Update(ctx, func(tx kv.Txn) error { tx.Set([]byte{dict.KeyFilter}, token[:]); return nil })
	}
	if err != nil {
		k.log.Warn("the filters of known strings could not be written to their file; the next start reads them from the store", "file", k.path, "error", err)
	}
}

func (k *stringFilter) saveAs(token fileToken) error {
	unfinished := k.path + ".new"
	// The secrets are for this user only.
	file, err := os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	sum := crc32.New(castagnoli)
	w := bufio.NewWriterSize(io.MultiWriter(file, sum), 1<<16)
	k.write(w, token)
	if err = w.Flush(); err == nil {
		err = binary.Write(file, binary.LittleEndian, sum.Sum32())
	}
	// Without the sync, a power failure could leave an empty file under the name.
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(unfinished, k.path)
	}
	if err != nil {
		_ = os.Remove(unfinished) // the next save overwrites it
	}
	return err
}

// write writes all but the checksum. w keeps the first error.
func (k *stringFilter) write(w *bufio.Writer, token fileToken) {
	put := func(v any) { _ = binary.Write(w, binary.LittleEndian, v) }
	all := maps.Clone(k.spans)
	all[spanOfDIDs], all[spanOfOthers] = &k.dids, &k.others
	put(&fileHead{[len(filterMagic)]byte([]byte(filterMagic)), token, k.secrets, k.ceiling, k.floor, uint32(len(all))})
	for span, f := range all {
		head := filterHead{Span: span, Parts: uint32(len(f.parts))}
		if head.Parts > 0 {
			head.Left = uint32(f.parts[head.Parts-1].left)
		}
		put(&head)
		for i := range f.parts {
			for _, block := range f.parts[i].blocks {
				put(block[:])
			}
		}
	}
}

// restore reads the filters from the file that has the store's token.
func (k *stringFilter) restore(token []byte) {
	file, err := os.Open(k.path)
	if err == nil {
		err = k.readFile(file, token)
		_ = file.Close() // it was only read
	}
	now := nowSpan()
	switch {
	case err != nil:
		k.reset()
		k.log.Warn("the filters of known strings cannot be read from their file; they are made again from the store", "file", k.path, "error", err)
	case k.size == 0, k.ceiling < now+oldCeiling, k.ceiling > now+2*aheadSpans:
		k.reset()
	default:
		k.shrink()
		k.started = true
		k.ready.Store(!k.full)
		k.log.Info("filters of known strings read from their file", "file", k.path, "bytes", k.size)
	}
}

// readFile reads the filters. If the file is has another token, they stay empty.
func (k *stringFilter) readFile(file *os.File, token []byte) error {
	sum := crc32.New(castagnoli)
	buffered := bufio.NewReaderSize(file, 1<<16)
	r := io.TeeReader(buffered, sum)
	var head fileHead
	if err := binary.Read(r, binary.LittleEndian, &head); err != nil || string(head.Magic[:]) != filterMagic {
		return errFilterFile
	}
	if !bytes.Equal(head.Token[:], token) {
		return nil
	}
	k.secrets, k.ceiling, k.floor = head.Secrets, head.Ceiling, head.Floor
	for range head.Filters {
		var head filterHead
		if err := binary.Read(r, binary.LittleEndian, &head); err != nil {
			return errFilterFile
		}
		f := new(filter)
		for n := range head.Parts {
			p := newPart(int(n)) // at most about as large as all before it
			if p.left = 0; n == head.Parts-1 {
				p.left = int(head.Left)
			}
			for i := range p.blocks {
				if err := binary.Read(r, binary.LittleEndian, p.blocks[i][:]); err != nil {
					return errFilterFile
				}
			}
			f.parts = append(f.parts, p)
		}
		k.size += f.bytes()
		switch head.Span {
		case spanOfDIDs:
			k.dids = *f
		case spanOfOthers:
			k.others = *f
		default:
			k.spans[head.Span] = f
		}
	}
	var want uint32
	if err := binary.Read(buffered, binary.LittleEndian, &want); err != nil || want != sum.Sum32() {
		return errFilterFile
	}
	return nil
}
