package intern_test

import (
	"fmt"
	"testing"

	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// TestAudit: the audit distinguishes an open lease, a closed one, and one whose writer is gone,
// and counts the strings of each.
func TestAudit(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: dict.Merger{}})
	settings := dict.Settings{ShardBits: 8, LeaseSize: 1024, Partitions: 1}
	for i, owner := range []string{"closed", "crashed", "alive"} {
		in := open(t, store, intern.Options{Settings: settings, Owner: owner})
		var b intern.Batch
		for n := range 10 * (i + 1) {
			b.Add(dict.DID, fmt.Appendf(nil, "did:web:%s%d.example.com", owner, n))
		}
		if err := resolve(t.Context(), store, in, &b); err != nil {
			t.Fatal(err)
		}
		if owner == "closed" {
			if err := in.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := map[string]struct {
		strings int
		gap     intern.Unused
	}{"closed": {10, intern.UnusedClosed}, "crashed": {20, intern.UnusedCrash}, "alive": {30, intern.UnusedOpen}}
	err := store.View(t.Context(), func(r kv.Reader) error {
		size := int(settings.LeaseSize)
		left, err := intern.Audit(r, settings, func(owner string) bool { return owner == "alive" }, func(l intern.AuditedLease) error {
			if l.Namespace != dict.DID {
				return nil
			}
			w, ok := want[l.Owner]
			if !ok || l.Strings != w.strings || l.Unused != w.gap || l.Lost != size-w.strings && l.Lost != size-1-w.strings {
				t.Errorf("%+v, want %+v", l, w)
			}
			delete(want, l.Owner)
			return nil
		}, func() error { return nil })
		if err != nil || len(want) > 0 {
			t.Errorf("%v is missing: %v", want, err)
		}
		for _, c := range left {
			if c.Namespace == dict.DID && (c.Leases != 3 || c.Ids != 3*1024 || len(c.Fullest) == 0) {
				t.Errorf("%+v", c)
			}
		}
		const did = "did:web:crashed7.example.com"
		byName, found, err := intern.ResolveString(r, settings, dict.DID, did)
		if err != nil || !found || byName.Lease == nil || byName.Lease.Owner != "crashed" {
			t.Errorf("%+v, %v, %v", byName, found, err)
		}
		byID, found, err := intern.ResolveID(r, settings, dict.DID, byName.ID)
		if err != nil || !found || byID.String != did {
			t.Errorf("%+v, %v, %v", byID, found, err)
		}
		if _, found, err := intern.ResolveID(r, settings, dict.URI, byName.ID); found || err != nil {
			t.Errorf("%v, %v", found, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
