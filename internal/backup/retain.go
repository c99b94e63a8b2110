package backup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"skein.blue/internal/backup/target"
)

// A Retention says which backups to keep: of each period, the newest backup in each of the last so
// many units. The newest of all is always kept.
type Retention []Period

// A Period is a part of a Retention: N times the Unit.
type Period struct {
	N    int
	Unit time.Duration
}

// units are what a Retention counts in.
var units = map[byte]time.Duration{'h': time.Hour, 'd': 24 * time.Hour, 'w': 7 * 24 * time.Hour}

// ErrRetention is returned for a text that is not a Retention.
var ErrRetention = errors.New("expected periods such as 24h,7d,4w: the newest backup of each of the last 24 hours, 7 days and 4 weeks")

// ParseRetention reads a Retention such as 24h,7d,4w.
func ParseRetention(s string) (r Retention, err error) {
	for p := range strings.SplitSeq(s, ",") {
		p = strings.TrimSpace(p)
		if len(p) < 2 || units[p[len(p)-1]] == 0 {
			return nil, ErrRetention
		}
		n, err := strconv.Atoi(p[:len(p)-1])
		if err != nil || n < 1 || n > 10_000 {
			return nil, ErrRetention
		}
		r = append(r, Period{n, units[p[len(p)-1]]})
	}
	return r, nil
}

// keeps returns which of the times, ascending, r keeps at the time now.
func (r Retention) keeps(times []time.Time, now time.Time) []bool {
	keep := make([]bool, len(times))
	for _, p := range r {
		seen := map[int64]bool{}
		for i := len(times) - 1; i >= 0; i-- {
			unit := times[i].UnixNano() / int64(p.Unit)
			if unit > now.UnixNano()/int64(p.Unit)-int64(p.N) && !seen[unit] {
				seen[unit], keep[i] = true, true
			}
		}
	}
	if len(keep) > 0 {
		keep[len(keep)-1] = true
	}
	return keep
}

// Removed says what a Retain removed.
type Removed struct {
	Backups int
	Parts   int
	Bytes   int64 // of the parts
}

// Retain removes the backups that keep does not keep, and the parts that no backup needs.
func Retain(ctx context.Context, t target.Target, keep Retention) (r Removed, err error) {
	l, err := acquire(ctx, t, owner())
	if err != nil {
		return r, err
	}
	defer l.release(ctx)
	return retain(ctx, t, l, keep, time.Now())
}

// retain is Retain for a caller that holds the lock. The index goes first, then the manifests, then the
// parts, so that nothing names what is not there. Nothing is removed while any manifest that stays
// cannot be read.
func retain(ctx context.Context, t target.Target, l *lock, keep Retention, now time.Time) (r Removed, err error) {
	all, err := names(ctx, t)
	if err != nil {
		return r, err
	}
	times := make([]time.Time, len(all))
	for i, name := range all {
		times[i], _ = manifestTime(name)
	}
	needed := map[string]bool{}
	var staying []string
	kept := keep.keeps(times, now)
	for i, name := range all {
		if !kept[i] {
			continue
		}
		staying = append(staying, name)
		m, err := read(ctx, t, name, nil)
		if err != nil {
			return r, fmt.Errorf("nothing is removed, because a backup cannot be read: %w", err)
		}
		for i := range m.Files {
			needed[m.Files[i].part(m.Sealed)] = true
		}
	}
	if err := writeIndex(ctx, t, staying); err != nil {
		return r, err
	}
	for i, name := range all {
		if kept[i] {
			continue
		}
		if err := l.current(); err != nil {
			return r, err
		}
		if err := errors.Join(t.Delete(ctx, name), t.Delete(ctx, name+signature)); err != nil {
			return r, err
		}
		r.Backups++
	}
	spare := map[string]int64{}
	err = t.List(ctx, parts, func(o target.Object) error {
		if !needed[o.Name] {
			spare[o.Name] = o.Size
		}
		return nil
	})
	if err != nil {
		return r, err
	}
	if err := l.held(ctx); err != nil {
		return r, err
	}
	for _, name := range slices.Sorted(maps.Keys(spare)) {
		if err := l.current(); err != nil {
			return r, err
		}
		if err := t.Delete(ctx, name); err != nil {
			return r, err
		}
		r.Parts++
		r.Bytes += spare[name]
	}
	if tidy, ok := t.(interface{ Tidy(context.Context) error }); ok {
		return r, tidy.Tidy(ctx)
	}
	return r, nil
}
