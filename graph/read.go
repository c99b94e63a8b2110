package graph

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein/intern"
	"skein/internal/kv"
)

// A Snapshot is one state of the graph, for one goroutine and one question.
// Sets are of ids; those returned are the caller's.
type Snapshot struct {
	r      kv.Reader
	s      *Store
	hidden *roaring64.Bitmap
}

// View calls fn with a consistent state of the graph.
func (s *Store) View(ctx context.Context, fn func(*Snapshot) error) error {
	return s.kv.View(ctx, func(r kv.Reader) error {
		hidden, err := s.hiddenOf(r)
		if err != nil {
			return fmt.Errorf("graph: reading the hidden accounts: %w", err)
		}
		return fn(&Snapshot{r, s, hidden})
	})
}

// Hidden returns the ids of the accounts that are not active. It must not be
// changed.
func (s *Snapshot) Hidden() *roaring64.Bitmap { return s.hidden }

// IsHidden reports whether an account is not active.
func (s *Snapshot) IsHidden(actor intern.ID) bool { return s.hidden.Contains(uint64(actor)) }

// Counts returns the totals.
func (s *Snapshot) Counts() (Counts, error) { return readCounts(s.r) }

// Cursors returns the cursors of all sources.
func (s *Snapshot) Cursors() (all []Cursor, err error) {
	err = eachWithPrefix(s.r, []byte{keyCursor}, func(k, v []byte) error {
		c, err := decodeCursor(v)
		all = append(all, Cursor{string(k[1:]), c.seq, c.time, c.future})
		return err
	})
	return all, err
}

// Lookup finds the ids of strings; those that have none are left None.
func (s *Snapshot) Lookup(b *intern.Batch) error { return s.s.in.Lookup(s.r, b) }

// Strings calls each with the string of every id, in order.
func (s *Snapshot) Strings(ns intern.Namespace, ids []intern.ID, each func(i int, s []byte) error) error {
	return s.s.in.Strings(s.r, ns, ids, each)
}

// Subjects returns the subjects that actor has an edge to: a forward set, such
// as follows. It is empty for a hidden actor.
func (s *Snapshot) Subjects(k Kind, actor intern.ID) (*roaring64.Bitmap, error) {
	set := roaring64.New()
	if actor == intern.None || s.IsHidden(actor) {
		return set, nil
	}
	prefix := appendForwardKey(nil, k, actor, 0, nil)[:forwardKeyPrefix-8]
	var ids []uint64
	err := eachWithPrefix(s.r, prefix, func(key, _ []byte) error {
		id := binary.BigEndian.Uint64(key[forwardKeyPrefix-8:])
		if len(ids) == 0 || ids[len(ids)-1] != id {
			ids = append(ids, id)
		}
		return nil
	})
	set.AddMany(ids)
	return set, err
}

// Actors returns who has an edge to subject: a reverse set, such as followers.
// Hidden accounts are in it.
func (s *Snapshot) Actors(k Kind, subject intern.ID) (*roaring64.Bitmap, error) {
	if subject == intern.None {
		return roaring64.New(), nil
	}
	return readSet(s.r, k, subject)
}

// HasEdge reports whether a live record of actor names subject, whatever the
// state of the two accounts.
func (s *Snapshot) HasEdge(k Kind, actor, subject intern.ID) (bool, error) {
	if actor == intern.None || subject == intern.None {
		return false, nil
	}
	return hasForward(s.r, k, actor, subject)
}

func hasForward(r kv.Reader, k Kind, actor, subject intern.ID) (bool, error) {
	found := false
	prefix := appendForwardKey(nil, k, actor, subject, nil)
	err := r.Scan(prefix, kv.PrefixEnd(prefix), false, func(_, _ []byte) (bool, error) {
		found = true
		return false, nil
	})
	return found, err
}

// readSet reads a reverse set, or the hidden set, from its containers.
func readSet(r kv.Reader, k Kind, subject intern.ID) (*roaring64.Bitmap, error) {
	set := roaring64.New()
	var ids []uint64
	prefix := appendReverseKey(nil, k, subject, 0)[:reverseKeyLen-6]
	err := eachWithPrefix(r, prefix, func(key, v []byte) error {
		base, err := reverseBase(key)
		if err != nil {
			return err
		}
		if ids, err = appendMembers(ids[:0], base, v); err != nil {
			return fmt.Errorf("graph: reading set %x: %w", key, err)
		}
		set.AddMany(ids)
		return nil
	})
	return set, err
}

// AllStrings returns every string of a namespace. It is for tests and tools:
// the list is as large as the dictionary.
func (s *Snapshot) AllStrings(ns intern.Namespace) (all []string, err error) {
	err = eachWithPrefix(s.r, []byte{intern.KeyID, byte(ns)}, func(k, _ []byte) error {
		all = append(all, string(k[2:]))
		return nil
	})
	return all, err
}
