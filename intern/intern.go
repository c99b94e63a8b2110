package intern

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"skein/internal/kv"
)

// Options say how an Interner works.
type Options struct {
	// Settings of a store that is new; what is zero in them is as in Default.
	// Those of a store that is not new must be the same, but for what is zero.
	Settings Settings
	// Default is what a new store gets where Settings say nothing. The zero
	// value means DefaultSettings.
	Default Settings
	// CacheBytes bounds the memory of the cache. 0 means 64 MiB.
	CacheBytes int64
	// Alone says that nobody else makes strings in a store of one partition.
	Alone bool
	// FilterBytes bounds the memory of the filters that know what strings there
	// are. 0 means 32 MiB.
	FilterBytes int64
	// Owner names this writer in its leases: host and process, say.
	Owner string
	// Shards confines this writer to a range of shards. nil: all.
	Shards *ShardRange
	// Slot is the first of the partitions that this writer owns.
	Slot uint8
	// Logger may be nil.
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
}

// An Interner hands out ids. In a store of one partition, Resolve gives them out
// within the transaction that uses them, and it and Committed are for one
// goroutine, the writer. In one of several, Claim gives them out in transactions
// of its own, and is for any goroutine, as Lookup and Strings are in both.
type Interner struct {
	store    kv.Store
	settings Settings
	owner    string
	shards   ShardRange
	slot     uint8
	metrics  *Metrics
	alloc    [len(Namespaces) + 1][]*allocator // by Namespace and partition
	claims   []*claimer                        // as many as may be in flight
	claiming sync.Mutex                        // guards claims, and what new strings get

	usageMu sync.Mutex // guards usageAt
	usageAt time.Time

	cacheMu sync.Mutex // guards cache
	cache   *cache
	known   *known // nil if other writers make strings too

	ctx        context.Context //nolint:containedctx // of the background leases, ended by Close
	cancel     context.CancelFunc
	background sync.WaitGroup
}

// Open makes the store's settings if it has none, and checks them if it has.
func Open(ctx context.Context, store kv.Store, o Options) (*Interner, error) {
	if o.CacheBytes <= 0 {
		o.CacheBytes = 64 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FilterBytes <= 0 {
		o.FilterBytes = 32 << 20
	}
	settings, err := settle(ctx, store, o.Settings, o.Default)
	if err != nil {
		return nil, err
	}
	shards, err := o.Shards.check(settings)
	if err != nil {
		return nil, err
	}
	in := &Interner{
		store: store, settings: settings, owner: o.Owner, shards: shards, slot: o.Slot, metrics: o.Metrics,
		cache: newCache(o.CacheBytes),
	}
	in.ctx, in.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for _, ns := range Namespaces {
		for part := range settings.partitions(ns) {
			in.alloc[ns] = append(in.alloc[ns], &allocator{in: in, ns: ns, part: part})
		}
	}
	for lane := range claimsInFlight {
		in.claims = append(in.claims, &claimer{in: in, lane: uint8(lane)})
	}
	if o.Alone && settings.Partitions == 1 {
		in.known = newKnown(o.FilterBytes, o.Logger)
		if err := in.known.open(ctx, store); err != nil {
			in.cancel()
			return nil, err
		}
	}
	return in, nil
}

// partitions is how many partitions the namespace has: AT URIs have one.
func (s Settings) partitions(ns Namespace) uint8 {
	if ns == DID {
		return s.Partitions
	}
	return 1
}

// ReadSettings returns the settings of a store that has been written to.
func ReadSettings(r kv.Reader) (s Settings, found bool, err error) {
	v, ok, err := r.Get(keySettings)
	if err != nil || !ok {
		return s, false, err
	}
	if len(v) < 1 || v[0] != formatVersion {
		return s, true, fmt.Errorf("intern: the store's dictionary has format %x, this program reads %d", v, formatVersion)
	}
	s.Partitions = 1
	if len(v) == 7 {
		s.Partitions = v[6]
	} else if len(v) != 6 {
		return s, true, fmt.Errorf("intern: the store's settings are malformed: %x", v)
	}
	s.ShardBits, s.LeaseSize = v[1], binary.BigEndian.Uint32(v[2:])
	return s, true, nil
}

func (s Settings) value() []byte {
	v := binary.BigEndian.AppendUint32([]byte{formatVersion, s.ShardBits}, s.LeaseSize)
	if s.Partitions != 1 {
		v = append(v, s.Partitions)
	}
	return v
}

func settle(ctx context.Context, store kv.Store, want, defaults Settings) (Settings, error) {
	if defaults == (Settings{}) {
		defaults = DefaultSettings
	}
	var s Settings
	var found bool
	read := func(r kv.Reader) (err error) { s, found, err = ReadSettings(r); return err }
	if err := store.View(ctx, read); err != nil {
		return s, err
	}
	if !found {
		want = want.or(defaults)
		if err := want.check(); err != nil {
			return s, err
		}
		err := store.Update(ctx, func(tx kv.Txn) error {
			if err := read(tx); err != nil || found {
				return err
			}
			s = want
			tx.Set(keySettings, want.value())
			return nil
		})
		if err != nil {
			return s, fmt.Errorf("intern: storing the settings: %w", err)
		}
	}
	if want = want.or(s); want != s {
		return s, fmt.Errorf("%w: the store was made with %s, and asked for are %s", ErrSettings, s, want)
	}
	return s, s.check()
}

// or fills what is zero from defaults.
func (s Settings) or(defaults Settings) Settings {
	if s.ShardBits == 0 {
		s.ShardBits = defaults.ShardBits
	}
	if s.LeaseSize == 0 {
		s.LeaseSize = defaults.LeaseSize
	}
	if s.Partitions == 0 {
		s.Partitions = defaults.Partitions
	}
	return s
}

// Settings returns those of the store.
func (in *Interner) Settings() Settings { return in.settings }

// Reserve makes sure that n new strings of each namespace can be given ids
// without waiting: n of DIDs counts the authors of new URIs too. Call it before
// the transaction of Resolve: a lease is one of its own.
func (in *Interner) Reserve(ctx context.Context, n int) error {
	for _, ns := range Namespaces {
		if err := in.alloc[ns][0].reserve(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// ErrNoLease is returned by Resolve when the leased ids do not suffice: leave
// the transaction, call Reserve and begin again.
var ErrNoLease = errors.New("intern: leased ids are used up")

// Resolve gives every string of b its id, from the cache, the store, or new,
// as part of tx, and returns how many it made, by namespace. The strings'
// keys are the only ones whose conflicts matter: another writer that makes the
// same string makes this transaction begin again, and find that one's id. (With
// Options.Alone there is none, and what is surely new is not read.)
// It may be called again in the same transaction, after more was added. When
// the transaction is tried again, call Retry on b first; once it is committed,
// Committed.
func (in *Interner) Resolve(tx kv.Txn, b *Batch) (made [len(Namespaces) + 1]int, err error) {
	for _, ns := range Namespaces { // DIDs first: packed URIs hold their ids
		in.fromCache(b, ns)
		asked := b.missing(ns, in.isNew)
		if err := tx.MultiGet(b.keys[:asked], b.found(in.metrics)); err != nil {
			return made, fmt.Errorf("intern: looking up strings: %w", err)
		}
		if made[ns], err = in.create(tx, b, ns); err != nil {
			return made, err
		}
	}
	return made, nil
}

// fromCache resolves the items of a namespace that the cache knows.
func (in *Interner) fromCache(b *Batch, ns Namespace) {
	in.cacheMu.Lock()
	defer in.cacheMu.Unlock()
	for i := range b.items {
		it := &b.items[i]
		if it.ns != ns || it.state != unresolved {
			continue
		}
		if id := in.cache.get(b.settled(it)); id != None {
			it.id, it.state = id, cached
			in.metrics.lookup(it.ns, lookupCache)
		}
	}
}

// create gives ids to those of the items looked up last that had none.
func (in *Interner) create(tx kv.Txn, b *Batch, ns Namespace) (made int, err error) {
	d := &b.drawers[ns]
	d.a = in.alloc[ns][0]
	fresh := 0
	for _, n := range b.miss {
		if it := &b.items[n]; it.state == unresolved && it.id == None {
			fresh++
		}
	}
	if !d.need(fresh) {
		return 0, ErrNoLease
	}
	for i, n := range b.miss {
		it := &b.items[n]
		if it.state != unresolved {
			continue
		}
		if it.id == None {
			it.id = d.take()
		}
		it.state = created
		made++
		in.metrics.lookup(ns, lookupNew)
		b.made.add(tx, ns, it.id, b.keys[i])
	}
	b.made.write(tx, ns)
	return made, nil
}

func (b *Batch) found(m *Metrics) func(i int, value []byte, ok bool) error {
	return func(i int, value []byte, ok bool) error {
		if !ok {
			return nil
		}
		it := &b.items[b.miss[i]]
		id, n := ReadID(value)
		if n == 0 || n != len(value) {
			return fmt.Errorf("intern: the id under %x is %x", b.keys[i], value)
		}
		it.found(id)
		m.lookup(it.ns, lookupStore)
		return nil
	}
}

// found notes the id that the store has for an item. If it is the one that was
// drawn for it, an attempt whose outcome nobody knew was committed.
func (it *batchItem) found(id ID) {
	if it.state = stored; it.id == id {
		it.state = created
	}
	it.id = id
}

// Committed tells that the transaction that b was resolved in is committed:
// its strings may now be found in the cache.
func (in *Interner) Committed(b *Batch) {
	for _, ns := range Namespaces {
		d := &b.drawers[ns]
		d.ids = d.ids[:0]
		for i := range b.items {
			if it := &b.items[i]; it.ns == ns && it.state == created {
				d.ids = append(d.ids, it.id)
			}
		}
		in.metrics.allocated(ns, len(d.ids))
		d.settle(d.ids)
	}
	in.learn(b)
	in.remember(b)
}

// remember puts into the cache what was found or made.
func (in *Interner) remember(b *Batch) {
	in.cacheMu.Lock()
	defer in.cacheMu.Unlock()
	for i := range b.items {
		it := &b.items[i]
		if it.state == stored || it.state == created {
			in.cache.add(b.settled(it), it.id)
			it.state = cached
		}
	}
}

// Abandon tells that the transaction that b was resolved in was not committed,
// and will not be: the ids that were drawn for it go to others.
func (in *Interner) Abandon(b *Batch) {
	for i := range b.items {
		if it := &b.items[i]; it.state == created || it.state == unresolved {
			it.id, it.state = None, unresolved
		}
	}
	for _, ns := range Namespaces {
		b.drawers[ns].settle(nil)
	}
}

// Lookup finds the ids of the strings of b that have one, and makes none.
func (in *Interner) Lookup(r kv.Reader, b *Batch) error {
	for _, ns := range Namespaces {
		b.missing(ns, nil)
		if err := r.MultiGet(b.keys, b.found(nil)); err != nil {
			return fmt.Errorf("intern: looking up strings: %w", err)
		}
	}
	return nil
}

// Strings calls each with the string of every id, in order. s is valid only
// during the call. An id without a string is an error: it means corruption.
// It takes one batched read, and for URIs one more, of their authors.
func (in *Interner) Strings(r kv.Reader, ns Namespace, ids []ID, each func(i int, s []byte) error) error {
	if ns == DID {
		var buf []byte
		return forms(r, DID, ids, func(i int, v []byte) error {
			buf = appendUnpackedDID(buf[:0], v)
			return each(i, buf)
		})
	}
	type uri struct {
		raw        string // or:
		author     int    // index in authors
		collection byte
		tid        uint64
	}
	uris := make([]uri, len(ids))
	index := make(map[ID]int, len(ids))
	var authors []ID
	err := forms(r, URI, ids, func(i int, v []byte) error {
		tid, author, collection, packed, err := unpackURI(v)
		if !packed {
			uris[i].raw = string(unpackRaw(v))
			return err
		}
		n, ok := index[author]
		if !ok {
			n = len(authors)
			index[author] = n
			authors = append(authors, author)
		}
		uris[i] = uri{"", n, collection, tid}
		return err
	})
	if err != nil {
		return err
	}
	dids := make([]string, len(authors))
	err = in.Strings(r, DID, authors, func(i int, s []byte) error { dids[i] = string(s); return nil })
	if err != nil {
		return err
	}
	var buf []byte
	for i, u := range uris {
		if buf = append(buf[:0], u.raw...); u.raw == "" {
			buf = appendURI(buf, []byte(dids[u.author]), u.collection, u.tid)
		}
		if err := each(i, buf); err != nil {
			return err
		}
	}
	return nil
}

// EachID calls each with every id of a namespace, in no particular order.
func EachID(r kv.Reader, ns Namespace, each func(ID) error) error {
	prefix := []byte{KeyID, byte(ns)}
	return r.Scan(prefix, kv.PrefixEnd(prefix), false, func(_, v []byte) (bool, error) {
		id, n := ReadID(v)
		if n == 0 || n != len(v) {
			return false, fmt.Errorf("intern: %w: an id is %x", errPacked, v)
		}
		return true, each(id)
	})
}

// Close ends the background leases and notes in the rows of the leases how many
// of their ids were used. It does not close the store.
func (in *Interner) Close(ctx context.Context) error {
	in.cancel()
	in.background.Wait()
	var leases []*held
	for _, ns := range Namespaces {
		for _, a := range in.alloc[ns] {
			leases = append(leases, a.all()...)
		}
	}
	if len(leases) == 0 {
		return nil
	}
	err := in.store.Update(ctx, func(tx kv.Txn) error {
		for _, l := range leases {
			l.close(tx)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("intern: closing %d leases: %w", len(leases), err)
	}
	return nil
}
