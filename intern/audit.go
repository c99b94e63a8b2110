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

// Unused says why ids of a lease stand for nothing.
type Unused string

// The reasons.
const (
	// AllUsed: every id of the lease stands for a string.
	AllUsed Unused = ""
	// UnusedOpen: its owner is alive, and hands them out.
	UnusedOpen Unused = "not used yet: the writer that has the lease is alive"
	// UnusedClosed: its owner was done before they were used.
	UnusedClosed Unused = "left over when the writer closed; never handed out"
	// UnusedCrash: its owner is gone, and did not say how far it came.
	UnusedCrash Unused = "lost when the writer ended without closing; never handed out again"
)

// An AuditedLease is a lease with what became of its ids.
type AuditedLease struct {
	dict.Lease

	Partition uint8   // of DIDs
	First     dict.ID // the first of its ids
	Strings   int     // how many of its ids stand for a string
	Lost      int     // how many do not
	Unused    Unused
}

// A Capacity says how many ids of a namespace there are, and how many are left.
type Capacity struct {
	Namespace dict.Namespace
	Shards    int64   // from which something was leased
	Leases    int64   // blocks
	Ids       float64 // leased
	Left      float64 // ids of all shards that were not leased
	LeftShort float64 // of these, those that are written in five bytes
	// PerDay is how many ids a day were leased since the first lease, and
	// Exhausted how long the rest lasts at that rate, 0 if nobody can tell.
	PerDay    float64
	Exhausted time.Duration
	// Fullest are the shards from which the most was leased, the fullest first.
	Fullest []ShardUse
}

// ShardUse says how much of a shard is leased.
type ShardUse struct {
	Shard  uint32
	Leases uint64  // blocks
	Share  float64 // of its blocks
}

// shardsShown is how many shards are listed, and have a metric of their own.
const shardsShown = 8

// Audit calls each for every lease of the store, by namespace, shard and block,
// and returns what is left. alive says whether the owner of a lease is; nil says
// that none is. tick is called with every row that is read: all strings are.
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
			size-- // it is no id
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

// countByBlock counts the ids that stand for a string.
func countByBlock(r kv.Reader, s dict.Settings, tick func() error) (map[dict.BlockKey]int, error) {
	used := map[dict.BlockKey]int{}
	for _, ns := range dict.Namespaces {
		prefix := []byte{dict.KeyString, byte(ns)}
		err := r.Scan(prefix, kv.PrefixEnd(prefix), false, func(k, v []byte) (bool, error) {
			if err := tick(); err != nil {
				return false, err
			}
			first, n := dict.ReadID(k[2:])
			if n == 0 {
				return false, fmt.Errorf("intern: dictionary row %x is malformed", k)
			}
			if len(k) > 2+n {
				return true, nil // a long string, which its group lists too
			}
			err := dict.EachEntry(v, func(e *dict.Entry) bool {
				id := first | dict.ID(e.At)
				used[s.BlockOf(ns, id)]++
				return true
			})
			return err == nil, err
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
	Namespace dict.Namespace
	ID        dict.ID
	String    string
	Lease     *dict.Lease // that the id was drawn from
	Partition uint8       // of a DID
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

// refreshCapacity refreshes what the metrics say of capacity. It is called after a lease,
// and does something once a minute at most: it reads all counters and leases. A
// failure leaves the metrics as they were; it is the store's, and will be met
// where it matters.
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
