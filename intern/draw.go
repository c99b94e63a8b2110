package intern

import (
	"context"
	"errors"
	"fmt"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A Drawer gives ids to new strings within the transaction that uses them. It is for stores
// with one writer, and for the writer's goroutine only.
type Drawer struct {
	leases  *leaser
	cache   *cache
	strings *stringFilter
}

// Prepare implements Interner: it waits until n new strings of each namespace can get ids. For
// DIDs, n includes the authors of new URIs.
func (d *Drawer) Prepare(ctx context.Context, _ *Batch, n int) error {
	d.fill()
	for _, ns := range dict.Namespaces {
		if err := d.leases.alloc[ns][0].reserve(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// ErrNoLease is returned by Resolve if there are too few leased ids. Leave the transaction,
// call Prepare and start again.
var ErrNoLease = errors.New("intern: leased ids are used up")

// Resolve implements Interner. It does not read strings that are certainly new.
func (d *Drawer) Resolve(tx kv.Txn, b *Batch) (made [len(dict.Namespaces) + 1]int, err error) {
	for _, ns := range dict.Namespaces { // DIDs first: packed URIs contain their ids
		d.cache.resolve(b, ns)
		asked := b.missing(ns, d.isNew)
		if err := b.lookUp(tx, asked); err != nil {
			return made, fmt.Errorf("intern: looking up strings: %w", err)
		}
		if made[ns], err = d.create(tx, b, ns); err != nil {
			return made, err
		}
	}
	return made, nil
}

// create gives ids to the items of the last lookup that have none.
func (d *Drawer) create(tx kv.Txn, b *Batch, ns dict.Namespace) (made int, err error) {
	out := &b.checkouts[ns]
	out.a = d.leases.alloc[ns][0]
	fresh := 0
	for _, n := range b.miss {
		if it := &b.items[n]; it.state == unresolved && it.id == dict.None {
			fresh++
		}
	}
	if !out.need(fresh) {
		return 0, ErrNoLease
	}
	for i, n := range b.miss {
		it := &b.items[n]
		if it.state != unresolved {
			continue
		}
		if it.id == dict.None {
			it.id = out.take()
		}
		it.state = created
		made++
		b.made.add(tx, ns, it.id, b.keys[i])
	}
	b.made.write(tx, ns)
	return made, nil
}

// Committed implements Interner.
func (d *Drawer) Committed(b *Batch) {
	for _, ns := range dict.Namespaces {
		out := &b.checkouts[ns]
		out.ids = out.ids[:0]
		for i := range b.items {
			if it := &b.items[i]; it.ns == ns && it.state == created {
				out.ids = append(out.ids, it.id)
			}
		}
		out.settle(out.ids)
	}
	d.learn(b)
	d.cache.remember(b)
}

// Abandon implements Interner.
func (d *Drawer) Abandon(b *Batch) {
	for i := range b.items {
		if it := &b.items[i]; it.state == created || it.state == unresolved {
			it.id, it.state = dict.None, unresolved
		}
	}
	for _, ns := range dict.Namespaces {
		b.checkouts[ns].settle(nil)
	}
}

// Close implements Interner.
func (d *Drawer) Close() { d.leases.close() }

// isNew reports whether an item certainly has no id in the store. If an id was drawn for it,
// an attempt of unknown outcome may have committed that.
func (d *Drawer) isNew(b *Batch, it *batchItem) bool {
	if it.id != dict.None {
		return false
	}
	if it.author != noAuthor && b.items[it.author].state == created {
		return true // its author is new
	}
	return d.strings.isNew(it.ns, it.author != noAuthor, it.tid, b.settled(it))
}

// learn adds the strings that a committed transaction created to the filters.
func (d *Drawer) learn(b *Batch) {
	k := d.strings
	if !k.ready.Load() {
		k.mu.Lock()
		defer k.mu.Unlock()
	}
	for i := range b.items {
		if it := &b.items[i]; it.state == created {
			k.misses++
			k.add(it.ns, it.author != noAuthor, it.tid, b.settled(it))
		}
	}
	if k.full {
		k.ready.Store(false)
	}
}

// fill fills the filters in the background, after enough failed lookups.
func (d *Drawer) fill() {
	k := d.strings
	k.mu.Lock()
	due := !k.started && !k.full && k.misses >= k.fillAfter
	k.started = k.started || due
	k.mu.Unlock()
	if !due {
		return
	}
	d.leases.background.Go(func() {
		if err := k.fill(d.leases.open, d.leases.store); err != nil {
			early := errors.Is(err, errEarly)
			if d.leases.open.Err() == nil && !early {
				k.log.Warn("filling the filters of known strings failed; trying again", "error", err)
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.started = false; early {
				k.fillAfter = 2 * k.misses
			} else {
				k.misses = 0
			}
		}
	})
}
