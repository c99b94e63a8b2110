package intern

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"skein/internal/kv"
)

// ErrExhausted is returned when no shard that was drawn has a block left.
var ErrExhausted = errors.New("intern: id shards exhausted")

// A Lease row says who took a block, when, and how much of it was used when
// its owner closed cleanly. Its value is
//
//	token(8) unix seconds(8) used(4) closed(1) owner…
//
// token is random per lease, so that an attempt whose outcome is unknown
// recognizes its own. A row that is not closed belongs to a writer that runs,
// or to one that crashed: what it did not use is lost and never handed out.
type Lease struct {
	Namespace Namespace
	Shard     uint32
	Block     uint64
	Taken     time.Time
	// Used is how many of the block's ids were handed out. It is known, and
	// Closed set, once the owner has closed cleanly.
	Used   uint32
	Closed bool
	Owner  string

	token uint64
}

func (l *Lease) value() []byte {
	b := binary.BigEndian.AppendUint64(nil, l.token)
	b = binary.BigEndian.AppendUint64(b, uint64(l.Taken.Unix()))
	b = binary.BigEndian.AppendUint32(b, l.Used)
	closed := byte(0)
	if l.Closed {
		closed = 1
	}
	return append(append(b, closed), l.Owner...)
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
	l.Closed = value[20] == 1
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

// An allocator hands out the ids of one namespace. Leases are taken ahead of
// need, by one goroutine at a time.
type allocator struct {
	in *Interner
	ns Namespace

	mu      sync.Mutex
	leases  []*held       // in use first
	ahead   chan struct{} // closed when the fetch under way has ended; nil: none
	aheadOf error         // how the last fetch ahead ended
}

// held is a lease with what has been used of it.
type held struct {
	Lease
	next ID
	end  ID // exclusive
}

// remaining is called with mu held.
func (a *allocator) remaining() int {
	n := 0
	for _, l := range a.leases {
		n += int(l.end - l.next)
	}
	return n
}

// take returns the next id, or None when a lease must be awaited first.
func (a *allocator) take() ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.leases) > 0 && a.leases[0].next == a.leases[0].end {
		if len(a.leases) == 1 {
			return None
		}
		a.in.retire(a.leases[0])
		a.leases = a.leases[1:]
	}
	if len(a.leases) == 0 {
		return None
	}
	id := a.leases[0].next
	a.leases[0].next++
	return id
}

// reserve makes sure that the next n takes succeed, and has the next lease
// fetched in the background when less than a quarter of one would be left.
func (a *allocator) reserve(ctx context.Context, n int) error {
	for {
		a.mu.Lock()
		left := a.remaining()
		a.in.metrics.remaining(a.ns, left)
		low := left-n <= int(a.in.settings.LeaseSize)/4
		if low && a.ahead == nil {
			done := make(chan struct{})
			a.ahead = done
			a.in.background.Go(func() { a.fetch(done) })
		}
		wait, failed := a.ahead, a.aheadOf
		a.mu.Unlock()
		if left >= n {
			return nil
		}
		if wait == nil {
			return failed
		}
		a.in.metrics.waited(a.ns)
		select {
		case <-wait:
			a.mu.Lock()
			failed = a.aheadOf
			a.mu.Unlock()
			if failed != nil {
				return failed
			}
		case <-ctx.Done():
			return fmt.Errorf("intern: waiting for a lease: %w", ctx.Err())
		}
	}
}

// fetch takes one lease. It is the only one of its allocator to run.
func (a *allocator) fetch(done chan struct{}) {
	l, err := a.in.lease(a.in.ctx, a.ns)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.leases = append(a.leases, l)
	}
	a.ahead, a.aheadOf = nil, err
	close(done)
}

// draws is how many exhausted shards are skipped before giving up.
const draws = 64

// lease takes the next block of the home shard, in a transaction of its own.
// It draws another shard when there is no home yet, when the home is used up,
// and when it met another writer there.
func (in *Interner) lease(ctx context.Context, ns Namespace) (*held, error) {
	l := &held{Lease: Lease{Namespace: ns, Taken: time.Now(), Owner: in.owner, token: rand.Uint64()}}
	attempts := 0
	err := in.store.Update(ctx, func(tx kv.Txn) error {
		attempts++
		if attempts > 1 {
			switch mine, err := in.holds(tx, l); {
			case err != nil:
				return err
			case mine: // the attempt of unknown outcome was committed
				return nil
			}
		}
		shard, block, err := in.pickBlock(tx, ns, attempts > 1)
		if err != nil {
			return err
		}
		l.Shard, l.Block = shard, block
		tx.Set(AppendNextKey(nil, ns, shard), binary.BigEndian.AppendUint64(nil, block+1))
		tx.Set(AppendLeaseKey(nil, ns, shard, block), l.value())
		tx.Set([]byte{keyHome, byte(ns)}, binary.BigEndian.AppendUint32(nil, shard))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("intern: leasing %s ids: %w", ns, err)
	}
	l.next = in.settings.start(l.Shard, l.Block)
	l.end = l.next + ID(in.settings.LeaseSize)
	if l.next == None {
		l.next++
	}
	in.metrics.leased(ns)
	return l, nil
}

func (in *Interner) holds(tx kv.Txn, l *held) (bool, error) {
	v, ok, err := tx.Get(AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block))
	if err != nil || !ok {
		return false, err
	}
	var row Lease
	err = row.decode(AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block), v)
	return row.token == l.token, err
}

func (in *Interner) pickBlock(tx kv.Txn, ns Namespace, redraw bool) (shard uint32, block uint64, err error) {
	limit := in.settings.blocks()
	for draw := range draws {
		if draw > 0 || redraw {
			shard = rand.Uint32() >> (32 - in.settings.ShardBits)
		} else if shard, err = in.home(tx, ns); err != nil {
			return 0, 0, err
		}
		v, ok, err := tx.Get(AppendNextKey(nil, ns, shard))
		if err != nil {
			return 0, 0, err
		}
		if ok {
			if len(v) != 8 {
				return 0, 0, fmt.Errorf("intern: the counter of shard %d holds %x", shard, v)
			}
			block = binary.BigEndian.Uint64(v)
		} else {
			block = 0
		}
		// Short ids are worth another draw: they save four bytes wherever one
		// is written.
		if block < limit && (draw >= draws/2 || !in.settings.long(shard, block)) {
			return shard, block, nil
		}
	}
	return 0, 0, fmt.Errorf("%w: %d draws among %d shards of %d blocks of %d ids found no free block",
		ErrExhausted, draws, uint64(1)<<in.settings.ShardBits, limit, in.settings.LeaseSize)
}

// home returns the shard where the last lease of the namespace was drawn; else
// that of another namespace, whose counters are others, so that ids of both are
// numbers close together, and their differences short; else a new one.
func (in *Interner) home(tx kv.Txn, ns Namespace) (uint32, error) {
	for _, from := range append([]Namespace{ns}, Namespaces[:]...) {
		v, ok, err := tx.Snapshot().Get([]byte{keyHome, byte(from)})
		if err != nil {
			return 0, err
		}
		if ok && len(v) == 4 {
			return binary.BigEndian.Uint32(v), nil
		}
	}
	return rand.Uint32() >> (32 - in.settings.ShardBits), nil
}
