package check

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"skein.blue/internal/kv"
)

// tolerant is a Reader that goes on behind what is damaged: it reports it, and
// reads on after the keys that lie in the damaged file.
type tolerant struct {
	kv.Reader

	report func(problem string)
	said   map[string]bool // files that were reported
	failed int             // look-ups that met damage
	ranges []kv.Damage     // where
}

// mostFailed is how many look-ups may fail before those in files that are known to
// be damaged are given up: each costs far more than one that does not.
const mostFailed = 10_000

// given reports whether a key is not looked up any more.
func (r *tolerant) given(key []byte) bool {
	return r.failed > mostFailed && slices.ContainsFunc(r.ranges, func(d kv.Damage) bool {
		return bytes.Compare(key, d.First) >= 0 && bytes.Compare(key, d.Last) <= 0
	})
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
		r.ranges = append(r.ranges, *d)
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
	if r.given(key) {
		return nil, false, nil
	}
	value, ok, err = r.Reader.Get(key)
	if _, damaged := r.damaged(err); damaged {
		r.failed++
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
	at := bytes.Clone(lo)
	for {
		err := r.Reader.Scan(lo, hi, reverse, func(key, value []byte) (bool, error) {
			at = append(at[:0], key...)
			more, err := each(key, value)
			inner = err
			return more, err
		})
		if err == nil || inner != nil {
			return err
		}
		end, ok := r.damaged(err)
		if !ok {
			return err
		}
		if reverse || end == nil {
			return nil // what lies behind cannot be found
		}
		if lo, ok = r.behind(at, end, hi); !ok {
			return nil
		}
	}
}

// behind finds a key after at from which on keys can be read again: a block of a
// table is damaged, and not all of it. It tries further and further away, and in
// the end where the damaged file ends.
func (r *tolerant) behind(at, end, hi []byte) (next []byte, ok bool) {
	for n := range slices.Backward(at) {
		if next = kv.PrefixEnd(at[:n]); n == 0 || next == nil || bytes.Compare(next, end) > 0 {
			next = end
		}
		if bytes.Compare(next, at) <= 0 || len(hi) > 0 && bytes.Compare(next, hi) >= 0 {
			return nil, false
		}
		err := r.Reader.Scan(next, hi, false, func(_, _ []byte) (bool, error) { return false, nil })
		if _, damaged := r.damaged(err); !damaged {
			return next, true
		}
		if bytes.Equal(next, end) { // what comes next is damaged, too
			after, _ := r.damaged(err)
			if after == nil || bytes.Compare(after, end) <= 0 {
				return nil, false
			}
			return r.behind(end, after, hi)
		}
	}
	return nil, false
}
