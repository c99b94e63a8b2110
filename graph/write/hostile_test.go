package write_test

import (
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
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// Many paths in one leaf are one look-up of it.
func TestOneLookupPerLeaf(t *testing.T) {
	store := &reading{Store: openPebble(t, write.Limits{Row: 100, Chunk: 50})}
	h := newHostile(t, store)
	rng := rand.New(rand.NewPCG(1, 1))
	var puts, deletes []string
	for i := range 3000 {
		puts = append(puts, string(dict.AppendTID(nil, 1<<60|uint64(i)<<20|rng.Uint64N(1<<20))))
		deletes = append(deletes, "-"+string(dict.AppendTID(nil, 1<<60|uint64(i)<<20|rng.Uint64N(1<<20))))
	}
	h.commit("did:plc:a", puts...)
	for i := range 8 {
		h.commit("did:plc:b", puts[i])
	}
	h.records(3000)
	leaves := h.leaves()
	store.scans, store.scanned = 0, 0
	h.commit("", deletes...) // none of them exists
	if store.lastChunks != 1 || store.scans < leaves/2 || store.scans > leaves+1 || store.scanned > store.scans {
		t.Errorf("the last look-up asks for %d heads, and for %d leaves with %d scans; there are %d", store.lastChunks, store.scanned, store.scans, leaves)
	}
	h.records(3000)
}

// A head of long keys spills into leaves that exist already, which are written again. All keys must survive.
func TestSpillKeepsKeys(t *testing.T) {
	const perCommit, commits = 20, 6
	rkeys := longKeys(perCommit * commits)
	rand.New(rand.NewPCG(2, 2)).Shuffle(len(rkeys), func(i, j int) { rkeys[i], rkeys[j] = rkeys[j], rkeys[i] })
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
			if h.leaves() < 5 {
				t.Errorf("%d leaves", h.leaves())
			}
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

// leaves counts the leaves.
func (h *hostile) leaves() (n int) {
	h.t.Helper()
	must(h.t, h.store.View(h.t.Context(), func(r kv.Reader) error {
		return kv.ScanPrefix(r, []byte{format.KeyRecord}, func(k, _ []byte) error {
			_, _, _, isLeaf, err := format.ParseChunkKey(k)
			if isLeaf {
				n++
			}
			return err
		})
	}))
	return n
}
