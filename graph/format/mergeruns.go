package format

import "slices"

// mergeRuns sorts list, which consists of ascending runs, and returns it in its own memory or in that of spare,
// and the other of the two. starts has the index of each run's beginning, ascending from 0; mergeRuns changes it.
// Of equal elements, those of earlier runs come first. A run that does not ascend is sorted first.
//
// Values that are folded ascend, and are often many small ones beside one or two of thousands: neighbouring runs are
// merged pair by pair, until one is left. (A sort that does not know the runs took a third of the time of folds.)
func mergeRuns[T any](list, spare []T, starts []int, compare func(x, y *T) int) (sorted, other []T) {
	for i, from := range starts {
		to := len(list)
		if i+1 < len(starts) {
			to = starts[i+1]
		}
		run := list[from:to]
		for n := 1; n < len(run); n++ {
			if compare(&run[n-1], &run[n]) > 0 {
				slices.SortStableFunc(run, func(x, y T) int { return compare(&x, &y) })
				break
			}
		}
	}
	for len(starts) > 1 {
		spare = spare[:0]
		kept := starts[:0]
		for i := 0; i < len(starts); i += 2 {
			middle, to := len(list), len(list)
			if i+1 < len(starts) {
				middle = starts[i+1]
			}
			if i+2 < len(starts) {
				to = starts[i+2]
			}
			from := starts[i]
			kept = append(kept, from)
			spare = appendMerged(spare, list[from:middle], list[middle:to], compare)
		}
		list, spare, starts = spare, list, kept
	}
	return list, spare
}

// appendMerged appends two ascending lists, merged; of equal elements, those of older come first.
func appendMerged[T any](dst, older, newer []T, compare func(x, y *T) int) []T {
	for len(older) > 0 && len(newer) > 0 {
		if compare(&older[len(older)-1], &newer[0]) <= 0 {
			break // most are added at the end
		}
		n := 1
		if compare(&older[0], &newer[0]) <= 0 {
			for n < len(older) && compare(&older[n], &newer[0]) <= 0 {
				n++
			}
			dst, older = append(dst, older[:n]...), older[n:]
		} else {
			for n < len(newer) && compare(&newer[n], &older[0]) < 0 {
				n++
			}
			dst, newer = append(dst, newer[:n]...), newer[n:]
		}
	}
	return append(append(dst, older...), newer...)
}
