package check

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"

	"skein.blue/internal/kv"
)

// tolerant is a Reader that reports damage, and continues after the damaged part.
type tolerant struct {
	kv.Reader

	report func(problem string)
	*damages
}

// damages is what the readers of one check have met.
type damages struct {
	mu     sync.Mutex  // guards the fields below
	files  []kv.Damage // damaged files
	failed int         // lookups that met damage
	first  error       // the first error of the engine that is not damage
}

func newTolerant(r kv.Reader, report func(problem string)) *tolerant {
	return &tolerant{r, report, &damages{}}
}

// fork returns a reader of the same state for another goroutine, and what ends it. ok is false if the engine
// has none.
func (r *tolerant) fork() (other *tolerant, release func() error, ok bool) {
	f, ok := r.Reader.(kv.Forker)
	if !ok {
		return nil, nil, false
	}
	reader, release := f.Fork()
	return &tolerant{reader, r.report, r.damages}, release, true
}

// damaged reports an error that is damage, and returns the first key after the file. ok is false
// for any other error.
func (r *tolerant) damaged(err error) (after []byte, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !errors.Is(err, kv.ErrCorrupt) {
		r.first = cmp.Or(r.first, err)
		return nil, false
	}
	var d *kv.Damage
	if !errors.As(err, &d) {
		d = &kv.Damage{File: "with an unknown name", Err: err}
	}
	if !slices.ContainsFunc(r.files, func(f kv.Damage) bool { return f.File == d.File }) {
		r.files = append(r.files, *d)
		r.report(fmt.Sprintf("file %s is damaged; some keys from %x to %x are unreadable and were not checked: %v", d.File, d.First, d.Last, d.Err))
	}
	if d.Last == nil {
		return nil, true
	}
	return append(bytes.Clone(d.Last), 0), true
}

// failure returns the first error of the engine that is not damage, such as the end of the context. Functions that read and decode
// return it as they return a malformed value.
func (d *damages) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.first
}

// any reports whether there was damage.
func (d *damages) any() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.files) > 0
}

// mostFailed is the number of failed lookups after which tolerant stops looking up keys in
// damaged files. A failed lookup costs far more than a successful one.
const mostFailed = 10_000

// skips reports whether a key is no longer looked up.
func (d *damages) skips(key []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed > mostFailed && slices.ContainsFunc(d.files, func(f kv.Damage) bool {
		return bytes.Compare(key, f.First) >= 0 && bytes.Compare(key, f.Last) <= 0
	})
}

// Get implements kv.Reader. An unreadable key counts as missing.
func (r *tolerant) Get(key []byte) (value []byte, ok bool, err error) {
	if r.skips(key) {
		return nil, false, nil
	}
	if value, ok, err = r.Reader.Get(key); err == nil {
		return value, ok, nil
	}
	if _, damaged := r.damaged(err); !damaged {
		return nil, false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed++
	return nil, false, nil
}

// MultiGet implements kv.Reader. After damage it looks up one key after the other.
func (r *tolerant) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	given := 0
	if !r.any() {
		var inner error // the caller's own error, which is returned as it is
		err := r.Reader.MultiGet(keys, func(i int, value []byte, ok bool) error {
			given = i + 1
			inner = each(i, value, ok)
			return inner
		})
		if err == nil || inner != nil || !errors.Is(err, kv.ErrCorrupt) {
			return err
		}
	}
	for i, key := range keys[given:] {
		i += given
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
	at := bytes.Clone(lo)
	for {
		var inner error // the caller's own error, which is returned as it is
		err := r.Reader.Scan(lo, hi, reverse, func(key, value []byte) (more bool, err error) {
			at = append(at[:0], key...)
			more, inner = each(key, value)
			return more, inner
		})
		if err == nil || inner != nil {
			return err
		}
		end, ok := r.damaged(err)
		if !ok {
			return err
		}
		if reverse || end == nil {
			return nil // the next readable key is unknown
		}
		if lo, ok = r.resume(at, end, hi); !ok {
			return nil
		}
	}
}

// resume finds a key after at from which the store is readable again. Usually a block of a
// table is damaged, and not the whole file. It tries keys further and further away, and at
// last the end of the damaged file.
func (r *tolerant) resume(at, end, hi []byte) (next []byte, ok bool) {
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
		if bytes.Equal(next, end) { // the next file is damaged, too
			after, _ := r.damaged(err)
			if after == nil || bytes.Compare(after, end) <= 0 {
				return nil, false
			}
			return r.resume(end, after, hi)
		}
	}
	return nil, false
}
