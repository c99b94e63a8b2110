package intern_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein/intern"
	"skein/internal/kv"
	"skein/internal/kv/fdbkv/fdbtest"
	"skein/internal/kv/memkv"
)

// corpus has strings at the edges of the syntax.
func corpus() []string {
	long := strings.Repeat("a", 63)
	all := []string{
		"", "did:", "did:plc", "did:plc:", "did:plc:a", "did:plc:ewvi7nxzyoun6zhxrhs64oiz", "did:web:example.com", "did:web:a%3A80",
		"did:web:a%", "did:web:a:", "did:Web:a", "did::a", "did:w3b:a", "DID:plc:a", "did:plc:a b", "did:plc:é", "did:x:" + strings.Repeat("a", 2042), "did:x:" + strings.Repeat("a", 2043),
		"at://", "at://did:plc:a", "at://did:plc:a/", "at://did:plc:a/app.bsky.feed.post", "at://did:plc:a/app.bsky.feed.post/",
		"at://did:plc:a/app.bsky.feed.post/self", "at://did:plc:a/app.bsky.feed.post/a/b", "at://did:plc:a/app.bsky.feed.post/.", "at://did:plc:a/app.bsky.feed.post/..",
		"at://did:plc:a/app.bsky.feed.post/...", "at://did:plc:a/app.bsky/x", "at://did:plc:a/app/x", "at://did:plc:a/app.bsky.3/x", "at://did:plc:a/a-.b.c/x", "at://did:plc:a/3a.b.c/x",
		"at://did:plc:a/a.3.c/x", "at://did:plc:a/a.b.c-d/x", "at://did:plc:a/a.b." + long, "at://did:plc:a/a.b." + long + "a", "at://handle.example.com/app.bsky.feed.post/x",
		"at://handle/app.bsky.feed.post/x", "at://-a.com", "at://a-.com", "at://a.c-", "at://a.1", "at://a..com", "at://" + long + ".com", "at://" + long + "a.com",
		"at://did:plc:a?x", "at://did:plc:a#x", "at:/did:plc:a", "https://example.com", "at://did:plc:a//x",
		".", "..", "...", "self", "whats-hot", "Custom.key_1~x:y-Z", "a/b", "a b", strings.Repeat("k", 512), strings.Repeat("k", 513), "3jzfcijpj2z2a", "3jzfcijpj2z2", "zjzfcijpj2z2a", "3jzfcijpj2z21",
		"at://did:plc:a/app.bsky.feed.post/" + strings.Repeat("k", 512), "at://did:x:" + strings.Repeat("a", 2042) + "/a.b.c",
	}
	for i := 250; i < 256; i++ {
		all = append(all, "at://"+strings.Repeat("a.", i/2)+"com"[:i%3+1], "at://did:plc:a/a."+strings.Repeat("b.", i/2+30)+"c")
	}
	return all
}

func compareSyntax(t *testing.T, s string) {
	t.Helper()
	_, did := syntax.ParseDID(s)
	_, uri := syntax.ParseATURI(s)
	_, rkey := syntax.ParseRecordKey(s)
	_, tid := syntax.ParseTID(s)
	for _, c := range []struct {
		what string
		got  bool
		want error
	}{
		{"DID", intern.ValidDID(s), did},
		{"AT URI", intern.ValidURI(s), uri},
		{"record key", intern.ValidRkey(s), rkey},
		{"TID", intern.ValidTID(s), tid},
	} {
		if c.got != (c.want == nil) {
			t.Errorf("%q as a %s: %v, indigo says %v", s, c.what, c.got, c.want)
		}
	}
}

func TestSyntaxAgainstIndigo(t *testing.T) {
	all := corpus()
	for _, s := range all {
		compareSyntax(t, s)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200_000 { // splice and spoil
		s := all[rng.IntN(len(all))]
		if len(s) > 600 {
			continue
		}
		b := []byte(s)
		for range rng.IntN(3) {
			c := "abz019.:-_~%/AZ \x00é#"[rng.IntN(20)]
			switch i := rng.IntN(len(b) + 1); rng.IntN(3) {
			case 0:
				b = slices.Insert(b, i, c)
			case 1:
				if i < len(b) {
					b[i] = c
				}
			default:
				b = b[:i]
			}
		}
		compareSyntax(t, string(b))
	}
}

func FuzzSyntax(f *testing.F) {
	for _, s := range corpus() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { compareSyntax(t, s) })
}

// BenchmarkSyntax is why the validators are our own.
//
//	go test ./intern -run xxx -bench Syntax
func BenchmarkSyntax(b *testing.B) {
	const did, uri = "did:plc:ewvi7nxzyoun6zhxrhs64oiz", "at://did:plc:ewvi7nxzyoun6zhxrhs64oiz/app.bsky.feed.post/3jzfcijpj2z2a"
	b.Run("skein", func(b *testing.B) {
		for b.Loop() {
			if !intern.ValidDID(did) || !intern.ValidURI(uri) {
				b.Fatal("invalid")
			}
		}
	})
	b.Run("indigo", func(b *testing.B) {
		for b.Loop() {
			_, err1 := syntax.ParseDID(did)
			_, err2 := syntax.ParseATURI(uri)
			if err := errors.Join(err1, err2); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func mem(seed uint64) *memkv.Store {
	return memkv.Open(memkv.Options{Merger: intern.Merger{}, Faults: memkv.Faults{Seed: seed, Conflict: 0.1, Unknown: 0.1}})
}

func open(t testing.TB, s kv.Store, o intern.Options) *intern.Interner {
	t.Helper()
	in, err := intern.Open(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// resolve interns strings in one transaction.
func resolve(ctx context.Context, s kv.Store, in *intern.Interner, b *intern.Batch) error {
	if in.Settings().Partitions > 1 {
		return in.Claim(ctx, b)
	}
	for {
		if err := in.Reserve(ctx, b.Len()); err != nil {
			return err
		}
		err := s.Update(ctx, func(tx kv.Txn) error {
			b.Retry()
			_, err := in.Resolve(tx, b)
			return err
		})
		if errors.Is(err, intern.ErrNoLease) {
			continue
		}
		if err == nil {
			in.Committed(b)
		}
		return err
	}
}

func uri(i int) string {
	return fmt.Sprintf("at://did:plc:%024d/app.bsky.feed.post/%d", i%7, i)
}

// Many writers, one store, conflicts and unknown outcomes: one id a string,
// one string an id, across namespaces and restarts.
func TestConcurrentWriters(t *testing.T) {
	onMemory := func(*testing.T) kv.Store { return mem(7) }
	onFDB := func(t *testing.T) kv.Store { return fdbtest.Open(t, fdbtest.Options(t, intern.Merger{})) }
	for _, c := range []struct {
		intern.Settings
		engine string
		open   func(t *testing.T) kv.Store
	}{
		{intern.Settings{14, 65536, 1}, "memory", onMemory},
		{intern.Settings{1, 16, 1}, "memory", onMemory},
		{intern.Settings{32, 1, 1}, "memory", onMemory},
		{intern.Settings{14, 65536, 64}, "memory", onMemory},
		{intern.Settings{6, 16, 64}, "memory", onMemory},
		{intern.Settings{3, 128, 4}, "memory", onMemory},
		{intern.Settings{32, 1, 2}, "memory", onMemory},
		{intern.SharedSettings, "fdb", onFDB},
		{intern.Settings{8, 32, 8}, "fdb", onFDB},
	} {
		settings := c.Settings
		t.Run(fmt.Sprintf("%s/%s", c.engine, settings), func(t *testing.T) {
			store := c.open(t)
			var mu sync.Mutex
			ids := map[string]intern.ID{}
			note := func(s string, id intern.ID) {
				mu.Lock()
				defer mu.Unlock()
				if old, ok := ids[s]; ok && old != id {
					t.Errorf("%q is %d and %d", s, old, id)
				}
				ids[s] = id
			}
			for range 2 { // the second round is after a restart
				var wg sync.WaitGroup
				for w := range 8 {
					wg.Go(func() {
						in, err := intern.Open(t.Context(), store, intern.Options{Settings: settings, CacheBytes: 1, Owner: fmt.Sprint(w)})
						if err != nil {
							t.Error(err)
							return
						}
						rng := rand.New(rand.NewPCG(uint64(w), 0))
						var b intern.Batch
						for range 15 {
							b.Reset()
							var strings []string
							for range 1 + rng.IntN(30) {
								s := uri(rng.IntN(600))
								strings = append(strings, s)
								b.Add(intern.URI, []byte(s))
							}
							if err := resolve(t.Context(), store, in, &b); err != nil {
								t.Error(err)
								return
							}
							for _, s := range strings {
								note(s, b.ID(b.Add(intern.URI, []byte(s))))
							}
						}
						if w%2 == 0 { // the others crash
							if err := in.Close(t.Context()); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
			}
			seen := map[intern.ID]string{}
			for s, id := range ids {
				if other, ok := seen[id]; ok || id == intern.None {
					t.Fatalf("%d is %q and %q", id, s, other)
				}
				seen[id] = s
			}
			in := open(t, store, intern.Options{})
			if in.Settings() != settings {
				t.Errorf("settings %+v", in.Settings())
			}
			err := store.View(t.Context(), func(r kv.Reader) error {
				list := make([]intern.ID, 0, len(seen))
				for id := range seen {
					list = append(list, id)
				}
				err := in.Strings(r, intern.URI, list, func(i int, s []byte) error {
					if string(s) != seen[list[i]] {
						t.Errorf("%d is %q, want %q", list[i], s, seen[list[i]])
					}
					return nil
				})
				open, closed := 0, 0
				err = errors.Join(err, intern.Leases(r, func(l intern.Lease) error {
					if l.Closed {
						closed++
					} else {
						open++
					}
					return nil
				}))
				if open == 0 || closed == 0 {
					t.Errorf("%d leases were closed and %d not", closed, open)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A single writer's ids are one dense sequence, block after block.
func TestDense(t *testing.T) {
	store := memkv.Open(memkv.Options{Merger: intern.Merger{}})
	in := open(t, store, intern.Options{Settings: intern.Settings{ShardBits: 8, LeaseSize: 256}})
	var b intern.Batch
	for i := range 1000 {
		b.Add(intern.DID, fmt.Appendf(nil, "did:plc:%d", i))
	}
	if err := resolve(t.Context(), store, in, &b); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 1000; i++ {
		if b.ID(i) != b.ID(i-1)+1 {
			t.Fatalf("id %d follows %d", b.ID(i), b.ID(i-1))
		}
	}
}

// The next lease is there before it is needed: nothing waits for one but the
// first strings of each namespace.
func TestNobodyWaits(t *testing.T) {
	for _, partitions := range []uint8{1, 4} {
		store := memkv.Open(memkv.Options{Merger: intern.Merger{}})
		metrics := intern.NewMetrics(prometheus.NewRegistry())
		in := open(t, store, intern.Options{Settings: intern.Settings{ShardBits: 8, LeaseSize: 4096, Partitions: partitions}, CacheBytes: 1, Metrics: metrics})
		waits := func() (n float64) {
			for _, ns := range intern.Namespaces {
				n += testutil.ToFloat64(metrics.Waits.WithLabelValues(ns.String()))
			}
			return n
		}
		first := 0.0
		var b intern.Batch
		for i := range 200 {
			b.Reset()
			for j := range 200 {
				b.Add(intern.URI, fmt.Appendf(nil, "at://did:plc:a%d/app.bsky.feed.post/%d", i*200+j, i))
			}
			if err := resolve(t.Context(), store, in, &b); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				first = waits()
			}
			time.Sleep(100 * time.Microsecond) // for the goroutine that fetches
		}
		leases := testutil.ToFloat64(metrics.Leases.WithLabelValues("uri"))
		if got := waits(); got != first || leases < 10 {
			t.Errorf("%d partitions: %v waits after the first batch's %v, with %v leases", partitions, got-first, first, leases)
		}
	}
}

func TestExhausted(t *testing.T) {
	// 2^32 ids a shard, less those kept back, in blocks of 2^16, and two shards:
	// put the counters at the end.
	store := memkv.Open(memkv.Options{Merger: intern.Merger{}})
	in := open(t, store, intern.Options{Settings: intern.Settings{ShardBits: 1, LeaseSize: 65536}})
	err := store.Update(t.Context(), func(tx kv.Txn) error {
		for shard := range uint32(2) {
			for _, ns := range intern.Namespaces {
				tx.Set(intern.AppendNextKey(nil, ns, shard), []byte{0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Reserve(t.Context(), 1); !errors.Is(err, intern.ErrExhausted) {
		t.Errorf("%v", err)
	}
}

func TestSettings(t *testing.T) {
	store := mem(1)
	for _, bad := range []intern.Settings{{33, 1, 1}, {14, 3, 1}, {14, 1 << 17, 1}, {14, 1, 3}, {14, 1, 128}, {5, 1, 64}} {
		if _, err := intern.Open(t.Context(), store, intern.Options{Settings: bad}); !errors.Is(err, intern.ErrSettings) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	open(t, store, intern.Options{Settings: intern.Settings{ShardBits: 5, LeaseSize: 8}})
	if _, err := intern.Open(t.Context(), store, intern.Options{Settings: intern.Settings{ShardBits: 6, LeaseSize: 8}}); !errors.Is(err, intern.ErrSettings) {
		t.Errorf("other settings: %v", err)
	}
}
