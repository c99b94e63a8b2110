package app

import "testing"

// Repos that are being read take half of --memory, on top of it, within the collector's limit. On
// FoundationDB they fit within --memory.
func TestBudgets(t *testing.T) {
	for _, memory := range []int64{64 << 20, 1 << 30} {
		o := StoreOptions{Store: "folder", Memory: memory}
		if b := o.budget(); b.Repos != memory/2 || b.Engine+b.Strings+b.Filters+b.States+b.Sets > memory {
			t.Errorf("%+v for a budget of %d", b, memory)
		}
		o.Store = "fdb:///etc/fdb.cluster"
		if b := o.budget(); b.Repos != memory/4 || b.Repos+b.Engine+b.Strings+b.Filters+b.States+b.Sets > memory {
			t.Errorf("%+v for a budget of %d on FoundationDB", b, memory)
		}
	}
	if b := (&StoreOptions{}).budget(); b.Repos != DefaultMemory()/2 {
		t.Errorf("%+v by default", b)
	}
}

// The collector's limit leaves room beside full caches, and the process stays within twice the budget: 2.75 times
// while it reads an archive.
func TestCollectorLimit(t *testing.T) {
	for _, memory := range []int64{64 << 20, 128 << 20, 1 << 30, 16 << 30} {
		b := embeddedBudget(memory)
		heap, outside := b.Strings+b.Filters+b.States+b.Sets, int64(0)
		if cgo {
			outside = 2 * b.Engine
		} else {
			heap += b.Engine
		}
		if b.Collector < heap*3/2 {
			t.Errorf("--memory %d: the collector's limit is %d, and full caches take %d", memory, b.Collector, heap)
		}
		if most := b.Collector + outside; most > 2*memory {
			t.Errorf("--memory %d: the process may take %d", memory, most)
		}
		if most := b.Collector + b.Archive + outside; most > memory*11/4 {
			t.Errorf("--memory %d: the process may take %d while it reads an archive", memory, most)
		}
	}
}

// The name of a store decides its engine.
func TestInFolder(t *testing.T) {
	for store, want := range map[string]bool{"skein-data": true, "fdb:///etc/fdb.cluster?prefix=skein": false, "/srv/fdb": true, "fdbfolder": true} {
		if err := (&StoreOptions{Store: store}).Check(); InFolder(store) != want || err != nil {
			t.Errorf("%s: %v", store, err)
		}
	}
	if (&StoreOptions{Store: "fdb://host/x"}).Check() == nil {
		t.Error("a cluster file with a host is accepted")
	}
}
