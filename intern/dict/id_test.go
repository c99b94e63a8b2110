package dict

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"testing"
)

// randomID draws ids of both lengths, often close to the limit between them.
func randomID(rng *rand.Rand) ID {
	switch rng.IntN(4) {
	case 0:
		return ID(rng.Uint64N(1 << 40))
	case 1:
		return ID(longBit | rng.Uint64())
	case 2:
		return FirstLong - 2 + ID(rng.IntN(4))
	}
	return ID(rng.Uint64() >> rng.IntN(64))
}

// TestIDsSort: encoded ids sort like ids, and decode wherever they stand.
func TestIDsSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 0))
	for range 50_000 {
		x, y := randomID(rng), randomID(rng)
		a, b := AppendID(nil, x), AppendID(nil, y)
		if bytes.Compare(a, b) != cmp.Compare(x, y) || a[0] == 0xfe {
			t.Fatalf("%#x and %#x are %x and %x", uint64(x), uint64(y), a, b)
		}
		if x != y && bytes.HasPrefix(b, a) {
			t.Fatalf("%x, the encoded %#x, begins with %x", b, uint64(y), a)
		}
		both := append(AppendID(AppendID([]byte{0xfe}, x), y), 0xfe)
		first, n := ReadID(both[1:])
		second, m := ReadID(both[1+n:])
		if first != x || second != y || 1+n+m+1 != len(both) {
			t.Fatalf("%#x and %#x are read as %#x and %#x from %x", uint64(x), uint64(y), uint64(first), uint64(second), both)
		}
	}
	for _, bad := range [][]byte{nil, {1}, {1, 2, 3, 4}, {0xfe, 0, 0, 0, 0, 0, 0, 0, 0}, {0xff, 0, 0, 0, 0, 0, 0, 0}, {0xff, 0, 0, 0, 0, 0, 0, 0, 1}} {
		if id, n := ReadID(bad); n != 0 {
			t.Errorf("%x is read as %d", bad, id)
		}
	}
}

// TestKeysSort: the rows of a namespace are neighbours: groups by id, a long string's row right
// after its group; counters and leases by shard and block.
func TestKeysSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 0))
	for range 20_000 {
		x, y := randomID(rng), randomID(rng)
		ns := Namespaces[rng.IntN(len(Namespaces))]
		group, next := AppendGroupKey(nil, ns, x), AppendGroupKey(nil, ns, x|GroupMask)
		if !bytes.Equal(group, next) || (x>>GroupBits == y>>GroupBits) != bytes.Equal(group, AppendGroupKey(nil, ns, y)) {
			t.Fatalf("%#x and %#x are in groups %x and %x", uint64(x), uint64(y), group, AppendGroupKey(nil, ns, y))
		}
		own, other := AppendOwnKey(nil, ns, x), AppendOwnKey(nil, ns, y)
		if !bytes.HasPrefix(own, group) || len(own) != len(group)+1 || bytes.Compare(own, other) != cmp.Compare(x, y) {
			t.Fatalf("%#x and %#x have the rows %x and %x", uint64(x), uint64(y), own, other)
		}
		if x>>GroupBits < y>>GroupBits && bytes.Compare(own, AppendGroupKey(nil, ns, y)) >= 0 {
			t.Fatalf("row %x comes after the group of %#x", own, uint64(y))
		}
		if other := AppendGroupKey(nil, DID+URI-ns, x); bytes.Equal(other, group) {
			t.Fatalf("group %x is in both namespaces", group)
		}
		a := Lease{BlockKey: BlockKey{Namespace: ns, Shard: rng.Uint32() >> rng.IntN(32), Block: rng.Uint64() >> rng.IntN(64)}}
		b := Lease{BlockKey: BlockKey{Namespace: ns, Shard: []uint32{a.Shard, rng.Uint32()}[rng.IntN(2)], Block: rng.Uint64()}}
		want := cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Block, b.Block))
		if bytes.Compare(AppendLeaseKey(nil, ns, a.Shard, a.Block), AppendLeaseKey(nil, ns, b.Shard, b.Block)) != want {
			t.Fatalf("%+v and %+v do not sort", a, b)
		}
		if bytes.Compare(AppendNextKey(nil, ns, a.Shard), AppendNextKey(nil, ns, b.Shard)) != cmp.Compare(a.Shard, b.Shard) {
			t.Fatalf("the counters of %d and %d do not sort", a.Shard, b.Shard)
		}
	}
}

// TestNamespaces: a namespace has a name.
func TestNamespaces(t *testing.T) {
	if DID.String() != "did" || URI.String() != "uri" {
		t.Errorf("the namespaces have the names %q and %q", DID, URI)
	}
	if s := Namespace(9).String(); s != "namespace(9)" {
		t.Errorf("an unknown namespace has the name %q", s)
	}
}
