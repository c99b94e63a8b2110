package sets

import (
	"math/bits"
	"unsafe"
)

// A Recent keeps the values of recently used keys, in bounded memory: two generations, each a hash table with
// open addressing that is at most three quarters full. A hit in the old one copies the entry to the young one. A full young
// one doubles until it has limit slots; from then on it becomes the old one when it is full, and the old one's memory is
// reused. It is not safe for concurrent use.
type Recent[K comparable, V any] struct {
	hash       func(K) uint64 // its high bits choose the slot
	young, old []recent[K, V]
	used       int // slots of young
	limit      int // slots of a full-grown generation
}

type recent[K comparable, V any] struct {
	key   K // the zero value: free
	value V
}

// firstSlots is the number of slots of a new generation.
const firstSlots = 16

// NewRecent returns a Recent that uses up to the given number of bytes, but has room for a few entries.
func NewRecent[K comparable, V any](bytes int64, hash func(K) uint64) *Recent[K, V] {
	limit := max(bytes/2/int64(unsafe.Sizeof(recent[K, V]{})), firstSlots)
	return &Recent[K, V]{hash: hash, young: make([]recent[K, V], firstSlots), old: make([]recent[K, V], firstSlots), limit: int(limit)}
}

// Get returns the value of a key, which must not be the zero value.
func (r *Recent[K, V]) Get(key K) (value V, ok bool) {
	var free K
	hash := r.hash(key)
	if e := slotOf(r.young, key, hash); e.key != free {
		return e.value, true
	}
	e := slotOf(r.old, key, hash)
	if e.key == free {
		return value, false
	}
	value = e.value // Put may clear the old generation
	r.Put(key, value)
	return value, true
}

// Put sets the value of a key, which must not be the zero value.
func (r *Recent[K, V]) Put(key K, value V) {
	var free K
	hash := r.hash(key)
	e := slotOf(r.young, key, hash)
	if e.key == free {
		if 4*(r.used+1) > 3*len(r.young) {
			r.makeRoom()
			e = slotOf(r.young, key, hash)
		}
		r.used++
	}
	*e = recent[K, V]{key, value}
}

// Growing reports whether no entry was dropped yet, and there is room for more.
func (r *Recent[K, V]) Growing() bool { return len(r.young) < r.limit }

// makeRoom doubles the full young generation, or begins a new one.
func (r *Recent[K, V]) makeRoom() {
	full := r.young
	if len(full) < r.limit {
		r.young = make([]recent[K, V], min(2*len(full), r.limit))
		var free K
		for i := range full {
			if e := &full[i]; e.key != free {
				*slotOf(r.young, e.key, r.hash(e.key)) = *e
			}
		}
		return
	}
	r.young, r.old, r.used = r.old, full, 0
	if len(r.young) < r.limit {
		r.young = make([]recent[K, V], r.limit)
	}
	clear(r.young)
}

// slotOf returns the slot of key, or the free slot for it.
func slotOf[K comparable, V any](slots []recent[K, V], key K, hash uint64) *recent[K, V] {
	var free K
	at, _ := bits.Mul64(hash, uint64(len(slots)))
	for i := int(at); ; {
		if e := &slots[i]; e.key == key || e.key == free {
			return e
		}
		if i++; i == len(slots) {
			i = 0
		}
	}
}
