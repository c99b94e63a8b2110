package pebblekv

import (
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"skein.blue/internal/kv"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

var errIO = errors.New("input/output error")

// If any read of the disk fails, the MultiGet fails; it never reports a stored key as missing.
func TestMultiGetFails(t *testing.T) {
	var countdown atomic.Int64
	fs := hooked(vfs.NewMem(), func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") && countdown.Add(-1) == 0 {
			return errIO
		}
		return nil
	})
	open := func() *Store { return openForTest(t, Options{Dir: "/s", Create: true, FS: fs}) }
	const n, looked = 5000, 50
	key := func(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }
	s := open()
	must(t, s.Update(t.Context(), func(tx kv.Txn) error {
		for i := range n {
			tx.Set(key(i), binary.BigEndian.AppendUint64(make([]byte, 92), uint64(i)*0x9e3779b97f4a7c15))
		}
		return nil
	}))
	must(t, s.db.Flush(), s.Close())
	failed := 0
	for read := int64(1); ; read++ {
		s := open() // with an empty cache
		missing := 0
		countdown.Store(read)
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
		reached := countdown.Swap(0) <= 0
		must(t, s.Close())
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
