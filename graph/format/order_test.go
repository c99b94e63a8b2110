package format

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// randomID draws ids of both lengths, often close to the limit between them.
func randomID(rng *rand.Rand) dict.ID {
	switch rng.IntN(4) {
	case 0:
		return dict.ID(rng.Uint64N(1 << 40))
	case 1:
		return dict.ID(1<<63 | rng.Uint64())
	case 2:
		return dict.FirstLong - 2 + dict.ID(rng.IntN(4))
	}
	return dict.ID(rng.Uint64() >> rng.IntN(64))
}

// TestOrderOfSets: keys sort by set; a set is its row, or its rows by partition, then its containers by block, under the
// prefix that Containers returns.
func TestOrderOfSets(t *testing.T) {
	type place struct {
		subject   dict.ID
		container bool
		part      uint8
		block     uint64
	}
	rng := rand.New(rand.NewPCG(1, 0))
	for i := range 1000 {
		l := []Layout{alone, shared}[i%2]
		var places []place
		for range 4 {
			subject := randomID(rng)
			for range 20 {
				member := randomID(rng)
				if s := l.Settings; i%4 < 2 && l.Shared() {
					member = s.Start(rng.Uint32N(1<<14), rng.Uint64N(s.Blocks()))
				}
				places = append(places, place{subject, false, l.Settings.PartitionOfID(member), 0}, place{subject, true, 0, BlockOf(uint64(member))})
				if part := places[len(places)-2].part; l.Shared() && l.PartitionOfKey(l.AppendMemberKey(nil, 4, subject, member)) != part {
					t.Fatalf("member %#x is not of partition %d", uint64(member), part)
				}
			}
		}
		slices.SortFunc(places, func(x, y place) int {
			if x.container != y.container && x.subject == y.subject {
				return map[bool]int{true: 1, false: -1}[x.container]
			}
			return cmp.Or(cmp.Compare(x.subject, y.subject), cmp.Compare(x.part, y.part), cmp.Compare(x.block, y.block))
		})
		var last []byte
		for _, p := range slices.Compact(places) {
			set := AppendRowKey(nil, 4, p.subject)
			key := slices.Clone(set)
			if l.Shared() {
				key = append(key, p.part)
			}
			if p.container {
				key = AppendContainerKey(nil, key, p.block)
			}
			if _, _, _, isRow, err := ParseReverseKey(key); bytes.Compare(last, key) >= 0 || !bytes.HasPrefix(key, set) || err != nil || isRow == p.container {
				t.Fatalf("%+v has the key %x, after %x", p, key, last)
			}
			if l.Shared() && bytes.HasPrefix(key, l.Containers(set)) != p.container || !bytes.HasPrefix(key, l.Containers(set)) && p.container {
				t.Fatalf("%x is under %x", key, l.Containers(set))
			}
			last = key
		}
	}
}

// TestOrderOfChunks: at each depth, the chunks of TIDs sort like the TIDs, and before those of
// raw keys, which sort by hash. A deeper chunk is below the chunk above it.
func TestOrderOfChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	for range 500 {
		actor := randomID(rng)
		var paths []Path
		for range 20 {
			paths = append(paths, Path{TID: rng.Uint64() >> rng.IntN(20)})
		}
		slices.SortFunc(paths, ComparePaths)
		for range 20 {
			paths = append(paths, Path{Raw: fmt.Appendf(nil, "key-%d", rng.IntN(1000))})
		}
		slices.SortFunc(paths[20:], func(x, y Path) int { return cmp.Compare(x.hash(), y.hash()) })
		var above [][]byte // the keys at the previous depth
		for depth := range MaxChunkDepth + 1 {
			var keys [][]byte
			for i, p := range paths {
				key := AppendChunkKey(nil, 1, actor, p, depth)
				switch {
				case !bytes.HasPrefix(key, AppendRecordsKey(nil, 1, actor)):
					t.Fatalf("%x is not under the prefix of actor %#x", key, uint64(actor))
				case i > 0 && bytes.Compare(keys[i-1], key) > 0:
					t.Fatalf("depth %d: %v has key %x, before that of %v, %x", depth, p, key, paths[i-1], keys[i-1])
				case depth > 0 && (!bytes.HasPrefix(key, above[i]) || len(key) != len(above[i])+1):
					t.Fatalf("%v lies under %x and then under %x", p, above[i], key)
				}
				keys = append(keys, key)
			}
			if bytes.Compare(keys[19], keys[20]) >= 0 {
				t.Fatalf("raw keys begin at %x, before the TID's %x", keys[20], keys[19])
			}
			above = keys
		}
	}
}

// TestBucketsAndSpread: the key of a chunk agrees with its records.
func TestBucketsAndSpread(t *testing.T) {
	for _, tid := range []uint64{0, 1, 1<<BucketShift - 1, 1 << BucketShift, goldenTID, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		p := Path{TID: tid}
		if p.HasTime() != (tid>>63 == 0) { // the top bit of a TID is 0
			t.Errorf("%#x has a time: %v", tid, p.HasTime())
		}
		if back := uint64(p.Bucket())<<BucketShift | p.Spread()>>(64-BucketShift); back != tid || p.Bucket() >= RawBucket {
			t.Errorf("%#x is of bucket %d and spread %#x, which are of %#x", tid, p.Bucket(), p.Spread(), back)
		}
		if q := ParsePath(p.AppendRkey(nil)); q.TID != tid || q.Raw != nil {
			t.Errorf("%s is read as %v", p.AppendRkey(nil), q)
		}
	}
	seen := map[uint16]bool{}
	for i := range 2000 {
		rkey := fmt.Appendf(nil, "key-%d", i)
		p := ParsePath(rkey)
		if string(p.AppendRkey(nil)) != string(rkey) || p.Bucket() < RawBucket || p.Bucket() > RawBucket+255 {
			t.Fatalf("%s is of bucket %d, and is read as %v", rkey, p.Bucket(), p)
		}
		if back := uint64(p.Bucket()-RawBucket)<<56 | p.Spread()>>8; back != p.hash() {
			t.Fatalf("%s has hash %#x, bucket and spread say %#x", rkey, p.hash(), back)
		}
		seen[p.Bucket()] = true
	}
	if len(seen) < 250 {
		t.Errorf("2000 keys lie in %d buckets of 256", len(seen))
	}
}

// TestParseRefusesBeyond: no chunk is deeper than MaxChunkDepth, and no row has a partition
// above the last.
func TestParseRefusesBeyond(t *testing.T) {
	for _, id := range []dict.ID{shortID, longID} {
		deepest := AppendChunkKey(nil, 1, id, Path{TID: goldenTID}, MaxChunkDepth)
		if _, _, _, depth, err := ParseChunkKey(append(deepest, 0)); err == nil {
			t.Errorf("%x0 is read as a chunk's key at depth %d", deepest, depth)
		}
		row := AppendRowKey(nil, 1, id)
		for part := range 256 {
			key := append(bytes.Clone(row), byte(part))
			_, _, _, isRow, err := ParseReverseKey(key)
			if want := part < dict.MaxPartitions; isRow != want || (err == nil) != want {
				t.Errorf("%x is a row's key: %v, %v", key, isRow, err)
			}
		}
	}
}

// The functions below parse a key and make it again.
func chunkKeyAgain(key []byte) ([]byte, error) {
	k, actor, bucket, depth, err := ParseChunkKey(key)
	if err != nil {
		return nil, err
	}
	again := binary.BigEndian.AppendUint16(AppendRecordsKey(nil, k, actor), bucket)
	return append(again, key[len(key)-depth:]...), nil
}

func setKeyAgain(key []byte) ([]byte, error) {
	k, subject, block, isRow, err := ParseReverseKey(key)
	if err != nil {
		return nil, err
	}
	row := AppendRowKey(nil, k, subject)
	if isRow {
		if len(key) > len(row) { // it has a partition
			row = append(row, key[len(row)])
		}
		return row, nil
	}
	again := AppendContainerKey(nil, row, block)
	if len(again) != len(key) {
		again = AppendContainerKey(nil, append(row, 0), block)
	}
	return again, nil
}

func rowGroupKeyAgain(key []byte) ([]byte, error) {
	k, first, err := ParseRowGroupKey(key)
	return AppendRowGroupKey(nil, k, first+rowsInGroup-1), err
}

func actorKeyAgain(key []byte) ([]byte, error) {
	id, err := ParseActorKey(key)
	return dict.AppendID([]byte{key[0]}, id), err
}

// TestKeysOfRandomIDs: in both layouts, parsing a key returns what it was made from, and the
// partition of its account.
func TestKeysOfRandomIDs(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 0))
	for range 20_000 {
		l := Layout{Settings: dict.Settings{ShardBits: uint8(6 + rng.IntN(19)), LeaseSize: 1 << 16, Partitions: 1 << rng.IntN(7)}}
		kind := kinds.All[rng.IntN(len(kinds.All))].Kind
		actor, subject, member := randomID(rng), randomID(rng), randomID(rng)
		row := AppendRowKey(nil, kind, subject)
		if key := l.AppendMemberKey(nil, kind, subject, member); !l.Grouped(kind) {
			row = key
		} else if k, first, err := ParseRowGroupKey(key); k != kind || first != subject&^15 || err != nil || l.PartitionOfKey(key) != 0 {
			t.Fatalf("%v: group %x of %#x: kind %v, from %#x, %v", l.Settings, key, uint64(subject), k, uint64(first), err)
		}
		container := l.AppendMemberContainerKey(nil, kind, subject, member)
		if same := AppendContainerKey(nil, row, BlockOf(uint64(member))); !bytes.Equal(container, same) {
			t.Fatalf("%v: container %x of %#x, and %x", l.Settings, container, uint64(subject), same)
		}
		p := Path{TID: rng.Uint64()}
		chunk := AppendChunkKey(nil, kind, actor, p, rng.IntN(MaxChunkDepth+1))
		want := uint8(0)
		if l.Shared() {
			want = l.Settings.PartitionOfID(member)
		}
		if k, s, _, isRow, err := ParseReverseKey(row); k != kind || s != subject || !isRow || err != nil || l.PartitionOfKey(row) != want {
			t.Fatalf("%v: row %x of %#x: kind %v, %#x, %v, %v, partition %d", l.Settings, row, uint64(subject), k, uint64(s), isRow, err, l.PartitionOfKey(row))
		}
		if k, s, b, isRow, err := ParseReverseKey(container); k != kind || s != subject || isRow || b != BlockOf(uint64(member)) || err != nil {
			t.Fatalf("%v: container %x of %#x: kind %v, %#x, block %#x, %v, %v", l.Settings, container, uint64(subject), k, uint64(s), b, isRow, err)
		}
		if k, a, b, _, err := ParseChunkKey(chunk); k != kind || a != actor || b != p.Bucket() || err != nil || l.PartitionOfKey(chunk) != l.Settings.PartitionOfID(actor) {
			t.Fatalf("%v: chunk %x of %#x: kind %v, %#x, bucket %d, %v", l.Settings, chunk, uint64(actor), k, uint64(a), b, err)
		}
		first, err := ParseActorKey(l.AccountKey(nil, actor))
		if same := first == actor; err != nil || first|actor&l.AccountMask() != actor || l.Shared() && !same {
			t.Fatalf("%v: account %#x is in the group of %#x, %v", l.Settings, uint64(actor), uint64(first), err)
		}
	}
}
