package intern

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Unused is the reason why ids of a lease have no string.
type Unused string

// The reasons.
const (
	// AllUsed: every id of the lease has a string.
	AllUsed Unused = ""
	// UnusedOpen: its owner is alive, and hands them out.
	UnusedOpen Unused = "not used yet: the writer that has the lease is alive"
	// UnusedClosed: its owner closed the lease before it used them.
	UnusedClosed Unused = "left over when the writer closed; never handed out"
	// UnusedCrash: its owner is gone, and did not record how many it used.
	UnusedCrash Unused = "lost when the writer ended without closing; never handed out again"
)

// An AuditedLease is a lease and the use of its ids.
type AuditedLease struct {
	dict.Lease

	Partition uint8   // of DIDs
	First     dict.ID // the first of its ids
	Strings   int     // its ids with a string
	Lost      int     // its ids without one
	Unused    Unused  // why they have none
}

// A Capacity is the capacity of a namespace: the ids that are leased, and those that are left.
type Capacity struct {
	Namespace dict.Namespace // of the ids
	Shards    int64          // shards with leases
	Leases    int64          // leased blocks
	Ids       float64        // leased ids
	Left      float64        // ids of all shards that were never leased
	LeftShort float64        // those of Left that take five bytes
	// PerDay is the number of ids leased per day since the first lease. Exhausted is how long
	// Left lasts at that rate, or 0 if that is unknown.
	PerDay    float64
	Exhausted time.Duration
	// Fullest are the shards with the most leases, the fullest first.
	Fullest []ShardUse
}

// ShardUse is the use of a shard.
type ShardUse struct {
	Shard  uint32  // its number
	Leases uint64  // leased blocks
	Share  float64 // the leased share of its blocks
}

// shardsShown is the number of shards in Fullest, which also have a metric each.
const shardsShown = 8

// Audit calls each for every lease of the store, by namespace, shard and block, and returns
// the capacities. alive reports whether the owner of a lease is alive; nil means that all are
// gone. Audit reads all strings, and calls tick for each.
func Audit(r kv.Reader, settings dict.Settings, alive func(owner string) bool, each func(AuditedLease) error, tick func() error) ([]Capacity, error) {
	used, err := countByBlock(r, settings, tick)
	if err != nil {
		return nil, err
	}
	err = Leases(r, func(l dict.Lease) error {
		a := AuditedLease{Lease: l, First: settings.Start(l.Shard, l.Block)}
		if l.Namespace == dict.DID {
			a.Partition = settings.PartitionOfID(a.First)
		}
		size := int(settings.LeaseSize)
		if a.First == dict.None {
			size-- // None is not an id
			a.First++
		}
		a.Strings = used[l.BlockKey()]
		if a.Lost = size - a.Strings; a.Lost > 0 {
			switch {
			case l.Closed:
				a.Unused = UnusedClosed
			case alive != nil && alive(l.Owner):
				a.Unused = UnusedOpen
			default:
				a.Unused = UnusedCrash
			}
		}
		return each(a)
	})
	if err != nil {
		return nil, err
	}
	return capacities(r, settings)
}

// countByBlock counts the ids that have a string, by block.
func countByBlock(r kv.Reader, s dict.Settings, tick func() error) (map[dict.BlockKey]int, error) {
	used := map[dict.BlockKey]int{}
	for _, ns := range dict.Namespaces {
		err := EachForm(r, ns, func(id dict.ID, _ []byte) error {
			used[s.BlockOf(ns, id)]++
			return tick()
		})
		if err != nil {
			return nil, fmt.Errorf("intern: counting the strings: %w", err)
		}
	}
	return used, nil
}

// capacities reads the shards' counters.
func capacities(r kv.Reader, s dict.Settings) ([]Capacity, error) {
	firsts := map[dict.Namespace]time.Time{}
	err := Leases(r, func(l dict.Lease) error {
		if t, ok := firsts[l.Namespace]; !ok || l.Taken.Before(t) {
			firsts[l.Namespace] = l.Taken
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	size := float64(s.LeaseSize)
	short := float64(s.ShortCounters()) * float64(uint64(1)<<s.ShardBits)
	if short > dict.FirstLong {
		short = dict.FirstLong
	}
	var all []Capacity
	for _, ns := range dict.Namespaces {
		c := Capacity{Namespace: ns}
		shortLeased := 0.0
		err := eachCounter(r, ns, func(shard uint32, next uint64) error {
			c.Fullest = append(c.Fullest, ShardUse{shard, next, float64(next) / float64(s.Blocks())})
			if len(c.Fullest) == 2*shardsShown {
				c.keepFullest()
			}
			c.Shards++
			c.Leases += int64(next)
			shortLeased += min(float64(next)*size, float64(s.ShortCounters()))
			return nil
		})
		if err != nil {
			return nil, err
		}
		c.keepFullest()
		c.Ids = float64(c.Leases) * size
		c.Left = float64(s.Blocks())*size*math.Exp2(float64(s.ShardBits)) - c.Ids
		c.LeftShort = max(short-shortLeased, 0)
		if age := time.Since(firsts[ns]); c.Leases > 1 && age > time.Minute {
			c.PerDay = c.Ids / (age.Hours() / 24)
			if days := c.Left / c.PerDay; days < 100*365 {
				c.Exhausted = time.Duration(days * float64(24*time.Hour))
			}
		}
		all = append(all, c)
	}
	return all, nil
}

func (c *Capacity) keepFullest() {
	slices.SortFunc(c.Fullest, func(x, y ShardUse) int { return cmp.Or(cmp.Compare(y.Leases, x.Leases), cmp.Compare(x.Shard, y.Shard)) })
	c.Fullest = c.Fullest[:min(len(c.Fullest), shardsShown)]
}

func eachCounter(r kv.Reader, ns dict.Namespace, each func(shard uint32, next uint64) error) error {
	prefix := []byte{dict.KeyNext, byte(ns)}
	return r.Scan(prefix, kv.PrefixEnd(prefix), false, func(k, v []byte) (bool, error) {
		if len(k) != 6 || len(v) != 8 {
			return false, fmt.Errorf("intern: shard counter %x → %x is malformed", k, v)
		}
		err := each(binary.BigEndian.Uint32(k[2:]), binary.BigEndian.Uint64(v))
		return err == nil, err
	})
}

// A Resolved is a string with its id.
type Resolved struct {
	Namespace dict.Namespace // of the string
	ID        dict.ID        // of the string
	String    string         // the DID or AT URI
	Lease     *dict.Lease    // the lease that the id was drawn from, nil if it is missing
	Partition uint8          // of a DID
}

// ResolveString finds the id of a string, if it has one.
func ResolveString(r kv.Reader, settings dict.Settings, ns dict.Namespace, s string) (res Resolved, found bool, err error) {
	var b Batch
	i := b.Add(ns, []byte(s))
	if err := Lookup(r, &b); err != nil || b.ID(i) == dict.None {
		return res, false, err
	}
	return ResolveID(r, settings, ns, b.ID(i))
}

// ResolveID finds the string of an id, if it has one.
func ResolveID(r kv.Reader, settings dict.Settings, ns dict.Namespace, id dict.ID) (res Resolved, found bool, err error) {
	if id == dict.None {
		return res, false, nil
	}
	if found, err = Named(r, ns, id); err != nil || !found {
		return res, false, err
	}
	res = Resolved{Namespace: ns, ID: id}
	if ns == dict.DID {
		res.Partition = settings.PartitionOfID(id)
	}
	if err := Strings(r, ns, []dict.ID{id}, func(_ int, s []byte) error { res.String = string(s); return nil }); err != nil {
		return res, false, err
	}
	key := dict.AppendLeaseKey(nil, ns, settings.Shard(id), settings.Block(id))
	v, ok, err := r.Get(key)
	if err != nil || !ok {
		return res, true, err
	}
	l, err := dict.DecodeLease(key, v)
	res.Lease = &l
	return res, true, err
}

// refreshCapacity updates the metrics of capacity, after a lease, at most once a minute: it
// reads all counters and leases. It ignores errors of the store; the writer will meet them.
func (p *leaser) refreshCapacity(ctx context.Context) {
	const every = time.Minute
	if p.metrics == nil {
		return
	}
	p.capacityMu.Lock()
	defer p.capacityMu.Unlock()
	if time.Since(p.capacityAt) < every {
		return
	}
	p.capacityAt = time.Now()
	_ = p.store.View(ctx, func(r kv.Reader) error {
		all, err := capacities(r, p.settings)
		if err != nil {
			return err
		}
		for _, c := range all {
			p.metrics.capacity(c)
			for i, use := range c.Fullest {
				p.metrics.ShardUsed.WithLabelValues(c.Namespace.String(), fmt.Sprint(i)).Set(use.Share)
			}
		}
		return nil
	})
}
