package intern

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/kvtest"
)

func TestMain(m *testing.M) { os.Exit(kvtest.Main(m)) }

// scheme is a way to hand out ids.
type scheme struct {
	name  string
	bits  uint8  // of the shard number; 0 means one sequence
	block uint64 // ids to take at once
	how   how
}

type how uint8

const (
	plain how = iota // read and write the counter of a sequence: the published scheme
	fresh            // lease from a newly drawn shard each time
	stay             // stay in the drawn shard until another writer is there
)

var schemes = []scheme{
	{"a. one sequence, one id at a time", 0, 1, plain},
	{"b. 2^14 random sequences, one id at a time", 14, 1, plain},
	{"b. 2^32 random sequences, one id at a time", 32, 1, plain},
	{"c. one sequence, blocks of 4,096", 0, 4096, plain},
	{"c. one sequence, blocks of 65,536", 0, 65536, plain},
	{"d. 2^14 shards, leases of 4,096, a fresh shard each", 14, 4096, fresh},
	{"d. 2^14 shards, leases of 65,536, a fresh shard each", 14, 65536, fresh},
	{"e. 2^14 shards, leases of 4,096, staying", 14, 4096, stay},
	{"e. 2^14 shards, leases of 65,536, staying", 14, 65536, stay},
}

func (s *scheme) settings() dict.Settings {
	return dict.Settings{ShardBits: max(s.bits, 1), LeaseSize: uint32(s.block), Partitions: 1}
}

// BenchmarkSchemes compares ways to hand out ids, on both engines, and prints
// the table of docs/decisions/0002 and its other rows.
//
//	go test -tags fdb ./intern -run xxx -bench Schemes -benchtime 1x
func BenchmarkSchemes(b *testing.B) {
	engines := []struct {
		name string
		open func(b *testing.B) kv.Store
	}{
		{"pebble", func(b *testing.B) kv.Store {
			s, err := pebblekv.Open(pebblekv.Options{Dir: b.TempDir(), Create: true, Merger: dict.Merger{}})
			if err != nil {
				b.Fatal(err)
			}
			return s
		}},
		{"fdb", func(b *testing.B) kv.Store { return kvtest.Open(b, kvtest.Options(b, dict.Merger{})) }},
	}
	writers := []int{1, 8, 64}
	type cell struct{ ids, retries float64 }
	cells := map[string]cell{}
	var ran []string
	for _, engine := range engines {
		b.Run(engine.name, func(b *testing.B) {
			store := engine.open(b)
			ran = append(ran, engine.name)
			for i := range schemes {
				s := &schemes[i]
				for _, n := range writers {
					b.Run(fmt.Sprintf("%s/%d", s.name, n), func(b *testing.B) {
						ids, commits, retries, took := s.mint(b, store, n)
						c := cell{float64(ids) / took.Seconds(), float64(retries) / float64(commits)}
						cells[fmt.Sprint(engine.name, s.name, n)] = c
						b.ReportMetric(c.ids, "ids/s")
						b.ReportMetric(c.retries, "retries/commit")
					})
				}
			}
			if err := store.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
	var t strings.Builder
	t.WriteString("\n| how ids are handed out |")
	for _, e := range ran {
		for _, n := range writers {
			fmt.Fprintf(&t, " %s, %d |", e, n)
		}
	}
	t.WriteString(" bytes a member | ∩ of two sets of 1 M |\n|---|")
	t.WriteString(strings.Repeat("---|", len(ran)*len(writers)+2) + "\n")
	for i := range schemes {
		s := &schemes[i]
		fmt.Fprintf(&t, "| %s |", s.name)
		for _, e := range ran {
			for _, n := range writers {
				c := cells[fmt.Sprint(e, s.name, n)]
				fmt.Fprintf(&t, " %s, %.2f |", short(c.ids), c.retries)
			}
		}
		bytes, and := s.sets()
		fmt.Fprintf(&t, " %.2f | %v |\n", bytes, and.Round(10*time.Microsecond))
	}
	fmt.Println(t.String())
}

// short formats a number with a unit.
func short(n float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if n >= u.size {
			return fmt.Sprintf("%.3g%s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%.0f", n)
}

// mint lets n writers take ids for a while.
func (s *scheme) mint(b *testing.B, store kv.Store, n int) (ids, commits, retries int64, took time.Duration) {
	const length = time.Second
	// Each cell starts with its own shards and homes.
	if err := store.Update(b.Context(), func(tx kv.Txn) error { tx.DeleteRange([]byte{dict.KeyHome}, []byte{dict.KeyNext + 1}); return nil }); err != nil {
		b.Fatal(err)
	}
	var done, attempts atomic.Int64
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var wg sync.WaitGroup
	begun := time.Now()
	for w := range n {
		settings := s.settings()
		in, err := newLeaser(store, Options{Settings: settings, Owner: fmt.Sprint(w)})
		if err != nil {
			b.Fatal(err)
		}
		a := &allocator{leases: in, ns: dict.URI}
		wg.Go(func() {
			for time.Since(begun) < length {
				var err error
				if s.how == plain {
					err = s.take(ctx, store, &attempts)
				} else {
					tried := 0
					if s.how == fresh {
						a.hasShard = false
						err = in.leaseFresh(ctx, a, &tried)
					} else {
						_, err = in.lease(ctx, a, nil)
						tried = a.attempts
					}
					attempts.Add(int64(tried))
				}
				if err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return done.Load() * int64(s.block), done.Load(), attempts.Load() - done.Load(), time.Since(begun)
}

// take is the published scheme: read and write the counter of a randomly drawn sequence.
func (s *scheme) take(ctx context.Context, store kv.Store, attempts *atomic.Int64) error {
	return store.Update(ctx, func(tx kv.Txn) error {
		attempts.Add(1)
		shard := uint32(0)
		if s.bits > 0 {
			shard = rand.Uint32() >> (32 - s.bits)
		}
		key := dict.AppendNextKey(nil, dict.URI, shard)
		v, ok, err := tx.Get(key)
		if err != nil {
			return err
		}
		next := uint64(0)
		if ok {
			next = binary.BigEndian.Uint64(v)
		}
		tx.Set(key, binary.BigEndian.AppendUint64(nil, next+s.block))
		return nil
	})
}

// leaseFresh is lease, but always draws a new shard.
func (p *leaser) leaseFresh(ctx context.Context, a *allocator, tried *int) error {
	return p.store.Update(ctx, func(tx kv.Txn) error {
		*tried++
		shard, block, err := p.pickBlock(tx, a, true)
		if err != nil {
			return err
		}
		l := dict.Lease{Namespace: a.ns, Taken: time.Now(), Owner: p.owner, Token: rand.Uint64()}
		tx.Set(dict.AppendNextKey(nil, a.ns, shard), binary.BigEndian.AppendUint64(nil, block+1))
		tx.Set(dict.AppendLeaseKey(nil, a.ns, shard, block), l.Value())
		return nil
	})
}

// sets hands out five million ids to eight writers in turn, and measures two random sets of a
// million of them.
func (s *scheme) sets() (bytesPerMember float64, and time.Duration) {
	const all, members, writers = 5_000_000, 1_000_000, 8
	rng := rand.New(rand.NewPCG(uint64(s.bits), s.block))
	settings := s.settings()
	next := map[uint32]uint64{}
	type run struct {
		next, end dict.ID
		shard     uint32
		has       bool
	}
	var runs [writers]run
	ids := make([]uint64, 0, all)
	for len(ids) < all {
		w := &runs[rng.IntN(writers)]
		if w.next == w.end {
			if s.how != stay || !w.has {
				if w.shard = 0; s.bits > 0 {
					w.shard = rng.Uint32() >> (32 - s.bits)
				}
			}
			block := next[w.shard]
			next[w.shard]++
			w.next = settings.Start(w.shard, block)
			w.end, w.has = w.next+dict.ID(s.block), true
		}
		ids = append(ids, uint64(w.next))
		w.next++
	}
	pick := func() *roaring64.Bitmap {
		rng.Shuffle(members, func(i, j int) {
			j += rng.IntN(all - members)
			ids[i], ids[j] = ids[j], ids[i]
		})
		set := slices.Clone(ids[:members])
		slices.Sort(set) // otherwise 2^32 sequences take minutes
		return roaring64.BitmapOf(set...)
	}
	x, y := pick(), pick()
	bytesPerMember = float64(x.GetSerializedSizeInBytes()) / float64(x.GetCardinality())
	for range 5 {
		begun := time.Now()
		roaring64.And(x, y)
		if took := time.Since(begun); and == 0 || took < and {
			and = took
		}
	}
	return bytesPerMember, and
}

// adders create new strings: URIs of posts in the order of time, DIDs in no order, and URIs
// without a packed form.
var adders = map[string]func(batch *Batch, i int){
	"posts": func(batch *Batch, i int) {
		tid := uint64(1<<60) + uint64(i)*1000<<dict.ClockBits
		batch.Add(dict.URI, fmt.Appendf(nil, "at://did:plc:%s/app.bsky.feed.post/%s", base32Of(uint64(i%5000)), dict.AppendTID(nil, tid)))
	},
	"dids": func(batch *Batch, i int) { batch.Add(dict.DID, fmt.Appendf(nil, "did:plc:%s", base32Of(uint64(i)))) },
	"raw": func(batch *Batch, i int) {
		batch.Add(dict.URI, fmt.Appendf(nil, "at://did:plc:%s/app.bsky.feed.post/post-%d", base32Of(uint64(i%5000)), i))
	},
}

// BenchmarkResolve interns new strings on the embedded engine, in batches, in both directions.
//
//	go test ./intern -run xxx -bench Resolve -benchtime 300x
func BenchmarkResolve(b *testing.B) {
	for name, add := range adders {
		b.Run(name, func(b *testing.B) {
			store, err := pebblekv.Open(pebblekv.Options{Dir: b.TempDir(), Create: true, Merger: dict.Merger{}})
			if err != nil {
				b.Fatal(err)
			}
			in, err := Open(b.Context(), store, Options{})
			if err != nil {
				b.Fatal(err)
			}
			const size = 10_000
			var batch Batch
			n := 0
			for b.Loop() {
				b.StopTimer() // measure interning, not making strings
				batch.Reset()
				for range size {
					add(&batch, n)
					n++
				}
				b.StartTimer()
				err := in.Prepare(b.Context(), nil, batch.Len())
				if err == nil {
					err = store.Update(b.Context(), func(tx kv.Txn) error { _, err := in.Resolve(tx, &batch); return err })
				}
				if err != nil {
					b.Fatal(err)
				}
				in.Committed(&batch)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "strings/s")
			if err := errors.Join(in.Close(b.Context()), store.Close()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkClaim interns new strings on FoundationDB, in both directions.
//
//	go test -tags fdb ./intern -run xxx -bench Claim -benchtime 1x
func BenchmarkClaim(b *testing.B) {
	for name, add := range adders {
		b.Run(name, func(b *testing.B) { benchmarkClaim(b, add) })
	}
}

func benchmarkClaim(b *testing.B, add func(batch *Batch, i int)) {
	const size, batches = 10_000, 20
	store := kvtest.Open(b, kvtest.Options(b, dict.Merger{}))
	var took time.Duration
	made, measured := 0, 0
	for b.Loop() {
		in, err := Open(b.Context(), store, Options{Settings: dict.SharedSettings, CacheBytes: 64 << 20})
		if err != nil {
			b.Fatal(err)
		}
		var batch Batch
		for n := range batches {
			batch.Reset()
			for range size {
				add(&batch, made)
				made++
			}
			begun := time.Now()
			if err := in.Prepare(b.Context(), &batch, 0); err != nil {
				b.Fatal(err)
			}
			if n > 0 { // the first takes the leases
				took, measured = took+time.Since(begun), measured+size
			}
		}
		if err := in.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(measured)/took.Seconds(), "strings/s")
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
}

// base32Of formats a number in 24 characters of base32.
func base32Of(n uint64) []byte {
	out := make([]byte, 24)
	h := n * 0x9e3779b97f4a7c15
	for i := range out {
		out[i] = dict.Base32Alphabet[(h>>(i%12*5)^n>>(i/12*7))&31]
	}
	return out
}
