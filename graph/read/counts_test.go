package read_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// TestCountsOfLanes: the counts of lanes add up, whatever kinds they have.
func TestCountsOfLanes(t *testing.T) {
	rows, want := map[string][]byte{}, format.Counts{}.Clone()
	for part := range 5 {
		n := int64(1) << part
		c := format.Counts{Accounts: n, Hidden: 2 * n, Partial: 3 * n, Desynchronized: 4 * n, Incomplete: 5 * n, Records: map[string]int64{"like": n, "configured": n}}
		value, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		rows[string(format.KeyCounts)+string(rune(part))] = value
		want.Add(c) // which graph/format tests
	}
	raw(t, rows, func(r kv.Reader) {
		if got, err := read.Counts(r); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%+v, want %+v: %v", got, want, err)
		}
	})
	rows[string(format.KeyCounts)+"\x09"] = []byte("{")
	raw(t, rows, func(r kv.Reader) {
		if _, err := read.Counts(r); err == nil || !strings.Contains(err.Error(), "reading the counts") {
			t.Errorf("truncated counts: %v", err)
		}
	})
}

// TestHiddenVersion: the hidden set's version is the sum of the versions of its parts.
func TestHiddenVersion(t *testing.T) {
	one, several := format.Layout{Settings: dict.DefaultSettings}, format.Layout{Settings: dict.SharedSettings}
	row := string(format.KeyHidden)
	value := func(n byte) []byte { return []byte{0, 0, 0, 0, 0, 0, 0, n} }
	for name, test := range map[string]struct {
		l    format.Layout
		rows map[string][]byte
		want uint64
		bad  bool
	}{
		"none":              {one, nil, 0, false},
		"none of several":   {several, nil, 0, false},
		"one":               {one, map[string][]byte{row: value(7)}, 7, false},
		"of several":        {several, map[string][]byte{row + "\x00": value(7), row + "\x20": value(9), row + "\x3f": value(1)}, 17, false},
		"malformed":         {one, map[string][]byte{row: {1}}, 0, true},
		"malformed in part": {several, map[string][]byte{row + "\x00": value(7), row + "\x01": {}}, 0, true},
	} {
		raw(t, test.rows, func(r kv.Reader) {
			got, err := read.HiddenVersion(r, test.l)
			if (err != nil) != test.bad || !test.bad && got != test.want {
				t.Errorf("%s: %d, %v", name, got, err)
			}
		})
	}
}

// TestVersionsOfWrites runs a store: its hidden version grows exactly when the hidden set
// changes, and its write state changes with every write and never otherwise.
func TestVersionsOfWrites(t *testing.T) {
	for name, settings := range layouts {
		t.Run(name, func(t *testing.T) {
			store := memkv.Open(options())
			s, err := graph.Open(t.Context(), store, graph.Options{Intern: intern.Options{Settings: settings}, Beat: 5 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			l := format.Layout{Settings: settings}
			look := func() (version uint64, state string) {
				if err := store.View(t.Context(), func(r kv.Reader) (err error) {
					if version, err = read.HiddenVersion(r, l); err == nil {
						state, err = read.WriteState(r)
					}
					return err
				}); err != nil {
					t.Fatal(err)
				}
				return version, state
			}
			seen := map[string]bool{}
			rng := rand.New(rand.NewPCG(6, 6))
			hidden := map[string]bool{}
			for seq := format.Seq(1); seq < 60; seq++ {
				before, state := look()
				if _, again := look(); again != state {
					t.Errorf("nothing was written, and %q became %q", state, again)
				}
				did := fmt.Sprintf("did:plc:a%d", rng.IntN(10))
				hide := rng.IntN(2) == 0
				var b batch.Batch
				b.AddAccount(seq, []byte(did), !hide, false)
				b.Seen(seq, nil)
				if err := s.Apply(t.Context(), "relay", &b); err != nil {
					t.Fatal(err)
				}
				after, state := look()
				if seen[state] || (after != before) != (hide != hidden[did]) || after < before {
					t.Errorf("%s hidden=%v, before %v: version %d became %d, state %q", did, hide, hidden[did], before, after, state)
				}
				seen[state], hidden[did] = true, hide
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestCursors: the cursor of a source is the lowest of its partitions. Rows without an applied
// event do not count.
func TestCursors(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for _, settings := range []dict.Settings{dict.DefaultSettings, dict.SharedSettings} {
		l := format.Layout{Settings: settings}
		for range 100 {
			rows, want := map[string][]byte{}, map[string]format.Cursor{}
			for n := range rng.IntN(6) {
				source := fmt.Sprintf("wss://relay%d.example.com", n)
				for part := range settings.Partitions {
					c := format.CursorRow{
						Number: uint32(rng.IntN(4)), Seq: format.Seq(rng.IntN(1000)), Live: rng.IntN(5) == 0, Future: rng.IntN(3) == 0,
						Time: time.UnixMicro(rng.Int64N(1 << 50)),
					}
					for at, ok := want[source]; ok && at.Seq == c.Seq; { // equal seqs need equal times
						c.Time, c.Future = at.Time, at.Future
						break
					}
					rows[string(l.CursorKey(part, source))] = c.Value()
					if at, ok := want[source]; c.Number != 0 && !c.Live && (!ok || c.Seq < at.Seq) {
						want[source] = format.Cursor{Source: source, Seq: c.Seq, Time: c.Time, Future: c.Future}
					}
				}
			}
			wanted := slices.SortedFunc(maps.Values(want), func(x, y format.Cursor) int { return cmp.Compare(x.Source, y.Source) })
			raw(t, rows, func(r kv.Reader) {
				if got, err := read.Cursors(r); err != nil || !slices.Equal(got, wanted) {
					t.Errorf("%v, want %v: %v", got, wanted, err)
				}
			})
		}
	}
	raw(t, map[string][]byte{"crelay": {1, 2, 3}}, func(r kv.Reader) {
		if _, err := read.Cursors(r); err == nil || !strings.Contains(err.Error(), "cursor row 010203 is malformed") {
			t.Errorf("a malformed cursor: %v", err)
		}
	})
}

func TestAccount(t *testing.T) {
	eachState(t, func(t *testing.T, v *view) {
		for _, did := range v.dids {
			r, ever := v.repos[did]
			got, err := read.Account(v, v.Layout, v.id[did])
			if err != nil {
				t.Fatal(err)
			}
			if !ever {
				if got != (format.RepoState{}) {
					t.Errorf("the unknown account %s is %+v", did, got)
				}
				continue
			}
			want := format.RepoState{Rev: format.Rev(r.rev), Seq: r.seq, AccountSeq: r.accountSeq, DeletionSeq: r.deletionSeq, LowBucket: got.LowBucket}
			for flag, is := range map[uint16]bool{
				format.FlagHasRev: r.everCommitted, format.FlagHidden: r.hidden, format.FlagPartial: r.partial, format.FlagDesync: r.desync,
			} {
				if is {
					want.Flags |= flag
				}
			}
			for number, is := range map[*uint32]bool{&want.Source: r.seq > 0, &want.AccountSource: r.wasToldOfAccount, &want.DeletionSource: r.deletionSeq > 0} {
				if is {
					*number = 1
				}
			}
			if want.Data = format.Root(r.data[:8]); r.top > r.rev {
				want.Top = r.top
			}
			if got != want {
				t.Errorf("%s is %+v, want %+v", did, got, want)
			}
			v.compareLow(t, did, got.LowBucket)
		}
	})
}

// compareLow checks LowBucket, if it is known: no record is in a lower bucket, and none has a
// raw key.
func (v *view) compareLow(t *testing.T, did string, low uint16) {
	t.Helper()
	for p := range v.records {
		if p.did != did || low == 0 {
			continue
		}
		if bucket := format.ParsePath([]byte(p.rkey)).Bucket(); low == format.LowNone || bucket >= format.RawBucket || bucket < low-1 {
			t.Errorf("%s has a %s record in bucket %d, its LowBucket is %d", did, p.kind, bucket, low)
		}
	}
}

func TestAccountOfGroup(t *testing.T) {
	one, several := format.Layout{Settings: dict.DefaultSettings}, format.Layout{Settings: dict.SharedSettings}
	st := format.RepoState{Source: 3, Seq: 9, Rev: 5, Flags: format.FlagHasRev}
	group := one.AppendAccount(one.AppendAccount(nil, 0x101, &st), 0x1fe, &format.RepoState{Seq: 1})
	for name, test := range map[string]struct {
		l     format.Layout
		value []byte
		id    dict.ID
		want  format.RepoState
		bad   bool
	}{
		"the first":          {one, group, 0x101, st, false},
		"the last":           {one, group, 0x1fe, format.RepoState{Seq: 1}, false},
		"between":            {one, group, 0x102, format.RepoState{}, false},
		"of another group":   {one, group, 0x201, format.RepoState{}, false},
		"a group of one":     {several, several.AppendAccount(nil, 0x1fe, &st), 0x1fe, st, false},
		"another id":         {several, several.AppendAccount(nil, 0x1fe, &st), 0x1ff, format.RepoState{}, false},
		"cut":                {one, group[:len(group)-1], 0x1fe, format.RepoState{}, true},
		"not in their order": {one, append(slices.Clone(group), group...), 0x1ff, format.RepoState{}, true},
	} {
		key := test.l.AccountKey(nil, 0x1fe)
		raw(t, map[string][]byte{string(key): test.value}, func(r kv.Reader) {
			got, err := read.Account(r, test.l, test.id)
			if (err != nil) != test.bad || !test.bad && got != test.want {
				t.Errorf("%s: %+v, want %+v: %v", name, got, test.want, err)
			}
		})
	}
}
