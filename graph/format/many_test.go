package format

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// Chunks of pairs fold, in any grouping, to what a map of pairs has, and read as they were written. The
// pairs of a record do not repeat its key.
func TestChunksOfPairs(t *testing.T) {
	const kind = kinds.FirstMany
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 31))
		actor, isRaw := randomID(rng), rng.IntN(2) == 0
		path := func() Path {
			if isRaw {
				return Path{Raw: fmt.Appendf(nil, "%s%d", strings.Repeat("k", 40), rng.IntN(4))}
			}
			return Path{TID: 1650<<BucketShift | uint64(rng.IntN(3))<<20 | uint64(rng.IntN(2))}
		}
		first := path()
		c := CoderOf(kind, actor, first.Bucket())
		key := AppendChunkKey(nil, kind, actor, first, 0)
		type pair struct {
			path    string
			subject dict.ID
		}
		live := map[pair]bool{}
		var values [][]byte
		for range 1 + rng.IntN(5) {
			var records []Record
			for range 1 + rng.IntN(12) {
				r := Record{Path: path(), Subject: actor + dict.ID(rng.IntN(4)), IsMany: true}
				if rng.IntN(3) == 0 {
					r.Flags = Removed
				}
				if r.Path.Bucket() == c.Bucket {
					records = append(records, r)
				}
			}
			slices.SortStableFunc(records, func(x, y Record) int { return CompareEntries(&x, &y) })
			records = slices.CompactFunc(records, func(x, y Record) bool { return CompareEntries(&x, &y) == 0 })
			for _, r := range records {
				live[pair{string(r.Path.AppendRkey(nil)), r.Subject}] = r.Flags == 0
			}
			v := c.Append(nil, 0, records)
			if got, _, err := c.Read(nil, v, 0); err != nil || !slices.EqualFunc(got, records, sameRecord) {
				t.Fatalf("seed %d: %v is read as %v, %v", seed, records, got, err)
			}
			values = append(values, v)
		}
		var f Folder
		whole, _, err := f.Fold(nil, key, values, true)
		if err != nil {
			t.Fatal(err)
		}
		cut := rng.IntN(len(values) + 1)
		upper, _, err := f.Fold(nil, key, values[cut:], false)
		if err != nil {
			t.Fatal(err)
		}
		parts, _, err := f.Fold(nil, key, append(slices.Clone(values[:cut]), upper), true)
		if err != nil || string(parts) != string(whole) {
			t.Fatalf("seed %d: %x in parts, %x whole, %v", seed, parts, whole, err)
		}
		records, _, err := c.Read(nil, whole, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, is := range live {
			if is {
				n++
			}
		}
		for _, r := range records {
			if !live[pair{string(r.Path.AppendRkey(nil)), r.Subject}] {
				t.Fatalf("seed %d: %v is live", seed, r)
			}
		}
		if len(records) != n || isRaw && len(whole) > 4*43+8*n {
			t.Fatalf("seed %d: %d pairs of %d, %d bytes", seed, len(records), n, len(whole))
		}
	}
}
