package fence

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

// ErrClaimed is returned by Open when another writer that is alive writes one of
// the partitions, and by writes after another has taken them over.
var ErrClaimed = errors.New("fence: another writer has these partitions")

// defaultBeat is how often a writer says that it is alive; one that does not is
// given patience times as long.
const (
	defaultBeat = time.Second
	patience    = 4
)

// Claim is the one that this process holds.
type Claim struct {
	store      kv.Store
	o          Options
	row        format.ClaimRow
	first, end uint8
	stop       context.CancelFunc
	stopped    sync.WaitGroup
}

// Options say who claims what.
type Options struct {
	First, End uint8 // the partitions are First to End-1
	Owner      string
	Shards     *dict.ShardRange // that ids are drawn from; nil: all
	// Beat is how often the writer says that it is alive; whoever finds its claim
	// waits four times as long before taking it over. 0 means a second.
	Beat   time.Duration
	Logger *slog.Logger
}

func (c *Claim) scan(r kv.Reader, each func(part uint8, row format.ClaimRow) error) error {
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

// rival is another writer's claim that stands in the way.
type rival struct {
	row  format.ClaimRow
	part uint8
	beat []byte
	why  string
}

// rivals returns who has the partitions, and who draws ids from a part of our
// shards, by token.
func (c *Claim) rivals(r kv.Reader) (map[string]rival, error) {
	found := map[string]rival{}
	err := scanClaims(r, 0, dict.MaxPartitions, func(part uint8, row format.ClaimRow) error {
		token := string(row.Token)
		switch _, known := found[token]; {
		case known:
		case part >= c.first && part < c.end:
			found[token] = rival{row: row, part: part, why: fmt.Sprintf("partition %d is written by %s since %s", part, row.Owner, row.Since.Format(time.RFC3339))}
		case c.row.Shards != nil && row.Shards != nil && c.row.Shards.First <= row.Shards.Last && row.Shards.First <= c.row.Shards.Last && *c.row.Shards != *row.Shards:
			found[token] = rival{row: row, part: part, why: fmt.Sprintf("the shards %s overlap those of %s, %s", c.row.Shards, row.Owner, row.Shards)}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for token, v := range found {
		beat, _, err := r.Get(format.HeartbeatKey(v.row.Token))
		if err != nil {
			return nil, err
		}
		v.beat = bytes.Clone(beat)
		found[token] = v
	}
	return found, nil
}

// Take claims the partitions, once nobody that is alive has one of them.
func Take(ctx context.Context, store kv.Store, o Options) (*Claim, error) {
	if o.Beat <= 0 {
		o.Beat = defaultBeat
	}
	c := &Claim{store: store, o: o, first: o.First, end: o.End, row: format.ClaimRow{
		Token: make([]byte, 16), Owner: o.Owner, Since: time.Now().UTC().Truncate(time.Second), Shards: o.Shards,
	}}
	if _, err := rand.Read(c.row.Token); err != nil {
		return nil, fmt.Errorf("fence: making a token: %w", err)
	}
	dead, err := c.awaitRivals(ctx)
	if err != nil {
		return nil, err
	}
	v, err := json.Marshal(c.row)
	if err != nil {
		return nil, fmt.Errorf("fence: making a claim: %w", err)
	}
	err = store.Update(ctx, func(tx kv.Txn) error {
		err := c.scan(tx, func(part uint8, row format.ClaimRow) error {
			if _, known := dead[string(row.Token)]; !known && !bytes.Equal(row.Token, c.row.Token) {
				return fmt.Errorf("%w: partition %d was just taken by %s", ErrClaimed, part, row.Owner)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for token := range dead {
			tx.Delete(format.HeartbeatKey([]byte(token)))
		}
		for part := c.first; part < c.end; part++ {
			tx.Set(format.ClaimKey(part), v)
		}
		c.writeBeat(tx)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.start(ctx)
	return c, nil
}

// awaitRivals returns the claims that stand in the way once their writers are
// known to be gone, or an error that names one that is alive.
func (c *Claim) awaitRivals(ctx context.Context) (dead map[string]rival, err error) {
	look := func() (found map[string]rival, err error) {
		err = c.store.View(ctx, func(r kv.Reader) (err error) { found, err = c.rivals(r); return err })
		return found, err
	}
	first, err := look()
	if err != nil || len(first) == 0 {
		return nil, err
	}
	for _, v := range first {
		c.o.Logger.Info("another writer left its claim, or is alive; watching it", "claim", v.why, "for", patience*c.o.Beat)
	}
	for end := time.Now().Add(patience * c.o.Beat); time.Now().Before(end); {
		select {
		case <-time.After(c.o.Beat / 2):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		now, err := look()
		if err != nil {
			return nil, err
		}
		for token, v := range now {
			if was, known := first[token]; !known || !bytes.Equal(was.beat, v.beat) {
				return nil, fmt.Errorf("%w: %s, and it is alive; stop it, or give --partition another share and --shards another range", ErrClaimed, v.why)
			}
		}
		if len(now) == 0 {
			return nil, nil
		}
	}
	return first, nil
}

func (c *Claim) writeBeat(tx kv.Txn) {
	tx.Set(format.HeartbeatKey(c.row.Token), binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixMilli())))
}

// start says regularly that this writer is alive.
func (c *Claim) start(ctx context.Context) {
	ctx, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	c.stopped.Go(func() {
		for ticker := time.NewTicker(c.o.Beat); ; {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				ticker.Stop()
				return
			}
			err := c.store.Update(ctx, func(tx kv.Txn) error { c.writeBeat(tx); return nil })
			if err != nil && ctx.Err() == nil {
				c.o.Logger.Warn("saying that this writer is alive", "error", err)
			}
		}
	})
}

// Check makes sure, as part of a write, that the partitions are still this
// writer's.
func (c *Claim) Check(tx kv.Txn) error {
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

// Close gives the partitions up.
func (c *Claim) Close(ctx context.Context) error {
	c.stop()
	c.stopped.Wait()
	err := c.store.Update(ctx, func(tx kv.Txn) error {
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
		return fmt.Errorf("fence: giving up the claim: %w", err)
	}
	return nil
}

// Writers returns the owners of the claims in a store whose writers said lately
// that they are alive: within twice the time that they are given before their
// partitions are taken over, by the clocks of the machines.
func Writers(r kv.Reader) (alive map[string]bool, err error) {
	alive = map[string]bool{}
	return alive, scanClaims(r, 0, dict.MaxPartitions, func(_ uint8, row format.ClaimRow) error {
		if alive[row.Owner] {
			return nil
		}
		v, ok, err := r.Get(format.HeartbeatKey(row.Token))
		if ok && len(v) == 8 {
			at := time.UnixMilli(int64(binary.BigEndian.Uint64(v)))
			alive[row.Owner] = time.Since(at) < 2*patience*defaultBeat
		}
		return err
	})
}
