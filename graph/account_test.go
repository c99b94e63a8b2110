package graph

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"skein/intern/dict"
	"skein/internal/kv"
	"skein/internal/kv/memkv"
	"skein/internal/syntax"
)

// TestAccountGroups writes the states of accounts into groups at random and folds
// them in any grouping: what stands is the newest of each.
func TestAccountGroups(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	m, l := NewMerger(Limits{}), layout{}
	const first = dict.ID(7 << 40)
	key := l.accountKey(nil, first+200)
	for range 300 {
		var operands [][]byte
		twin := map[dict.ID]repoState{}
		for range 1 + rng.IntN(12) {
			said := map[dict.ID]repoState{}
			for range rng.IntN(40) {
				said[first+dict.ID(rng.IntN(256))] = repoState{flags: flagHasRev, source: 1, seq: Seq(rng.Uint64N(1 << 40)), rev: Rev(rng.Uint64()), low: uint16(rng.IntN(3))}
			}
			var v []byte
			for id := first; id < first+256; id++ { // an operand ascends
				if s, ok := said[id]; ok {
					v = l.appendAccount(v, id, &s)
				}
			}
			operands = append(operands, v)
			maps.Copy(twin, said)
		}
		for len(operands) > 1 { // any run of neighbours, as engines do
			lo := rng.IntN(len(operands) - 1)
			hi := lo + 2 + rng.IntN(len(operands)-lo-1)
			v, err := m.Fold(nil, key, operands[lo:hi], lo == 0)
			if err != nil {
				t.Fatal(err)
			}
			operands = append(operands[:lo], append([][]byte{v}, operands[hi:]...)...)
		}
		got := map[dict.ID]repoState{}
		last := dict.None
		if err := l.eachState(key, operands[0], func(id dict.ID, s repoState) error {
			if id <= last {
				t.Errorf("%d comes after %d", id, last)
			}
			got[id], last = s, id
			return nil
		}); err != nil || !maps.Equal(got, twin) {
			t.Fatalf("%v, want %v; %v", got, twin, err)
		}
		for id := first; id < first+256; id++ {
			s, ok, err := l.accountIn(operands[0], id)
			if want, has := twin[id]; ok != has || s != want || err != nil {
				t.Fatalf("%d: %+v %v %v, want %+v %v", id, s, ok, err, want, has)
			}
		}
	}
}

// FuzzAccountGroup folds what it is given: whole groups, or an error.
func FuzzAccountGroup(f *testing.F) {
	s := repoState{flags: flagHasRev, source: 1, seq: 9, rev: 7}
	v := layout{}.appendAccount(layout{}.appendAccount(nil, 3, &s), 200, &s)
	f.Add(v, v[:len(v)/2])
	f.Add(v, v[:len(v)-1])
	f.Fuzz(func(t *testing.T, a, b []byte) {
		v, err := foldAccounts(nil, [][]byte{a, b})
		if err != nil {
			return
		}
		last := -1
		if err := eachAccount(v, func(low byte, _ []byte) bool {
			if int(low) <= last {
				t.Errorf("%x + %x: %d after %d", a, b, low, last)
			}
			last = int(low)
			return true
		}); err != nil {
			t.Errorf("%x + %x folds to %x: %v", a, b, v, err)
		}
	})
}

// A group under a key that is no group's is where nobody looks: the check says so.
func TestMisplacedGroup(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: NewMerger(Limits{})})
	h := newHostile(t, store)
	h.commit("did:plc:subject", "a")
	h.records(1)
	if err := store.Update(t.Context(), func(tx kv.Txn) error {
		return eachWithPrefix(tx.Snapshot(), []byte{keyAccount}, func(k, v []byte) error {
			tx.Delete(k)
			moved := bytes.Clone(k)
			moved[len(moved)-1]++
			tx.Set(moved, v)
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	said := ""
	if err := Verify(t.Context(), store, func(p string) { said += p + "\n" }, nil); err != nil || !strings.Contains(said, "that of no group") {
		t.Errorf("%v; the check says %q", err, said)
	}
}

// TestNeighboursAreKept opens a store anew, whose first event reads a group: the
// states of its neighbours, which are kept with it, are what they were.
func TestNeighboursAreKept(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: NewMerger(Limits{})})
	const accounts = 20
	did := func(i int) []byte { return fmt.Appendf(nil, "did:web:n%02d.example.com", i) }
	seq := Seq(0)
	apply := func(s *Store, i int, rev, since uint64) {
		seq++
		var b Batch
		b.AddCommit(seq, &Commit{DID: did(i), Rev: syntax.AppendTID(nil, rev), Since: syntax.AppendTID(nil, since), Data: make([]byte, 32)})
		b.AddPut(1, syntax.AppendTID(nil, rev), []byte("did:plc:subject"))
		b.Seen(seq, nil)
		if err := s.Apply(t.Context(), "test", &b); err != nil {
			t.Fatal(err)
		}
	}
	for round := range uint64(4) {
		s, err := Open(t.Context(), store, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range accounts {
			apply(s, i, round+2, round+1)
		}
		if kept := s.lanes[0].states.used; kept < accounts {
			t.Errorf("%d states are kept", kept)
		}
		if err := Verify(t.Context(), store, func(p string) { t.Error(p) }, nil); err != nil {
			t.Fatal(err)
		}
		if err := s.View(t.Context(), func(sn *Snapshot) error {
			c, err := sn.Counts()
			if want := int64(accounts * (round + 1)); c.Accounts != accounts || c.Desynchronized != 0 || c.Records["follow"] != want {
				t.Errorf("round %d: %+v, want %d records", round, c, want)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
