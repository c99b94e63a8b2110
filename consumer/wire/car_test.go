package wire_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"testing"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/events"
	"github.com/ipfs/go-cid"

	"skein.blue/consumer/wire"
	"skein.blue/internal/sim/synth"
)

// The fields of an envelope that Parse leaves to package proof are those that indigo reads, on
// every recorded message.
func TestEnvelopesAgainstIndigo(t *testing.T) {
	for _, path := range []string{plainPDS, plainRelay, realNetwork} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			all, err := wire.ReadFile(path)
			if path == realNetwork && errors.Is(err, fs.ErrNotExist) {
				t.Skip("skipped: needs a recording of the real network, which is not in this repository")
			}
			if err != nil {
				t.Fatal(err)
			}
			commits := 0
			for n, frame := range all {
				r := bytes.NewReader(frame)
				var h events.EventHeader
				if err := h.UnmarshalCBOR(r); err != nil {
					t.Fatal(err)
				}
				if h.MsgType != "#commit" {
					continue
				}
				var want comatproto.SyncSubscribeRepos_Commit
				if err := want.UnmarshalCBOR(r); err != nil {
					t.Fatal(err)
				}
				var m wire.Message
				if err := wire.Parse(frame, &m); err != nil {
					t.Fatalf("message %d: %v", n, err)
				}
				commits++
				if int64(m.Seq) != want.Seq || string(m.Time) != want.Time || string(m.DID) != want.Repo || string(m.Rev) != want.Rev || m.TooBig() != want.TooBig || !bytes.Equal(m.Blocks(), want.Blocks) {
					t.Fatalf("message %d: %+v", n, m)
				}
				if got, err := cid.Cast(m.CommitCID()); err != nil || !got.Equals(cid.Cid(want.Commit)) {
					t.Fatalf("message %d: commit %v, want %v: %v", n, got, want.Commit, err)
				}
				switch got, err := cid.Cast(m.PrevData()); {
				case want.PrevData == nil && m.PrevData() != nil, want.PrevData != nil && (err != nil || !got.Equals(cid.Cid(*want.PrevData))):
					t.Fatalf("message %d: prevData %x, want %v: %v", n, m.PrevData(), want.PrevData, err)
				}
				if (m.Since == nil) != (want.Since == nil) || want.Since != nil && string(m.Since) != *want.Since {
					t.Fatalf("message %d: since %q, want %v", n, m.Since, want.Since)
				}
				if (len(m.Ops()) == 0) != (len(want.Ops) == 0) && (len(m.Ops()) != 1 || len(want.Ops) != 0) {
					t.Fatalf("message %d: %d bytes of operations, want %d operations", n, len(m.Ops()), len(want.Ops))
				}
				if root := wire.Root(m.Blocks()); !bytes.Equal(root, m.CommitCID()) {
					t.Fatalf("message %d: the CAR's root is %x, the commit %x", n, root, m.CommitCID())
				}
				sound(t, m.Blocks())
			}
			if commits == 0 {
				t.Error("no commits")
			}
		})
	}
}

// sound checks that a CAR's blocks have the hashes that their CIDs name.
func sound(t *testing.T, file []byte) {
	t.Helper()
	blocks := 0
	err := wire.EachBlock(file, func(id, block []byte) {
		c, err := cid.Cast(id)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Prefix().Sum(block); err != nil || !got.Equals(c) {
			t.Fatalf("block %v has the hash of %v: %v", c, got, err)
		}
		blocks++
	})
	if err != nil || blocks == 0 {
		t.Fatalf("%d blocks: %v", blocks, err)
	}
}

// Random CARs have the blocks that were written. One that is cut within a block is an error after the
// whole ones, and one that is spoiled never has a block outside of it.
func TestEachBlock(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 300 {
		blocks := make([]synth.Block, rng.IntN(12))
		for i := range blocks {
			b := make([]byte, rng.IntN(400))
			for k := range b {
				b[k] = byte(rng.IntN(256))
			}
			blocks[i] = synth.NewBlock(b)
		}
		root := synth.Link(sha256.Sum256(fmt.Append(nil, rng.Uint64())))
		file := synth.CAR(root, blocks...)
		if got := wire.Root(file); len(got) < 32 || !bytes.Equal(got[len(got)-32:], root[:]) {
			t.Fatalf("root %x, want %x", got, root)
		}
		count := func(file []byte) (n int, err error) {
			err = wire.EachBlock(file, func(id, block []byte) {
				if n >= len(blocks) || !bytes.Equal(block, blocks[n].Bytes) || !bytes.Equal(id[len(id)-32:], blocks[n].CID[:]) {
					t.Fatalf("block %d has the CID %x and %d bytes", n, id, len(block))
				}
				n++
			})
			return n, err
		}
		if n, err := count(file); err != nil || n != len(blocks) {
			t.Fatalf("%d blocks, want %d: %v", n, len(blocks), err)
		}
		head := len(synth.CAR(root))
		for range 10 {
			at := rng.IntN(len(file) + 1)
			whole, end, isBoundary := 0, head, at == head
			for i := range blocks {
				size := len(synth.AppendSection(nil, &blocks[i].CID, blocks[i].Bytes))
				if end+size > at {
					break
				}
				end += size
				whole++
				isBoundary = end == at
			}
			n, err := count(file[:at])
			if at < head {
				if n > 0 || at > 0 && err == nil {
					t.Fatalf("cut in the header: %d blocks, %v", n, err)
				}
				continue
			}
			if n != whole || (err == nil) != isBoundary {
				t.Fatalf("cut at %d of %d bytes: %d blocks, want %d, at a boundary %v: %v", at, len(file), n, whole, isBoundary, err)
			}
		}
		spoiled := bytes.Clone(file)
		for range 1 + rng.IntN(4) {
			spoiled[rng.IntN(len(spoiled))] ^= byte(1 + rng.IntN(255))
		}
		total := 0
		if err := wire.EachBlock(spoiled, func(id, block []byte) { total += len(id) + len(block) }); err != nil && !errors.Is(err, wire.ErrFrame) {
			t.Fatal(err)
		}
		if total > len(spoiled) {
			t.Fatalf("%d bytes of blocks in %d bytes", total, len(spoiled))
		}
	}
}
