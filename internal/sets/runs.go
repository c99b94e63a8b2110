package sets

import "iter"

// Runs yields the longest runs in which same holds for all neighbours, in order. The runs are
// slices of list.
func Runs[T any](list []T, same func(x, y T) bool) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(list) > 0 {
			n := 1
			for n < len(list) && same(list[n-1], list[n]) {
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}
