package intern

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// ErrExhausted is returned if none of the drawn shards has a free block.
var ErrExhausted = errors.New("intern: id shards exhausted")

// A leaser leases blocks of ids for one writer.
type leaser struct {
	store    kv.Store
	settings dict.Settings
	owner    string
	slot     func() uint8
	alloc    [len(dict.Namespaces) + 1][]*allocator // by Namespace and partition

	open       context.Context //nolint:containedctx // ends when close is called
	end        context.CancelFunc
	background sync.WaitGroup
}

func newLeaser(store kv.Store, o Options) *leaser {
	if o.Slot == nil {
		o.Slot = func() uint8 { return 0 }
	}
	p := &leaser{store: store, settings: o.Settings, owner: o.Owner, slot: o.Slot}
	p.open, p.end = context.WithCancel(context.Background())
	for _, ns := range dict.Namespaces {
		for part := range o.Settings.PartitionsOf(ns) {
			p.alloc[ns] = append(p.alloc[ns], &allocator{leases: p, ns: ns, part: part})
		}
	}
	return p
}

// close ends the goroutines and gives up all ids.
func (p *leaser) close() {
	p.end()
	p.background.Wait()
	for _, ns := range dict.Namespaces {
		for _, a := range p.alloc[ns] {
			a.end()
		}
	}
}

// draws is the number of shards that pickBlock tries.
const draws = 64

// draw returns the n-th of the shards whose number, modulo the partitions, is part, in a sequence from a
// random start that has all of them, a power of two, before any repeats.
func (p *leaser) draw(part uint8, start, n uint64) uint32 {
	parts := uint64(p.settings.Partitions)
	return uint32(uint64(part) + (start+n*0x9e3779b97f4a7c15)%(1<<p.settings.ShardBits/parts)*parts)
}

// lease takes the next block of the home shard, in a separate transaction. It draws another
// shard if there is no home yet, if the home is full, and if another writer was there at the
// same time.
//
// The shard's counter is read without conflicts and written blind. Two writers conflict only
// on the row of a block that both chose, which must be new. A counter never lags behind,
// because taking a block advances it.
func (p *leaser) lease(ctx context.Context, a *allocator) (ids idRange, err error) {
	l := dict.Lease{BlockKey: dict.BlockKey{Namespace: a.ns}, Owner: p.owner, Token: rand.Uint64()}
	attempts := 0
	err = p.store.Update(ctx, func(tx kv.Txn) error {
		if attempts++; attempts > 1 {
			if mine, err := p.holds(tx, &l); mine || err != nil { // the attempt of unknown outcome was committed
				return err
			}
		}
		shard, block, err := p.pickBlock(tx, a, attempts > 1)
		if err != nil {
			return err
		}
		l.Shard, l.Block = shard, block
		tx.Set(dict.AppendNextKey(nil, a.ns, shard), binary.BigEndian.AppendUint64(nil, block+1))
		tx.Set(dict.AppendLeaseKey(nil, a.ns, shard, block), l.Value())
		tx.Set(p.homeKey(a.ns, a.part), binary.BigEndian.AppendUint32(nil, shard))
		return nil
	})
	if err != nil {
		return ids, fmt.Errorf("intern: leasing %s ids: %w", a.ns, err)
	}
	a.shard, a.hasShard = l.Shard, true
	ids.next = p.settings.Start(l.Shard, l.Block)
	ids.end = ids.next + dict.ID(p.settings.LeaseSize)
	if ids.next == dict.None {
		ids.next++
	}
	return ids, nil
}

func (p *leaser) holds(tx kv.Txn, l *dict.Lease) (bool, error) {
	key := dict.AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block)
	v, ok, err := tx.Get(key)
	if err != nil || !ok {
		return false, err
	}
	row, err := dict.DecodeLease(key, v)
	return row.Token == l.Token, err
}

func (p *leaser) pickBlock(tx kv.Txn, a *allocator, redraw bool) (shard uint32, block uint64, err error) {
	limit := p.settings.Blocks()
	start := rand.Uint64()
	for draw := range uint64(draws) {
		shard = p.draw(a.part, start, draw)
		switch {
		case draw > 0 || redraw:
		case a.hasShard:
			shard = a.shard
		default:
			if shard, err = p.home(tx, a, shard); err != nil {
				return 0, 0, err
			}
		}
		v, ok, err := tx.Snapshot().Get(dict.AppendNextKey(nil, a.ns, shard))
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
		// Short ids are worth another draw: each saves four bytes wherever it is written.
		if block >= limit || draw < draws/2 && p.settings.Long(shard, block) {
			continue
		}
		_, taken, err := tx.Get(dict.AppendLeaseKey(nil, a.ns, shard, block))
		if err == nil && taken {
			err = fmt.Errorf("intern: block %d of shard %d (%s) is leased, but the shard's counter does not include it: run skein check", block, shard, a.ns)
		}
		return shard, block, err
	}
	return 0, 0, fmt.Errorf("%w: no free block in %d draws of shards, each with %d blocks of %d ids", ErrExhausted, draws, limit, p.settings.LeaseSize)
}

// home returns the shard of the last lease of an earlier run. Without one it returns the home
// of the other namespace, which has counters of its own: then the ids of both are close
// together, and their differences short. Otherwise it returns the drawn shard.
func (p *leaser) home(tx kv.Txn, a *allocator, drawn uint32) (uint32, error) {
	for _, from := range append([]dict.Namespace{a.ns}, dict.Namespaces[:]...) {
		v, ok, err := tx.Snapshot().Get(p.homeKey(from, a.part))
		if err != nil {
			return 0, err
		}
		if ok && len(v) == 4 && binary.BigEndian.Uint32(v)>>p.settings.ShardBits == 0 {
			return binary.BigEndian.Uint32(v), nil
		}
	}
	return drawn, nil
}

func (p *leaser) homeKey(ns dict.Namespace, part uint8) []byte {
	if p.settings.Partitions == 1 {
		return []byte{dict.KeyHome, byte(ns)}
	}
	return []byte{dict.KeyHome, byte(ns), part, p.slot()}
}
