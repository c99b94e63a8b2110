package format

import (
	"maps"
	"math/rand/v2"
	"testing"

	"skein.blue/graph/kinds"
)

// TestCounts: Add adds kind by kind in either order, and a clone is independent.
func TestCounts(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 0))
	random := func() Counts {
		c := Counts{Accounts: rng.Int64N(99), Hidden: -rng.Int64N(99), Partial: rng.Int64N(99), Desynchronized: rng.Int64N(99), Complete: rng.Int64N(99), Incomplete: rng.Int64N(99)}.Clone()
		for _, k := range kinds.All {
			c.Records[k.Name] = rng.Int64N(99) - 50
		}
		c.Strings["did"], c.Strings["uri"] = rng.Int64N(99), rng.Int64N(99)
		return c
	}
	same := func(x, y Counts) bool {
		return x.Accounts == y.Accounts && x.Hidden == y.Hidden && x.Partial == y.Partial && x.Desynchronized == y.Desynchronized && x.Complete == y.Complete && x.Incomplete == y.Incomplete &&
			maps.Equal(x.Records, y.Records) && maps.Equal(x.Strings, y.Strings)
	}
	for range 100 {
		a, b := random(), random()
		ab, ba := a.Clone(), b.Clone()
		ab.Add(b)
		ba.Add(a)
		if !same(ab, ba) || same(ab, a) {
			t.Fatalf("%+v and %+v are %+v or %+v", a, b, ab, ba)
		}
		for _, k := range kinds.All {
			if ab.Records[k.Name] != a.Records[k.Name]+b.Records[k.Name] {
				t.Fatalf("%s: %d and %d are %d", k.Name, a.Records[k.Name], b.Records[k.Name], ab.Records[k.Name])
			}
		}
		if ab.Accounts-b.Accounts != a.Accounts || ab.Hidden-b.Hidden != a.Hidden || ab.Partial-b.Partial != a.Partial || ab.Desynchronized-b.Desynchronized != a.Desynchronized || ab.Complete-b.Complete != a.Complete || ab.Incomplete-b.Incomplete != a.Incomplete {
			t.Fatalf("%+v and %+v are %+v", a, b, ab)
		}
		if back, err := DecodeCounts(asJSON(ab)); err != nil || !same(back, ab) {
			t.Fatalf("%+v became %+v, %v", ab, back, err)
		}
	}
	// Missing entries are 0, and entries of kinds that are not built in survive.
	c, err := DecodeCounts([]byte(`{"accounts": 3, "records": {"follow": 2, "configured": 5}, "strings": null, "more": 1}`))
	if want := (Counts{Accounts: 3, Records: map[string]int64{"follow": 2, "configured": 5}}).Clone(); err != nil || !same(c, want) || len(c.Records) != len(kinds.All)+1 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := DecodeCounts([]byte(`{"accounts": "many"}`)); err == nil || c.Records == nil {
		t.Errorf("%+v, %v", c, err)
	}
}
