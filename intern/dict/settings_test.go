package dict

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomSettings draws settings that a store may have.
func randomSettings(rng *rand.Rand) Settings {
	for {
		s := Settings{ShardBits: uint8(1 + rng.IntN(32)), LeaseSize: 1 << rng.IntN(17), Partitions: 1 << rng.IntN(7), Group: 1 << rng.IntN(9)}
		if s.Check() == nil {
			return s
		}
	}
}

// TestBlocksAndIDs: the ids of a block identify the block and its shard, are neighbours, are
// never reserved, and encode unlike those of any other block.
func TestBlocksAndIDs(t *testing.T) {
	for seed := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		s := randomSettings(rng)
		shard, block := uint32(rng.Uint64N(1<<s.ShardBits)), rng.Uint64N(s.Blocks())
		if perBlock := uint64(s.LeaseSize); rng.IntN(2) == 0 && s.ShortCounters() > 0 { // at the end of the short ids
			block = min(s.ShortCounters()/perBlock-1+rng.Uint64N(3), s.Blocks()-1)
		}
		start := s.Start(shard, block)
		if uint64(start)%uint64(s.LeaseSize) != 0 {
			t.Fatalf("%v: block %d of shard %d begins at %#x, which is not aligned", s, block, shard, uint64(start))
		}
		for _, at := range []uint64{0, 1, rng.Uint64N(uint64(s.LeaseSize)), uint64(s.LeaseSize) - 1} {
			id := start + ID(at%uint64(s.LeaseSize))
			if s.Shard(id) != shard || s.Block(id) != block {
				t.Fatalf("%v: %#x is of block %d of shard %d, want %d of %d", s, uint64(id), s.Block(id), s.Shard(id), block, shard)
			}
			if key := s.BlockOf(URI, id); key != (BlockKey{URI, shard, block}) || s.BlockOf(DID, id).Namespace != DID {
				t.Fatalf("%v: %#x is of %+v", s, uint64(id), key)
			}
			if part := s.PartitionOfID(id); uint32(part) != shard%uint32(s.Partitions) {
				t.Fatalf("%v: shard %d is of partition %d", s, shard, part)
			} else if last := s.LastID(part); last < id || s.PartitionOfID(last) != part {
				t.Fatalf("%v: the last id of partition %d is %#x, after %#x", s, part, uint64(last), uint64(id))
			}
			written := AppendID(nil, id)
			if id >= FirstReserved || written[0] == 0xfe {
				t.Fatalf("%v: shard %d hands out %#x, written %x", s, shard, uint64(id), written)
			}
			if isLong := len(written) == 9; isLong != (id >= FirstLong) || s.ShortCounters() > 0 && isLong != s.Long(shard, block) {
				t.Fatalf("%v: block %d of shard %d is long: %v, and has %x", s, block, shard, s.Long(shard, block), written)
			}
		}
		if s.ShortCounters() == 0 && (s.Start(0, 0) != longBit || s.Long(0, 0)) {
			t.Fatalf("%v: the first id is %#x", s, uint64(s.Start(0, 0)))
		}
		// The next block begins where this one ends, except where the long ids begin.
		if next := block + 1; next < s.Blocks() && (block*uint64(s.LeaseSize) >= s.ShortCounters() || next*uint64(s.LeaseSize) < s.ShortCounters()) {
			if s.Start(shard, next) != start+ID(s.LeaseSize) {
				t.Fatalf("%v: block %d of shard %d begins at %#x, and the next at %#x", s, block, shard, uint64(start), uint64(s.Start(shard, next)))
			}
		}
	}
}

// TestSettingsChecked: Check refuses unusable settings with ErrSettings.
func TestSettingsChecked(t *testing.T) {
	for ok, all := range map[bool][]Settings{
		true: {DefaultSettings, SharedSettings, {1, 1, 1, 1}, {1, 1, 2, 2}, {32, MaxLeaseSize, 64, 128}, {31, 1, 64, 256}, {6, 1, 64, 16}},
		false: {
			{},
			{0, 1, 1, 1},
			{33, 1, 1, 1},
			{255, 1, 1, 1},
			{14, 0, 1, 1},
			{14, 3, 1, 1},
			{14, MaxLeaseSize + 1, 1, 1},
			{14, 2 * MaxLeaseSize, 1, 1},
			{14, 1 << 31, 1, 1},
			{14, 1, 0, 1},
			{14, 1, 3, 1},
			{14, 1, 63, 1},
			{14, 1, 128, 1},
			{1, 1, 4, 1},
			{5, 1, 64, 1},
			{14, 1, 1, 0},
			{14, 1, 1, 3},
			{14, 1, 1, 255},
			{14, 1, 1, 2 * MaxGroup},
			{14, 1, 1, 1 << 15},
		},
	} {
		for _, s := range all {
			if err := s.Check(); (err == nil) != ok || err != nil && !errors.Is(err, ErrSettings) {
				t.Errorf("%v: %v", s, err)
			}
			if ok && (s.Or(DefaultSettings) != s || (Settings{}).Or(s) != s) {
				t.Errorf("Or changes complete settings: %v", s)
			}
		}
	}
	for want, s := range map[Settings]Settings{
		{14, 4096, 1, 256}:         {LeaseSize: 4096},
		{8, 1 << 16, 1, 256}:       {ShardBits: 8},
		{14, 1 << 16, 4, 256}:      {Partitions: 4},
		{14, 1 << 16, 1, 16}:       {Group: 16},
		{14, MaxLeaseSize, 1, 256}: {},
	} {
		if got := s.Or(DefaultSettings); got != want {
			t.Errorf("Or completes %v to %v, want %v", s, got, want)
		}
	}
	if SharedSettings.PartitionsOf(DID) != MaxPartitions || SharedSettings.PartitionsOf(URI) != 1 || DefaultSettings.PartitionsOf(DID) != 1 {
		t.Error("want several partitions for DIDs, and one for URIs")
	}
}

// TestPartitionsOfDIDs: DIDs spread evenly over the partitions; text and packed form agree; and
// fewer partitions are unions of more.
func TestPartitionsOfDIDs(t *testing.T) {
	const dids = 20_000
	for _, pattern := range []string{"did:web:%d.example.com", "plc"} {
		counts := make([]int, MaxPartitions)
		for i := range dids {
			did := fmt.Appendf(nil, pattern, i)
			if pattern == "plc" { // neighbours, as an attacker could choose them
				did = AppendDID(nil, fmt.Appendf(nil, "%015d", i))
			}
			part := SharedSettings.PartitionOf(did)
			counts[part]++
			if v, ok := PackPLC(nil, did); ok && SharedSettings.PartitionOfForm(v) != part {
				t.Fatalf("%s is in partition %d, and its form in %d", did, part, SharedSettings.PartitionOfForm(v))
			}
			if four := (Settings{14, 1, 4, 1}).PartitionOf(did); four != part%4 || DefaultSettings.PartitionOf(did) != 0 {
				t.Fatalf("%s is in partition %d of 64 and %d of 4", did, part, four)
			}
		}
		if low, high := slices.Min(counts), slices.Max(counts); low < dids/MaxPartitions*7/10 || high > dids/MaxPartitions*13/10 {
			t.Errorf("%s: partitions have %d to %d of %d", pattern, low, high, dids)
		}
	}
}
