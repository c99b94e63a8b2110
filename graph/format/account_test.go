package format

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"skein.blue/intern/dict"
)

// TestStatesRefused decodes malformed rows of accounts.
func TestStatesRefused(t *testing.T) {
	for name, v := range map[string][]byte{
		"a seq of eleven bytes":           {0, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1},
		"flags that nobody has":           {0x80, 0x40, 1, 1},
		"a count of 0 at the end":         {0, 1, 1, 5, 0},
		"a count of more than 32 bits":    {0, 1, 1, 0x80, 0x80, 0x80, 0x80, 0x10},
		"more counts than built-in kinds": {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
		"nothing":                         {},
		"no #account where one was":       {byte(flagAccount), 1, 1},
		"no deletion where one was":       {byte(flagDeleted), 1, 1},
		"no deletion after an #account":   {byte(flagDeleted | flagAccount), 1, 1, 1, 1},
		"no rev":                          {byte(FlagHasRev), 1, 1},
		"a top without a rev, cut":        {byte(flagAhead), 1, 1, 0, 0, 0, 0, 0, 0, 1},
		"more than all parts":             append([]byte{0xff, 1, 1, 1, 1, 1, 1}, make([]byte, 16+8+2+1)...),
		"a first pair cut before a root":  append([]byte{byte(FlagHasRev), 0x81}, bytes.Repeat([]byte{0x81}, 20)...),
	} {
		if s, err := DecodeRepoState(v); err == nil {
			t.Errorf("%s: %x is read as %+v", name, v, s)
		}
		group := append([]byte{0, byte(len(v))}, v...)
		if err := alone.EachState(alone.AccountKey(nil, 0), group, func(dict.ID, RepoState) error { return nil }); err == nil {
			t.Errorf("%s: the group %x is read", name, group)
		}
	}
}

// TestGroupsRefused reads and folds malformed groups: accounts out of order, twice or truncated, or
// under a key that is not the key of a group. A malformed account is not unknown: a caller would start
// an unknown one from zero.
func TestGroupsRefused(t *testing.T) {
	s := RepoState{Source: 1, Seq: 2}
	one := alone.AppendAccount(nil, 3, &s)
	two := alone.AppendAccount(one, 200, &s)
	later := alone.AppendAccount(nil, 200, &s)
	group, own := alone.AccountKey(nil, 0x700), shared.AccountKey(nil, 0x703)
	for _, c := range []struct {
		name string
		l    Layout
		key  []byte
		v    []byte
		ok   bool
	}{
		{"a group", alone, group, two, true},
		{"nothing", alone, group, nil, true},
		{"an account of its own", shared, own, shared.AppendAccount(nil, 0x703, &s), true},
		{"accounts that descend", alone, group, append(bytes.Clone(later), one...), false},
		{"an account twice", alone, group, append(bytes.Clone(one), one...), false},
		{"an account that is cut", alone, group, two[:len(two)-1], false},
		{"a length that is cut", alone, group, append(bytes.Clone(one), 4), false},
		{"a group under an account's key", alone, own, two, false},
		{"an account with bits in a group of one", shared, own, one, false},
		{"two in a group of one", shared, own, append(shared.AppendAccount(nil, 0x703, &s), one...), false},
		{"a key that is cut", alone, group[:len(group)-1], two, false},
		{"a key that goes on", alone, append(bytes.Clone(group), 0), two, false},
		{"no key", alone, nil, nil, false},
		{"a row that is cut", alone, group, []byte{3, 2, 0, 1}, false},
		{"an empty row", alone, group, []byte{3, 0}, false},
		{"a row of its own that is cut", shared, shared.AccountKey(nil, 3), []byte{0, 2, 0, 1}, false},
	} {
		err := c.l.EachState(c.key, c.v, func(dict.ID, RepoState) error { return nil })
		if (err == nil) != c.ok {
			t.Errorf("%s: %x under %x: %v", c.name, c.v, c.key, err)
		}
		if _, _, err := c.l.AccountIn(c.v, 3); err == nil && strings.Contains(c.name, "row") {
			t.Errorf("%s: account 3 of %x is read", c.name, c.v)
		}
		if EachAccount(c.v, func(byte, []byte) (bool, error) { return true, nil }) == nil {
			continue
		}
		for _, values := range [][][]byte{{c.v}, {c.v, one}, {one, c.v}, {one, c.v, one}} {
			if v, _, err := new(Folder).Fold(nil, group, values, len(values) == 2); err == nil {
				t.Errorf("%s: %x folds to %x", c.name, values, v)
			}
		}
	}
	// A malformed row is an error for its own account only.
	if got, ok, err := alone.AccountIn(append([]byte{3, 2, 0, 1}, alone.AppendAccount(nil, 4, &s)...), 4); got != s || !ok || err != nil {
		t.Errorf("the neighbour of a malformed row is %+v, %v, %v", got, ok, err)
	}
	// EachState returns the caller's error, and reads no further.
	calls := 0
	err := alone.EachState(group, two, func(dict.ID, RepoState) error { calls++; return ErrChunk })
	if calls != 1 || err == nil || err.Error() != ErrChunk.Error() {
		t.Errorf("%d calls, %v", calls, err)
	}
}

// TestMayHold: writes trust a no from MayHold, and do not look the record up.
func TestMayHold(t *testing.T) {
	for _, c := range []struct {
		name string
		s    RepoState
		p    Path
		want bool
	}{
		{"a repo that is not known", RepoState{Rev: 9, Top: 9}, Path{TID: 1}, false},
		{"its raw key", RepoState{}, Path{Raw: []byte("self")}, false},
		{"a key below rev", RepoState{Flags: FlagHasRev, Rev: 9}, Path{TID: 8}, true},
		{"the rev", RepoState{Flags: FlagHasRev, Rev: 9}, Path{TID: 9}, true},
		{"a key above rev", RepoState{Flags: FlagHasRev, Rev: 9}, Path{TID: 10}, false},
		{"a key above rev, below top", RepoState{Flags: FlagHasRev, Rev: 9, Top: 11}, Path{TID: 10}, true},
		{"the top", RepoState{Flags: FlagHasRev, Rev: 9, Top: 11}, Path{TID: 11}, true},
		{"a key above top", RepoState{Flags: FlagHasRev, Rev: 9, Top: 11}, Path{TID: 12}, false},
		{"a key above top, below rev", RepoState{Flags: FlagHasRev, Rev: 9, Top: 3}, Path{TID: 5}, true},
		{"a raw key", RepoState{Flags: FlagHasRev}, Path{Raw: []byte("self")}, true},
	} {
		if got := c.s.MayHold(c.p); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestStoredKeysStayBounded: wherever the rev of a repo moves, and whether or not its state is written and read
// again in between, a key that was at or below the rev once may be stored.
func TestStoredKeysStayBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 1000 {
		s, highest := RepoState{}, uint64(0)
		for range 8 {
			rev := 1 + rng.Uint64N(1<<40)
			s.MoveTo(Rev(rev), Root{})
			highest = max(highest, rev)
			if rng.IntN(2) == 0 {
				var err error
				if s, err = DecodeRepoState(s.Append(nil)); err != nil {
					t.Fatal(err)
				}
			}
			if p := (Path{TID: highest}); !s.MayHold(p) {
				t.Fatalf("a record with the key %d is taken for new in %+v", highest, s)
			}
		}
	}
}
