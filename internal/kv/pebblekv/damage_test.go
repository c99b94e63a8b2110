package pebblekv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
)

// A flipped bit in a table is an error that names the file and its keys.
func TestDamagedTable(t *testing.T) {
	// The values are small because Pebble searches a damaged block for the flipped bit,
	// in time quadratic in the size of the block.
	dir := filepath.Join(t.TempDir(), "s")
	o := Options{Dir: dir, Merger: kvtest.LastByte{}, Create: true, Memory: 40 << 20}
	made, err := Open(o)
	must(t, err)
	must(t, made.Update(t.Context(), func(tx kv.Txn) error {
		for i := range 2000 {
			tx.Set(fmt.Appendf(nil, "k%06d", i), make([]byte, 500))
		}
		return nil
	}))
	must(t, made.Compact(t.Context()), made.Close())
	table := filepath.Join(dir, tableOf(t, dir))
	b, err := os.ReadFile(table)
	must(t, err)
	b[len(b)/3] ^= 1
	must(t, os.WriteFile(table, b, 0o600))
	o.ReadOnly, o.Create = true, false
	s, err := Open(o)
	must(t, err)
	err = s.View(t.Context(), func(r kv.Reader) error {
		return r.Scan(nil, nil, false, func(_, _ []byte) (bool, error) { return true, nil })
	})
	var d *kv.Damage
	if !errors.Is(err, kv.ErrCorrupt) || !errors.As(err, &d) || !strings.Contains(d.File, filepath.Base(table)) || d.First == nil || d.Last == nil {
		t.Errorf("%v", err)
	}
	s.fs.low.Store(true)
	if err := s.Healthy(); !errors.Is(err, kv.ErrCorrupt) || !errors.Is(err, kv.ErrDiskFull) {
		t.Errorf("Healthy after damage, on a full disk: %v", err)
	}
	must(t, s.Close())
}
