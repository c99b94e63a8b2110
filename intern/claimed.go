package intern

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// claimedDIDs lets a Claimer claim most new DIDs without looking them up first. It has a filter of the
// store's DIDs, and knows for each lane how many of its claims the filter has. A transaction that claims
// DIDs reads the counts of all lanes. If some have grown, it reads what was claimed since from the log
// of claims (dict/claimlog.go). A DID that is neither in the filter nor in the log did not exist when the
// transaction began; one that another writer claims before it commits is a conflict.
//
// URIs have no such filter: new ones are neighbours in the store, and one scan looks up a thousand.
type claimedDIDs struct {
	strings *stringFilter
	keep    uint64 // how many of a lane's newest claims its log keeps

	// The Claimer's lock, claiming, guards these, and the filter once it is ready.
	trusted   bool // the filter has all DIDs of counts
	filling   bool // a fill is under way
	givenUp   int  // how often the filter was given up; a fill that began before has failed
	fruitless int  // how often since it last saved a look-up
	endFill   context.CancelFunc
	caughtUp  time.Time // the last catchUp

	mu     sync.Mutex
	counts claimCounts // how many claims of each lane the filter has; nil if that is unknown
	behind bool        // some lane has claimed more
}

// claimLane is one of the concurrent transactions of a writer.
type claimLane struct{ slot, number uint8 }

// claimCounts are the numbers of claims, by lane.
type claimCounts map[claimLane]uint64

const (
	// keepClaims is how many of a lane's newest claims its log keeps, in about 5 MB. At 50,000 a second, in eight
	// lanes, they are those of 48 seconds.
	keepClaims = 300_000
	// mostLately limits the claims that a transaction reads from the log.
	mostLately = 100_000
	// catchUpEvery is how often the filter catches up with the other writers while it is filled.
	catchUpEvery = time.Second
)

// eachCount calls each for the counts of claims whose keys have a prefix.
func eachCount(r kv.Reader, prefix []byte, each func(ns dict.Namespace, l claimLane, n uint64)) error {
	return kv.ScanPrefix(r, prefix, func(k, v []byte) error {
		if len(k) != 4 || len(v) != 8 || !slices.Contains(dict.Namespaces[:], dict.Namespace(k[1])) {
			return fmt.Errorf("intern: count of claims %x → %x is malformed", k, v)
		}
		each(dict.Namespace(k[1]), claimLane{k[2], k[3]}, binary.BigEndian.Uint64(v))
		return nil
	})
}

// readCounts reads the counts of a namespace.
func readCounts(r kv.Reader, ns dict.Namespace) (claimCounts, error) {
	counts := claimCounts{}
	err := eachCount(r, []byte{dict.KeyClaims, byte(ns)}, func(_ dict.Namespace, l claimLane, n uint64) { counts[l] = n })
	return counts, err
}

var (
	// errNotLogged means that the log of claims does not go back far enough.
	errNotLogged = errors.New("intern: claims are no longer in their log")
	// errTooMany means that more was claimed than the reader wants to read.
	errTooMany = errors.New("intern: too many claims to read")
	errGivenUp = errors.New("intern: the filter was given up")
)

// claimedSince calls each for the strings that were claimed after the counts in since, and returns the counts now.
// The error is errNotLogged if the log does not have them all, and errTooMany if they are more than most.
func claimedSince(r kv.Reader, ns dict.Namespace, since claimCounts, most uint64, each func(form []byte) error) (now claimCounts, err error) {
	if now, err = readCounts(r, ns); err != nil {
		return nil, err
	}
	type stretch struct {
		lane     claimLane
		from, to uint64
		lo, hi   []byte
	}
	var all []stretch
	total := uint64(0)
	for l, to := range now {
		switch from := since[l]; {
		case to < from:
			return now, errNotLogged
		case to > from:
			total += to - from
			all = append(all, stretch{l, from, to, dict.AppendClaimedKey(nil, ns, l.slot, l.number, from+1), kv.PrefixEnd(dict.AppendClaimedKey(nil, ns, l.slot, l.number, to))})
		}
	}
	switch {
	case len(now) < len(since):
		return now, errNotLogged
	case total > most:
		return now, errTooMany
	}
	if p, ok := r.(kv.Prefetcher); ok {
		for _, s := range all {
			p.PrefetchScan(s.lo, s.hi)
		}
	}
	var row dict.ClaimedRow
	for _, s := range all {
		at := s.from
		err := r.Scan(s.lo, s.hi, false, func(k, v []byte) (bool, error) {
			if err := row.Decode(k, v); err != nil {
				return false, err
			}
			if row.Count-uint64(len(row.Forms)) != at {
				return false, errNotLogged
			}
			at = row.Count
			for _, form := range row.Forms {
				if err := each(form); err != nil {
					return false, err
				}
			}
			return true, nil
		})
		if err != nil {
			return now, err
		}
		if at != s.to {
			return now, errNotLogged
		}
	}
	return now, nil
}

// maxClaimedRow is about the largest value of the log; only the last string may exceed it. Package fdbkv allows
// 50,000 bytes.
const maxClaimedRow = 32_000

// logClaims writes to the log the strings that a transaction claims, whose keys begin with two bytes
// before their form, and removes old ones. before is the count without them.
func (c *claimedDIDs) logClaims(tx kv.Txn, ns dict.Namespace, lane claimLane, before uint64, keys [][]byte) {
	var value []byte
	count := before
	for i, key := range keys {
		value = dict.AppendClaimed(value, key[2:])
		count++
		if len(value) >= maxClaimedRow || i == len(keys)-1 {
			tx.Set(dict.AppendClaimedKey(nil, ns, lane.slot, lane.number, count), value)
			value = value[:0]
		}
	}
	if trim := c.keep/8 + 1; count > c.keep && before/trim != count/trim {
		tx.DeleteRange(dict.AppendClaimedKey(nil, ns, lane.slot, lane.number, 0), dict.AppendClaimedKey(nil, ns, lane.slot, lane.number, count-c.keep))
	}
}

// open makes the filter ready if the store has no DIDs.
func (c *claimedDIDs) open(ctx context.Context, store kv.Store) error {
	if err := c.strings.open(ctx, store); err != nil || !c.strings.ready.Load() {
		return err
	}
	c.counts, c.trusted = claimCounts{}, true
	return nil
}

// known returns how many claims of each lane the filter has, or nil if that is unknown.
func (c *claimedDIDs) known() claimCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// noteBehind notes that the filter may lack some claims, so that begin catches up.
func (c *claimedDIDs) noteBehind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.behind = true
}

// claimed notes that a lane of this writer has claimed strings, which learn will add to the filter.
func (c *claimedDIDs) claimed(lane claimLane, before, after uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.counts == nil:
	case c.counts[lane] == before:
		c.counts[lane] = after
	default:
		c.behind = true
	}
}

// begin adds to the filter what other writers have claimed, and marks the claims whose strings the
// filter does not have.
func (c *claimedDIDs) begin(ctx context.Context, store kv.Store, b *Batch, claims []claim) error {
	if err := c.catchUp(ctx, store); err != nil {
		return err
	}
	if c.trusted && c.strings.full {
		c.giveUp()
	}
	for i := range claims {
		it := claims[i].it
		claims[i].absent = c.trusted && c.strings.isNew(it.ns, false, 0, b.settled(it))
	}
	return nil
}

// catchUp adds to the filter what other writers have claimed. If the store does not answer now, that is done
// later: transactions read from the log what the filter lacks.
func (c *claimedDIDs) catchUp(ctx context.Context, store kv.Store) error {
	c.mu.Lock()
	counts := maps.Clone(c.counts)
	due := counts != nil && (c.behind || !c.trusted && time.Since(c.caughtUp) >= catchUpEvery)
	c.mu.Unlock()
	if !due {
		return nil
	}
	c.caughtUp = time.Now()
	var now claimCounts
	err := store.View(ctx, func(r kv.Reader) (err error) {
		now, err = claimedSince(r, dict.DID, counts, math.MaxUint64, func(form []byte) error {
			it, err := itemOf(dict.DID, form)
			if err == nil {
				c.add(it.key)
			}
			return err
		})
		return err
	})
	switch {
	case errors.Is(err, errNotLogged), errors.Is(err, kv.ErrTooOld): // too much was claimed
		c.giveUp()
		return nil
	case errors.Is(err, kv.ErrUnavailable):
		return nil
	case err != nil:
		return fmt.Errorf("intern: reading the log of claims: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts, c.behind = now, false
	return nil
}

// add adds a DID to the filter.
func (c *claimedDIDs) add(key cacheKey) {
	k := c.strings
	if !k.ready.Load() { // a fill may be under way
		k.mu.Lock()
		defer k.mu.Unlock()
	}
	k.add(dict.DID, false, 0, key)
}

// learn adds the strings that were claimed to the filter.
func (c *claimedDIDs) learn(b *Batch, claims []claim) {
	tracked := c.known() != nil
	misses := 0
	for i := range claims {
		it := claims[i].it
		if it.state != created {
			continue
		}
		if claims[i].absent {
			c.fruitless = 0
		} else {
			misses++
		}
		if tracked {
			c.add(b.settled(it))
		}
	}
	c.strings.mu.Lock()
	defer c.strings.mu.Unlock()
	c.strings.misses += misses
}

// giveUp empties the filter. It is filled again after many failed look-ups, more each time, unless the DIDs are too
// many.
func (c *claimedDIDs) giveUp() {
	c.mu.Lock()
	c.counts, c.behind = nil, false
	c.mu.Unlock()
	c.trusted = false
	c.givenUp++
	c.fruitless++
	if c.endFill != nil {
		c.endFill()
	}
	k := c.strings
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ready.Store(false)
	k.reset()
	k.misses, k.started = 0, k.full || c.filling
}

// fill fills the filter in the background, once enough look-ups have failed. claiming is held.
func (c *claimedDIDs) fill(ctx context.Context, leases *leaser, claiming *sync.Mutex) {
	k := c.strings
	k.mu.Lock()
	due := !k.started && !k.full && k.misses >= k.fillAfter<<min(c.fruitless, 6) && !leases.closed()
	k.started = k.started || due
	k.mu.Unlock()
	if !due {
		return
	}
	c.filling = true
	givenUp := c.givenUp
	leases.inBackground(ctx, func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		err := c.track(ctx, leases.store, claiming, givenUp, cancel)
		if err == nil {
			err = k.fill(ctx, leases.store, dict.DID)
		}
		claiming.Lock()
		defer claiming.Unlock()
		if c.filling, c.endFill = false, nil; err == nil && !k.full && c.givenUp == givenUp {
			c.noteBehind() // so that the next batch does not leave it to each of its transactions
			c.trusted = true
			return
		}
		if err != nil && !errors.Is(err, errGivenUp) && ctx.Err() == nil {
			k.log.Warn("filling the filter of known DIDs failed; trying again", "error", err)
		}
		c.giveUp()
	})
}

// track notes the counts of claims before the DIDs are read into the filter. From then on, learn and catchUp
// add what is claimed. The sum of the counts is the number of DIDs: if they are too many, it ends the fill.
func (c *claimedDIDs) track(ctx context.Context, store kv.Store, claiming *sync.Mutex, givenUp int, cancel context.CancelFunc) error {
	claiming.Lock()
	defer claiming.Unlock()
	if c.givenUp != givenUp {
		return errGivenUp
	}
	var counts claimCounts
	if err := store.View(ctx, func(r kv.Reader) (err error) { counts, err = readCounts(r, dict.DID); return err }); err != nil {
		return fmt.Errorf("intern: reading the counts of claims: %w", err)
	}
	dids := uint64(0)
	for _, n := range counts {
		dids += n
	}
	if k := c.strings; filterBytes(dids) > k.budget {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.overflow()
		return errGivenUp
	}
	c.endFill, c.caughtUp = cancel, time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts, c.behind = counts, false
	return nil
}
