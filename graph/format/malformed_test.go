package format

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"skein.blue/intern/dict"
)

// TestMalformedAccountIsNotUnknown: a malformed row is an error. A caller would start an
// unknown account from zero.
func TestMalformedAccountIsNotUnknown(t *testing.T) {
	good := RepoState{Source: 1, Seq: 2}
	for name, c := range map[string]struct {
		l     Layout
		v     []byte
		actor dict.ID
	}{
		"a row that is cut":          {alone, []byte{3, 2, 0, 1}, 3},
		"an empty row":               {alone, []byte{3, 0}, 3},
		"behind one that is whole":   {alone, append(alone.AppendAccount(nil, 2, &good), 3, 2, 0, 1), 3},
		"in a group of one":          {shared, []byte{0, 2, 0, 1}, 3},
		"a group that is cut":        {alone, []byte{3, 2, 0}, 3},
		"a group that is cut before": {alone, []byte{2, 9, 0}, 3},
	} {
		if s, _, err := c.l.AccountIn(c.v, c.actor); err == nil {
			t.Errorf("%s: %x is read as %+v", name, c.v, s)
		}
	}
	// A malformed row is an error for its own account only.
	v := append([]byte{3, 2, 0, 1}, alone.AppendAccount(nil, 4, &good)...)
	if s, ok, err := alone.AccountIn(v, 4); s != good || !ok || err != nil {
		t.Errorf("the neighbour of a malformed row is %+v, %v, %v", s, ok, err)
	}
	if s, ok, err := alone.AccountIn(v, 5); s != (RepoState{}) || ok || err != nil {
		t.Errorf("an absent account is %+v, %v, %v", s, ok, err)
	}
}

// TestActorKeysCut: a truncated key of an account is refused, and so is an empty one.
func TestActorKeysCut(t *testing.T) {
	for _, id := range []dict.ID{1, 1 << 20, 1 << 40, 1 << 62} {
		whole := EraseKey(id)
		if got, err := ParseActorKey(whole); got != id || err != nil {
			t.Errorf("%x is of %d, want %d: %v", whole, got, id, err)
		}
		for n := range whole {
			if got, err := ParseActorKey(whole[:n]); err == nil {
				t.Errorf("%x is of %d", whole[:n], got)
			}
		}
	}
	if id, err := ParseActorKey(nil); err == nil {
		t.Errorf("an empty key is of %d", id)
	}
	if err := alone.EachState(nil, nil, func(dict.ID, RepoState) error { return nil }); err == nil {
		t.Error("EachState accepts an empty key")
	}
}

// TestMalformedGroupsDoNotFold folds a malformed group alone and among others.
func TestMalformedGroupsDoNotFold(t *testing.T) {
	s := RepoState{Source: 1, Seq: 2}
	one := alone.AppendAccount(nil, 3, &s)
	key := alone.AccountKey(nil, 3)
	for name, bad := range map[string][]byte{
		"one byte":      {3},
		"cut":           one[:len(one)-1],
		"going on":      append(alone.AppendAccount(nil, 3, &s), 4),
		"one twice":     append(alone.AppendAccount(nil, 3, &s), one...),
		"in descending": append(alone.AppendAccount(nil, 4, &s), one...),
	} {
		for _, values := range [][][]byte{{bad}, {bad, one}, {one, bad}, {one, bad, one}} {
			for _, base := range []bool{false, true} {
				if v, _, err := new(Folder).Fold(nil, key, values, base); err == nil {
					t.Errorf("%s: %x folds to %x", name, values, v)
				}
			}
		}
	}
	for _, base := range []bool{false, true} { // a fold appends
		if v, _, err := new(Folder).Fold([]byte("x"), key, [][]byte{one}, base); string(v) != "x"+string(one) || err != nil {
			t.Errorf("one group folds to %x: %v", v, err)
		}
	}
}

// TestUnreadable: a value that keeps others as they were is refused by every reader and fold of records, sets, dates and
// posts, and keeps all of their bytes, however they are brought together.
func TestUnreadable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		var values [][]byte
		for range 1 + rng.IntN(4) {
			v := make([]byte, rng.IntN(400))
			for i := range v {
				v[i] = byte(rng.Uint32() >> rng.IntN(25))
			}
			values = append(values, v)
		}
		v := AppendUnreadable(nil, values)
		cut := rng.IntN(len(values))
		parts := [][]byte{AppendUnreadable(nil, values[:cut]), AppendUnreadable(nil, values[cut:])}
		if again := AppendUnreadable(nil, parts); !bytes.Equal(again, v) {
			t.Fatalf("%x in parts is %x", v, again)
		}
		errs := map[string]error{}
		_, errs["row"] = ParseRow(5, v)
		coder, err := CoderOfKey(AppendChunkKey(nil, 1, 5, Path{TID: 1650 << BucketShift}, 0))
		if err != nil {
			t.Fatal(err)
		}
		_, _, errs["records"] = coder.Read(nil, v, 0)
		_, errs["group of rows"] = RowIn(v, 5)
		_, _, errs["container"] = SplitContainer(v)
		_, errs["member of a container"] = ContainerHas(v, 7)
		_, _, errs["dates"] = SplitDates(v)
		for name, key := range map[string][]byte{
			"chunk": AppendChunkKey(nil, 1, 5, Path{TID: 1650 << BucketShift}, 0), "chunk of other keys": AppendChunkKey(nil, 1, 5, Path{Raw: []byte("x")}, 0),
			"fold of a row": AppendRowKey(nil, 1, 5), "fold of a container": AppendBlock(AppendRowKey(nil, 1, 5), 7),
		} {
			base := rng.IntN(2) == 0
			_, errs[name] = newFolder().Fold(nil, key, [][]byte{v, {}}, base)
		}
		for name, err := range errs {
			if !errors.Is(err, dict.ErrStored) {
				t.Fatalf("%s: %v of %x", name, err, v)
			}
		}
	}
}
