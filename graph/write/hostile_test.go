package write_test

import (
	"crypto/sha256"
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
)

// hostile is one repo that writes what it likes.
type hostile struct {
	commits
	store kv.Store
}

func newHostile(t *testing.T, store kv.Store) *hostile {
	t.Helper()
	return &hostile{commits{t: t, s: open(t, store, graph.Options{})}, store}
}

// commit applies one commit. A key that begins with a minus sign is deleted.
func (h *hostile) commit(subject string, rkeys ...string) {
	h.t.Helper()
	h.begin(1)
	for _, rkey := range rkeys {
		if rest, del := strings.CutPrefix(rkey, "-"); del {
			h.b.AddDelete(1, []byte(rest))
		} else {
			h.b.AddPut(1, []byte(rkey), []byte(subject))
		}
	}
	h.apply()
}

func (h *hostile) records(want int) {
	h.t.Helper()
	if n := counts(h.t, h.s).Records["follow"]; n != int64(want) {
		h.t.Errorf("%d records, want %d", n, want)
	}
	verify(h.t, h.store)
}

func openPebble(t *testing.T, l write.Limits) kv.Store {
	t.Helper()
	s, err := pebblekv.Open(pebblekv.Options{Dir: t.TempDir(), Create: true, Memory: 16 << 20, Merger: write.NewMerger(l)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Keys that share all that chunks are told apart by stay in one chunk, and the
// spilling of it ends.
func TestSpillEnds(t *testing.T) {
	h := newHostile(t, openPebble(t, write.Limits{Row: 3, Chunk: 3}))
	var rkeys []string
	for i := range uint64(4) {
		rkeys = append(rkeys, string(dict.AppendTID(nil, 1<<60|i)))
	}
	h.commit("did:plc:a", rkeys...)
	for range 3 * format.MaxChunkDepth {
		h.commit("did:plc:b", rkeys...)
		h.commit("did:plc:c", rkeys[0], "-"+rkeys[1])
		h.records(3)
	}
}

// Many paths in one chunk are one look-up of it, however deep it lies.
func TestOneLookupPerChunk(t *testing.T) {
	store := &reading{Store: openPebble(t, write.Limits{Row: 100, Chunk: 50})}
	h := newHostile(t, store)
	rng := rand.New(rand.NewPCG(1, 1))
	var puts, deletes []string
	for i := range 3000 { // all within 71 minutes, a chunk of the first depth
		puts = append(puts, string(dict.AppendTID(nil, 1<<60|uint64(i)<<20|rng.Uint64N(1<<20))))
		deletes = append(deletes, "-"+string(dict.AppendTID(nil, 1<<60|uint64(i)<<20|rng.Uint64N(1<<20))))
	}
	h.commit("did:plc:a", puts...)
	for i := range 8 {
		h.commit("did:plc:b", puts[i])
	}
	h.records(3000)
	h.commit("", deletes...) // none of them exists
	chunks := 0
	err := h.store.View(t.Context(), func(r kv.Reader) error {
		return kv.ScanPrefix(r, []byte{format.KeyRecord}, func(_, _ []byte) error { chunks++; return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := store.lastChunks; n == 0 || n > chunks {
		t.Errorf("the last look-up asked for %d keys, there are %d chunks", n, chunks)
	}
	h.records(3000)
}

// A chunk of long keys spills through chunks that exist already, which are read on the way.
// All keys must survive.
func TestSpillKeepsKeys(t *testing.T) {
	const perCommit, commits = 20, 6
	rkeys := keysHashedAlike(perCommit * commits)
	for name, store := range map[string]kv.Store{
		"pebble": openPebble(t, write.Limits{Row: 8, Chunk: 24}),
		"memory": memory(write.Limits{Row: 8, Chunk: 24}),
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostile(t, store)
			for i := range commits {
				h.commit("did:plc:subject", rkeys[i*perCommit:(i+1)*perCommit]...)
				h.records((i + 1) * perCommit) // folds the chunk, and notes that it is large
			}
			h.spilled()
			for i, rkey := range rkeys {
				h.commit("", "-"+rkey)
				if i%perCommit == 0 {
					h.records(len(rkeys) - i - 1)
				}
			}
			h.records(0)
		})
	}
}

// hashedAlike has the numbers of keys whose hashes begin alike. Trying all numbers takes eight million hashes.
//
//go:embed testdata/hashed-alike.txt
var hashedAlike string

// keysHashedAlike returns n record keys of 500 bytes whose hashes share the first two bytes.
func keysHashedAlike(n int) (keys []string) {
	for _, number := range strings.Fields(hashedAlike)[:n] {
		key := strings.Repeat("k", 448) + fmt.Sprintf("%052s", number)
		if sum := sha256.Sum256([]byte(key)); sum[0] != 7 || sum[1] != 7 {
			panic(number + " is not the number of such a key")
		}
		keys = append(keys, key)
	}
	return keys
}

// spilled checks that a chunk was.
func (h *hostile) spilled() {
	h.t.Helper()
	deep := 0
	if err := h.store.View(h.t.Context(), func(r kv.Reader) error {
		return kv.ScanPrefix(r, []byte{format.KeyRecord}, func(k, _ []byte) error {
			_, _, _, depth, err := format.ParseChunkKey(k)
			deep += depth
			return err
		})
	}); err != nil || deep == 0 {
		h.t.Fatal("no chunk was spilled", err)
	}
}
