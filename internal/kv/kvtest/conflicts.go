package kvtest

import (
	"context"
	"testing"

	"skein.blue/internal/kv"
)

// testConflicts has another transaction write between what one reads and its
// commit: it is made again if it read that, and not if it did not, or said that it
// does not matter.
func testConflicts(t *testing.T, e Engine) {
	if !e.Conflicts {
		return
	}
	read := func(key string) func(kv.Txn) error {
		return func(tx kv.Txn) error { _, _, err := tx.Get([]byte(key)); return err }
	}
	named := func(tx kv.Txn) error {
		_, _, err := tx.Snapshot().Get([]byte("y")) // the state is that of the first read
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
		write func(kv.Txn) // of the other
		again bool
	}{
		"a key that was read is set":           {read("b"), set("b"), true},
		"a key that was missing is set":        {read("x"), set("x"), true},
		"a key that was read is deleted":       {read("b"), func(tx kv.Txn) { tx.Delete([]byte("b")) }, true},
		"a key that was read is merged into":   {read("b"), func(tx kv.Txn) { tx.Merge([]byte("b"), []byte{1, 1}) }, true},
		"a key that was read is in a range":    {read("b"), ranged("a", "c"), true},
		"a key that was read begins a range":   {read("b"), ranged("b", "c"), true},
		"a key that was read ends a range":     {read("b"), ranged("a", "b"), false},
		"another key is set":                   {read("b"), set("b\x00"), false},
		"one of many is set":                   {func(tx kv.Txn) error { return multi(tx) }, set("c"), true},
		"none of many is set":                  {func(tx kv.Txn) error { return multi(tx) }, set("d"), false},
		"into what was scanned":                {func(tx kv.Txn) error { return scan(tx, false) }, set("bb"), true},
		"into what was scanned backwards":      {func(tx kv.Txn) error { return scan(tx, true) }, set("bb"), true},
		"where the scan began":                 {func(tx kv.Txn) error { return scan(tx, false) }, set("b"), true},
		"where the scan ended":                 {func(tx kv.Txn) error { return scan(tx, false) }, set("d"), false},
		"where it ended, backwards":            {func(tx kv.Txn) error { return scan(tx, true) }, set("d"), false},
		"before the scan":                      {func(tx kv.Txn) error { return scan(tx, false) }, set("az"), false},
		"a snapshot's key":                     {func(tx kv.Txn) error { _, _, err := tx.Snapshot().Get([]byte("b")); return err }, set("b"), false},
		"a snapshot's keys":                    {func(tx kv.Txn) error { return multi(tx.Snapshot()) }, set("b"), false},
		"a snapshot's range":                   {func(tx kv.Txn) error { return scan(tx.Snapshot(), false) }, set("b"), false},
		"a key that is named":                  {named, set("b"), true},
		"a key that is named is in a range":    {named, ranged("a", "c"), true},
		"a key beside one that is named":       {named, set("b\x00"), false},
		"a key that is named and a snapshot's": {func(tx kv.Txn) error { tx.Conflict([]byte("b")); return multi(tx.Snapshot()) }, set("a"), false},
		"the memory of a name is used again": {func(tx kv.Txn) error {
			key := []byte("b")
			_, _, err := tx.Snapshot().Get([]byte("y"))
			tx.Conflict(key)
			key[0] = 'x'
			return err
		}, set("b"), true},
		"a key that is set by both":     {func(tx kv.Txn) error { tx.Set([]byte("b"), nil); return nil }, set("b"), false},
		"a key that is deleted by both": {func(tx kv.Txn) error { tx.Delete([]byte("b")); return nil }, set("b"), false},
		"a range that both delete":      {func(tx kv.Txn) error { tx.DeleteRange([]byte("a"), []byte("c")); return nil }, ranged("b", "d"), false},
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
				if c.again && writes { // who writes nothing has read a state that there was
					want = 2
				}
				if err != nil || attempts != want {
					t.Errorf("%d attempts, want %d, of one that writes: %v; %v", attempts, want, writes, err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// testMergesDoNotMeet has two transactions merge into one key at once. An engine may
// take a merge for a read and a write now and then, but not as a rule.
func testMergesDoNotMeet(t *testing.T, e Engine) {
	if !e.Conflicts {
		return
	}
	s := e.Open(t, LastByte{})
	const keys = 6
	met := 0
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
			met++
		}
		view(t, s, func(r kv.Reader) {
			if got := get(t, r, string(key)); got != "\x01\x01\x02\x01\x03\x01" {
				t.Errorf("key %d is %q", i, got)
			}
		})
	}
	if met > keys-2 {
		t.Errorf("%d of %d merges conflicted", met, keys)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
