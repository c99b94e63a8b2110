package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"skein.blue/internal/backup/target"
	"skein.blue/internal/human"
)

const lockName = "lock.json"

// lockFor is how long a lock lasts if nobody renews it. It is renewed every fifth of that time.
var lockFor = 5 * time.Minute

// A lock is the right to write to a target.
type lock struct {
	Owner string    `json:"owner"`
	Until time.Time `json:"until"`

	t     target.Target
	until atomic.Int64 // Until as last written, in nanoseconds since 1970
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// acquire takes the lock of a target for owner, whose name must be unique to this run. The clocks
// of two writers must agree within minutes.
func acquire(ctx context.Context, t target.Target, owner string) (*lock, error) {
	for try := range tries {
		l := &lock{Owner: owner, Until: time.Now().Add(lockFor), t: t}
		b, err := json.Marshal(l)
		if err != nil {
			return nil, fmt.Errorf("the lock of %s: %w", t, err)
		}
		err = t.Claim(ctx, lockName, b)
		if err == nil {
			l.until.Store(l.Until.UnixNano())
			l.keep(ctx)
			return l, nil
		}
		if !errors.Is(err, target.ErrExists) {
			return nil, err
		}
		if err := expired(ctx, t, try == tries-2); err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(try) * pause / 4):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, fmt.Errorf("%s: %w: others take its lock again and again", t, ErrBusy)
}

// tries is how often acquire tries.
const tries = 4

// expired removes a lock that nobody holds any more, and returns ErrBusy for another. A lock that
// exists and cannot be read is usually one that was given back in between. A server that was killed
// while it wrote one may have left such a lock for good: broken says to remove it. If that removes
// the lock of a writer that just took it, that writer notices (held).
func expired(ctx context.Context, t target.Target, broken bool) error {
	b, err := get(ctx, t, lockName, 64<<10)
	if errors.Is(err, target.ErrNotFound) {
		if broken {
			return t.Delete(ctx, lockName)
		}
		return nil
	}
	if err != nil {
		return err
	}
	var old lock
	if err := json.Unmarshal(b, &old); err == nil && time.Now().Before(old.Until) && time.Until(old.Until) < 2*lockFor {
		return fmt.Errorf("%s: %w by %s, until %s unless it goes on; wait, or, if that process is gone, try again then", t, ErrBusy, human.Line(old.Owner), old.Until.UTC().Format(time.RFC3339))
	}
	return t.Delete(ctx, lockName)
}

// keep renews the lock until release.
func (l *lock) keep(ctx context.Context) {
	ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	l.done.Go(func() {
		ticker := time.NewTicker(lockFor / 5)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			next := lock{Owner: l.Owner, Until: time.Now().Add(lockFor)}
			b, err := json.Marshal(&next)
			if err == nil && l.held(ctx) == nil && put(ctx, l.t, lockName, b) == nil {
				l.until.Store(next.Until.UnixNano())
			}
		}
	})
}

// held returns ErrBusy if the lock has expired, or somebody else has it.
func (l *lock) held(ctx context.Context) error {
	b, err := get(ctx, l.t, lockName, 64<<10)
	if errors.Is(err, target.ErrNotFound) { // another writer took it, and has given it back
		return l.lost()
	}
	if err != nil {
		return err
	}
	var now lock
	if err := json.Unmarshal(b, &now); err != nil || now.Owner != l.Owner {
		return l.lost()
	}
	return l.current()
}

// current is held, without asking the target: nobody else takes a lock before it expires.
func (l *lock) current() error {
	if time.Now().UnixNano() > l.until.Load() {
		return l.lost()
	}
	return nil
}

func (l *lock) lost() error {
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
