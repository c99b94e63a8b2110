package pebblekv

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"skein.blue/internal/kv"
)

// The stamp is odd while a commit that changes it is written, and unknown to a View that begins meanwhile.
func TestStampDuringCommit(t *testing.T) {
	var s *Store
	var touching atomic.Bool
	var even, odd atomic.Int64
	fs := hooked(vfs.NewMem(), func(op errorfs.Op) error {
		if touching.Load() && op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, logSuffix) {
			[]*atomic.Int64{&even, &odd}[s.stamp.Load()%2].Add(1)
		}
		return nil
	})
	s = openForTest(t, Options{Dir: "s", Create: true, FS: fs, Memory: 8 << 20})
	touching.Store(true)
	must(t, s.Update(t.Context(), func(tx kv.Txn) error { tx.Touch(); tx.Set([]byte("k"), nil); return nil }))
	touching.Store(false)
	s.stamp.Add(1)
	must(t, s.View(t.Context(), func(r kv.Reader) error {
		if stamp := r.(kv.Stamped).Stamp(); stamp != 0 || even.Load() > 0 || odd.Load() == 0 { //nolint:errcheck // it is one
			t.Errorf("stamp %d; the log was written to %d times with an even one, %d times with an odd one", stamp, even.Load(), odd.Load())
		}
		return nil
	}))
}
