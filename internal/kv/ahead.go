package kv

import "iter"

// A Prefetcher is a Reader that can begin a read before its result is needed. It is for engines where
// every read takes a round trip: reads that were begun together take one.
type Prefetcher interface {
	Reader
	// PrefetchGet begins to read key, for later Gets and MultiGets of it.
	PrefetchGet(key []byte)
	// PrefetchScan begins to read the keys in [lo, hi), for one later Scan of the same range that is not
	// in reverse. Only the beginning of a large range is read ahead: as many keys as are most likely wanted, if
	// likely is not 0.
	PrefetchScan(lo, hi []byte, likely int)
}

// Ahead returns the Prefetcher that r is, or that is below it.
func Ahead(r Reader) (p Prefetcher, ok bool) {
	if over, is := r.(interface{ Unwrap() Reader }); is {
		r = over.Unwrap()
	}
	p, ok = r.(Prefetcher)
	return p, ok
}

// aheadOf is the number of elements of AheadOf whose reads are in flight. A read takes up to 80 KB, so those of one question up to 20 MB.
const aheadOf = 256

// AheadOf yields what seq yields. It calls begin for every element some time before it yields it, so
// that the reads which begin starts are under way while earlier elements are used. If r is not a
// Prefetcher, it only returns seq.
func AheadOf[T any](r Reader, seq iter.Seq[T], begin func(p Prefetcher, x T)) iter.Seq[T] {
	p, ok := Ahead(r)
	if !ok {
		return seq
	}
	return func(yield func(T) bool) {
		var ring [aheadOf]T
		n := 0 // elements begun
		for x := range seq {
			begin(p, x)
			if n >= aheadOf && !yield(ring[n%aheadOf]) {
				return
			}
			ring[n%aheadOf] = x
			n++
		}
		for i := max(n-aheadOf, 0); i < n; i++ {
			if !yield(ring[i%aheadOf]) {
				return
			}
		}
	}
}

// Trips counts the round trips of one Reader: how often it had to wait for reads. Reads that were begun
// before a wait have arrived after it.
type Trips struct{ n int }

// Begin returns the time of a read that begins now.
func (t *Trips) Begin() (begun int) { return t.n }

// Await counts the wait for a read that began at a time, unless the read has arrived.
func (t *Trips) Await(begun int) {
	if begun == t.n {
		t.n++
	}
}

// Count returns the number of round trips so far.
func (t *Trips) Count() int { return t.n }
