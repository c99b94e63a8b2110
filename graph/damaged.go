package graph

import (
	"bytes"
	"errors"
	"fmt"

	"skein/internal/kv"
)

// tolerant is a Reader that goes on behind what is damaged: it reports it, and
// reads on after the keys that lie in the damaged file.
type tolerant struct {
	kv.Reader

	report func(problem string)
	said   map[string]bool // files that were reported
}

// damaged reports an error that is damage, and returns the first key after it. ok
// is false for other errors.
func (r *tolerant) damaged(err error) (after []byte, ok bool) {
	if !errors.Is(err, kv.ErrCorrupt) {
		return nil, false
	}
	var d *kv.Damage
	if !errors.As(err, &d) {
		d = &kv.Damage{File: "of an unknown name", Err: err}
	}
	if r.said == nil {
		r.said = map[string]bool{}
	}
	if !r.said[d.File] {
		r.said[d.File] = true
		r.report(fmt.Sprintf("file %s is damaged: keys from %x to %x cannot all be read, and were not checked: %v", d.File, d.First, d.Last, d.Err))
	}
	if d.Last == nil {
		return nil, true
	}
	return append(bytes.Clone(d.Last), 0), true
}

// any reports whether something was damaged.
func (r *tolerant) any() bool { return len(r.said) > 0 }

// Get implements kv.Reader.
func (r *tolerant) Get(key []byte) (value []byte, ok bool, err error) {
	value, ok, err = r.Reader.Get(key)
	if _, damaged := r.damaged(err); damaged {
		return nil, false, nil
	}
	return value, ok, err
}

// MultiGet implements kv.Reader.
func (r *tolerant) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	for i, key := range keys {
		value, ok, err := r.Get(key)
		if err == nil {
			err = each(i, value, ok)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Scan implements kv.Reader.
func (r *tolerant) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) error {
	var inner error // of each: it is not ours to judge
	var last []byte
	for {
		err := r.Reader.Scan(lo, hi, reverse, func(key, value []byte) (bool, error) {
			last = append(last[:0], key...)
			more, err := each(key, value)
			inner = err
			return more, err
		})
		if err == nil || inner != nil {
			return err
		}
		after, ok := r.damaged(err)
		switch {
		case !ok:
			return err
		case after == nil || reverse:
			return nil // the rest of this scan cannot be found
		}
		if len(last) > 0 && bytes.Compare(after, last) <= 0 {
			after = append(bytes.Clone(last), 0)
		}
		if bytes.Compare(after, lo) <= 0 || len(hi) > 0 && bytes.Compare(after, hi) >= 0 {
			return nil
		}
		lo = after
	}
}
