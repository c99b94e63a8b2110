package pebblekv

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
)

// inOrder is a Merger whose folds show the arguments of Fold.
type inOrder struct{}

func (inOrder) Name() string { return "inorder" }

func (inOrder) Fold(dst, key []byte, values [][]byte, base bool) ([]byte, error) {
	return fmt.Appendf(dst, "%s:%s:%v", key, bytes.Join(values, []byte(",")), base), nil
}

// A folder folds from the oldest operand to the newest, whichever side Pebble adds them to.
// A reused folder keeps nothing of its previous key.
func TestFolder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	m := pebbleMerger(inOrder{})
	if m.Name != "inorder" {
		t.Errorf("Name = %q", m.Name)
	}
	for round := range 500 {
		first := fmt.Appendf(nil, "v%d", round)
		key := fmt.Appendf(nil, "k%d", round)
		want := []string{string(first)}
		f, err := m.Merge(key, first)
		must(t, err)
		clear(key)
		clear(first)
		for i := range rng.IntN(12) {
			v := fmt.Appendf(nil, "%d", i)
			if rng.IntN(2) == 0 {
				want = append(want, string(v))
				err = f.MergeNewer(v)
			} else {
				want = slices.Insert(want, 0, string(v))
				err = f.MergeOlder(v)
			}
			must(t, err)
			clear(v) // Pebble reuses the memory
		}
		base := rng.IntN(2) == 0
		got, closer, err := f.Finish(base)
		must(t, err)
		var values []byte
		for i, v := range want {
			if i > 0 {
				values = append(values, ',')
			}
			values = append(values, v...)
		}
		if s := fmt.Sprintf("k%d:%s:%v", round, values, base); string(got) != s {
			t.Fatalf("got %q, want %q", got, s)
		}
		if rng.IntN(4) > 0 { // Pebble may fail to close it
			must(t, closer.Close())
		}
	}
}

// Flushes and compactions that fold merges do not change what Views read, of the newest state
// or of an older one.
func TestFoldingInCompactions(t *testing.T) {
	s := openForTest(t, Options{Dir: t.TempDir(), Create: true, Memory: 16 << 20})
	h := kvtest.NewHistory(11)
	check := func(w kvtest.State) {
		t.Helper()
		must(t, s.View(t.Context(), func(r kv.Reader) error { w.Equal(t, r); return nil }))
	}
	for round := range 40 {
		var old kvtest.State
		err := s.View(t.Context(), func(r kv.Reader) error {
			old = h.State()
			for range 3 {
				h.Write(t, s, 60)
			}
			var err error
			switch round % 3 {
			case 0:
				err = s.db.Flush()
			case 1:
				err = s.Compact(t.Context())
			}
			old.Equal(t, r)
			h2 := h.State()
			check(h2)
			return err
		})
		must(t, err)
		check(h.State())
	}
	must(t, s.Compact(t.Context()))
	check(h.State())
}

// A transaction has none of the previous one's writes, and the memory of a large one is
// released.
func TestWritesAreReset(t *testing.T) {
	var w writes
	for _, size := range []int{10, maxKeptWrites + 1, 10} {
		w.reset()
		if len(w.ops) != 0 || len(w.arena) != 0 || w.ranges || cap(w.arena) > maxKeptWrites {
			t.Errorf("%d operations, %d bytes, %v, room for %d", len(w.ops), len(w.arena), w.ranges, cap(w.arena))
		}
		w.add(writeSet, []byte("k"), make([]byte, size))
		w.add(writeDeleteRange, []byte("a"), []byte("b"))
		if len(w.ops) != 2 || len(w.arena) != size+3 || !w.ranges || w.full() {
			t.Errorf("%d operations, %d bytes, %v", len(w.ops), len(w.arena), w.ranges)
		}
	}
}

// A memtable takes two ninths of the memory, within bounds.
func TestMemtableSize(t *testing.T) {
	for memory, want := range map[int64]int64{0: 4 << 20, 1 << 20: 4 << 20, 18 << 20: 4 << 20, 36 << 20: 8 << 20, 576 << 20: 128 << 20, 1 << 40: 128 << 20} {
		if got := memtableSize(memory); got != want {
			t.Errorf("memory %d: got %d, want %d", memory, got, want)
		}
	}
}
