package sets

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// TestRecent: a Recent returns what was put last, or nothing. The entries used lately are there, nothing is lost while
// it grows, and it does not grow beyond its budget.
func TestRecent(t *testing.T) {
	type key [2]uint64
	for _, budget := range []int64{0, 1 << 10, 1 << 12, 1 << 15} {
		t.Run(fmt.Sprint(budget), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(budget)))
			r := NewRecent[key, int](budget, func(k key) uint64 { return k[1] * 0x9e3779b97f4a7c15 })
			has := map[key]int{}
			var lately []key
			hits, misses := 0, 0
			for n := range 40 * r.limit {
				x := 1 + rng.Uint64N(uint64(4*r.limit))
				k := key{x % 7, x} // many keys share one half
				v, ok := r.Get(k)
				if ok {
					hits++
				} else {
					misses++
				}
				if ok && v != has[k] {
					t.Fatalf("%v is %d, and was %d", k, v, has[k])
				}
				if !ok || n%3 == 0 {
					has[k] = n
					r.Put(k, n)
				}
				if lately = append(lately, k); len(lately) > r.limit/4 {
					lately = lately[1:]
				}
				if k := lately[rng.IntN(len(lately))]; n%2 == 0 {
					if v, ok := r.Get(k); !ok || v != has[k] {
						t.Fatalf("the recent %v is %d, want %d", k, v, has[k])
					}
				}
				used := 0
				for _, e := range r.young {
					if e.key != (key{}) {
						used++
					}
				}
				if used != r.used || 4*used > 3*len(r.young) {
					t.Fatalf("%d of %d slots are used, and %d counted", used, len(r.young), r.used)
				}
				if size := int64(len(r.young)+len(r.old)) * int64(unsafe.Sizeof(recent[key, int]{})); size > max(budget, 32*24) {
					t.Fatalf("it takes %d bytes", size)
				}
				for k, want := range has {
					if !r.Growing() {
						break
					}
					if v, ok := r.Get(k); !ok || v != want {
						t.Fatalf("%v is lost while it grows", k)
					}
				}
			}
			if hits == 0 || misses < 2*r.limit || 4*r.limit < 3*int(budget/24/2) {
				t.Errorf("%d hits, %d misses, %d slots: the test proves too little", hits, misses, r.limit)
			}
		})
	}
}
