package intern

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

const (
	claimSize      = 1000 // strings to claim in one transaction
	claimsInFlight = 8    // concurrent transactions of one writer
)

// A Claimer gives ids to new strings in separate transactions, before they are used. It is for
// stores that several processes write. Any goroutine may use it.
type Claimer struct {
	leases   *leaser
	cache    *cache
	size     int           // claimSize
	claiming sync.Mutex    // guards all below, and the creation of strings
	workers  []claimWorker // one for each concurrent transaction
}

func newClaimer(leases *leaser, c *cache) *Claimer {
	all := &Claimer{leases: leases, cache: c, size: claimSize, workers: make([]claimWorker, claimsInFlight)}
	for n := range all.workers {
		all.workers[n].leases, all.workers[n].lane = leases, uint8(n)
	}
	return all
}

// Resolve implements Interner: Prepare has already given all strings their ids.
func (c *Claimer) Resolve(kv.Txn, *Batch) (made [len(dict.Namespaces) + 1]int, err error) {
	return made, nil
}

// Committed implements Interner.
func (c *Claimer) Committed(*Batch) {}

// Abandon implements Interner: the strings keep the ids that were claimed for them.
func (c *Claimer) Abandon(*Batch) {}

// Close implements Interner.
func (c *Claimer) Close() { c.leases.close() }

// Prepare implements Interner: it gives every string of b its id. It claims new strings in
// separate transactions: an id without data is harmless, and two writers contend only on the
// same new string, in a small transaction. Reading known strings never conflicts.
func (c *Claimer) Prepare(ctx context.Context, b *Batch, _ int) error {
	for _, ns := range dict.Namespaces { // DIDs first: packed URIs contain their ids
		c.cache.resolve(b, ns)
		b.missing(ns, nil)
		if len(b.miss) > 0 {
			if err := c.claimMissing(ctx, b, ns); err != nil {
				return err
			}
		}
	}
	c.cache.remember(b)
	return nil
}

// claimMissing claims the strings in b.miss. One batch at a time does this, because batches of
// one process often share new strings.
func (c *Claimer) claimMissing(ctx context.Context, b *Batch, ns dict.Namespace) error {
	order := make([]claim, len(b.miss))
	for i, n := range b.miss {
		order[i] = claim{it: &b.items[n], key: b.keys[i], part: b.partition(c.leases.settings, &b.items[n])}
	}
	// By partition, so that a partition's groups are written together; then in the order of
	// the store.
	slices.SortFunc(order, func(x, y claim) int { return cmp.Or(cmp.Compare(x.part, y.part), bytes.Compare(x.key, y.key)) })
	c.claiming.Lock()
	defer c.claiming.Unlock()
	var wg sync.WaitGroup
	errs := make([]error, len(c.workers))
	chunks := chunksOf(order, c.size)
	for w := range min(len(c.workers), len(chunks)) {
		wg.Go(func() {
			for i := w; i < len(chunks) && errs[w] == nil; i += len(c.workers) {
				errs[w] = c.workers[w].run(ctx, ns, chunks[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("intern: claiming %d strings: %w", len(order), err)
	}
	return nil
}

// chunksOf divides claims into chunks of up to size, one for each transaction. A chunk is several times
// smaller than FoundationDB's limits.
func chunksOf(order []claim, size int) (chunks [][]claim) {
	const maxBytes = 500_000
	for len(order) > 0 {
		n, bytes := 0, 0
		for n < len(order) && n < size && bytes < maxBytes {
			bytes += len(order[n].key)
			n++
		}
		chunks = append(chunks, order[:n:n])
		order = order[n:]
	}
	return chunks
}

// claim is a string to claim.
type claim struct {
	it   *batchItem
	key  []byte
	part uint8
}

// claimWorker claims strings, in one transaction after another.
type claimWorker struct {
	leases    *leaser
	lane      uint8 // its number
	checkouts [dict.MaxPartitions]checkout
	keys      [][]byte
	made      maker
}

func (w *claimWorker) run(ctx context.Context, ns dict.Namespace, claims []claim) error {
	for {
		err := w.leases.store.Update(ctx, func(tx kv.Txn) error { return w.attempt(tx, ns, claims) })
		if short, ok := errors.AsType[errShort](err); ok {
			if err = short.a.reserve(ctx, short.n); err == nil {
				continue
			}
		}
		w.settle(claims, err == nil)
		return err
	}
}

// look finds the strings of the claims that already have ids. If the store has few rows
// between the first and the last of them, one scan finds all. That is so if the store is new,
// and if strings come in the order of their keys. The scan stops after as many rows as there
// are strings, and look finds the rest one by one.
func (w *claimWorker) look(r kv.Reader, claims []claim) error {
	left := claims
	if slices.IsSortedFunc(claims, func(x, y claim) int { return bytes.Compare(x.key, y.key) }) {
		rows := 0
		last := append(slices.Clone(claims[len(claims)-1].key), 0)
		err := r.Scan(claims[0].key, last, false, func(k, v []byte) (bool, error) {
			for len(left) > 0 && bytes.Compare(left[0].key, k) < 0 {
				left = left[1:]
			}
			if len(left) > 0 && bytes.Equal(left[0].key, k) {
				if err := left[0].it.found(k, v); err != nil {
					return false, err
				}
				left = left[1:]
			}
			rows++
			return rows <= len(claims), nil
		})
		if err != nil {
			return err
		}
		if rows <= len(claims) {
			return nil
		}
	}
	w.keys = w.keys[:0]
	for i := range left {
		w.keys = append(w.keys, left[i].key)
	}
	return r.MultiGet(w.keys, func(i int, v []byte, ok bool) error {
		if !ok {
			return nil
		}
		return left[i].it.found(w.keys[i], v)
	})
}

// errShort says that an allocator has too few ids.
type errShort struct {
	a *allocator
	n int
}

func (e errShort) Error() string {
	return fmt.Sprintf("intern: too few %s ids: %d are needed", e.a.ns, e.n)
}

func (w *claimWorker) attempt(tx kv.Txn, ns dict.Namespace, claims []claim) error {
	var fresh [dict.MaxPartitions]int
	for i := range claims {
		it := claims[i].it
		if it.state == stored { // found by an earlier attempt: the id was not drawn for it
			it.id = dict.None
		}
		it.state = unresolved
	}
	err := w.look(tx.Snapshot(), claims)
	made := 0
	for i := range claims {
		if it := claims[i].it; it.state == unresolved {
			if made++; it.id == dict.None {
				fresh[claims[i].part]++
			}
		}
	}
	if err != nil || made == 0 {
		return err
	}
	for part := range w.leases.settings.PartitionsOf(ns) {
		if n := fresh[part]; n > 0 {
			out := &w.checkouts[part]
			out.a = w.leases.alloc[ns][part]
			if !out.need(n) {
				return errShort{out.a, n}
			}
		}
	}
	for i := range claims {
		it := claims[i].it
		if it.state != unresolved {
			continue
		}
		if it.id == dict.None {
			it.id = w.checkouts[claims[i].part].take()
		}
		it.state = created
		tx.Conflict(claims[i].key)
		w.made.add(tx, ns, it.id, claims[i].key)
	}
	w.made.write(tx, ns)
	return w.count(tx, ns, made)
}

// count adds n to the number of strings that this lane has claimed.
func (w *claimWorker) count(tx kv.Txn, ns dict.Namespace, n int) error {
	key := []byte{dict.KeyClaims, byte(ns), w.leases.slot(), w.lane}
	v, ok, err := tx.Get(key)
	if err != nil {
		return err
	}
	before := uint64(0)
	if ok {
		if _, before, err = claimCount(key, v); err != nil {
			return err
		}
	}
	tx.Set(key, binary.BigEndian.AppendUint64(nil, before+uint64(n)))
	return nil
}

// claimCount decodes the number of strings that a lane of a writer has claimed.
func claimCount(k, v []byte) (ns dict.Namespace, n uint64, err error) {
	if len(k) != 4 || len(v) != 8 || !slices.Contains(dict.Namespaces[:], dict.Namespace(k[1])) {
		return 0, 0, fmt.Errorf("intern: count of claims %x → %x is malformed", k, v)
	}
	return dict.Namespace(k[1]), binary.BigEndian.Uint64(v), nil
}

// settle tells the allocators which of the drawn ids are in use. After a failure that is
// unknown, and the ids are lost.
func (w *claimWorker) settle(claims []claim, committed bool) {
	if !committed {
		w.checkouts = [dict.MaxPartitions]checkout{}
		for i := range claims {
			if it := claims[i].it; it.state == created || it.state == unresolved {
				it.id, it.state = dict.None, unresolved
			}
		}
		return
	}
	for i := range claims {
		if claims[i].it.state == created {
			claims[i].it.claimed = true
			out := &w.checkouts[claims[i].part]
			out.ids = append(out.ids, claims[i].it.id)
		}
	}
	for i := range w.checkouts {
		out := &w.checkouts[i]
		out.settle(out.ids)
		out.ids = out.ids[:0]
	}
}

// Claimed returns the number of strings claimed in a store with several partitions, by
// namespace.
func Claimed(r kv.Reader) (n [len(dict.Namespaces) + 1]int64, err error) {
	err = kv.ScanPrefix(r, []byte{dict.KeyClaims}, func(k, v []byte) error {
		ns, count, err := claimCount(k, v)
		n[ns] += int64(count)
		return err
	})
	return n, err
}
