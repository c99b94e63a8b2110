package graph

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// ErrClaimed is returned by Open if a live writer has partitions that this one wants for itself, and by writes after another
// writer has taken over.
var ErrClaimed = errors.New("graph: another writer has these partitions")

// A claim is this process's place among the writers of a store that several processes write:
//
//  1. A writer has a row with its partitions (format.ClaimRow) and another with its heartbeat, under a random token. Every write
//     reads the first, and fails if it is gone. No partition is in two rows.
//  2. A new writer takes all partitions if it is the only one, else it begins without any.
//  3. A writer is dead if its heartbeat stands still for four beats (watch). Then others delete both of its rows, in a write that
//     reads the heartbeat once more. So what a frozen writer writes later fails, and its partitions are free.
//  4. Each writer computes from the same rows which partitions each living one should have (share), keeping most where they are. It
//     gives up what it has too many of, and takes what is free and its own, in one write (move). A writer that stops gives up all.
//  5. A partition has its own cursors, erase jobs, holes and state of the backfill, in the store. Before a move, the writer ends what it
//     does to the graph, and commits it; after it, it loads what it has as after a restart, and reads the stream from the
//     lowest cursor. Partitions drop what their own cursors cover.
//
// Any goroutine may use a claim.
type claim struct {
	*watch

	all     format.Partitions // of the store
	joins   bool              // others may have some of them
	token   []byte
	row     format.ClaimRow // as of its last write; guarded by Store.writing, as value is
	value   []byte          // of row
	lost    func(error)     // may be nil; called once, from a goroutine that close waits for, if another writer takes over
	stop    context.CancelFunc
	stopped sync.WaitGroup
}

// take begins with all partitions or, if the claim joins other writers, with those that are free. Without joins it returns ErrClaimed if
// a live writer has any. While the store does not answer, it waits, and logs that.
func (c *claim) take(ctx context.Context) error {
	ctx = kv.Urgent(ctx)
	c.token, c.row.Since = make([]byte, 16), time.Now().UTC().Truncate(time.Second)
	_, _ = rand.Read(c.token) // it never fails
	for logged := ""; ; {
		err := c.look(ctx)
		if err == nil {
			err = c.enter(ctx)
		}
		switch {
		case err == nil:
			c.start(ctx)
			return nil
		case !errors.Is(err, errSilent) && !errors.Is(err, kv.ErrUnavailable):
			return err
		}
		if text := err.Error(); text != logged {
			c.log.Warn("waiting to claim the partitions", "reason", err)
			logged = text
		}
		if err := sleep(ctx, c.beat/2); err != nil {
			return err
		}
	}
}

// errSilent says that it is not known yet whether another writer is alive.
var errSilent = errors.New("watching whether another writer is alive")

// enter claims what take does.
func (c *claim) enter(ctx context.Context) error {
	return c.update(ctx, func(tx kv.Txn, rows map[string]format.ClaimRow) (parts format.Partitions, err error) {
		mine, again := rows[string(c.token)] // an attempt of unknown outcome was committed
		if again || c.joins && len(rows) > 0 {
			return mine.Parts, nil
		}
		for token, row := range rows {
			if row.Parts == 0 {
				continue
			}
			who := fmt.Sprintf("%d partitions are written by %s since %s", row.Parts.Len(), row.Owner, row.Since.Format(time.RFC3339))
			switch isDead, err := c.bury(tx, token); {
			case err != nil:
				return 0, err
			case !isDead && c.seen(token).beats >= alive:
				return 0, fmt.Errorf("%w: %s, and it is alive; stop it", ErrClaimed, who)
			case !isDead:
				return 0, fmt.Errorf("%w: %s", errSilent, who)
			}
		}
		return c.all, nil
	})
}

// update writes the claim, with what decide returns, and a heartbeat.
func (c *claim) update(ctx context.Context, decide func(tx kv.Txn, rows map[string]format.ClaimRow) (format.Partitions, error)) error {
	row, value := c.row, []byte(nil)
	err := c.store.Update(kv.Urgent(ctx), func(tx kv.Txn) error {
		rows, err := claims(tx)
		if err != nil {
			return err
		}
		if row.Parts, err = decide(tx, rows); err != nil {
			return err
		}
		if value, err = json.Marshal(row); err != nil {
			return err
		}
		tx.Set(format.ClaimKey(c.token), value)
		c.writeBeat(tx)
		return nil
	})
	if err == nil {
		c.row, c.value = row, value
	}
	return err
}

// bury deletes the rows of a writer if it is dead, as part of a write, which conflicts with a beat.
func (c *claim) bury(tx kv.Txn, token string) (isDead bool, err error) {
	v := c.seen(token)
	if !v.dead {
		return false, nil
	}
	beat, _, err := tx.Get(format.HeartbeatKey([]byte(token)))
	if err != nil || v.changed(beat) {
		return false, err
	}
	tx.Delete(format.HeartbeatKey([]byte(token)))
	tx.Delete(format.ClaimKey([]byte(token)))
	return true, nil
}

// move gives up partitions or takes free ones, as the living writers share them out. It calls split with them, as part of the write.
func (c *claim) move(ctx context.Context, split func(tx kv.Txn, parts format.Partitions) error) error {
	if err := c.look(ctx); err != nil {
		return err
	}
	return c.update(ctx, func(tx kv.Txn, rows map[string]format.ClaimRow) (format.Partitions, error) {
		mine, ok := rows[string(c.token)]
		if !ok {
			return 0, errTakenOver
		}
		for token := range rows {
			if token == string(c.token) {
				continue
			}
			isDead, err := c.bury(tx, token)
			if err != nil {
				return 0, err
			}
			if isDead {
				c.log.Warn("taking over from a writer that does not beat any more", "owner", rows[token].Owner, "partitions", rows[token].Parts.Len())
				delete(rows, token)
			}
		}
		parts := share(c.all, rows, string(c.token))
		return parts, split(tx, mine.Parts^parts)
	})
}

// isDue reports whether move would change anything, as of the last look.
func (c *claim) isDue() bool {
	rows := c.living()
	mine, ok := rows[string(c.token)]
	return ok && mine.Parts != share(c.all, rows, string(c.token))
}

// share returns the partitions that one of the living writers should have, given what all have: as many as the others, or one more.
func share(all format.Partitions, rows map[string]format.ClaimRow, me string) format.Partitions {
	least, more := all.Len()/len(rows), all.Len()%len(rows)
	rank := func(token string) int {
		if n := rows[token].Parts.Len(); n != least+1 {
			return n
		}
		return all.Len() + 1 // it keeps one more
	}
	order := slices.SortedFunc(maps.Keys(rows), func(x, y string) int {
		return cmp.Or(cmp.Compare(rank(y), rank(x)), cmp.Compare(x, y))
	})
	free := all
	for _, row := range rows {
		free &^= row.Parts
	}
	for i, token := range order {
		n := least
		if i < more {
			n++
		}
		parts := rows[token].Parts.Lowest(n)
		taken := free.Lowest(n - parts.Len())
		if free &^= taken; token == me {
			return parts | taken
		}
	}
	return 0
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *claim) writeBeat(tx kv.Txn) {
	tx.Set(format.HeartbeatKey(c.token), binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli())))
}

// start renews the heartbeat until another writer takes over. A writer that stood still for long learns that here.
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
				_, ok, err := tx.Get(format.ClaimKey(c.token)) // not its value: a move may be changing it
				if err == nil && !ok {
					err = errTakenOver
				}
				c.writeBeat(tx)
				return err
			})
			switch {
			case err == nil || ctx.Err() != nil:
			case errors.Is(err, ErrClaimed):
				c.log.Error("another writer took over; every write of this one will fail", "error", err)
				if c.lost != nil {
					c.lost(err)
				}
				return
			default:
				c.log.Warn("the heartbeat failed; trying again", "error", err)
			}
		}
	})
}

// errTakenOver is the error of every write of a writer that was taken for dead.
var errTakenOver = fmt.Errorf("%w: this writer was taken over by others, which took it for dead; it stops", ErrClaimed)

// check returns ErrClaimed, as part of a write, unless this writer still has its partitions, or needs no claim.
func (c *claim) check(tx kv.Txn) error {
	if c == nil {
		return nil
	}
	v, _, err := tx.Get(format.ClaimKey(c.token))
	if err == nil && !bytes.Equal(v, c.value) {
		err = errTakenOver
	}
	return err
}

// stopOthers makes the store's other writers stop, as part of a write.
func (c *claim) stopOthers(tx kv.Txn) {
	for _, key := range [][]byte{format.ClaimKey(c.token), format.HeartbeatKey(c.token)} {
		tx.DeleteRange(key[:1], key)
		tx.DeleteRange(append(key, 0), []byte{key[0] + 1})
	}
}

// close gives up all partitions.
func (c *claim) close(ctx context.Context) error {
	c.stop()
	c.stopped.Wait()
	err := c.store.Update(kv.Urgent(ctx), func(tx kv.Txn) error {
		tx.Delete(format.ClaimKey(c.token))
		tx.Delete(format.HeartbeatKey(c.token))
		return nil
	})
	if err != nil {
		return fmt.Errorf("graph: giving up the claim: %w", err)
	}
	return nil
}
