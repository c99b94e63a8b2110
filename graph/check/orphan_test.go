package check

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/format"
)

// TestOrphanedChunk: a chunk two levels down whose parent is missing is reported, even if a
// sibling of the parent was spilled. The changes in the parent are lost.
func TestOrphanedChunk(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		b := h.bench(t)
		const bucket = 9
		actor := b.id(alice)
		spilled := format.CoderOf(1, actor, bucket).Append(nil, 1, nil)
		noSubject := func(tid uint64) []byte {
			r := format.Record{Path: format.Path{TID: bucket<<format.BucketShift | tid}, Flags: format.NoSubject}
			return format.CoderOf(1, actor, bucket).Append(nil, 0, []format.Record{r})
		}
		top := b.chunk(1, actor, bucket, 1)
		b.rows[top+"\x01"] = spilled
		b.rows[top+"\x01\x02"] = noSubject(0x0102 << 34)
		b.rows[top+"\x03"] = spilled
		b.rows[top+"\x03\x04"] = noSubject(0x0304 << 34)
		whole := b.problems()
		if slices.ContainsFunc(whole, func(p string) bool { return strings.Contains(p, "above it") }) {
			t.Fatalf("the undamaged store has the problems %q", whole)
		}
		delete(b.rows, top+"\x03")
		want := fmt.Sprintf("chunk %x has no spilled chunk above it", top+"\x03\x04")
		if found := b.problems(); !slices.Contains(found, want) {
			t.Errorf("the reports are %q, want %q", found, want)
		}
	})
}
