package intern

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// A stringFilter has Bloom filters of the strings in the store. About once in a hundred times
// a filter reports a string that the store does not have; it never misses one that the store
// has. Most strings that are not in the cache are new. To learn that from the store costs
// reads on several levels of tables; here it costs one or a few cache lines.
//
// It needs a writer that learns of every new string: a Drawer that is the only writer.
//
// It works once it is filled. In an empty store that is at once. Otherwise the filters are read from the dictionary in the
// background, after enough failed lookups to pay for that: as nobody knows how long the dictionary is, an attempt ends when
// it has read perMiss strings for each of them, and the next follows after twice as many. It keeps URIs by the time in their
// TIDs, in spans of 19 hours. If there are too many, it drops the oldest spans; their URIs are looked up again.
//
// (The filters are blocked: Putze, Sanders, Singler, Cache-, Hash- and Space-Efficient Bloom
// Filters, 2007.)
type stringFilter struct {
	budget    int64 // bytes
	fillAfter int   // failed lookups before the filters are filled

	secrets hashKey // of the hash, random
	ceiling uint64  // later spans count as others, so that nobody can fill them with URIs of the future
	log     *slog.Logger

	mu      sync.Mutex // guards the filters until ready, and size
	ready   atomic.Bool
	dids    filter
	others  filter // URIs without a TID
	spans   map[uint64]*filter
	floor   uint64 // older spans are dropped
	size    int64  // bytes
	full    bool   // not even the DIDs fit: the filters are useless
	misses  int    // failed lookups so far
	started bool
}

// nowSpan returns the span of the present.
func nowSpan() uint64 { return uint64(time.Now().UnixMicro()) << 10 >> spanShift }

// defaultFillAfter is the number of failed lookups before the filters are filled. An idle
// store never reads its dictionary for them. perMiss is an estimate of how many strings are read in the time of a failed lookup.
const defaultFillAfter, perMiss = 300_000, 20

// spanShift makes a span of 2^36 microseconds of a TID.
const spanShift = 36 + 10

// aheadSpans is half a year. A URI whose TID is further in the future, when the filters are
// opened, is not kept by its time.
const aheadSpans = 230

func newStringFilter(budget int64, log *slog.Logger) *stringFilter {
	k := &stringFilter{budget: budget, fillAfter: defaultFillAfter, log: log}
	k.reset()
	return k
}

// reset empties the filters. The caller holds k.mu, or nobody else has k yet.
func (k *stringFilter) reset() {
	k.secrets, k.ceiling, k.floor = newHashKey(), nowSpan()+aheadSpans, 0
	k.dids, k.others, k.spans, k.size = filter{}, filter{}, map[uint64]*filter{}, 0
}

// timed reports whether a URI is kept by its time.
func (k *stringFilter) timed(packed bool, tid uint64) bool {
	return packed && tid>>spanShift < k.ceiling
}

// open makes the filters ready if the store is empty.
func (k *stringFilter) open(ctx context.Context, store kv.Store) error {
	err := store.View(ctx, func(r kv.Reader) error {
		empty := true
		err := r.Scan([]byte{dict.KeyID}, []byte{dict.KeyID + 1}, false, func(_, _ []byte) (bool, error) { empty = false; return false, nil })
		k.ready.Store(empty && err == nil)
		k.started = k.ready.Load()
		return err
	})
	if err != nil {
		return fmt.Errorf("intern: checking for strings: %w", err)
	}
	return nil
}

// of returns the filter of a string, or nil if there is none.
func (k *stringFilter) of(ns dict.Namespace, packed bool, tid uint64) *filter {
	switch {
	case ns == dict.DID:
		return &k.dids
	case !k.timed(packed, tid):
		return &k.others
	}
	span := tid >> spanShift
	if span < k.floor {
		return nil
	}
	return k.spans[span]
}

// isNew reports whether the store certainly has no string with this key.
func (k *stringFilter) isNew(ns dict.Namespace, packed bool, tid uint64, key cacheKey) bool {
	if !k.ready.Load() || k.timed(packed, tid) && tid>>spanShift < k.floor {
		return false
	}
	f := k.of(ns, packed, tid)
	return f == nil || !f.has(key.hash(&k.secrets))
}

// add adds a string of the store. The caller holds k.mu; or k is ready, and the caller is the
// writer.
func (k *stringFilter) add(ns dict.Namespace, packed bool, tid uint64, key cacheKey) {
	if k.full {
		return
	}
	f := k.of(ns, packed, tid)
	if f == nil {
		if tid>>spanShift < k.floor {
			return
		}
		f = new(filter)
		k.spans[tid>>spanShift] = f
	}
	k.size += f.add(key.hash(&k.secrets))
	k.shrink()
}

// shrink drops the oldest spans if there are too many strings.
func (k *stringFilter) shrink() {
	for k.size > k.budget {
		if len(k.spans) == 0 {
			k.full, k.dids, k.others = true, filter{}, filter{}
			k.log.Info("too many strings for the filters: new strings are looked up in the store; more --memory helps", "bytes", k.budget)
			return
		}
		oldest := slices.Min(slices.Collect(maps.Keys(k.spans)))
		k.size -= k.spans[oldest].bytes()
		k.floor = oldest + 1
		delete(k.spans, oldest)
	}
}

// filter is a growing Bloom filter. Its parts fill up one after another. A new part has twice the blocks of the one before.
type filter struct {
	parts []filterPart
}

type filterPart struct {
	blocks [][8]uint64
	left   int // room for keys
}

const (
	firstBlocks    = 1 << 9
	keysPerBlock   = 40 // 12.8 bits per key
	bytesPerBlock  = 64
	bitsPerKey     = 6
	blockBitsShift = 9 // 512 bits
)

// add adds a key, and returns the number of bytes by which the filter grew.
func (f *filter) add(hash uint64) (grown int64) {
	n := len(f.parts)
	if n == 0 || f.parts[n-1].left == 0 {
		f.parts = append(f.parts, newPart(n))
		grown = int64(len(f.parts[n].blocks)) * bytesPerBlock
		n++
	}
	p := &f.parts[n-1]
	p.left--
	b, bit := p.block(hash)
	for range bitsPerKey {
		b[bit>>6&7] |= 1 << (bit & 63)
		bit >>= blockBitsShift
	}
	return grown
}

// newPart returns an empty n-th part.
func newPart(n int) filterPart {
	blocks := firstBlocks << n
	return filterPart{make([][8]uint64, blocks), blocks * keysPerBlock}
}

func (p *filterPart) block(hash uint64) (b *[8]uint64, bit uint64) {
	hi, _ := bits.Mul64(hash, uint64(len(p.blocks)))
	return &p.blocks[hi], hash * 0x9e3779b97f4a7c15 >> 2 // 6 × 9 bits that do not choose the block
}

func (f *filter) has(hash uint64) bool {
	for i := range slices.Backward(f.parts) {
		if f.parts[i].has(hash) {
			return true
		}
	}
	return false
}

func (p *filterPart) has(hash uint64) bool {
	b, bit := p.block(hash)
	for range bitsPerKey {
		if b[bit>>6&7]>>(bit&63)&1 == 0 {
			return false
		}
		bit >>= blockBitsShift
	}
	return true
}

func (f *filter) bytes() (n int64) {
	for _, p := range f.parts {
		n += int64(len(p.blocks)) * bytesPerBlock
	}
	return n
}

// filterItem is a string as the filters see it.
type filterItem struct {
	ns     dict.Namespace
	packed bool
	tid    uint64
	key    cacheKey
}

// errFull ends a scan whose strings do not fit, and errEarly one that more failed lookups would have to pay for.
var errFull, errEarly = errors.New("intern: too many strings for the filters"), errors.New("intern: more strings than were paid for")

// fill reads the dictionary into the filters, and makes them ready. The writer adds the strings
// that it creates meanwhile, whether or not the scan meets them.
func (k *stringFilter) fill(ctx context.Context, store kv.Store) error {
	k.mu.Lock()
	k.reset() // what the writer added is in the store
	left := perMiss * k.misses
	k.mu.Unlock()
	var items []filterItem
	flush := func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		for i := range items {
			it := &items[i]
			k.add(it.ns, it.packed, it.tid, it.key)
		}
		left -= len(items)
		items = items[:0]
		switch {
		case k.full:
			return errFull
		case left < 0:
			k.reset()
			return errEarly
		}
		return ctx.Err()
	}
	// Strings that are created meanwhile need not be read, so states may mix.
	_, err := store.ViewAcross(ctx, func(r kv.Reader) error {
		for _, ns := range dict.Namespaces {
			err := EachString(r, ns, func(form []byte, _ dict.ID) error {
				it := filterItem{ns: ns}
				var err error
				it.key, it.tid, it.packed, err = keyOfForm(ns, form)
				if items = append(items, it); err == nil && len(items) == 4096 {
					err = flush()
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	if err != nil && !errors.Is(err, errFull) {
		return fmt.Errorf("intern: reading the dictionary: %w", err)
	}
	k.mu.Lock() // the writer may fill them up at this moment
	defer k.mu.Unlock()
	if k.full {
		return nil
	}
	k.log.Info("filters of known strings ready", "bytes", k.size, "all", k.floor == 0)
	k.ready.Store(true) // from here on only the writer uses them
	return nil
}

// keyOfForm returns the cache key of a string in its stored form, and the TID of a packed URI.
func keyOfForm(ns dict.Namespace, form []byte) (key cacheKey, tid uint64, packed bool, err error) {
	if ns == dict.DID {
		if len(form) == dict.PackedDIDLen {
			return didKey(form), 0, false, nil
		}
		return rawKey(dict.DID, dict.UnpackRaw(form)), 0, false, nil
	}
	tid, author, collection, packed, err := dict.UnpackURI(form)
	switch {
	case err != nil:
		return key, 0, false, err
	case !packed:
		return rawKey(dict.URI, dict.UnpackRaw(form)), 0, false, nil
	case author >= 1<<48:
		return rawKey(dict.URI, form), tid, true, nil
	}
	return uriKey(tagURI, tid, uint64(author), collection), tid, true, nil
}
