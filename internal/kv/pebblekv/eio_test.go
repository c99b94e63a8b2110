package pebblekv

import (
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
)

var errIO = errors.New("input/output error")

// failingFS fails the read of a table that counts countdown down to zero.
type failingFS struct {
	vfs.FS

	countdown *atomic.Int64
}

type failingFile struct {
	vfs.File

	countdown *atomic.Int64
}

func (f failingFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, o...)
	if err == nil && strings.HasSuffix(name, ".sst") {
		return failingFile{file, f.countdown}, nil
	}
	return file, err
}

func (f failingFile) ReadAt(p []byte, at int64) (int, error) {
	if f.countdown.Add(-1) == 0 {
		return 0, errIO
	}
	return f.File.ReadAt(p, at)
}

// If any read of the disk fails, the MultiGet fails; it never reports a stored key as missing.
func TestMultiGetFails(t *testing.T) {
	fs := failingFS{vfs.NewMem(), new(atomic.Int64)}
	open := func() *Store {
		s, err := Open(Options{Dir: "/s", Create: true, Merger: kvtest.LastByte{}, FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	const n, looked = 20_000, 200
	key := func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }
	s := open()
	if err := s.Update(t.Context(), func(tx kv.Txn) error {
		for i := range n {
			tx.Set(key(i), binary.BigEndian.AppendUint64(make([]byte, 92), uint64(i)*0x9e3779b97f4a7c15))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.db.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for read := int64(1); ; read++ {
		s := open() // with an empty cache
		missing := 0
		fs.countdown.Store(read)
		err := s.View(t.Context(), func(r kv.Reader) error {
			var keys [][]byte
			for i := range looked {
				keys = append(keys, key(i*n/looked))
			}
			return r.MultiGet(keys, func(_ int, _ []byte, ok bool) error {
				if !ok {
					missing++
				}
				return nil
			})
		})
		reached := fs.countdown.Swap(0) <= 0
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if missing > 0 || err != nil && !errors.Is(err, errIO) {
			t.Errorf("read %d failed: %d keys reported as missing, %v", read, missing, err)
		}
		if err != nil {
			failed++
		}
		if !reached {
			break
		}
	}
	if failed < 10 {
		t.Errorf("only %d MultiGets failed, too few to prove anything", failed)
	}
}
