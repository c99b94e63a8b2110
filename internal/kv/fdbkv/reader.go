//go:build fdb

package fdbkv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"

	"skein.blue/internal/kv"
)

// readsInFlight limits the concurrent reads of one MultiGet.
const readsInFlight = 4096

// reader reads the snapshot of one transaction.
type reader struct {
	s    *Store
	tr   fdb.Transaction
	from fdb.ReadTransaction // tr, or its snapshot
	// Of a View:
	view     bool
	begun    time.Time
	ctx      interface{ Err() error } // its end ends the reads
	allowed  time.Time                // when the timeout was last extended
	timedOut bool                     // a read timed out after the cluster's last answer
	mayCross int                      // how often it may continue in a newer snapshot; if it may, it has batch priority
	urgent   bool                     // kv.Urgent
	crossed  int

	trips kv.Trips
	ahead map[string]prefetched // reads that were begun early, by aheadKey
	scans int                   // how many of them are of ranges
	spent int                   // how many of them are of keys, and were used
}

// prefetched is a read that was begun early: of a key or of a range.
type prefetched struct {
	begun int // kv.Trips
	spent bool
	value fdb.FutureByteSlice
	rows  fdb.RangeResult
	most  int // rows; 0: all
}

// maxAhead limits the reads that were begun early and not used yet. maxScansAhead limits those of
// ranges, whose answers have up to 80 KB.
const maxAhead, maxScansAhead = 4096, 256

// aheadKey returns the key of a read in reader.ahead. That of a range begins with 0xff 0xff, as no key of a
// store does, and the length of lo, so that it differs from those of all other ranges and keys.
func aheadKey(lo, hi []byte) string {
	if hi == nil {
		return string(lo)
	}
	return string(binary.BigEndian.AppendUint32([]byte{0xff, 0xff}, uint32(len(lo)))) + string(lo) + string(hi)
}

// begin begins a read early, unless it was begun, or too many were. If there are too many, it forgets those of keys that were used.
func (r *reader) begin(key string, read func() prefetched) {
	if r.ahead == nil {
		r.ahead = map[string]prefetched{}
	}
	if len(r.ahead) >= maxAhead && r.spent > 0 {
		maps.DeleteFunc(r.ahead, func(_ string, p prefetched) bool { return p.spent })
		r.spent = 0
	}
	if _, under := r.ahead[key]; !under && len(r.ahead) < maxAhead {
		p := read()
		p.begun = r.trips.Begin()
		r.ahead[key] = p
	}
}

// stampKey has the version of the last commit that changed it, as a versionstamp. The cluster sends it with every read version, so that
// clients know without a round trip whether what they keep is still right (FoundationDB's "metadata version": its design document, and the
// state cache of the Record Layer). All users of a cluster share it: that others change it does no harm but that this store is read again.
var stampKey = fdb.Key("\xff/metadataVersion")

// Stamp implements kv.Stamped.
func (r *reader) Stamp() uint64 {
	v, err := r.from.Get(stampKey).Get()
	if err != nil || r.mayCross > 0 || len(v) < 8 { // with crossings, the state may change
		return 0
	}
	return binary.BigEndian.Uint64(v) // the version of the commit; what follows tells commits of one version apart
}

// PrefetchGet implements kv.Prefetcher.
func (r *reader) PrefetchGet(key []byte) {
	r.begin(aheadKey(key, nil), func() prefetched { return prefetched{value: r.from.Get(r.s.key(key))} })
}

// PrefetchScan implements kv.Prefetcher.
func (r *reader) PrefetchScan(lo, hi []byte, likely int) {
	if hi == nil || bytes.Compare(lo, hi) >= 0 || r.scans >= maxScansAhead {
		return
	}
	r.begin(aheadKey(lo, hi), func() prefetched {
		r.scans++
		return prefetched{rows: r.from.GetRange(r.s.keyRange(lo, hi), fdb.RangeOptions{Mode: fdb.StreamingModeWantAll, Limit: likely}), most: likely}
	})
}

// take returns a read that was begun early: of a key any number of times, of a range once.
func (r *reader) take(lo, hi []byte) (p prefetched, ok bool) {
	if len(r.ahead) == 0 {
		return p, false
	}
	at := aheadKey(lo, hi)
	p, ok = r.ahead[at]
	switch {
	case !ok:
	case hi != nil:
		delete(r.ahead, at)
		r.scans--
	case !p.spent:
		p.spent = true
		r.ahead[at] = p
		r.spent++
	}
	return p, ok
}

// Get implements kv.Reader.
func (r *reader) Get(key []byte) (value []byte, ok bool, err error) {
	err = r.MultiGet([][]byte{key}, func(_ int, v []byte, found bool) error {
		value, ok = bytes.Clone(v), found // it may be asked for again
		return nil
	})
	return value, ok, err
}

// MultiGet implements kv.Reader.
func (r *reader) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	reads := make([]prefetched, 0, min(len(keys), readsInFlight))
	ask := func(key []byte) {
		p, begun := r.take(key, nil)
		if !begun {
			p = prefetched{begun: r.trips.Begin(), value: r.from.Get(r.s.key(key))}
		}
		reads = append(reads, p)
	}
	asked := 0
	for i := range keys {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		for ; asked < len(keys) && asked-i < readsInFlight; asked++ {
			ask(keys[asked])
		}
		r.trips.Await(reads[0].begun)
		v, err := reads[0].value.Get()
		for err != nil {
			if err = r.recover(err); err != nil {
				return err
			}
			reads = reads[:0]
			for _, key := range keys[i:asked] {
				ask(key)
			}
			v, err = reads[0].value.Get()
		}
		if err := r.answered(); err != nil {
			return err
		}
		reads = reads[1:]
		ok := v != nil
		if ok {
			if v, err = r.s.value(keys[i], v); err != nil {
				return err
			}
		}
		if err := each(i, v, ok); err != nil {
			return err
		}
	}
	return nil
}

// Scan implements kv.Reader.
func (r *reader) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (more bool, err error)) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	rng := r.s.keyRange(lo, hi)
	early, begun := prefetched{}, false
	if !reverse && hi != nil {
		early, begun = r.take(lo, hi)
	}
	for {
		if bytes.Compare(rng.Begin.FDBKey(), rng.End.FDBKey()) >= 0 {
			return nil
		}
		// WantAll: the default mode begins with answers of 4 KB, and takes a round trip for each.
		if !begun {
			early = prefetched{begun: r.trips.Begin(), rows: r.from.GetRange(rng, fdb.RangeOptions{Mode: fdb.StreamingModeWantAll, Reverse: reverse})}
		}
		begun = false // another attempt reads the rest
		r.trips.Await(early.begun)
		it, n := early.rows.Iterator(), 0
		err := func() error {
			for ; it.Advance(); n++ {
				if err := r.ctx.Err(); err != nil {
					return callerDone{err}
				}
				row, err := it.Get()
				if err != nil {
					return err
				}
				if n%256 == 0 {
					if err := r.answered(); err != nil {
						return err
					}
				}
				if reverse { // a retry continues here
					rng.End = row.Key
				} else {
					rng.Begin = append(slices.Clip(row.Key), 0)
				}
				key := row.Key[len(r.s.prefix):]
				value, err := r.s.value(key, row.Value)
				if err != nil {
					return callerDone{err}
				}
				if more, err := each(key, value); err != nil || !more {
					return callerDone{err}
				}
			}
			return nil
		}()
		var done callerDone
		switch {
		case err == nil && n > 0 && n == early.most: // there may be more
			continue
		case err == nil:
			return r.answered()
		case errors.As(err, &done):
			return done.error
		}
		if err := r.recover(err); err != nil {
			return err
		}
	}
}

// callerDone marks an error or an end of a Scan that comes from its caller, not
// from the engine.
type callerDone struct{ error }

// maxCrossings limits how often one ViewAcross may continue in a newer snapshot.
const maxCrossings = 1 << 20

// recover prepares the retry of a failed read, in the same snapshot if possible,
// or returns the error. Reads of an Update are not retried: transact retries the
// whole Update.
func (r *reader) recover(err error) error {
	var fe fdb.Error
	if !r.view || !errors.As(err, &fe) {
		return err
	}
	r.ahead, r.scans, r.spent = nil, 0, 0 // OnError cancels these reads
	version := int64(0)
	switch fe.Code {
	case codeTooOld:
		if r.crossed >= r.mayCross {
			return err
		}
		r.crossed++
	case codeTimedOut: // because of the cluster, or because the caller took long: asking again tells
		if r.crossed >= r.mayCross || r.timedOut {
			return err
		}
		r.timedOut = true
		r.crossed++
		r.tr.Reset()
		r.begun = time.Now()
		return r.snapshot()
	case codeFutureVersion, codeBehind:
		if version, err = r.tr.GetReadVersion().Get(); err != nil {
			return err
		}
	default:
		return err
	}
	if err := r.tr.OnError(fe).Get(); err != nil {
		return err
	}
	if version != 0 {
		r.tr.SetReadVersion(version)
	}
	return r.allow()
}

// snapshot takes a snapshot. A ViewAcross waits for one while the cluster has time only for others.
func (r *reader) snapshot() error {
	for {
		if err := r.allow(); err != nil {
			return err
		}
		_, err := r.tr.GetReadVersion().Get()
		var fe fdb.Error
		if r.mayCross == 0 || !errors.As(err, &fe) || fe.Code != codeTimedOut || r.s.cluster.err() != nil || r.ctx.Err() != nil {
			return err
		}
		r.tr.Reset()
		r.begun = time.Now()
	}
}

// allow extends the View's timeout to twice stateAge, and Options.Timeout, from now on. FoundationDB counts
// the timeout from the beginning of the transaction. It also sets the priority, which a retry forgets.
func (r *reader) allow() (err error) {
	switch {
	case r.mayCross > 0:
		err = r.tr.Options().SetPriorityBatch()
	case r.urgent:
		err = r.tr.Options().SetPrioritySystemImmediate()
	default:
		err = r.tr.Options().SetUseGrvCache()
	}
	if err != nil {
		return err
	}
	r.allowed = time.Now()
	return r.tr.Options().SetTimeout((r.allowed.Sub(r.begun) + 2*stateAge + r.s.o.Timeout).Milliseconds())
}

// answered is called after reads that the cluster answered. It extends the timeout of a View that makes
// progress: a server that is behind with its writes keeps a snapshot for longer than stateAge.
func (r *reader) answered() error {
	r.s.cluster.success()
	r.timedOut = false
	if !r.view || time.Since(r.allowed) < stateAge {
		return nil
	}
	return r.allow()
}
