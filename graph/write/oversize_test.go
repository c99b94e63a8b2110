package write_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/kvtest"
	"skein.blue/internal/sim/memkv"
)

func TestMain(m *testing.M) { os.Exit(kvtest.Main(m)) }

// What one account may do in one commit, or one batch, is written whatever the
// engine's limits: nobody can stop the writer by being too large.
func TestOversize(t *testing.T) {
	const actor = "did:plc:hostile"
	commit := func(b *batch.Batch, seq format.Seq, n int, put func(i int) (rkey, subject []byte)) {
		b.AddCommit(seq, &batch.Commit{DID: []byte(actor), Rev: dict.AppendTID(nil, 1<<60|uint64(seq)<<32), Data: make([]byte, 32)})
		for i := range n {
			rkey, subject := put(i)
			b.AddPut(1, rkey, subject)
		}
		b.Seen(seq, nil)
	}
	keys := longKeys(200)
	long := func(from int) func(int) ([]byte, []byte) {
		return func(i int) ([]byte, []byte) { return []byte(keys[from+i]), []byte("did:plc:a") }
	}
	for name, c := range map[string]struct {
		fill func(b *batch.Batch)
		want int64
	}{
		"one commit of long keys": {func(b *batch.Batch) { commit(b, 1, 200, long(0)) }, 200},
		"commits of long keys": {func(b *batch.Batch) {
			for i := range 4 {
				commit(b, format.Seq(i+1), 50, long(50*i))
			}
		}, 200},
		"30,000 follows in two weeks": {func(b *batch.Batch) {
			for c := range 150 {
				commit(b, format.Seq(c+1), 200, func(i int) ([]byte, []byte) {
					n := uint64(200*c + i + 1)
					return dict.AppendTID(nil, 1<<60|n<<23|n*7%1024), fmt.Appendf(nil, "did:web:s%d.example.com", n)
				})
			}
		}, 30_000},
		"too much for one write": {func(b *batch.Batch) {
			commit(b, 1, 100_000, func(i int) ([]byte, []byte) { return fmt.Appendf(nil, "%0500d", i), []byte("did:plc:a") })
		}, 0},
		"5,000 dead letters": {func(b *batch.Batch) {
			b.Seen(1, nil)
			for i := range 5000 {
				b.AddDeadLetter(format.DeadLetter{Seq: 1, DID: actor, Path: fmt.Sprintf("%05d%s", i, strings.Repeat("k", 505)), Reason: "bad_path"})
			}
		}, 0},
		"1,000 long subjects": {func(b *batch.Batch) {
			commit(b, 1, 1000, func(i int) ([]byte, []byte) {
				return fmt.Appendf(nil, "k%d", i), fmt.Appendf(nil, "did:web:%s%d.example.com", strings.Repeat("abcdefghi.", 190), i)
			})
		}, 1000},
	} {
		for engine, empty := range map[string]func(t *testing.T) kv.Store{
			"memory": func(*testing.T) kv.Store { return memory(write.Limits{}) },
			"fdb": func(t *testing.T) kv.Store {
				return kvtest.Open(t, kvtest.Options(t, write.NewMerger(write.Limits{})))
			},
		} {
			t.Run(name+"/"+engine, func(t *testing.T) {
				store := empty(t)
				s := open(t, store, graph.Options{Intern: intern.Options{Settings: dict.SharedSettings}})
				var b batch.Batch
				c.fill(&b)
				apply(t, s, "relay", &b)
				if got := counts(t, s); got.Records["follow"] != c.want || name == "too much for one write" && got.Desynchronized == 0 {
					t.Errorf("%+v, want %d records", got, c.want)
				}
				must(t, s.Close(t.Context()))
				verify(t, store)
			})
		}
	}
}

// longKeys returns record keys of 512 bytes, which ascend.
func longKeys(n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprintf("%08d%s", i, strings.Repeat("k", 504)))
	}
	return keys
}

// What a snapshot changes is too large for one write: it is placed once the stored records are erased.
func TestSnapshotTooLarge(t *testing.T) {
	const did = "did:web:u1.example.com"
	store := memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{}), Limits: memkv.Limits{Key: 1e4, Value: 1e5, Txn: 40_000, Age: time.Hour}})
	s := open(t, store, graph.Options{SliceSize: 100, Queued: queues.Queued})
	for i, want := range []batch.Outcome{batch.Placed, batch.Superseded, batch.Placed} {
		var b batch.Batch
		b.AddResync([]byte(did), batch.Cause{Reason: "operator"})
		apply(t, s, "", &b)
		_, row := account(t, s, did)
		b.Reset()
		b.AddSnapshot(&batch.Snapshot{DID: []byte(did), Rev: rkeyAt(1 << 49), Data: make([]byte, 32), Generation: row.Generation, First: true, Last: true})
		for n := range 300 {
			b.AddPut(kindOf("follow"), rkeyAt(uint64(n+1)<<34), fmt.Appendf(nil, "did:web:s%d.%d.example.com", n, min(i, 1)))
		}
		apply(t, s, "", &b)
		got := b.Outcome(0)
		b.Reset()
		b.AddAccount(batch.Seq(2*i+1), []byte(did), false, false)
		b.AddAccount(batch.Seq(2*i+2), []byte(did), true, false)
		apply(t, s, "relay", &b)
		if st, _ := account(t, s, did); got != want || st.Has(format.FlagHidden) {
			t.Errorf("snapshot %d is %v, want %v; its account is active: %+v", i, got, want, st)
		}
		erase(t, s)
		verify(t, store)
	}
	var b batch.Batch
	b.AddSnapshot(&batch.Snapshot{DID: []byte(did)})
	if e := b.Event(0); !e.SetAside() || e.SetAside() {
		t.Error("a snapshot without records is not set aside once")
	}
}
