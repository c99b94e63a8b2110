package repo_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"skein.blue/consumer/repo"
	"skein.blue/consumer/wire"
	"skein.blue/graph/kinds"
	"skein.blue/internal/say"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/synth"
)

// treeEntry appends an entry of a node, whose key has prefix bytes of the previous key.
func treeEntry(dst []byte, prefix int, rest string, value *synth.Link) []byte {
	dst = append(wire.AppendHead(append(dst, "\xa4ak"...), 2, uint64(len(rest))), rest...)
	dst = wire.AppendHead(append(dst, "ap"...), 0, uint64(prefix))
	return synth.AppendLink(append(dst, "at\xf6av"...), value)
}

// oneNode returns the CAR of a repo with a tree of one node. Each of its n entries shares
// all but the last five bytes of its key with the previous one, and all have the same
// record.
func oneNode(path string, n int, record []byte) []byte {
	leaf := synth.NewBlock(record)
	b := wire.AppendHead([]byte("\xa2ae"), 4, uint64(n))
	for i := range n {
		if i == 0 {
			b = treeEntry(b, 0, path+"00000", &leaf.CID)
		} else {
			b = treeEntry(b, len(path), fmt.Sprintf("%05d", i), &leaf.CID)
		}
	}
	root := synth.NewBlock(append(b, "al\xf6"...))
	commit := synth.NewBlock(synth.AppendCommitBlock(nil, []byte(did), []byte(rev), nil, &root.CID))
	return synth.CAR(commit.CID, commit, root, leaf)
}

// follow returns a record with an array of that many small numbers.
func follow(items int) []byte {
	b := wire.AppendHead(synth.CBOR([]byte("\xa2"), "x"), 4, uint64(items))
	b = append(b, make([]byte, items)...)
	return synth.CBOR(synth.CBOR(b, "subject"), "did:web:a.example.com")
}

// Few paths may have the same large record.
func TestAbuseSharedRecord(t *testing.T) {
	for n, want := range map[int]error{10: nil, harness.Size(10_000, 60_000): repo.ErrEdges} {
		r := reader()
		must(t, r.Read(t.Context(), bytes.NewReader(oneNode("app.bsky.graph.follow/", n, follow(1<<14))), 1<<30))
		if err := r.Walk(t.Context(), func(kinds.Kind, []byte, []byte) {}); !errors.Is(err, want) {
			t.Errorf("%d paths of a record: %v", n, err)
		}
	}
}

// A key longer than any path of a record ends the walk at once.
func TestAbuseLongKeys(t *testing.T) {
	for _, n := range []int{repo.MaxKey, repo.MaxKey + 1, 1 << 20} {
		b := oneNode(strings.Repeat("k", n-5), 100, follow(0))
		r := reader()
		must(t, r.Read(t.Context(), bytes.NewReader(b), 1<<30))
		err := r.Walk(t.Context(), func(kinds.Kind, []byte, []byte) {})
		if tooLong := n > repo.MaxKey; tooLong != errors.Is(err, repo.ErrTree) {
			t.Errorf("keys of %d bytes: %v", n, err)
		}
	}
}

// A walk ends with its context.
func TestWalkEndsWithContext(t *testing.T) {
	r := reader()
	must(t, r.Read(t.Context(), bytes.NewReader(oneNode("app.bsky.graph.follow/", 10_000, follow(0))), 1<<30))
	ctx, end := context.WithCancel(t.Context())
	records := 0
	err := r.Walk(ctx, func(kinds.Kind, []byte, []byte) {
		if records++; records == 100 {
			end()
		}
	})
	if !errors.Is(err, context.Canceled) || records > 2000 {
		t.Errorf("%d records, then %v", records, err)
	}
}

// tiny returns a CAR of n minimal blocks; if stored, they begin like a node, so that the
// Reader stores them.
func tiny(n int, stored bool) []byte {
	root := synth.NewBlock([]byte("\xa2ae\x80al\xf6"))
	commit := synth.NewBlock(synth.AppendCommitBlock(nil, []byte(did), []byte(rev), nil, &root.CID))
	b := synth.CAR(commit.CID, commit, root)
	for i := range n {
		block := binary.BigEndian.AppendUint32(nil, uint32(i))[1:]
		if stored {
			block = append([]byte("\xa2ae"), block...)
		}
		one := synth.NewBlock(block)
		b = synth.AppendSection(b, &one.CID, one.Bytes)
	}
	return b
}

// A Reader needs less memory than three times the size of the CAR, however small its blocks, and the
// allocations on the way stay within four times that.
func TestAbuseKept(t *testing.T) {
	n := harness.Size(100_000, 1_000_000)
	for name, b := range map[string][]byte{
		"tiny blocks":         tiny(n, false),
		"tiny blocks, stored": tiny(n, true),
		"blocks of a quarter chunk": func() []byte {
			b := tiny(0, false)
			for i := range n / 4000 {
				one := synth.NewBlock(append([]byte("\xa2ae"), fmt.Sprintf("%016380d", i)...))
				b = synth.AppendSection(b, &one.CID, one.Bytes)
			}
			return b
		}(),
		"one block many times": func() []byte {
			b := tiny(0, false)
			one := synth.NewBlock(append([]byte("\xa2ae"), strings.Repeat("x", 10_000)...))
			for range n / 4000 {
				b = synth.AppendSection(b, &one.CID, one.Bytes)
			}
			return b
		}(),
	} {
		var before, after runtime.MemStats
		r := reader()
		in := bytes.NewReader(b)
		runtime.ReadMemStats(&before)
		if err := r.Read(t.Context(), in, 1<<30); err != nil {
			t.Fatal(name, err)
		}
		runtime.ReadMemStats(&after)
		allocated := after.TotalAlloc - before.TotalAlloc
		harness.Figure(t, name, "a CAR of %s: %.2f bytes in use a byte, and %.2f allocated", say.Bytes(len(b)), float64(r.Allocated())/float64(len(b)), float64(allocated)/float64(len(b)))
		if most := len(b)*11/4 + repo.OwnBytes; r.Allocated() > most {
			t.Errorf("%s: %d bytes in use for a CAR of %d", name, r.Allocated(), len(b))
		}
		if allocated > 4*uint64(len(b))+2*repo.OwnBytes {
			t.Errorf("%s: %d bytes allocated for a CAR of %d", name, allocated, len(b))
		}
	}
}

// A host that announces a large block and does not send it holds no memory for it.
func TestAbuseAnnounced(t *testing.T) {
	b := binary.AppendUvarint(tiny(0, false), 4<<20)
	r := reader()
	if err := r.Read(t.Context(), bytes.NewReader(b), 1<<30); !errors.Is(err, repo.ErrTruncated) {
		t.Fatal(err)
	}
	if r.Allocated() > repo.OwnBytes {
		t.Errorf("%d bytes in use", r.Allocated())
	}
}

// Many hosts send large repos at once. All Readers together stay within the bound; all
// allowed repos are read in the end, although none fits beside two others; a repo over
// the bound for one repo fails.
func TestAbuseSharedMemory(t *testing.T) {
	const all = 8 << 20
	b := tiny(harness.Size(60_000, 80_000), true) // needs 4 to 6 MB
	synctest.Test(t, func(t *testing.T) {
		memory := repo.NewMemory(all)
		const readers = 12
		var kept [readers]atomic.Int64
		var most atomic.Int64
		done := make(chan error)
		for i := range readers {
			go func() {
				r := repo.Reader{Kinds: kinds.BuiltIn, Memory: memory}
				// bytes arrive slowly, so that all Readers run at once
				err := r.Read(t.Context(), &slow{in: bytes.NewReader(b), each: func() {
					kept[i].Store(int64(r.Allocated()))
					sum := int64(0)
					for i := range kept {
						sum += max(0, kept[i].Load()-repo.OwnBytes)
					}
					most.Store(max(sum, most.Load()))
				}}, 1<<30)
				kept[i].Store(0)
				r.Release()
				done <- err
			}()
		}
		for range readers {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		harness.Figure(t, "memory", "%d repos of %s at once: %s of %s in use", readers, say.Bytes(len(b)), say.Bytes(most.Load()), say.Bytes(int64(all)))
		if most.Load() > all || memory.InUse() != 0 {
			t.Errorf("up to %d bytes in use, and %d at the end", most.Load(), memory.InUse())
		}
		r := repo.Reader{Kinds: kinds.BuiltIn, Memory: memory}
		if err := r.Read(t.Context(), bytes.NewReader(tiny(120_000, true)), 1<<30); !errors.Is(err, repo.ErrMemory) || !errors.Is(err, repo.ErrTooLarge) {
			t.Error(err)
		}
		r.Release()
		if memory.InUse() != 0 {
			t.Errorf("%d bytes in use", memory.InUse())
		}
	})
}

// A Reader that waits for memory ends with its context.
func TestNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := repo.NewMemory(8 << 20)
		holder, waiter := repo.Reader{Kinds: kinds.BuiltIn, Memory: memory}, repo.Reader{Kinds: kinds.BuiltIn, Memory: memory}
		must(t, holder.Read(t.Context(), bytes.NewReader(tiny(60_000, true)), 1<<30))
		ctx, end := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- waiter.Read(ctx, bytes.NewReader(tiny(60_000, true)), 1<<30) }()
		synctest.Wait()
		if len(result) > 0 {
			t.Fatalf("the Reader does not wait: %v", <-result)
		}
		end()
		if err := <-result; !errors.Is(err, repo.ErrNoRoom) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// slow is a reader that yields before each Read.
type slow struct {
	in   io.Reader
	each func()
}

func (s *slow) Read(p []byte) (int, error) {
	s.each()
	runtime.Gosched()
	return s.in.Read(p[:min(len(p), 4096)])
}

// A small repo whose tree names one record of many subjects many times makes few edges: above a number that its bytes pay
// for, it is too large.
func TestAbuseEdges(t *testing.T) {
	more, err := kinds.Parse("a.b.c to[] text ms msBy")
	must(t, err)
	table, err := kinds.Configure(kinds.BuiltIn, more)
	must(t, err)
	tags := wire.AppendHead(synth.CBOR([]byte("\xa1"), "to"), 4, kinds.MaxSubjects)
	for i := range kinds.MaxSubjects {
		tags = synth.CBOR(tags, fmt.Sprint(i))
	}
	for _, n := range []int{1, 3, harness.Size(2_000, 20_000)} {
		car := oneNode("a.b.c/", n, tags)
		r := reader()
		r.Kinds = table
		must(t, r.Read(t.Context(), bytes.NewReader(car), 1<<30))
		edges := 0
		err := r.Walk(t.Context(), func(kinds.Kind, []byte, []byte) { edges++ })
		harness.Figure(t, fmt.Sprint(n, " names of a record"), "a CAR of %s makes %d of %d edges: %v", say.Bytes(len(car)), edges, n*kinds.MaxSubjects, err)
		if few := n*kinds.MaxSubjects <= kinds.MostEdges(len(car)); few != (err == nil) || errors.Is(err, repo.ErrTooLarge) == few || edges > kinds.MostEdges(len(car)) || (n == 1) != few {
			t.Errorf("a CAR of %d bytes and %d names makes %d edges: %v", len(car), n, edges, err)
		}
	}
}
