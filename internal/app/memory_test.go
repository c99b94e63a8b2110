package app

import "testing"

// Repos that are being read take half of --memory, on top of it, within the collector's limit. On
// FoundationDB they fit within --memory.
func TestRepoMemory(t *testing.T) {
	for _, memory := range []int64{64 << 20, 1 << 30} {
		o := StoreOptions{Store: "folder", Memory: memory}
		if n := repoMemory(o); n != memory/2 {
			t.Errorf("%d for a budget of %d", n, memory)
		}
		o.Store = "fdb:///etc/fdb.cluster"
		b := splitFDB(memory)
		if n := repoMemory(o); n != memory/4 || n+b.strings+b.filters+b.states+b.sets > memory {
			t.Errorf("%d for a budget of %d on FoundationDB", n, memory)
		}
	}
	if n := repoMemory(StoreOptions{}); n != DefaultMemory()/2 {
		t.Errorf("%d by default", n)
	}
}
