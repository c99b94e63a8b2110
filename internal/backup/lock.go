package backup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"skein.blue/internal/outward"
	"skein.blue/internal/say"
)

const lockName = "lock.json"

// lockFor is how long a lock lasts if nobody renews it. It is renewed every fifth of that time. The
// clocks of two writers must agree within minutes.
const lockFor = 5 * time.Minute

// content is the object lock.json.
type content struct {
	Owner string    `json:"owner"`
	Until time.Time `json:"until"`
}

// A lock is the right to write to a target.
type lock struct {
	t    Target
	stop context.CancelFunc
	done sync.WaitGroup

	owner string       // this run of this process
	until atomic.Int64 // as last written, in nanoseconds since 1970
}

// acquire takes the lock of a target.
func acquire(ctx context.Context, t Target) (*lock, error) {
	host, _ := os.Hostname() // "" if it fails
	l := &lock{t: t, owner: fmt.Sprintf("%s/%d/%s", cmp.Or(host, "unknown"), os.Getpid(), rand.Text()[:8])}
	for range 3 {
		err := l.write(func(b []byte) error { return t.Put(ctx, lockName, int64(len(b)), bytes.NewReader(b), true) })
		if err == nil {
			l.keep(ctx)
			return l, nil
		}
		if !errors.Is(err, ErrExists) {
			return nil, err
		}
		if err := l.removeExpired(ctx); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s: %w: others take its lock again and again", t, ErrBusy)
}

// removeExpired removes a lock that nobody holds any more, and returns ErrBusy for another. One that
// exists and cannot be found was given back in between, or a server was killed while it wrote it. One of
// this run was written by a request whose answer was lost. If the removal hits the lock of a writer that
// just took it, that writer notices (held).
func (l *lock) removeExpired(ctx context.Context) error {
	b, err := get(ctx, l.t, lockName, 64<<10)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	var old content
	left := time.Duration(0) // nobody can have a lock that lasts for much longer than it may
	if json.Unmarshal(b, &old) == nil {
		left = time.Until(old.Until)
	}
	if left > 0 && left < 2*lockFor && old.Owner != l.owner {
		return fmt.Errorf("%s: %w: %s writes to it; if that process is gone, the lock expires at %s", l.t, ErrBusy, say.Line(old.Owner), old.Until.UTC().Format(time.RFC3339))
	}
	return l.t.Delete(ctx, lockName)
}

// write makes the lock last from now on, and calls put to write it.
func (l *lock) write(put func(b []byte) error) error {
	next := content{l.owner, time.Now().Add(lockFor)}
	b, err := json.Marshal(&next)
	if err == nil {
		err = put(b)
	}
	if err == nil {
		l.until.Store(next.Until.UnixNano())
	}
	return err
}

// keep renews the lock until release.
func (l *lock) keep(ctx context.Context) {
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.done.Go(func() {
		for outward.Wait(ctx, lockFor/5) == nil {
			if l.held(ctx) == nil {
				_ = l.write(func(b []byte) error { return put(ctx, l.t, lockName, b) }) // if it fails, it expires
			}
		}
	})
}

// held returns ErrBusy if the lock has expired, or somebody else has it.
func (l *lock) held(ctx context.Context) error {
	b, err := get(ctx, l.t, lockName, 64<<10)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	var now content
	if json.Unmarshal(b, &now) != nil || now.Owner != l.owner { // another took it, and may have given it back
		l.until.Store(0)
	}
	return l.current()
}

// current is held, without asking the target: nobody else takes a lock before it expires.
func (l *lock) current() error {
	if time.Now().UnixNano() <= l.until.Load() {
		return nil
	}
	return fmt.Errorf("%s: %w: this process has lost its lock, because it could not renew it for %v", l.t, ErrBusy, lockFor)
}

// release gives the lock back.
func (l *lock) release(ctx context.Context) {
	l.stop()
	l.done.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if l.held(ctx) == nil {
		_ = l.t.Delete(ctx, lockName) // if it fails, the lock expires
	}
}
