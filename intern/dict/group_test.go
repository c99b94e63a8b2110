package dict

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomForm draws the form of a string of each kind.
func randomForm(rng *rand.Rand, ns Namespace) []byte {
	if ns == DID {
		if rng.IntN(4) > 0 {
			return PackDID(nil, []byte("did:plc:"+randomOf(Base32Alphabet, 24)))
		}
		return PackDID(nil, fmt.Appendf(nil, "did:web:%s.com", randomOf("abc", 1+rng.IntN(400))))
	}
	tid := shortTID + rng.Uint64N(1<<20)*1000<<ClockBits
	if rng.IntN(8) == 0 {
		tid = rng.Uint64()
	}
	switch rng.IntN(6) {
	case 0:
		return AppendPackedURI(nil, tid, randomID(rng), byte(1+rng.IntN(len(packedCollections)-1)))
	case 1:
		return AppendRaw(nil, URI, fmt.Appendf(nil, "at://%s.com", randomOf("abc", 1+rng.IntN(400))))
	}
	return AppendPackedURI(nil, tid, randomID(rng), 0)
}

// kindOf returns the expected kind of an entry, by the length of its form.
func kindOf(ns Namespace, form []byte) uint8 {
	switch n := len(form); {
	case ns == DID && n == 15:
		return 0
	case ns == URI && (n == 11 || n == 15):
		return 1
	case n <= 256:
		return 2
	}
	return 3
}

func writeGroup(ns Namespace, group map[uint8][]byte) (v []byte) {
	var w GroupWriter
	for _, at := range slices.Sorted(maps.Keys(group)) {
		e := EntryOf(ns, 77<<GroupBits|ID(at), group[at])
		v = w.Append(v, &e)
	}
	return v
}

// readMap decodes a group into a map, without the forms of long strings.
func readMap(t *testing.T, v []byte) map[uint8][]byte {
	t.Helper()
	group := map[uint8][]byte{}
	last := -1
	if err := EachEntry(v, func(e *Entry) bool {
		if int(e.At) <= last {
			t.Errorf("%d comes after %d in %x", e.At, last, v)
		}
		last = int(e.At)
		if form := e.AppendForm([]byte("x")); e.Kind == KindOwn {
			group[e.At] = nil
		} else {
			group[e.At] = form[1:]
		}
		return true
	}); err != nil {
		t.Fatalf("%x: %v", v, err)
	}
	return group
}

// TestGroups: groups contain their entries, and any grouping of folds keeps the newest entry of
// each id.
func TestGroups(t *testing.T) {
	seen := map[uint8]int{}
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 3))
		ns := Namespaces[rng.IntN(2)]
		want := map[uint8][]byte{}
		var values [][]byte
		for range 1 + rng.IntN(6) {
			said, read := map[uint8][]byte{}, map[uint8][]byte{}
			for range rng.IntN(12) {
				at, form := uint8(rng.IntN(1<<GroupBits)), randomForm(rng, ns)
				if e := EntryOf(ns, 77<<GroupBits|ID(at), form); e.Kind != kindOf(ns, form) || e.At != at || e.ID&GroupMask != ID(at) {
					t.Fatalf("seed %d: %x is an entry of kind %d at %d", seed, form, e.Kind, e.At)
				}
				seen[kindOf(ns, form)]++
				said[at], read[at] = form, form
				if kindOf(ns, form) == KindOwn {
					read[at] = nil
				}
			}
			v := writeGroup(ns, said)
			if got := readMap(t, v); !maps.EqualFunc(got, read, bytes.Equal) {
				t.Fatalf("seed %d: %x holds %x, want %x", seed, v, got, read)
			}
			values = append(values, v)
			maps.Copy(want, read)
		}
		whole, err := FoldGroups([]byte("x"), values)
		if err != nil || whole[0] != 'x' || !maps.EqualFunc(readMap(t, whole[1:]), want, bytes.Equal) {
			t.Fatalf("seed %d: %x folds to %x, %v; want %x", seed, values, whole, err, want)
		}
		for len(values) > 1 {
			i := rng.IntN(len(values) - 1)
			n := min(2+rng.IntN(3), len(values)-i)
			v, err := FoldGroups(nil, values[i:i+n])
			if err != nil {
				t.Fatal(err)
			}
			values = slices.Replace(values, i, i+n, v)
		}
		if parts, err := FoldGroups(nil, values); err != nil || !bytes.Equal(parts, whole[1:]) {
			t.Fatalf("seed %d: in parts it folds to %x, %v, want %x", seed, parts, err, whole[1:])
		}
	}
	for kind := range uint8(4) {
		if seen[kind] < 100 {
			t.Errorf("%d entries have kind %d", seen[kind], kind)
		}
	}
}

// TestGroupsRefused decodes malformed groups. TestBrokenValues truncates them.
func TestGroupsRefused(t *testing.T) {
	for name, v := range map[string][]byte{
		"a post of eleven bytes":         append([]byte{kindPost<<GroupBits | 3}, bytes.Repeat([]byte{0x80}, 11)...),
		"a form longer than memory":      {kindForm<<GroupBits | 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 'x'},
		"a length that overflows":        {kindForm<<GroupBits | 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 'x'},
		"an own row and a truncated plc": {KindOwn<<GroupBits | 3, KindPLC<<GroupBits | 4, 1},
	} {
		if err := EachEntry(v, func(*Entry) bool { return true }); err == nil {
			t.Errorf("%s: %x is read", name, v)
		}
		calls := 0 // a reader that stops before does not see it
		if err := EachEntry(append([]byte{KindOwn<<GroupBits | 2}, v...), func(*Entry) bool { calls++; return false }); err != nil || calls != 1 {
			t.Errorf("%s: %d calls, %v", name, calls, err)
		}
		if got, err := FoldGroups(nil, [][]byte{nil, v}); err == nil {
			t.Errorf("%s: %x folds to %x", name, v, got)
		}
	}
}
