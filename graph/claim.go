package graph

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// ErrClaimed is returned by Open if a live writer has one of the partitions, and by writes
// after another writer has taken over.
var ErrClaimed = errors.New("graph: another writer has these partitions")

// defaultBeat is the interval of heartbeats. A writer that misses patience beats is dead.
const (
	defaultBeat = time.Second
	patience    = 4
)

// A claim is this process's claim of its partitions, in a store that several processes write. Every write
// reads it, so a writer stops writing once another takes over its partitions. A live writer renews its
// heartbeat, in a row that writes do not read.
//
// To learn whether the owner of an old claim is alive, a writer watches its heartbeat for a
// while, and does not compare clocks. Silence counts only while our own reads succeed in time:
// if the store stalls, a healthy writer is silent, too. So watching starts again after a
// stall, and the write that takes over checks the heartbeat once more.
//
// Any goroutine may use a claim.
type claim struct {
	store      kv.Store
	first, end uint8 // the partitions are first to end-1
	row        format.ClaimRow
	beat       time.Duration // the interval of heartbeats
	lost       func(error)   // may be nil; called once, from a goroutine that close waits for, if another writer takes over
	log        *slog.Logger
	stop       context.CancelFunc
	stopped    sync.WaitGroup
}

func (c *claim) scan(r kv.Reader, each func(part uint8, row format.ClaimRow) error) error {
	return scanClaims(r, c.first, c.end, each)
}

func scanClaims(r kv.Reader, first, end uint8, each func(part uint8, row format.ClaimRow) error) error {
	return r.Scan(format.ClaimKey(first), format.ClaimKey(end), false, func(k, v []byte) (bool, error) {
		var row format.ClaimRow
		if len(k) != 2 {
			return false, fmt.Errorf("the key of claim %x is malformed", k)
		}
		if err := json.Unmarshal(v, &row); err != nil {
			return false, fmt.Errorf("claim %x is malformed: %w", k, err)
		}
		err := each(k[1], row)
		return err == nil, err
	})
}

// rival is the claim of another writer that prevents ours.
type rival struct {
	beat  []byte
	why   string
	parts uint64    // a bit for each of its partitions
	heard time.Time // when a heartbeat was last new, or watching began again
}

// rivals returns, by token, the claims of writers that have one of our partitions, or draw
// ids from a part of our shards.
func (c *claim) rivals(r kv.Reader) (map[string]rival, error) {
	found := map[string]rival{}
	err := scanClaims(r, 0, dict.MaxPartitions, func(part uint8, row format.ClaimRow) error {
		if v, known := found[string(row.Token)]; known {
			v.parts |= 1 << part
			found[string(row.Token)] = v
			return nil
		}
		var why string
		switch ours, theirs := c.row.Shards, row.Shards; {
		case part >= c.first && part < c.end:
			why = fmt.Sprintf("partition %d is written by %s since %s", part, row.Owner, row.Since.Format(time.RFC3339))
		case ours != nil && theirs != nil && ours.First <= theirs.Last && theirs.First <= ours.Last && *ours != *theirs:
			why = fmt.Sprintf("the shards %s overlap those of %s, %s", ours, row.Owner, theirs)
		default:
			return nil
		}
		beat, _, err := r.Get(format.HeartbeatKey(row.Token))
		found[string(row.Token)] = rival{beat: bytes.Clone(beat), why: why, parts: 1 << part}
		return err
	})
	return found, err
}

// take claims the partitions. It returns ErrClaimed if a live writer has one of them. While
// the store does not answer, it waits, and logs that.
func (c *claim) take(ctx context.Context) error {
	ctx = kv.Urgent(ctx)
	c.row.Token, c.row.Since = make([]byte, 16), time.Now().UTC().Truncate(time.Second)
	if _, err := rand.Read(c.row.Token); err != nil {
		return fmt.Errorf("graph: making a token: %w", err)
	}
	for {
		dead, seen, err := c.awaitRivals(ctx)
		if err != nil {
			return err
		}
		err = c.write(ctx, dead, seen)
		if err == nil {
			c.start(ctx)
			return nil
		}
		if !errors.Is(err, errStall) {
			return err
		}
		c.logStall(time.Since(seen))
	}
}

// write replaces the claims of dead writers, which were still silent at seen, with our own. It
// returns errStall if seen is too long ago.
func (c *claim) write(ctx context.Context, dead map[string]rival, seen time.Time) error {
	v, err := json.Marshal(c.row)
	if err != nil {
		return fmt.Errorf("graph: making a claim: %w", err)
	}
	return c.store.Update(ctx, func(tx kv.Txn) error {
		mine := uint8(0)
		err := c.scan(tx, func(part uint8, row format.ClaimRow) error {
			if bytes.Equal(row.Token, c.row.Token) {
				mine++
			} else if _, known := dead[string(row.Token)]; !known {
				return fmt.Errorf("%w: partition %d was just taken by %s", ErrClaimed, part, row.Owner)
			}
			return nil
		})
		if err != nil || mine == c.end-c.first { // if all are ours, an earlier attempt was committed
			return err
		}
		for token, v := range dead {
			// Reading the heartbeat makes this write conflict with a beat.
			beat, _, err := tx.Get(format.HeartbeatKey([]byte(token)))
			if err != nil {
				return err
			}
			if v.beats(beat) {
				return v.alive()
			}
			tx.Delete(format.HeartbeatKey([]byte(token)))
		}
		if len(dead) > 0 && c.stalled(seen) {
			return errStall
		}
		for part := c.first; part < c.end; part++ {
			tx.Set(format.ClaimKey(part), v)
		}
		c.writeBeat(tx)
		return nil
	})
}

// errStall ends an attempt to claim during which the store stood still: the other writer may be
// alive, and unable to renew its heartbeat.
var errStall = errors.New("graph: the store stood still")

// stalled reports whether our last look is so long ago, by the monotonic clock, that the store,
// or this process, stood still. Then a healthy writer may have been unable to beat. A shorter
// stall leaves it enough time, because it is watched for four beats.
func (c *claim) stalled(last time.Time) bool { return time.Since(last) > 2*c.beat }

func (c *claim) logStall(d time.Duration) {
	c.log.Warn("the store, or this process, stood still, and the other writer may be alive: watching it begins again",
		"stood_still", d.Round(time.Millisecond).String(), "watching_for", (patience * c.beat).String())
}

// beats reports whether the heartbeat has changed. One that is gone has not: another writer took over some of the partitions and
// deleted it, and every write of the claim's owner fails.
func (v rival) beats(now []byte) bool {
	return len(now) > 0 && !bytes.Equal(v.beat, now)
}

func (v rival) alive() error {
	return fmt.Errorf("%w: %s, and it is alive; stop it, or give --partition another share and --ids other shards", ErrClaimed, v.why)
}

// awaitRivals watches the rivals. It returns their claims once their writers are dead, and the
// time of its last look; or an error that names a live writer. A writer is dead if its
// heartbeat does not change for four beats, during which all our own reads succeed in time.
func (c *claim) awaitRivals(ctx context.Context) (dead map[string]rival, seen time.Time, err error) {
	first, seen, err := c.look(ctx)
	if err != nil || len(first) == 0 {
		return nil, seen, err
	}
	for _, v := range first {
		c.log.Info("found the claim of another writer; watching whether it is alive", "claim", v.why, "for", (patience * c.beat).String())
	}
	for begun := seen; time.Since(begun) < patience*c.beat; {
		if err := sleep(ctx, c.beat/2); err != nil {
			return nil, seen, err
		}
		last := seen
		now, at, err := c.look(ctx)
		if err != nil {
			return nil, seen, err
		}
		seen = at
		for token, v := range now {
			if was, known := first[token]; !known || was.beats(v.beat) {
				return nil, seen, v.alive()
			}
		}
		if len(now) == 0 {
			return nil, seen, nil
		}
		if c.stalled(last) {
			c.logStall(seen.Sub(last))
			begun = seen
		}
	}
	return first, seen, nil
}

// look returns the rivals, and the time at which it read them. It waits for a store that does
// not answer.
func (c *claim) look(ctx context.Context) (found map[string]rival, at time.Time, err error) {
	begun := time.Now()
	for logged := false; ; logged = true {
		err = c.store.View(ctx, func(r kv.Reader) (err error) { found, err = c.rivals(r); return err })
		if !errors.Is(err, kv.ErrUnavailable) {
			break
		}
		if !logged {
			c.log.Warn("the store does not answer; waiting to claim the partitions", "error", err)
		}
		if err := sleep(ctx, c.beat); err != nil {
			return nil, begun, err
		}
	}
	return found, time.Now(), err
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *claim) writeBeat(tx kv.Txn) {
	tx.Set(format.HeartbeatKey(c.row.Token), binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli())))
}

// start renews the heartbeat until another writer takes over. A writer that stood still for
// long learns that here, even if it has nothing to write.
func (c *claim) start(ctx context.Context) {
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.stopped.Go(func() {
		ticker := time.NewTicker(c.beat)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			err := c.store.Update(ctx, func(tx kv.Txn) error {
				if err := c.check(tx); err != nil {
					return err
				}
				c.writeBeat(tx)
				return nil
			})
			switch {
			case err == nil || ctx.Err() != nil:
			case errors.Is(err, ErrClaimed):
				if c.lost != nil {
					c.lost(err)
				} else {
					c.log.Error("another writer took over; every write of this one will fail", "error", err)
				}
				return
			default:
				c.log.Warn("the heartbeat failed; trying again", "error", err)
			}
		}
	})
}

// check returns ErrClaimed, as part of a write, unless this writer still has its partitions.
func (c *claim) check(tx kv.Txn) error {
	n := uint8(0)
	err := c.scan(tx, func(part uint8, row format.ClaimRow) error {
		if n++; !bytes.Equal(row.Token, c.row.Token) {
			return fmt.Errorf("%w: partition %d was taken over by %s at %s; this writer stops", ErrClaimed, part, row.Owner, row.Since.Format(time.RFC3339))
		}
		return nil
	})
	if err == nil && n != c.end-c.first {
		err = fmt.Errorf("%w: %d of the %d claims of this writer are gone; it stops", ErrClaimed, c.end-c.first-n, c.end-c.first)
	}
	return err
}

// stopOthers makes the store's other writers stop, as part of a write.
func (c *claim) stopOthers(tx kv.Txn) {
	tx.DeleteRange(format.ClaimKey(0), format.ClaimKey(c.first))
	tx.DeleteRange(format.ClaimKey(c.end), format.ClaimKey(dict.MaxPartitions))
}

// close gives up the partitions.
func (c *claim) close(ctx context.Context) error {
	c.stop()
	c.stopped.Wait()
	err := c.store.Update(kv.Urgent(ctx), func(tx kv.Txn) error {
		err := c.scan(tx, func(part uint8, row format.ClaimRow) error {
			if bytes.Equal(row.Token, c.row.Token) {
				tx.Delete(format.ClaimKey(part))
			}
			return nil
		})
		tx.Delete(format.HeartbeatKey(c.row.Token))
		return err
	})
	if err != nil {
		return fmt.Errorf("graph: giving up the claim: %w", err)
	}
	return nil
}
