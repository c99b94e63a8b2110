package write_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/export"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/memkv"
)

const arrayKinds = `a.b.c  self  at-uri  records
a.b.c  some[].did    did     mentions  mentioners
a.b.c  links[x.y.z#link].uri  uri     links     linkers
a.b.c  tags[]        text    tags      taggers  tagged
a.b.c  one           at-uri  ones      onesBy   onesIn`

// manyTwin is what the index should have, in plain maps: the subjects of each record.
type manyTwin struct {
	records map[string]map[string][]string // by account, then by kind and key
	hidden  map[string]bool
}

func (m *manyTwin) views(table *kinds.Table) (forward, reverse map[string][]string) {
	forward, reverse = map[string][]string{}, map[string][]string{}
	for did, records := range m.records {
		for name, subjects := range records {
			k := table.Info(kinds.Kind(name[0]))
			kind := k.Name
			uri := "at://" + did + "/a.b.c/" + name[1:]
			if !m.hidden[did] && !k.Kind.IsMany() { // those of hidden accounts may not be erased yet
				forward["live "+kind+" "+uri] = subjects
			}
			for _, s := range subjects {
				if !m.hidden[did] && k.Records != "" {
					reverse[k.Records+" "+s] = append(reverse[k.Records+" "+s], uri)
				}
				if !m.hidden[did] {
					if !k.Kind.IsSelf() {
						reverse[kind+" "+s] = append(reverse[kind+" "+s], did)
					}
					if k.To.Form != kinds.DID || !m.hidden[s] {
						forward[kind+" "+did] = append(forward[kind+" "+did], s)
					}
				}
			}
		}
	}
	for _, all := range []map[string][]string{forward, reverse} {
		for of, members := range all {
			all[of] = slices.Compact(slices.Sorted(slices.Values(members)))
		}
	}
	return forward, reverse
}

// manyViews reads every set of the index's configured kinds that has a member.
func manyViews(t *testing.T, store kv.Store, s *graph.Store, dids, subjects []string) (forward, reverse map[string][]string) {
	t.Helper()
	forward, reverse = map[string][]string{}, map[string][]string{}
	var uris []string // of all records that the index has ever had, among others
	must(t, store.View(t.Context(), func(r kv.Reader) error {
		return intern.EachString(r, dict.URI, func(_ []byte, id dict.ID) error {
			return intern.Strings(r, dict.URI, []dict.ID{id}, func(_ int, uri []byte) error { uris = append(uris, string(uri)); return nil })
		})
	}))
	must(t, s.View(context.Background(), func(sn *ask.View) error {
		for _, k := range s.Kinds().Configured() {
			for _, did := range dids {
				list, err := members(sn, k.To.Is(), func(id dict.ID) (sets.Set, error) { return sn.Subjects(k.Kind, id, ask.Window{}) }, dict.DID, did)
				if err != nil {
					return err
				}
				if len(list) > 0 {
					forward[k.Name+" "+did] = list
				}
			}
			for _, subject := range subjects {
				if !k.To.Form.Valid([]byte(subject)) {
					continue
				}
				list, err := members(sn, dict.DID, func(id dict.ID) (sets.Set, error) { return actors(sn, k.Kind, id) }, k.To.Is(), subject)
				if err != nil {
					return err
				}
				if len(list) > 0 {
					reverse[k.Name+" "+subject] = list
				}
				if k.Records == "" {
					continue
				}
				list, err = members(sn, dict.URI, func(id dict.ID) (in sets.Set, err error) {
					from, err := actors(sn, k.Kind, id)
					var found []uint64
					if err == nil {
						err = sn.Naming(k.Kind, id, idsOf(from), ask.Window{}, func(id dict.ID, _ ask.Path) { found = append(found, uint64(id)) })
					}
					return sets.FromUnsorted(found), err
				}, k.To.Is(), subject)
				if err != nil {
					return err
				}
				if len(list) > 0 {
					reverse[k.Records+" "+subject] = list
				}
			}
			if !k.Kind.IsMany() {
				if err := live(sn, k, uris, forward); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	return forward, reverse
}

// live adds what Live says of the records among all.
func live(sn *ask.View, k kinds.Info, all []string, to map[string][]string) error {
	var uris []string
	var b intern.Batch
	var at []int
	for _, uri := range all {
		if dict.ValidURI(uri) {
			uris, at = append(uris, uri), append(at, b.Add(dict.URI, []byte(uri)))
		}
	}
	if err := sn.Lookup(&b); err != nil {
		return err
	}
	ids := make([]dict.ID, len(at))
	for i := range at {
		ids[i] = b.ID(at[i])
	}
	return sn.Live(k.Kind, ids, func(i int, author, subject dict.ID) error {
		if sn.IsHidden(author) {
			return nil
		}
		name := "live " + k.Name + " " + uris[i]
		return errors.Join(
			sn.Strings(k.To.Is(), []dict.ID{subject}, func(_ int, s []byte) error { to[name] = append(to[name], string(s)); return nil }),
			sn.Strings(dict.DID, []dict.ID{author}, func(_ int, did []byte) error {
				if dict.AuthorityOf(uris[i]) != string(did) {
					return fmt.Errorf("%s is by %s", uris[i], did)
				}
				return nil
			}))
	})
}

func idsOf(set sets.Set) (ids []dict.ID) {
	for id := range set.All() {
		ids = append(ids, dict.ID(id))
	}
	return ids
}

var manySeeds = flag.Uint64("many.seeds", 2, "histories of TestManySubjects for each kind of store")

// TestManySubjects writes random histories of records with several subjects: created, updated and deleted
// by the stream, delivered twice, replaced by snapshots, erased with their account, exported and imported,
// through crashes. Their sets equal a twin's, and check finds nothing.
func TestManySubjects(t *testing.T) {
	for processes, settings := range settings {
		for seed := range *manySeeds {
			t.Run(fmt.Sprintf("%s/%d", processes, seed), func(t *testing.T) { testManySubjects(t, settings, seed) })
		}
	}
}

func testManySubjects(t *testing.T, settings dict.Settings, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 71))
	store := memkv.Open(faulty(seed))
	more, err := kinds.Parse(arrayKinds)
	must(t, err)
	o := graph.Options{Intern: intern.Options{Settings: settings, CacheBytes: 64 << 10, Owner: "test"}, StateCache: 4 << 10, SliceSize: 7, Kinds: more, Beat: 20 * time.Millisecond}
	s := open(t, store, o)
	table := s.Kinds()
	var dids, subjects []string
	for i := range 8 {
		dids = append(dids, fmt.Sprintf("did:plc:%024d", 222222+i)[:8]+strings.Repeat("a", 23)+string(rune('a'+i)))
	}
	subjects = append(subjects, dids...)
	for i := range 12 {
		subjects = append(subjects, fmt.Sprintf("https://example.com/%d?a=b,c", i), fmt.Sprintf("tag %d", i), fmt.Sprintf("at://%s/app.bsky.feed.post/%s", dids[i%8], dict.AppendTID(nil, uint64(i+1)<<40)))
	}
	twin := manyTwin{map[string]map[string][]string{}, map[string]bool{}}
	type repo struct {
		rev  uint64
		data [32]byte
	}
	repos := map[string]*repo{}
	var log []func(b *batch.Batch) // the events since the last snapshot, to be delivered again
	var b batch.Batch
	seq := int64(0)
	rkeys := func(rng *rand.Rand) []byte {
		if n := rng.IntN(14); n < 4 {
			return fmt.Appendf(nil, "self%d", n)
		}
		return dict.AppendTID(nil, uint64(1+rng.IntN(30))<<[]int{20, 46, 53}[rng.IntN(3)]|7)
	}
	some := func(k *kinds.Info, did string, rkey []byte) (list []string) {
		if k.Kind.IsSelf() {
			return []string{string(k.AppendSelf(nil, []byte(did), rkey))}
		}
		for range rng.IntN(6) {
			if s := subjects[rng.IntN(len(subjects))]; k.To.Form.Valid([]byte(s)) && !slices.Contains(list, s) {
				list = append(list, s)
			}
		}
		return list
	}
	set := func(did string, k kinds.Kind, rkey []byte, list []string) {
		name := string([]byte{byte(k)}) + string(rkey)
		if len(list) == 0 {
			delete(twin.records[did], name)
		} else {
			twin.records[did][name] = list
		}
	}
	flush := func() {
		apply(t, s, "relay", &b)
		b.Reset()
	}
	deliver := func(f func(b *batch.Batch)) { f(&b); log = append(log, f) }
	compare := func(store kv.Store, s *graph.Store, when string) {
		t.Helper()
		gotF, gotR := manyViews(t, store, s, dids, subjects)
		wantF, wantR := twin.views(table)
		for _, pair := range [][2]map[string][]string{{gotF, wantF}, {gotR, wantR}} {
			for of := range pair[0] {
				if !slices.Equal(pair[0][of], pair[1][of]) {
					t.Fatalf("seed %d, %s: %s: got %q, want %q", seed, when, of, pair[0][of], pair[1][of])
				}
			}
			for of := range pair[1] {
				if pair[0][of] == nil {
					t.Fatalf("seed %d, %s: %s: got nothing, want %q", seed, when, of, pair[1][of])
				}
			}
		}
	}
	for step := range 400 {
		for range rng.IntN(6) {
			did := dids[rng.IntN(len(dids))]
			if repos[did] == nil {
				repos[did], twin.records[did] = &repo{}, map[string][]string{}
			}
			r := repos[did]
			seq++
			at := seq
			if n := rng.IntN(60); n == 0 { // deleted, and the same account again
				deliver(func(b *batch.Batch) {
					b.AddAccount(format.Seq(at), []byte(did), false, true)
					b.Seen(format.Seq(at), nil)
				})
				twin.hidden[did], twin.records[did] = true, map[string][]string{}
				delete(repos, did)
				continue
			} else if n < 4 {
				active := rng.IntN(2) == 0
				deliver(func(b *batch.Batch) {
					b.AddAccount(format.Seq(at), []byte(did), active, false)
					b.Seen(format.Seq(at), nil)
				})
				twin.hidden[did] = !active
				continue
			}
			c := batch.Commit{DID: []byte(did), PrevData: bytes.Clone(r.data[:])}
			if r.rev > 0 {
				c.Since = dict.AppendTID(nil, r.rev)
			} else {
				c.PrevData = nil
			}
			r.rev = uint64(seq) << 12
			r.data = sha256.Sum256(fmt.Append(nil, did, seq))
			c.Rev, c.Data = dict.AppendTID(nil, r.rev), bytes.Clone(r.data[:])
			type op struct {
				k    kinds.Kind
				rkey []byte
				list []string
				gone bool
			}
			var ops []op
			for range 1 + rng.IntN(3) {
				rkey, gone := rkeys(rng), rng.IntN(4) == 0
				for i := range table.Configured() {
					k := &table.Configured()[i]
					o := op{k.Kind, rkey, nil, gone}
					if !gone {
						if o.list = some(k, did, rkey); !k.Kind.IsMany() {
							o.list = o.list[:min(1, len(o.list))]
							o.gone = len(o.list) == 0
						}
					}
					ops = append(ops, o)
					set(did, k.Kind, rkey, o.list)
				}
			}
			deliver(func(b *batch.Batch) {
				b.AddCommit(format.Seq(at), &c)
				for _, o := range ops {
					switch {
					case o.gone:
						b.AddDelete(o.k, o.rkey)
					case !o.k.IsMany() && !o.k.IsSelf():
						b.AddPut(o.k, o.rkey, []byte(o.list[0]))
					default:
						var refs []batch.Span
						for _, s := range o.list {
							if o.k.IsMany() { // else the batch knows it
								refs = append(refs, b.Keep([]byte(s)))
							}
						}
						b.AddSubjects(table.Info(o.k), o.rkey, refs)
					}
				}
				b.Seen(format.Seq(at), nil)
			})
		}
		flush()
		if rng.IntN(3) == 0 {
			must(t, s.EraseSlice(t.Context()))
		}
		switch rng.IntN(20) {
		case 0: // again
			for _, f := range log[rng.IntN(len(log)+1):] {
				f(&b)
			}
			flush()
		case 1:
			store = store.Reopen(faulty(uint64(store.Counts().Commits)))
			s = open(t, store, o)
		case 2: // a snapshot of a repo, which differs from the index: the host's operator changed it
			did := dids[rng.IntN(len(dids))]
			r := repos[did]
			if r == nil || twin.hidden[did] {
				break
			}
			erase(t, s)
			b.AddResync([]byte(did), batch.Cause{Reason: "test", Trust: true})
			flush()
			_, row := account(t, s, did)
			for range 3 {
				rkey, gone := rkeys(rng), rng.IntN(3) == 0
				for i := range table.Configured() {
					if k := &table.Configured()[i]; gone {
						set(did, k.Kind, rkey, nil)
					} else if k.Kind.IsMany() || k.Kind.IsSelf() {
						set(did, k.Kind, rkey, some(k, did, rkey))
					}
				}
			}
			r.rev += 1 << 11
			r.data = sha256.Sum256(fmt.Append(nil, did, seq, "snapshot"))
			n := b.AddSnapshot(&batch.Snapshot{DID: []byte(did), Rev: dict.AppendTID(nil, r.rev), Data: r.data[:], Generation: row.Generation, First: true, Last: true})
			byKey := func(x, y string) int { return strings.Compare(x[1:]+x[:1], y[1:]+y[:1]) }
			for _, name := range slices.SortedFunc(maps.Keys(twin.records[did]), byKey) {
				for _, subject := range twin.records[did][name] {
					b.AddPut(kinds.Kind(name[0]), []byte(name[1:]), []byte(subject))
				}
			}
			apply(t, s, "", &b)
			if o := b.Outcome(n); o != batch.Placed {
				t.Fatalf("seed %d, step %d: the snapshot is %s", seed, step, o)
			}
			b.Reset()
			log = nil
		}
		if step%25 == 24 {
			compare(store, s, fmt.Sprint("step ", step))
			verify(t, store)
		}
		if t.Failed() {
			t.Fatalf("seed %d, step %d", seed, step)
		}
	}
	erase(t, s)
	compare(store, s, "at the end")
	verify(t, store)
	var file bytes.Buffer
	_, err = export.Write(t.Context(), store, &file, nil)
	must(t, err)
	other := memkv.Open(faulty(seed + 100))
	copied := open(t, other, graph.Options{Intern: intern.Options{Settings: settings, Owner: "copy"}})
	_, err = export.Read(t.Context(), copied, &file, nil)
	must(t, err)
	compare(other, copied, "imported")
	verify(t, other)
}
