package format

import (
	"bytes"
	"cmp"
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

// randomLayout draws the layout of a store, with any number of partitions, and groups of any size.
func randomLayout(rng *rand.Rand) Layout {
	return Layout{Settings: dict.Settings{ShardBits: uint8(6 + rng.IntN(19)), LeaseSize: 1 << 16, Partitions: 1 << rng.IntN(7), Group: 1 << rng.IntN(9)}}
}

// TestOrderOfSets: keys sort by set. A set is its row, or its rows by partition, unless these lie in groups, and then its leaves: by partition,
// and by the last member of each. All lie under the prefix that AppendRowKey returns, the leaves under that of Leaves, and those of one
// partition under that of LeavesBeside.
func TestOrderOfSets(t *testing.T) {
	type place struct {
		subject dict.ID
		leaf    bool
		part    uint8
		last    dict.ID // of a leaf
	}
	rng := rand.New(rand.NewPCG(1, 0))
	for range 1000 {
		l := randomLayout(rng)
		s, kind := l.Settings, kinds.Kind(1+rng.IntN(4))
		var places []place
		for range 4 {
			subject := randomID(rng)
			for range 20 {
				member := randomID(rng)
				if rng.IntN(2) == 0 { // few of the other ids are in the first shards
					member = s.Start(rng.Uint32N(1<<s.ShardBits), rng.Uint64N(s.Blocks()))
				}
				part := s.PartitionOfID(member)
				if places = append(places, place{subject, true, part, member}); !HasGroups(kind) {
					places = append(places, place{subject, false, part, 0})
				}
			}
		}
		slices.SortFunc(places, func(x, y place) int {
			return cmp.Or(cmp.Compare(x.subject, y.subject), flagsDiffer(x.leaf, y.leaf), cmp.Compare(x.part, y.part), cmp.Compare(x.last, y.last))
		})
		var last, beside []byte
		var before place
		for _, p := range slices.Compact(places) {
			set := AppendRowKey(nil, kind, p.subject)
			key := l.appendPart(slices.Clone(set), p.part)
			if p.leaf {
				key = l.AppendSetLeafKey([]byte("x"), kind, p.subject, p.last)[1:]
			}
			if bytes.Compare(last, key) >= 0 || !bytes.HasPrefix(key, set) || bytes.HasPrefix(key, Leaves(set)) != p.leaf {
				t.Fatalf("%v: %+v has the key %x, after %x, of the set %x", s, p, key, last, set)
			}
			k, subject, part, end, leaf, err := l.ParseSetKey(key)
			if got := (place{subject, leaf, part, end}); k != kind || got != p || err != nil {
				t.Fatalf("%v: %+v has the key %x, which is of kind %v, %+v: %v", s, p, key, k, got, err)
			}
			if p.leaf {
				same := before.leaf && p.subject == before.subject && p.part == before.part
				if bytes.HasPrefix(key, beside) != same && beside != nil {
					t.Fatalf("%v: %+v, with the key %x, is under %x: %v", s, p, key, beside, !same)
				}
				if beside = l.LeavesBeside(key); !bytes.HasPrefix(key, beside) {
					t.Fatalf("%v: %x is not beside itself: %x", s, key, beside)
				}
			} else if l.PartitionOfKey(key) != p.part {
				t.Fatalf("%v: row %x of partition %d is of %d", s, key, p.part, l.PartitionOfKey(key))
			}
			last, before = key, p
		}
	}
}

// flagsDiffer orders a flag that is not set before one that is.
func flagsDiffer(x, y bool) int { return int(flagsOf(x)) - int(flagsOf(y)) }

// randomPaths draws TIDs, also the ends and those of one second, and other keys, also those that look like TIDs and those that others
// begin with.
func randomPaths(rng *rand.Rand, n int) (paths []Path) {
	for range n {
		switch tid := rng.Uint64() >> (1 + rng.IntN(20)); rng.IntN(6) {
		case 0:
			paths = append(paths, Path{TID: []uint64{0, 1, goldenTID, EndOfTime - 1}[rng.IntN(4)]})
		case 1:
			paths = append(paths, Path{TID: goldenTID + rng.Uint64N(1000)})
		case 2, 3:
			paths = append(paths, Path{TID: tid})
		case 4:
			paths = append(paths, ParsePath(dict.AppendTID(nil, EndOfTime|tid)))
		default:
			paths = append(paths, ParsePath(bytes.Repeat([]byte{"-.:_~aAzZ09"[rng.IntN(11)]}, 1+rng.IntN(20))))
		}
	}
	return paths
}

// TestOrderOfChunks: the key of a head comes before those of its leaves, which ascend like their last paths (ComparePaths), and before
// those of the next actor. A chunk's key names its actor, and a leaf's key its last path.
func TestOrderOfChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	for range 500 {
		actor := randomID(rng)
		head, next := AppendRecordsKey(nil, 1, actor), AppendRecordsKey(nil, 1, actor+1)
		paths := randomPaths(rng, 40)
		slices.SortFunc(paths, ComparePaths)
		last := head
		if k, of, _, isLeaf, err := ParseChunkKey(head); k != 1 || of != actor || isLeaf || err != nil {
			t.Fatalf("head %x of %#x: kind %v of %#x, %v, %v", head, uint64(actor), k, uint64(of), isLeaf, err)
		}
		for i, p := range paths {
			key := AppendLeafKey(bytes.Clone(head), p)
			order := -1
			if i > 0 {
				order = ComparePaths(paths[i-1], p)
			}
			if bytes.Compare(last, key) != order || !bytes.HasPrefix(key, head) || actor+1 != 0 && bytes.Compare(key, next) >= 0 {
				t.Fatalf("%v has the key %x, after %x, before %x", p, key, last, next)
			}
			k, of, path, isLeaf, err := ParseChunkKey(key)
			if k != 1 || of != actor || ComparePaths(path, p) != 0 || !isLeaf || err != nil {
				t.Fatalf("leaf %x of %#x: kind %v of %#x up to %v, want %v; %v, %v", key, uint64(actor), k, uint64(of), path, p, isLeaf, err)
			}
			last = key
		}
	}
}

// TestPaths: the key of a record is a TID if it names a time.
func TestPaths(t *testing.T) {
	for _, tid := range []uint64{0, 1, goldenTID, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		p := ParsePath(dict.AppendTID(nil, tid))
		if isTID := tid>>63 == 0; p.HasTime() != isTID || isTID && p.TID != tid || isTID == (p.Raw != nil) { // the top bit of a TID is 0
			t.Errorf("%#x is the key %v", tid, p)
		}
	}
	rng := rand.New(rand.NewPCG(3, 1))
	for _, p := range randomPaths(rng, 1000) {
		if q := ParsePath(p.AppendRkey(nil)); ComparePaths(p, q) != 0 || p.HasTime() != q.HasTime() {
			t.Errorf("%s is read as %v", p.AppendRkey(nil), q)
		}
	}
}

// TestParseRefusesBeyond: no leaf of records has a key beyond those of TIDs and other keys. A key of a set names one of the store's partitions,
// if it has several, and a leaf that of its last member; and rows that lie in groups have none.
func TestParseRefusesBeyond(t *testing.T) {
	for _, id := range []dict.ID{shortID, longID} {
		head := AppendRecordsKey(nil, 1, id)
		leaf := AppendLeafKey(bytes.Clone(head), Path{TID: goldenTID})
		for _, key := range [][]byte{leaf[:len(leaf)-1], append(bytes.Clone(leaf), 0), append(bytes.Clone(head), rawLeaf), append(bytes.Clone(head), bytes.Repeat([]byte{rawLeaf + 1}, 8)...)} {
			if _, _, last, isLeaf, err := ParseChunkKey(key); err == nil {
				t.Errorf("%x is read as a chunk's key: %v, %v", key, last, isLeaf)
			}
		}
		few := Layout{Settings: dict.Settings{ShardBits: 14, LeaseSize: 1 << 16, Partitions: 4, Group: 1}}
		for name, l := range map[string]Layout{"alone": alone, "few": few, "shared": shared} {
			refused := func(key []byte) {
				t.Helper()
				if _, _, part, last, isLeaf, err := l.ParseSetKey(key); err == nil {
					t.Errorf("%s: %x is read as a set's key: partition %d, up to %#x, a leaf: %v", name, key, part, uint64(last), isLeaf)
				}
			}
			for _, kind := range []kinds.Kind{1, 2} {
				row := AppendRowKey(nil, kind, id)
				if HasGroups(kind) || l.Shared() {
					refused(row)
				}
				for part := range 256 {
					_, _, got, _, isLeaf, err := l.ParseSetKey(append(bytes.Clone(row), byte(part)))
					if want := l.Shared() && part < int(l.Settings.Partitions) && kind == 1; isLeaf && err == nil || (err == nil) != want || want && int(got) != part {
						t.Errorf("%s: %x with the partition %d is a row's key: of %d, a leaf: %v, %v", name, row, part, got, isLeaf, err)
					}
				}
				for _, last := range []dict.ID{shortID, longID} {
					leaf := l.AppendSetLeafKey(nil, kind, id, last)
					for n := len(row) + 1; n < len(leaf); n++ {
						refused(leaf[:n])
					}
					refused(append(bytes.Clone(leaf), 0))
					refused(append([]byte{KeyRows}, leaf[1:]...))
					if other := bytes.Clone(leaf); l.Shared() {
						other[len(row)+1]++
						refused(other)
					}
					for _, other := range []Layout{alone, few, shared} {
						if foreign := other.AppendSetLeafKey(nil, kind, id, last); other.Shared() != l.Shared() {
							refused(foreign)
						}
					}
				}
			}
			refused(nil)
			refused([]byte{KeyReverse, 1})
			refused(AppendRowKey(nil, 1, id)[:4])
		}
	}
}

// The functions below parse a key and make it again.
func chunkKeyAgain(key []byte) ([]byte, error) {
	k, actor, last, isLeaf, err := ParseChunkKey(key)
	again := AppendRecordsKey(nil, k, actor)
	if isLeaf {
		again = AppendLeafKey(again, last)
	}
	return again, err
}

func setKeyAgain(l Layout) func(key []byte) ([]byte, error) {
	return func(key []byte) ([]byte, error) {
		k, subject, part, last, isLeaf, err := l.ParseSetKey(key)
		if isLeaf {
			return l.AppendSetLeafKey(nil, k, subject, last), err
		}
		return l.appendPart(AppendRowKey(nil, k, subject), part), err
	}
}

func rowGroupKeyAgain(key []byte) ([]byte, error) {
	k, first, err := ParseRowGroupKey(key)
	if err != nil {
		return nil, err
	}
	again := dict.AppendID([]byte{KeyRows, byte(k)}, first)
	return append(again, key[len(again):]...), nil // with a partition
}

func actorKeyAgain(key []byte) ([]byte, error) {
	id, err := ParseActorKey(key)
	return dict.AppendID([]byte{key[0]}, id), err
}

// TestKeysOfRandomIDs: in any layout, parsing a key returns what it was made from, and the
// partition of its account.
func TestKeysOfRandomIDs(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 0))
	for range 20_000 {
		l := randomLayout(rng)
		kind := kinds.All[rng.IntN(len(kinds.All))].Kind
		actor, subject, member := randomID(rng), randomID(rng), randomID(rng)
		want := l.Settings.PartitionOfID(member)
		key := l.AppendMemberKey(nil, kind, subject, member)
		if got := l.PartitionOfKey(key); got != want || !bytes.HasPrefix(key, l.AppendMembersKey(nil, kind, subject)) {
			t.Fatalf("%v: %x of member %#x is of partition %d, want %d", l.Settings, key, uint64(member), got, want)
		}
		if HasGroups(kind) {
			if k, first, err := ParseRowGroupKey(key); k != kind || first != subject&^(postsOf(l.Settings.Group)-1) || err != nil {
				t.Fatalf("%v: group %x of %#x: kind %v, from %#x, %v", l.Settings, key, uint64(subject), k, uint64(first), err)
			}
		} else if k, s, part, _, isLeaf, err := l.ParseSetKey(key); k != kind || s != subject || part != want || isLeaf || err != nil {
			t.Fatalf("%v: row %x of %#x: kind %v, %#x, partition %d, a leaf: %v, %v", l.Settings, key, uint64(subject), k, uint64(s), part, isLeaf, err)
		}
		chunk, leaf := AppendRecordsKey(nil, kind, actor), rng.IntN(2) == 0
		if leaf {
			chunk = AppendLeafKey(chunk, randomPaths(rng, 1)[0])
		}
		if k, a, _, isLeaf, err := ParseChunkKey(chunk); k != kind || a != actor || isLeaf != leaf || err != nil || l.PartitionOfKey(chunk) != l.Settings.PartitionOfID(actor) {
			t.Fatalf("%v: chunk %x of %#x: kind %v, %#x, a leaf: %v, %v", l.Settings, chunk, uint64(actor), k, uint64(a), isLeaf, err)
		}
		first, err := ParseActorKey(l.AccountKey(nil, actor))
		if mask := dict.ID(l.Settings.Group - 1); err != nil || first != actor&^mask || l.AccountMask() != mask {
			t.Fatalf("%v: account %#x is in the group of %#x, %v", l.Settings, uint64(actor), uint64(first), err)
		}
	}
}
