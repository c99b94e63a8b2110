package graph_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/kvtest"
	"skein.blue/internal/sim/oracle"
)

// go test ./graph -run TestModel -model.ops 1000000 -timeout 1h is the long run.
var modelOps = flag.Int("model.ops", 20_000, "operations per history in TestModel")

func TestMain(m *testing.M) { os.Exit(kvtest.Main(m)) }

// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fill(b *batch.Batch, e *oracle.Event) {
	switch e.Type {
	case oracle.AccountEvent:
		b.AddAccount(format.Seq(e.Seq), []byte(e.DID), e.Active, e.Deleted)
	case oracle.CommitEvent, oracle.SyncEvent:
		c := &batch.Commit{DID: []byte(e.DID), Rev: []byte(e.Rev), Since: []byte(e.Since), Data: e.Data[:], TooBig: e.TooBig}
		if e.PrevData != nil {
			c.PrevData = e.PrevData[:]
		}
		if e.Damaged {
			c.Data = nil
		}
		if e.Type == oracle.SyncEvent {
			b.AddSync(format.Seq(e.Seq), c)
			break
		}
		b.AddCommit(format.Seq(e.Seq), c)
		for _, record := range e.Ops {
			for _, o := range record.Edges() {
				k := kindOf(o.Kind)
				switch {
				case e.Damaged:
				case o.Delete:
					b.AddDelete(k, []byte(o.Rkey))
				default:
					b.AddPut(k, []byte(o.Rkey), []byte(o.Subject))
				}
			}
		}
	case oracle.IdentityEvent:
	}
	b.Seen(format.Seq(e.Seq), []byte(time.Unix(e.Seq, 0).UTC().Format(time.RFC3339)))
}

func kindOf(name string) kinds.Kind {
	for _, k := range kinds.All {
		if k.Name == name {
			return k.Kind
		}
	}
	panic("no kind " + name)
}

// views reads every set of the index that has a member.
func views(t *testing.T, s *graph.Store) oracle.Views {
	t.Helper()
	v := oracle.Views{Forward: map[string]map[string][]string{}, Reverse: map[string]map[string][]string{}}
	must(t, s.View(context.Background(), func(sn *ask.View) error {
		all := map[dict.Namespace][]string{}
		for _, ns := range dict.Namespaces {
			all[ns] = s.AllStrings(t, ns)
		}
		for _, k := range kinds.All {
			fwd, rev := map[string][]string{}, map[string][]string{}
			for _, did := range all[dict.DID] {
				members, err := members(sn, k.To.Is(), func(id dict.ID) (sets.Set, error) { return sn.Subjects(k.Kind, id, ask.Window{}) }, dict.DID, did)
				if err != nil {
					return err
				}
				put(fwd, did, members)
			}
			for _, subject := range all[k.To.Is()] {
				members, err := members(sn, dict.DID, func(id dict.ID) (sets.Set, error) { return actors(sn, k.Kind, id) }, k.To.Is(), subject)
				if err != nil {
					return err
				}
				put(rev, subject, members)
			}
			put2(v.Forward, k.Name, fwd)
			put2(v.Reverse, k.Name, rev)
		}
		return nil
	}))
	return v
}

// actors reads a reverse set twice, whole and by parts.
func actors(sn *ask.View, k kinds.Kind, subject dict.ID) (sets.Set, error) {
	a, err := sn.Actors(k, subject)
	if err != nil {
		return sets.Set{}, err
	}
	all, err := a.All()
	if err != nil {
		return sets.Set{}, err
	}
	b, err := sn.Actors(k, subject)
	if err != nil {
		return sets.Set{}, err
	}
	part, err := b.And(all)
	if err == nil && !slices.Equal(part.List(nil), all.List(nil)) {
		err = fmt.Errorf("set %d of %d: in parts it is %v, whole %v", k, subject, part.List(nil), all.List(nil))
	}
	for _, id := range all.List(nil) {
		if has, herr := sn.HasEdge(k, dict.ID(id), subject, ask.Window{}); herr != nil || !has {
			err = errors.Join(err, herr, fmt.Errorf("%d is in set %d of %d, HasEdge says no", id, k, subject))
		}
	}
	return all, err
}

func put(m map[string][]string, of string, members []string) {
	if len(members) > 0 {
		m[of] = members
	}
}

func put2(m map[string]map[string][]string, kind string, sets map[string][]string) {
	if len(sets) > 0 {
		m[kind] = sets
	}
}

// members reads one set, without the hidden accounts, as sorted strings.
func members(sn *ask.View, ns dict.Namespace, read func(dict.ID) (sets.Set, error), ofNS dict.Namespace, of string) ([]string, error) {
	var b intern.Batch
	index := b.Add(ofNS, []byte(of))
	if err := sn.Lookup(&b); err != nil {
		return nil, err
	}
	set, err := read(b.ID(index))
	if err != nil {
		return nil, err
	}
	var list []dict.ID
	for _, id := range set.List(nil) {
		if ns == dict.URI || !sn.IsHidden(dict.ID(id)) {
			list = append(list, dict.ID(id))
		}
	}
	var out []string
	err = sn.Strings(ns, list, func(_ int, s []byte) error { out = append(out, string(s)); return nil })
	slices.Sort(out)
	return out, err
}

func compareViews(t *testing.T, got, want oracle.Views) bool {
	t.Helper()
	same := true
	for name, pair := range map[string][2]map[string]map[string][]string{"forward": {got.Forward, want.Forward}, "reverse": {got.Reverse, want.Reverse}} {
		for _, k := range kinds.All {
			g, w := pair[0][k.Name], pair[1][k.Name]
			if maps.EqualFunc(g, w, slices.Equal) {
				continue
			}
			same = false
			for of := range w {
				if !slices.Equal(g[of], w[of]) {
					t.Errorf("%s %s of %s: got %q, want %q", name, k.Name, of, g[of], w[of])
				}
			}
			for of := range g {
				if w[of] == nil {
					t.Errorf("%s %s of %s: got %q, want nothing", name, k.Name, of, g[of])
				}
			}
		}
	}
	return same
}

func compareCounts(t *testing.T, s *graph.Store, m *oracle.Model) {
	t.Helper()
	var c format.Counts
	must(t, s.View(context.Background(), func(sn *ask.View) (err error) { c, err = sn.Counts(); return err }))
	want := map[string]int64{"hidden": int64(len(m.Hidden)), "accounts": int64(len(m.Repos))}
	for p := range m.Records {
		want[p.Kind]++
	}
	for _, r := range m.Repos {
		if r.Partial {
			want["partial"]++
		}
		if r.Desync {
			want["desync"]++
		}
	}
	got := map[string]int64{"hidden": c.Hidden, "accounts": c.Accounts, "partial": c.Partial, "desync": c.Desynchronized}
	maps.Copy(got, c.Records)
	for name, n := range got {
		if want[name] != n {
			t.Errorf("counts: %s is %d, want %d", name, n, want[name])
		}
	}
}

func verify(t *testing.T, store kv.Store) {
	t.Helper()
	n := 0
	err := check.Store(context.Background(), store, func(p string) {
		if n++; n < 20 {
			t.Errorf("check: %s", p)
		}
	}, nil)
	must(t, err)
}

func TestModel(t *testing.T) {
	for _, eng := range engines() {
		seeds, ops := uint64(2), *modelOps
		if eng.name == "fdb" { // which is slow at single questions
			seeds, ops = 1, *modelOps/4
		}
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/%d", eng.name, seed), func(t *testing.T) { testModel(t, eng, seed, ops) })
		}
	}
}

func testModel(t *testing.T, eng engine, seed uint64, most int) {
	store := eng.open(t, seed)
	s := openWriter(t, store, eng.settings, false)
	m, h := oracle.New(), oracle.NewHistory(seed, 60)
	rng := rand.New(rand.NewPCG(seed, 5))
	var b batch.Batch
	var window []*oracle.Event // the newest events, for replays
	apply := func() {
		if err := s.Apply(t.Context(), "relay", &b); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		b.Reset()
		if rng.IntN(3) == 0 {
			must(t, s.EraseSlice(t.Context()))
		}
	}
	ops, restored := 0, 0
	var kept *backups
	if eng.backups != nil {
		kept = eng.backups(t)
	}
	for step := 0; ops < most; step++ {
		for range rng.IntN(60) {
			e := h.Next()
			ops += len(e.Ops)
			window = append(window, e)
			m.Apply(e)
			fill(&b, e)
		}
		apply()
		if len(window) > 3000 {
			window = slices.Clone(window[2000:])
		}
		if len(window) > 0 && rng.IntN(20) == 0 { // a suffix is delivered again, in batches
			for _, e := range window[rng.IntN(len(window)):] {
				fill(&b, e)
				if rng.IntN(40) == 0 {
					apply()
				}
			}
			apply()
		}
		if rng.IntN(60) == 0 { // the process is gone: no Close
			store = eng.reopen(t, store)
			s = openGraph(t, store)
		}
		if kept != nil && len(window) > 0 && rng.IntN(25) == 0 { // a backup, while the store goes on
			kept.make(t, store, window[len(window)-1].Seq)
		}
		if kept != nil && len(kept.made) > 0 && kept.made[0].seq >= window[0].Seq && rng.IntN(60) == 0 { // the disk is lost: a restore, and what came since
			must(t, store.Close())
			store = kept.restore(t)
			s = openGraph(t, store)
			for _, e := range window {
				if e.Seq > kept.made[0].seq {
					fill(&b, e)
				}
			}
			apply()
			restored++
		}
		if step%100 == 99 {
			if !compareViews(t, views(t, s), m.Views()) {
				t.Fatalf("seed %d: differences after %d operations", seed, ops)
			}
			verify(t, store)
			// The counts have what is still to be erased: finish that first.
			eraseAll(t, s)
			compareCounts(t, s, m)
			verify(t, store)
			if t.Failed() {
				t.Fatalf("seed %d: after %d operations", seed, ops)
			}
		}
	}
	eraseAll(t, s)
	compareViews(t, views(t, s), m.Views())
	compareCounts(t, s, m)
	if kept != nil && restored == 0 && most >= 20_000 {
		t.Error("no backup was restored")
	}
	must(t, s.Close(t.Context()))
	verify(t, store)
	must(t, store.Close())
}

// dump returns what a store holds, but for what a second delivery may change:
// leases, tokens, and secrets.
func dump(t *testing.T, store kv.Store) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, store.View(t.Context(), func(r kv.Reader) error {
		return r.Scan(nil, nil, false, func(k, v []byte) (bool, error) {
			switch {
			case k[0] == dict.KeyLease || k[0] == dict.KeyNext || string(k) == "msecret" || strings.HasPrefix(string(k), "mwriter") || k[0] == 'q':
			case (k[0] == 'v' || k[0] == 'r') && len(v) == 0: // an emptied fold is the same as none
			default:
				all[string(k)] = string(v)
			}
			return true, nil
		})
	}))
	return all
}

// The store after a double delivery is the store after one, byte for byte.
func TestDoubleDelivery(t *testing.T) {
	for _, eng := range engines() {
		t.Run(eng.name, func(t *testing.T) {
			// Without spills: when they happen is not the same twice.
			limits = write.DefaultLimits
			defer func() { limits = smallLimits }()
			store := eng.open(t, 1)
			s := openWriter(t, store, eng.settings, false)
			h := oracle.NewHistory(9, 40)
			var events []*oracle.Event
			for range 4000 {
				events = append(events, h.Next())
			}
			deliver := func(events []*oracle.Event, size int) {
				var b batch.Batch
				for i, e := range events {
					fill(&b, e)
					if i%size == size-1 || i == len(events)-1 {
						must(t, s.Apply(t.Context(), "relay", &b))
						b.Reset()
					}
				}
				eraseAll(t, s)
			}
			deliver(events, 100)
			once := dump(t, store)
			for _, from := range []int{0, 1000, 3990} {
				deliver(events[from:], 37)
				if twice := dump(t, store); !maps.Equal(once, twice) {
					for k, v := range once {
						if twice[k] != v {
							t.Errorf("%q: %q became %q", k, v, twice[k])
						}
					}
					for k, v := range twice {
						if _, ok := once[k]; !ok {
							t.Errorf("%q: %q came", k, v)
						}
					}
					t.Fatalf("after a second delivery from %d", from)
				}
			}
		})
	}
}
