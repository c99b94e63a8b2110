package dict

import (
	"math/rand/v2"
	"testing"
)

// TestLeaseRows: a lease survives a round trip, and names its block.
func TestLeaseRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	for range 2000 {
		l := Lease{
			Namespace: Namespaces[rng.IntN(2)], Shard: rng.Uint32(), Block: rng.Uint64(),
			Owner: randomOf("ab:\x00\xff", rng.IntN(20)), Token: rng.Uint64(),
		}
		again, err := DecodeLease(AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block), l.Value())
		if err != nil || again != l {
			t.Fatalf("%+v became %+v, %v", l, again, err)
		}
		if again.BlockKey() != (BlockKey{l.Namespace, l.Shard, l.Block}) {
			t.Fatalf("%+v is of %+v", l, again.BlockKey())
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
