package check

import (
	"bytes"
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
	parts  *damagedParts // shared by the readers of one check; nil: none yet
}

// damagedParts is the damage that the readers of one check have met.
type damagedParts struct {
	mu       sync.Mutex      // guards the fields below
	reported map[string]bool // files
	failed   int             // lookups that met damage
	failure  error           // the first error of the engine that is not damage
	ranges   []kv.Damage     // damaged ranges so far
}

// fork returns a reader of the same state for another goroutine, and what ends it. ok is false if the engine
// has none.
func (r *tolerant) fork() (other *tolerant, release func() error, ok bool) {
	f, ok := r.Reader.(kv.Forker)
	if !ok {
		return nil, nil, false
	}
	reader, release := f.Fork()
	return &tolerant{Reader: reader, report: r.report, parts: r.damage()}, release, true
}

// damage returns what is shared.
func (r *tolerant) damage() *damagedParts {
	if r.parts == nil {
		r.parts = &damagedParts{reported: map[string]bool{}}
	}
	return r.parts
}

// mostFailed is the number of failed lookups after which tolerant stops looking up keys in
// damaged files. A failed lookup costs far more than a successful one.
const mostFailed = 10_000

// skips reports whether a key is no longer looked up.
func (r *tolerant) skips(key []byte) bool {
	p := r.damage()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed > mostFailed && slices.ContainsFunc(p.ranges, func(d kv.Damage) bool {
		return bytes.Compare(key, d.First) >= 0 && bytes.Compare(key, d.Last) <= 0
	})
}

// damaged reports an error that is damage, and returns the first key after it. ok is false
// for any other error.
func (r *tolerant) damaged(err error) (after []byte, ok bool) {
	if !errors.Is(err, kv.ErrCorrupt) {
		if p := r.damage(); err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.failure == nil {
				p.failure = err
			}
		}
		return nil, false
	}
	var d *kv.Damage
	if !errors.As(err, &d) {
		d = &kv.Damage{File: "with an unknown name", Err: err}
	}
	p := r.damage()
	p.mu.Lock()
	again := p.reported[d.File]
	if p.reported[d.File] = true; !again {
		p.ranges = append(p.ranges, *d)
	}
	p.mu.Unlock()
	if !again {
		r.report(fmt.Sprintf("file %s is damaged; some keys from %x to %x are unreadable and were not checked: %v", d.File, d.First, d.Last, d.Err))
	}
	if d.Last == nil {
		return nil, true
	}
	return append(bytes.Clone(d.Last), 0), true
}

// failure returns the first error of the engine that is not damage, such as the end of the context. Functions that read and decode
// return it as they return a malformed value.
func (r *tolerant) failure() error {
	p := r.damage()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure
}

// any reports whether there was damage.
func (r *tolerant) any() bool {
	p := r.damage()
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.reported) > 0
}

// Get implements kv.Reader.
func (r *tolerant) Get(key []byte) (value []byte, ok bool, err error) {
	if r.skips(key) {
		return nil, false, nil
	}
	value, ok, err = r.Reader.Get(key)
	if _, damaged := r.damaged(err); damaged {
		p := r.damage()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.failed++
		return nil, false, nil
	}
	return value, ok, err
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
	var inner error // the caller's own error, which is returned as it is
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
