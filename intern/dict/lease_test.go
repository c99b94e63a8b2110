package dict

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestLeaseRows: a lease survives a round trip, to the second, and names its block.
func TestLeaseRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	for range 2000 {
		l := Lease{
			Namespace: Namespaces[rng.IntN(2)], Shard: rng.Uint32(), Block: rng.Uint64(), Used: rng.Uint32N(MaxLeaseSize + 1),
			Taken: time.Unix(rng.Int64N(1<<40)-1<<39, 0), Closed: rng.IntN(2) == 0, Owner: randomOf("ab:\x00\xff", rng.IntN(20)), Token: rng.Uint64(),
		}
		got, err := DecodeLease(AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block), l.Value())
		if err != nil || !got.Taken.Equal(l.Taken) {
			t.Fatalf("%+v became %+v, %v", l, got, err)
		}
		if got.Taken = l.Taken; got != l || got.BlockKey() != (BlockKey{l.Namespace, l.Shard, l.Block}) {
			t.Fatalf("%+v became %+v, of %+v", l, got, got.BlockKey())
		}
		// Decode overwrites all of an earlier row.
		again := goldenLeases[1]
		if err := again.Decode(AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block), l.Value()); err != nil || !again.Taken.Equal(l.Taken) {
			t.Fatal(err)
		}
		if again.Taken = l.Taken; again != l {
			t.Fatalf("%+v, decoded over another lease, became %+v", l, again)
		}
	}
}

// TestLeasesRefused: keys of another length or keyspace are refused.
func TestLeasesRefused(t *testing.T) {
	l := goldenLeases[0]
	key, value := AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block), l.Value()
	for _, key := range [][]byte{nil, key[:13], append(key[:14:14], 0), AppendNextKey(nil, DID, 5)} {
		if got, err := DecodeLease(key, value); err == nil {
			t.Errorf("under %x there is %+v", key, got)
		}
	}
}
