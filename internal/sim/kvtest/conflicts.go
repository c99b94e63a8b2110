package kvtest

import (
	"context"
	"testing"

	"skein.blue/internal/kv"
)

// testConflicts makes a second transaction write between the reads of a first one and
// its commit. The first is retried if it read or named what the second wrote, and only
// then; reads through Snapshot do not count.
func testConflicts(t *testing.T, e Engine) {
	if !e.Conflicts {
		return
	}
	read := func(key string) func(kv.Txn) error {
		return func(tx kv.Txn) error { _, _, err := tx.Get([]byte(key)); return err }
	}
	named := func(tx kv.Txn) error {
		_, _, err := tx.Snapshot().Get([]byte("y")) // the first read fixes the snapshot
		tx.Conflict([]byte("b"))
		return err
	}
	multi := func(r kv.Reader) error {
		return r.MultiGet([][]byte{[]byte("a"), []byte("b"), []byte("c")}, func(int, []byte, bool) error { return nil })
	}
	scan := func(r kv.Reader, reverse bool) error {
		return r.Scan([]byte("b"), []byte("d"), reverse, func(_, _ []byte) (bool, error) { return true, nil })
	}
	set := func(key string) func(kv.Txn) { return func(tx kv.Txn) { tx.Set([]byte(key), []byte{7, 1}) } }
	ranged := func(lo, hi string) func(kv.Txn) {
		return func(tx kv.Txn) { tx.DeleteRange([]byte(lo), []byte(hi)) }
	}
	for name, c := range map[string]struct {
		read  func(kv.Txn) error
		write func(kv.Txn) // of the second transaction
		retry bool
	}{
		"a key that was read is set":                           {read("b"), set("b"), true},
		"a key that was missing is set":                        {read("x"), set("x"), true},
		"a key that was read is deleted":                       {read("b"), func(tx kv.Txn) { tx.Delete([]byte("b")) }, true},
		"a key that was read is merged into":                   {read("b"), func(tx kv.Txn) { tx.Merge([]byte("b"), []byte{1, 1}) }, true},
		"a key that was read is in a deleted range":            {read("b"), ranged("a", "c"), true},
		"a key that was read begins a deleted range":           {read("b"), ranged("b", "c"), true},
		"a key that was read ends a deleted range":             {read("b"), ranged("a", "b"), false},
		"another key is set":                                   {read("b"), set("b\x00"), false},
		"one of many keys that were read is set":               {func(tx kv.Txn) error { return multi(tx) }, set("c"), true},
		"none of many keys that were read is set":              {func(tx kv.Txn) error { return multi(tx) }, set("d"), false},
		"a key is set in a scanned range":                      {func(tx kv.Txn) error { return scan(tx, false) }, set("bb"), true},
		"a key is set in a range scanned backwards":            {func(tx kv.Txn) error { return scan(tx, true) }, set("bb"), true},
		"a scan's lower bound is set":                          {func(tx kv.Txn) error { return scan(tx, false) }, set("b"), true},
		"a scan's upper bound is set":                          {func(tx kv.Txn) error { return scan(tx, false) }, set("d"), false},
		"a backward scan's upper bound is set":                 {func(tx kv.Txn) error { return scan(tx, true) }, set("d"), false},
		"a key before the scan is set":                         {func(tx kv.Txn) error { return scan(tx, false) }, set("az"), false},
		"a key read through Snapshot is set":                   {func(tx kv.Txn) error { _, _, err := tx.Snapshot().Get([]byte("b")); return err }, set("b"), false},
		"keys read through Snapshot are set":                   {func(tx kv.Txn) error { return multi(tx.Snapshot()) }, set("b"), false},
		"a range scanned through Snapshot is set":              {func(tx kv.Txn) error { return scan(tx.Snapshot(), false) }, set("b"), false},
		"a named key is set":                                   {named, set("b"), true},
		"a named key is in a deleted range":                    {named, ranged("a", "c"), true},
		"a key next to a named one is set":                     {named, set("b\x00"), false},
		"a key read through Snapshot is set, another is named": {func(tx kv.Txn) error { tx.Conflict([]byte("b")); return multi(tx.Snapshot()) }, set("a"), false},
		"the caller reuses the memory of a named key": {func(tx kv.Txn) error {
			key := []byte("b")
			_, _, err := tx.Snapshot().Get([]byte("y"))
			tx.Conflict(key)
			key[0] = 'x'
			return err
		}, set("b"), true},
		"both set a key": {func(tx kv.Txn) error { tx.Set([]byte("b"), nil); return nil }, set("b"), false},
		"a key that one deletes is set by the second": {func(tx kv.Txn) error { tx.Delete([]byte("b")); return nil }, set("b"), false},
		"both delete a range":                         {func(tx kv.Txn) error { tx.DeleteRange([]byte("a"), []byte("c")); return nil }, ranged("b", "d"), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := e.Open(t, LastByte{})
			update(t, s, func(tx kv.Txn) { tx.Set([]byte("b"), []byte{1, 1}); tx.Set([]byte("c"), []byte{1, 1}) })
			for _, writes := range []bool{true, false} {
				attempts := 0
				err := s.Update(context.Background(), func(tx kv.Txn) error {
					attempts++
					if err := c.read(tx); err != nil {
						return err
					}
					if attempts == 1 {
						update(t, s, c.write)
					}
					if writes {
						tx.Set([]byte("written"), nil)
					}
					return nil
				})
				want := 1
				if c.retry && writes { // without writes, its reads are a consistent snapshot anyway
					want = 2
				}
				if err != nil || attempts != want {
					t.Errorf("%d attempts, want %d (with writes: %v); %v", attempts, want, writes, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// testMergesDoNotConflict makes two concurrent transactions merge into one key. An engine may
// occasionally treat a merge as a read and a write, but not as a rule.
func testMergesDoNotConflict(t *testing.T, e Engine) {
	if !e.Conflicts {
		return
	}
	s := e.Open(t, LastByte{})
	const keys = 6
	conflicts := 0
	for i := range keys {
		key := []byte{'m', byte(i)}
		attempts := 0
		update(t, s, func(tx kv.Txn) {
			attempts++
			tx.Merge(key, []byte{1, 1})
			if attempts == 1 {
				update(t, s, func(tx kv.Txn) { tx.Merge(key, []byte{2, 1}) })
			}
			tx.Merge(key, []byte{3, 1})
		})
		if attempts > 1 {
			conflicts++
		}
		view(t, s, func(r kv.Reader) {
			if got := get(t, r, string(key)); got != "\x01\x01\x02\x01\x03\x01" {
				t.Errorf("key %d is %q", i, got)
			}
		})
	}
	if conflicts > keys-2 {
		t.Errorf("%d of %d merges conflicted", conflicts, keys)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
