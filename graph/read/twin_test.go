package read_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// A twin generates a stream of events, and applies it to plain maps.
type twin struct {
	rng     *rand.Rand
	seq     format.Seq
	clock   uint64 // the highest rev
	records map[path]string
	repos   map[string]repo

	dids, uris, raw []string
	bursts          []uint64 // times of many records, months apart
}

type path struct {
	kind      kinds.Kind
	did, rkey string
}

// A repo is the twin's state of an account.
type repo struct {
	rev, top                        uint64
	data                            [32]byte
	hidden, partial, desync         bool
	seq, accountSeq, deletionSeq    format.Seq
	everCommitted, wasToldOfAccount bool
}

const day = uint64(24*time.Hour/time.Microsecond) << format.ClockBits // of a TID

func newTwin(seed uint64) *twin {
	w := &twin{rng: rand.New(rand.NewPCG(seed, 1)), clock: 19_700 * day, records: map[path]string{}, repos: map[string]repo{}}
	for i := 0; len(w.dids) < 90; i++ {
		did := fmt.Sprintf("did:plc:%024d", i)
		if i%7 == 0 {
			did = fmt.Sprintf("did:web:host%d.example.com", i)
		}
		if dict.SharedSettings.PartitionOf([]byte(did)) < 3 { // otherwise each partition has few members of a set
			w.dids = append(w.dids, did)
		}
	}
	for i := range 60 {
		uri := fmt.Sprintf("at://%s/app.bsky.feed.post/%s", w.dids[i%9], dict.AppendTID(nil, w.clock+uint64(i)*day))
		if i%5 == 0 {
			uri = fmt.Sprintf("at://%s/com.example.thing/key%d", w.dids[i%9], i)
		}
		w.uris = append(w.uris, uri)
	}
	for i := range uint64(4) {
		w.bursts = append(w.bursts, w.clock+i*70*day)
	}
	w.raw = rawKeys()
	return w
}

// rawKeys are keys that share a bucket; many of them also share the chunks below it.
var rawKeys = sync.OnceValue(func() (keys []string) {
	for n := 0; len(keys) < 30; n++ {
		rkey := fmt.Sprintf("key-%d", n)
		p := format.ParsePath([]byte(rkey))
		if n < 5 || p.Bucket() == format.RawBucket|7 && (len(keys) < 10 || p.Spread()>>56 == 0) {
			keys = append(keys, rkey)
		}
	}
	return keys
})

// rkey makes a record key: a TID of a burst or of any day, or a raw key.
func (w *twin) rkey() string {
	switch w.rng.IntN(8) {
	case 0, 1:
		return w.raw[w.rng.IntN(len(w.raw))]
	case 2, 3, 4, 5: // within milliseconds of each other: spilled chunks go deep
		return string(dict.AppendTID(nil, w.bursts[w.rng.IntN(len(w.bursts))]+w.rng.Uint64N(1<<22)))
	}
	return string(dict.AppendTID(nil, 19_700*day+w.rng.Uint64N(500*day)))
}

// pick picks an element, often one of the first.
func (w *twin) pick(all []string) string {
	if w.rng.IntN(3) > 0 {
		return all[w.rng.IntN(3)]
	}
	return all[w.rng.IntN(len(all))]
}

func (w *twin) subject(k kinds.Info) string {
	switch {
	case w.rng.IntN(12) == 0:
		return ""
	case k.To.Is() == dict.URI:
		return w.pick(w.uris)
	}
	return w.pick(w.dids)
}

// event adds the next event to b, and applies it to the twin.
func (w *twin) event(b *batch.Batch) {
	w.seq++
	did := w.dids[w.rng.IntN(len(w.dids))]
	if w.rng.IntN(5) < 2 {
		did = w.dids[0]
	}
	if w.rng.IntN(25) == 0 {
		w.account(b, did)
	} else {
		w.commit(b, did)
	}
	b.Seen(w.seq, []byte(time.Unix(int64(w.seq), 0).UTC().Format(time.RFC3339)))
}

func (w *twin) account(b *batch.Batch, did string) {
	r := w.repos[did]
	active := w.rng.IntN(2) == 0
	erase := !active && w.rng.IntN(3) == 0 && did != w.dids[0]
	b.AddAccount(w.seq, []byte(did), active, erase)
	r.hidden, r.accountSeq, r.wasToldOfAccount = !active, w.seq, true
	if erase {
		r = repo{hidden: true, wasToldOfAccount: true, seq: w.seq, accountSeq: w.seq, deletionSeq: w.seq}
		maps.DeleteFunc(w.records, func(p path, _ string) bool { return p.did == did })
	}
	w.repos[did] = r
}

func (w *twin) commit(b *batch.Batch, did string) {
	r := w.repos[did]
	w.clock += w.rng.Uint64N(day / 64)
	c := &batch.Commit{DID: []byte(did), Rev: dict.AppendTID(nil, w.clock)}
	since := r.rev
	if w.rng.IntN(20) == 0 {
		since = w.clock - 1 // the rev of a commit that never came
	}
	if since != 0 {
		c.Since = dict.AppendTID(nil, since)
		if r.everCommitted {
			c.PrevData = slices.Clone(r.data[:])
			r.desync = r.desync || since != r.rev
		} else {
			r.partial = true
		}
	}
	r.data = [32]byte{byte(w.seq), byte(w.seq >> 8), 3}
	c.Data = r.data[:]
	r.rev, r.seq, r.everCommitted = w.clock, w.seq, true
	b.AddCommit(w.seq, c)
	var mine []path
	for p := range w.records {
		if p.did == did {
			mine = append(mine, p)
		}
	}
	slices.SortFunc(mine, func(x, y path) int { return slices.Compare([]byte(x.rkey), []byte(y.rkey)) })
	for range w.rng.IntN(6) {
		k := kinds.All[w.rng.IntN(len(kinds.All))]
		p := path{k.Kind, did, w.rkey()}
		again := len(mine) > 0 && w.rng.IntN(2) == 0
		if again {
			p = mine[w.rng.IntN(len(mine))]
		}
		if again && w.rng.IntN(2) == 0 || w.rng.IntN(30) == 0 { // the path may have a record or not
			b.AddDelete(p.kind, []byte(p.rkey))
			delete(w.records, p)
			continue
		}
		subject := w.subject(*p.kind.Info())
		b.AddPut(p.kind, []byte(p.rkey), []byte(subject))
		w.records[p] = subject
		if tid, ok := dict.ParseTID(p.rkey); ok {
			r.top = max(r.top, tid)
		}
	}
	w.repos[did] = r
}

// A state is a store after a part of the stream, and its twin at that point.
type state struct {
	name  string
	store *memkv.Store
	twin  twin
	format.Layout
}

var layouts = map[string]dict.Settings{
	"one partition": dict.DefaultSettings,
	"several":       dict.SharedSettings,
	"long ids":      {ShardBits: 32, LeaseSize: 1, Partitions: 1},
}

// states are the states that the tests read, two for each layout.
var states = sync.OnceValues(func() (all []state, err error) {
	for name, settings := range layouts {
		more, err := record(name, settings)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, more...)
	}
	return all, nil
})

func options() memkv.Options {
	return memkv.Options{Merger: write.NewMerger(write.Limits{Row: 8, Chunk: 8}), Faults: memkv.Faults{Seed: 7, Conflict: 0.02, Unknown: 0.02}}
}

func record(name string, settings dict.Settings) (all []state, err error) {
	ctx := context.Background()
	store := memkv.Open(options())
	s, err := graph.Open(ctx, store, graph.Options{Intern: intern.Options{Settings: settings}, Beat: 10 * time.Millisecond, SliceSize: 5})
	if err != nil {
		return nil, err
	}
	w := newTwin(11)
	var b batch.Batch
	for part := range 2 {
		for range 60 {
			for range 1 + w.rng.IntN(50) {
				w.event(&b)
			}
			if err := s.Apply(ctx, "relay", &b); err != nil {
				return nil, err
			}
			b.Reset()
		}
		for s.Erasing() {
			if err := s.EraseSlice(ctx); err != nil {
				return nil, err
			}
		}
		now := state{fmt.Sprintf("%s, %d", name, part), nil, *w, format.Layout{Settings: settings}}
		now.twin.records, now.twin.repos = maps.Clone(w.records), maps.Clone(w.repos)
		if part == 1 {
			if err := s.Close(ctx); err != nil {
				return nil, err
			}
		}
		if now.store, err = fork(store); err != nil {
			return nil, err
		}
		all = append(all, now)
	}
	return all, nil
}

// fork copies a store.
func fork(store *memkv.Store) (*memkv.Store, error) {
	other := memkv.Open(options())
	return other, store.View(context.Background(), func(r kv.Reader) error {
		return other.Update(context.Background(), func(tx kv.Txn) error {
			return r.Scan(nil, nil, false, func(k, v []byte) (bool, error) { tx.Set(k, v); return true, nil })
		})
	})
}

// A view is a Reader of a state, and the ids of its strings.
type view struct {
	kv.Reader
	format.Layout
	*twin

	id   map[string]dict.ID
	name [len(dict.Namespaces) + 1]map[dict.ID]string
}

// eachState calls test with every state.
func eachState(t *testing.T, test func(t *testing.T, v *view)) {
	t.Helper()
	all, err := states()
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range all {
		t.Run(st.name, func(t *testing.T) {
			err := st.store.View(t.Context(), func(r kv.Reader) error {
				v := &view{Reader: r, Layout: st.Layout, twin: &st.twin, id: map[string]dict.ID{}}
				for _, ns := range dict.Namespaces {
					v.name[ns] = map[dict.ID]string{}
					var ids []dict.ID
					if err := intern.EachID(r, ns, func(id dict.ID) error { ids = append(ids, id); return nil }); err != nil {
						return err
					}
					if err := intern.Strings(r, ns, ids, func(i int, s []byte) error {
						v.id[string(s)], v.name[ns][ids[i]] = ids[i], string(s)
						return nil
					}); err != nil {
						return err
					}
				}
				test(t, v)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// raw calls read with a Reader of a store that has the given rows.
func raw(t *testing.T, rows map[string][]byte, read func(kv.Reader)) {
	t.Helper()
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{})})
	err := store.Update(t.Context(), func(tx kv.Txn) error {
		for k, v := range rows {
			tx.Set([]byte(k), v)
		}
		return nil
	})
	if err == nil {
		err = store.View(t.Context(), func(r kv.Reader) error { read(r); return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
}
