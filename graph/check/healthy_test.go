package check

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A table is a map with a Reader. It overwrites the bytes of a row after the call that got
// them, to catch callers that keep them.
type table struct {
	rows map[string][]byte
	keys []string // sorted; nil until a scan
	bad  []badRange
	gets []string // the keys of all lookups

	multi int // calls of MultiGet
}

// badRange is a range of unreadable keys, first and last included.
type badRange struct {
	first, last string
	err         error
}

// broken returns the error of the first bad range that has a key.
func (b *table) broken(key string) error {
	for _, r := range b.bad {
		if key >= r.first && key <= r.last {
			return r.err
		}
	}
	return nil
}

func (b *table) Get(key []byte) ([]byte, bool, error) {
	b.gets = append(b.gets, string(key))
	if err := b.broken(string(key)); err != nil {
		return nil, false, err
	}
	v, ok := b.rows[string(key)]
	return bytes.Clone(v), ok, nil
}

func (b *table) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	b.multi++
	for i, key := range keys {
		v, ok, err := b.Get(key)
		if err == nil {
			err = each(i, v, ok)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *table) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) error {
	if b.keys == nil {
		b.keys = slices.Sorted(maps.Keys(b.rows))
	}
	from, _ := slices.BinarySearch(b.keys, string(lo))
	to := len(b.keys)
	if hi != nil {
		to, _ = slices.BinarySearch(b.keys, string(hi))
	}
	for n := range max(to-from, 0) {
		key := b.keys[from+n]
		if reverse {
			key = b.keys[to-1-n]
		}
		if err := b.broken(key); err != nil {
			return err
		}
		k, v := []byte(key), bytes.Clone(b.rows[key])
		more, err := each(k, v)
		clear(k)
		clear(v)
		if !more || err != nil {
			return err
		}
	}
	return nil
}

// A healthy store, and names of strings in it.
type healthy struct {
	name    string
	rows    map[string][]byte
	layout  format.Layout
	spilled bool
}

const (
	alice   = "did:plc:alice"              // has few edges
	famous  = "did:plc:famous"             // has many followers
	busy    = "did:plc:busy"               // has many records
	erased  = "did:plc:erased"             // is being erased
	zoe     = "did:plc:zoe"                // has one follow, of alice
	packed  = "did:plc:aaaaaaaaaaaaaaaaa2" // and six more
	postTID = uint64(1_767_225_600_123_000) << format.ClockBits
)

var (
	plc  = packed + "aaaaaa"
	long = "did:web:" + strings.Repeat("long-", 60) + "x.example.com"
	post = "at://" + plc + "/app.bsky.feed.post/" + string(dict.AppendTID(nil, postTID))
	page = "at://" + alice + "/com.example.page/x"
)

// stores are healthy stores: with one partition and with several, with groups and without, spilled and not.
var stores = sync.OnceValues(func() (all []healthy, err error) {
	for _, settings := range []dict.Settings{dict.DefaultSettings, dict.SharedSettings, {ShardBits: 10, LeaseSize: dict.MaxLeaseSize, Partitions: 4, Group: 16}} {
		for _, limits := range []write.Limits{{Row: 5, Chunk: 8}, {Row: 2000, Chunk: 2000}} {
			h := healthy{
				name:   fmt.Sprintf("%s, limits %v", settings, limits),
				layout: format.Layout{Settings: settings}, spilled: limits.Chunk == 8,
			}
			if h.rows, err = h.make(limits); err != nil {
				return nil, fmt.Errorf("%s: %w", h.name, err)
			}
			all = append(all, h)
		}
	}
	return all, nil
})

// make fills a store through package graph, and returns its rows.
func (h *healthy) make(limits write.Limits) (rows map[string][]byte, err error) {
	ctx := context.Background()
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(limits)})
	s, err := graph.Open(ctx, store, graph.Options{Intern: intern.Options{Settings: h.layout.Settings}, Beat: time.Minute, SliceSize: 3})
	if err != nil {
		return nil, err
	}
	var b batch.Batch
	seq := format.Seq(0)
	commit := func(did string, ops func()) {
		seq++
		b.AddCommit(seq, &batch.Commit{DID: []byte(did), Rev: dict.AppendTID(nil, postTID+uint64(seq)<<30), Data: make([]byte, 32)})
		ops()
		b.Seen(seq, nil)
		if err == nil {
			err = s.Apply(ctx, "relay", &b)
		}
		b.Reset()
	}
	put := func(k kinds.Kind, tid uint64, subject string) {
		b.AddPut(k, dict.AppendTID(nil, tid), []byte(subject))
	}
	follower := func(i int) string { return fmt.Sprintf("did:plc:f%d", i) }
	var followers []string
	for i := 0; len(followers) < 40; i++ {
		if h.layout.Settings.PartitionOf([]byte(follower(i)))%32 == 0 { // many in one partition
			followers = append(followers, follower(i))
		}
	}
	for i, did := range followers {
		commit(did, func() {
			put(1, postTID+uint64(i)<<40, famous)
			put(2, postTID+uint64(i)<<45, post)
			put(4, postTID, follower(i/2))
		})
	}
	for _, did := range followers[3:12] { // they unfollow, and one follows again
		commit(did, func() { b.AddDelete(1, dict.AppendTID(nil, postTID+uint64(slices.Index(followers, did))<<40)) })
	}
	commit(followers[5], func() { put(1, postTID+9, famous) })
	commit(busy, func() {
		for i := range uint64(300) { // a burst
			put(2, postTID+i<<14+i<<36&(7<<36), page)
		}
	})
	for n := range uint64(4) {
		commit(busy, func() {
			for i := range uint64(9) {
				b.AddDelete(2, dict.AppendTID(nil, postTID+(n*9+i)<<14+(n*9+i)<<36&(7<<36)))
			}
		})
	}
	for n := range 20 {
		commit(busy, func() {
			for i := range 60 {
				b.AddPut(3, fmt.Appendf(nil, "key-%d-%d", n, i), []byte(post))
			}
		})
	}
	commit(erased, func() {
		for i := range uint64(10) {
			put(1, postTID+i<<48, alice) // these are erased
			put(2, postTID+i<<48, page)
		}
	})
	commit(alice, func() {
		put(1, postTID+5, famous)
		put(1, postTID+6, "") // names no subject
		put(3, postTID+7, page)
	})
	commit(zoe, func() { put(1, postTID+5, alice) })
	commit(plc, func() { put(1, postTID, long) })
	commit("did:plc:reader", func() {
		for i := range uint64(60) {
			put(2, postTID+i, "at://"+[]string{plc, alice}[i%2]+"/app.bsky.feed.post/"+string(dict.AppendTID(nil, postTID+i*5_000_000<<format.ClockBits)))
		}
	})
	for i, did := range []string{followers[0], followers[1], followers[2], busy, "did:plc:onlyhidden"} {
		seq++
		b.AddAccount(seq, []byte(did), i == 1, false)
	}
	seq++
	b.AddAccount(seq, []byte(erased), false, true)
	b.Seen(seq, []byte("2026-01-02T03:04:05Z"))
	b.AddDeadLetter(format.DeadLetter{Seq: seq, Reason: "bad"})
	b.AddGap(format.Gap{After: seq, Reason: "gap"})
	if err == nil {
		err = s.Apply(ctx, "relay", &b)
	}
	if err == nil {
		err = s.EraseSlice(ctx) // one of several
	}
	if err == nil {
		err = s.Close(ctx)
	}
	if err != nil {
		return nil, err
	}
	rows = map[string][]byte{}
	return rows, store.View(ctx, func(r kv.Reader) error {
		return r.Scan(nil, nil, false, func(k, v []byte) (bool, error) { rows[string(k)] = bytes.Clone(v); return true, nil })
	})
}

// A bench is a copy of a healthy store, to break.
type bench struct {
	*table
	format.Layout
	t       *testing.T
	spilled bool
}

// eachStore calls test with a copy of every healthy store.
func eachStore(t *testing.T, test func(t *testing.T, h healthy)) {
	t.Helper()
	all, err := stores()
	must(t, err)
	for _, h := range all {
		t.Run(h.name, func(t *testing.T) { test(t, h) })
	}
}

func (h *healthy) bench(t *testing.T) *bench {
	return &bench{&table{rows: maps.Clone(h.rows)}, h.layout, t, h.spilled}
}

// id returns the id of a string of the store.
func (b *bench) id(s string) dict.ID {
	b.t.Helper()
	ns := dict.DID
	if strings.HasPrefix(s, "at:") {
		ns = dict.URI
	}
	var strs intern.Batch
	n := strs.Add(ns, []byte(s))
	if err := intern.Lookup(b.table, &strs); err != nil || strs.ID(n) == dict.None {
		b.t.Fatalf("%q has no id: %v", s, err)
	}
	return strs.ID(n)
}

// free returns an unused id in alice's block, and so in her partition.
func (b *bench) free() dict.ID { return b.id(alice) + 1<<13 }

// merge folds an operand into a row.
func (b *bench) merge(key, operand []byte) {
	b.t.Helper()
	values := [][]byte{operand}
	if old, ok := b.rows[string(key)]; ok {
		values = [][]byte{old, operand}
	}
	v, err := write.NewMerger(write.Limits{}).Fold(nil, key, values, true)
	must(b.t, err)
	b.rows[string(key)] = v
}

// first returns the first wanted key, or "".
func (b *bench) first(keyspace byte, wanted func(key string, value []byte) bool) string {
	for _, k := range slices.Sorted(maps.Keys(b.rows)) {
		if k[0] == keyspace && wanted(k, b.rows[k]) {
			return k
		}
	}
	return ""
}

// name adds a form with an id to both sides of the dictionary.
func (b *bench) name(ns dict.Namespace, id dict.ID, form []byte) {
	b.t.Helper()
	b.rows[string(dict.KeyID)+string(rune(ns))+string(form)] = dict.AppendID(nil, id)
	e := dict.EntryOf(ns, id, form)
	b.merge(dict.AppendGroupKey(nil, ns, id), new(dict.GroupWriter).Append(nil, &e))
}

// form returns the key of a DID in the dictionary.
func form(did string) string {
	return string(dict.KeyID) + string(rune(dict.DID)) + string(dict.PackDID(nil, []byte(did)))
}

// setState changes the state of an account.
func (b *bench) setState(did string, change func(*format.RepoState)) {
	b.t.Helper()
	id := b.id(did)
	key := b.AccountKey(nil, id)
	st, ok, err := b.AccountIn(b.rows[string(key)], id)
	if err != nil || !ok {
		b.t.Fatalf("%s has no state: %v", did, err)
	}
	change(&st)
	group := b.AppendAccount(nil, id, &st)
	if b.AccountMask() == 0 {
		b.rows[string(key)] = group
		return
	}
	b.merge(key, group)
}

// head writes the head of an actor's records of a kind, and nothing below it.
func (b *bench) head(k kinds.Kind, actor dict.ID, reach uint64, records ...format.Record) (key string) {
	key = string(format.AppendRecordsKey(nil, k, actor))
	b.rows[key] = format.CoderOf(k, actor).Append(nil, reach, records)
	return key
}

// leaf writes the leaf up to a path.
func (b *bench) leaf(k kinds.Kind, actor dict.ID, last format.Path, records ...format.Record) (key string) {
	key = string(format.AppendLeafKey(format.AppendRecordsKey(nil, k, actor), last))
	b.rows[key] = format.CoderOf(k, actor).Append(nil, 0, records)
	return key
}

// add adds records to those of an actor.
func (b *bench) add(k kinds.Kind, actor dict.ID, records ...format.Record) {
	b.t.Helper()
	b.merge(format.AppendRecordsKey(nil, k, actor), format.CoderOf(k, actor).Append(nil, 0, records))
}

// problems returns the reports of Verify.
func (b *bench) problems() (all []string) {
	b.t.Helper()
	b.keys = nil
	if err := Verify(b.table, func(p string) { all = append(all, p) }, nil); err != nil {
		b.t.Errorf("%v, after %q", err, all)
	}
	return all
}

// TestHealthy: a healthy store has no problems.
func TestHealthy(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		b := h.bench(t)
		for _, p := range b.problems() {
			t.Error(p)
		}
		leaves, setLeaves, jobs := 0, 0, 0
		for k := range h.rows {
			switch k[0] {
			case format.KeyRecord:
				if _, _, _, isLeaf, err := format.ParseChunkKey([]byte(k)); err != nil || isLeaf {
					leaves++
				}
			case format.KeyReverse:
				if _, _, _, _, isLeaf, err := b.ParseSetKey([]byte(k)); err != nil || isLeaf {
					setLeaves++
				}
			case format.KeyErase:
				jobs++
			}
		}
		if (leaves > 20) != h.spilled || (setLeaves > 10) != h.spilled || jobs != 1 {
			t.Errorf("there are %d leaves of records, %d of sets, and %d erase jobs", leaves, setLeaves, jobs)
		}
	})
}
