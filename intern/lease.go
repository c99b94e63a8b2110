package intern

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"skein/internal/kv"
)

// ErrExhausted is returned when no shard that was drawn has a block left.
var ErrExhausted = errors.New("intern: id shards exhausted")

// A Lease row says who took a block, when, and how many of its ids had been
// given to strings when its owner was done with it. Its value is
//
//	token(8) unix seconds(8) used(4) flags(1) owner…
//
// token is random per lease, so that an attempt whose outcome is unknown
// recognizes its own. flags is 1 once the owner is done with the block. A row
// that is not closed belongs to a writer that runs, or to one that crashed:
// what that had not used is lost and never handed out.
type Lease struct {
	Namespace Namespace
	Shard     uint32
	Block     uint64
	Taken     time.Time
	// Used is how many of the block's ids were given to strings. It is known
	// once the lease is Closed: its owner will hand out no more of it.
	Used   uint32
	Closed bool
	Owner  string

	token uint64
}

const leaseClosed = 1

func (l *Lease) value() []byte {
	b := binary.BigEndian.AppendUint64(nil, l.token)
	b = binary.BigEndian.AppendUint64(b, uint64(l.Taken.Unix()))
	b = binary.BigEndian.AppendUint32(b, l.Used)
	flags := byte(0)
	if l.Closed {
		flags = leaseClosed
	}
	return append(append(b, flags), l.Owner...)
}

func (l *Lease) decode(key, value []byte) error {
	if len(key) != 14 || len(value) < 21 {
		return fmt.Errorf("intern: lease row %x is malformed", key)
	}
	l.Namespace = Namespace(key[1])
	l.Shard = binary.BigEndian.Uint32(key[2:])
	l.Block = binary.BigEndian.Uint64(key[6:])
	l.token = binary.BigEndian.Uint64(value)
	l.Taken = time.Unix(int64(binary.BigEndian.Uint64(value[8:])), 0)
	l.Used = binary.BigEndian.Uint32(value[16:])
	l.Closed = value[20] == leaseClosed
	l.Owner = string(value[21:])
	return nil
}

// DecodeLease reads a lease row.
func DecodeLease(key, value []byte) (l Lease, err error) {
	err = l.decode(key, value)
	return l, err
}

// Leases calls each for every lease of the store, by namespace, shard, block.
func Leases(r kv.Reader, each func(Lease) error) error {
	prefix := []byte{KeyLease}
	return r.Scan(prefix, kv.PrefixEnd(prefix), false, func(k, v []byte) (bool, error) {
		var l Lease
		if err := l.decode(k, v); err != nil {
			return false, err
		}
		return true, each(l)
	})
}

// A ShardRange confines a writer to the shards from First to Last.
type ShardRange struct{ First, Last uint32 }

// check returns the range, or all shards if it is zero and so not set.
func (g *ShardRange) check(s Settings) (ShardRange, error) {
	all := ShardRange{0, uint32(1<<s.ShardBits - 1)}
	switch {
	case g == nil:
		return all, nil
	case g.First > g.Last || g.Last > all.Last:
		return all, fmt.Errorf("%w: shards %d-%d, and the store has 0-%d", ErrSettings, g.First, g.Last, all.Last)
	case s.shards(*g) == 0:
		return all, fmt.Errorf("%w: shards %d-%d are too few: each of the store's %d partitions needs one",
			ErrSettings, g.First, g.Last, s.Partitions)
	}
	return *g, nil
}

// String returns the range as it is given: "0-127".
func (g ShardRange) String() string { return fmt.Sprintf("%d-%d", g.First, g.Last) }

// draws is how many shards are tried before giving up.
const draws = 64

// draw returns a shard of the range whose number leaves the partition when
// divided by their number; n counts up from a random start, so that in a small
// range every shard is drawn before one is drawn twice.
func (in *Interner) draw(part uint8, n uint64) uint32 {
	parts := uint64(in.settings.Partitions)
	first := uint64(in.shards.First)
	first += (uint64(part) + parts - first%parts) % parts
	count := (uint64(in.shards.Last)-first)/parts + 1
	return uint32(first + n%count*parts)
}

// lease takes the next block of the home shard, in a transaction of its own.
// It draws another shard when there is no home yet, when the home is used up,
// and when it met another writer there. With it goes what is known of blocks
// that this writer is done with.
//
// The shard's counter is read without conflicts and written blind. What two
// writers can conflict on is the row of the one block that both chose: it must
// be new. A counter is never behind, since whoever takes a block moves it on.
func (in *Interner) lease(ctx context.Context, a *allocator, done []*held) (*held, error) {
	l := &held{Lease: Lease{Namespace: a.ns, Taken: time.Now(), Owner: in.owner, token: rand.Uint64()}}
	attempts := 0
	err := in.store.Update(ctx, func(tx kv.Txn) error {
		if attempts++; attempts > 1 {
			switch mine, err := in.holds(tx, l); {
			case err != nil:
				return err
			case mine: // the attempt of unknown outcome was committed
				return nil
			}
		}
		shard, block, err := in.pickBlock(tx, a, attempts > 1)
		if err != nil {
			return err
		}
		l.Shard, l.Block = shard, block
		tx.Set(AppendNextKey(nil, a.ns, shard), binary.BigEndian.AppendUint64(nil, block+1))
		tx.Set(AppendLeaseKey(nil, a.ns, shard, block), l.value())
		tx.Set(in.homeKey(a.ns, a.part), binary.BigEndian.AppendUint32(nil, shard))
		for _, d := range done {
			d.close(tx)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("intern: leasing %s ids: %w", a.ns, err)
	}
	a.shard, a.hasShard, a.attempts = l.Shard, true, attempts
	l.next = in.settings.start(l.Shard, l.Block)
	l.end = l.next + ID(in.settings.LeaseSize)
	if l.next == None {
		l.next++
	}
	in.metrics.leased(a.ns)
	if attempts > 1 {
		in.metrics.met(a.ns, attempts-1)
	}
	return l, nil
}

func (in *Interner) holds(tx kv.Txn, l *held) (bool, error) {
	key := AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block)
	v, ok, err := tx.Get(key)
	if err != nil || !ok {
		return false, err
	}
	var row Lease
	err = row.decode(key, v)
	return row.token == l.token, err
}

func (in *Interner) pickBlock(tx kv.Txn, a *allocator, redraw bool) (shard uint32, block uint64, err error) {
	limit := in.settings.blocks()
	start := rand.Uint64() >> 1
	for draw := range uint64(draws) {
		at := start + draw
		if draws < in.settings.shards(in.shards) {
			at = rand.Uint64() >> 1
		}
		shard = in.draw(a.part, at)
		switch {
		case draw > 0 || redraw:
		case a.hasShard:
			shard = a.shard
		default:
			if shard, err = in.home(tx, a, shard); err != nil {
				return 0, 0, err
			}
		}
		v, ok, err := tx.Snapshot().Get(AppendNextKey(nil, a.ns, shard))
		if err != nil {
			return 0, 0, err
		}
		block = 0
		if ok {
			if len(v) != 8 {
				return 0, 0, fmt.Errorf("intern: the counter of shard %d holds %x", shard, v)
			}
			block = binary.BigEndian.Uint64(v)
		}
		// Short ids are worth another draw: they save four bytes wherever one
		// is written.
		if block >= limit || draw < draws/2 && in.settings.long(shard, block) {
			continue
		}
		_, taken, err := tx.Get(AppendLeaseKey(nil, a.ns, shard, block))
		switch {
		case err != nil:
			return 0, 0, err
		case taken:
			return 0, 0, fmt.Errorf("intern: block %d of shard %d (%s) is leased, and the shard's counter does not know: run skein check", block, shard, a.ns)
		}
		return shard, block, nil
	}
	return 0, 0, fmt.Errorf("%w: %d draws among the shards %s, of %d blocks of %d ids each, found no free block",
		ErrExhausted, draws, in.shards, limit, in.settings.LeaseSize)
}

// shards is how many shards of the range each partition has.
func (s Settings) shards(g ShardRange) uint64 {
	return (uint64(g.Last) - uint64(g.First) + 1) / uint64(s.Partitions)
}

// home returns the shard where the last lease was drawn in an earlier run; else that of another
// namespace, whose counters are others, so that ids of both are numbers close
// together, and their differences short; else the one drawn.
func (in *Interner) home(tx kv.Txn, a *allocator, drawn uint32) (uint32, error) {
	for _, from := range append([]Namespace{a.ns}, Namespaces[:]...) {
		v, ok, err := tx.Snapshot().Get(in.homeKey(from, a.part))
		if err != nil {
			return 0, err
		}
		if ok && len(v) == 4 {
			if shard := binary.BigEndian.Uint32(v); shard >= in.shards.First && shard <= in.shards.Last {
				return shard, nil
			}
		}
	}
	return drawn, nil
}

func (in *Interner) homeKey(ns Namespace, part uint8) []byte {
	if in.settings.Partitions == 1 {
		return []byte{KeyHome, byte(ns)}
	}
	return []byte{KeyHome, byte(ns), part, in.slot}
}
