package kv_test

import (
	"context"
	"slices"
	"testing"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
	"skein.blue/internal/sim/memkv"
)

// AheadOf yields everything once and in order, begins each element before it yields it, and no more than
// 256 further ones; without a Prefetcher it begins nothing.
func TestAheadOf(t *testing.T) {
	s := memkv.Open(memkv.Options{Merger: kvtest.LastByte{}})
	err := s.View(context.Background(), func(r kv.Reader) error {
		for _, n := range []int{0, 1, 255, 256, 257, 600} {
			all := make([]int, n)
			for i := range all {
				all[i] = i
			}
			for stop := range n + 1 {
				begun, got := 0, 0
				for x := range kv.AheadOf(r, slices.Values(all), func(_ kv.Prefetcher, x int) {
					if x != begun {
						t.Fatalf("%d is begun after %d", x, begun)
					}
					begun++
				}) {
					if x != got || begun <= x || begun > x+257 {
						t.Fatalf("of %d: %d came in place of %d, and %d are begun", n, x, got, begun)
					}
					if got++; got == stop {
						break
					}
				}
				if want := min(max(stop, 1), n); got != want && (stop > 0 || got != n) {
					t.Fatalf("of %d, ended at %d: %d came", n, stop, got)
				}
			}
		}
		plain := struct{ kv.Reader }{r}
		for range kv.AheadOf(plain, slices.Values([]int{1, 2}), func(kv.Prefetcher, int) { t.Error("begun without a Prefetcher") }) {
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
