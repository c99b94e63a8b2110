package format

import (
	"maps"
	"math/rand/v2"
	"testing"

	"skein.blue/intern/dict"
)

// TestAccountGroups writes random states into groups and folds these in any grouping: the
// newest state of each account wins.
func TestAccountGroups(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	l := alone
	const first = dict.ID(7 << 40)
	key := l.AccountKey(nil, first+200)
	for range 300 {
		var operands [][]byte
		twin := map[dict.ID]RepoState{}
		for range 1 + rng.IntN(12) {
			said := map[dict.ID]RepoState{}
			for range rng.IntN(40) {
				said[first+dict.ID(rng.IntN(256))] = RepoState{Flags: FlagHasRev | uint16(rng.IntN(2))*FlagRecords, Source: 1, Seq: Seq(rng.Uint64N(1 << 40)), Rev: Rev(rng.Uint64())}
			}
			var v []byte
			for id := first; id < first+256; id++ { // an operand ascends
				if s, ok := said[id]; ok {
					v = l.AppendAccount(v, id, &s)
				}
			}
			operands = append(operands, v)
			maps.Copy(twin, said)
		}
		group := foldInParts(t, rng, key, operands)
		got := map[dict.ID]RepoState{}
		last := dict.None
		if err := l.EachState(key, group, func(id dict.ID, s RepoState) error {
			if id <= last {
				t.Errorf("%d comes after %d", id, last)
			}
			got[id], last = s, id
			return nil
		}); err != nil || !maps.Equal(got, twin) {
			t.Fatalf("%v, want %v; %v", got, twin, err)
		}
		for id := first; id < first+256; id++ {
			s, ok, err := l.AccountIn(group, id)
			if want, has := twin[id]; ok != has || s != want || err != nil {
				t.Fatalf("%d: %+v %v %v, want %+v %v", id, s, ok, err, want, has)
			}
		}
	}
}
