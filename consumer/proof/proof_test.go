package proof_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/bluesky-social/indigo/events"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	blockstore "github.com/ipfs/go-ipfs-blockstore"
	"github.com/multiformats/go-multihash"

	"skein.blue/consumer/proof"
	"skein.blue/consumer/wire"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/synth"
)

// TestMain silences indigo, which logs each message.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

const did = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"

// check returns this package's verdict on a frame.
func check(t testing.TB, c *proof.Checker, frame []byte, key atcrypto.PublicKey) error {
	t.Helper()
	var m wire.Message
	if err := wire.Parse(frame, &m); err != nil {
		return err
	}
	k, err := c.Commit(&m)
	if err != nil {
		return err
	}
	if key != nil {
		if err := key.HashAndVerify(k.Unsigned, k.Sig); err != nil {
			return err
		}
	}
	return c.Invert(&m, k)
}

// indigoSays returns indigo's verdict on a frame. indigo does not compare the CAR's root with the
// message's commit.
func indigoSays(frame []byte, key atcrypto.PublicKey) error {
	r := bytes.NewReader(frame)
	var h events.EventHeader
	var e comatproto.SyncSubscribeRepos_Commit
	if err := errors.Join(h.UnmarshalCBOR(r), e.UnmarshalCBOR(r)); err != nil {
		return err
	}
	if _, err := repo.VerifyCommitMessage(context.Background(), &e); err != nil {
		return err
	}
	if key == nil {
		return nil
	}
	commit, _, err := repo.LoadCommitFromCAR(context.Background(), bytes.NewReader(e.Blocks))
	if err != nil {
		return err
	}
	return commit.VerifySignature(key)
}

// Every commit that the reference PDS made is proven.
func TestRecorded(t *testing.T) {
	var c proof.Checker
	for _, path := range []string{"../../testdata/pds/plain-pds.frames", "../../testdata/pds/plain-relay.frames"} {
		all, err := synth.ReadFrames(path)
		if err != nil {
			t.Fatal(err)
		}
		commits := 0
		for i, frame := range all {
			var m wire.Message
			if err := wire.Parse(frame, &m); err != nil || m.Type != wire.Commit {
				continue
			}
			commits++
			if want := indigoSays(frame, nil); want != nil {
				t.Fatalf("%s, frame %d: indigo: %v", path, i, want)
			}
			if err := check(t, &c, frame, nil); err != nil {
				t.Errorf("%s, frame %d (%s %s): %v", path, i, m.DID, m.Rev, err)
			}
		}
		if commits < 500 {
			t.Errorf("%s has %d commits; want hundreds", path, commits)
		}
	}
}

// account makes commits with indigo's tree.
type account struct {
	rng     *rand.Rand
	key     *atcrypto.PrivateKeyK256
	tree    mst.Tree
	data    *synth.Link
	records map[string]synth.Link
	seq     int64
	space   int // of record keys
}

type collector struct {
	blockstore.Blockstore
	blocks *[]synth.Block
}

// Put implements blockstore.Blockstore.
func (c collector) Put(_ context.Context, b blocks.Block) error {
	*c.blocks = append(*c.blocks, synth.NewBlock(b.RawData()))
	return nil
}

func newAccount(t testing.TB, seed uint64) *account {
	t.Helper()
	key, err := atcrypto.GeneratePrivateKeyK256()
	if err != nil {
		t.Fatal(err)
	}
	return &account{rng: rand.New(rand.NewPCG(seed, 1)), key: key, tree: mst.NewEmptyTree(), records: map[string]synth.Link{}, space: []int{400, 3, 12}[seed%3]}
}

func (a *account) public(t testing.TB) atcrypto.PublicKey {
	t.Helper()
	p, err := a.key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// parts are the parts of a commit that a test may change before it is encoded.
type parts struct {
	m      synth.Commit
	blocks []synth.Block // nodes and records
	data   synth.Link
}

// commit changes some records.
func (a *account) commit(t testing.TB, changes int) *parts {
	t.Helper()
	a.seq++
	p := &parts{m: synth.Commit{Repo: []byte(did), Rev: dict.AppendTID(nil, uint64(a.seq)<<20), Seq: a.seq, Time: []byte(synth.Time(a.seq)), PrevData: a.data}}
	if a.seq > 1 {
		p.m.Since = dict.AppendTID(nil, uint64(a.seq-1)<<20)
	}
	done := map[string]bool{}
	for range changes {
		path := fmt.Sprintf("app.bsky.feed.like/%s", dict.AppendTID(nil, uint64(a.rng.IntN(a.space))<<30))
		before, there := a.records[path]
		if done[path] {
			continue
		}
		done[path] = true
		op := synth.Op{Collection: "app.bsky.feed.like", Rkey: []byte(path[len("app.bsky.feed.like/"):])}
		if there {
			op.Prev = &before
		}
		if there && a.rng.IntN(3) > 0 {
			op.Action = "delete"
			delete(a.records, path)
			if _, err := repo.ApplyOp(&a.tree, path, nil); err != nil {
				t.Fatal(err)
			}
		} else {
			record := synth.NewBlock(fmt.Appendf([]byte("\xa1\x61n\x78\x18"), "%024d", a.rng.Int64()))
			p.blocks = append(p.blocks, record)
			a.records[path] = record.CID
			op.Action, op.CID = "create", &record.CID
			if there {
				op.Action = "update"
			}
			value := cidOf(record.CID)
			if _, err := repo.ApplyOp(&a.tree, path, &value); err != nil {
				t.Fatal(err)
			}
		}
		p.m.Ops = append(p.m.Ops, op)
	}
	if len(p.m.Ops) == 0 {
		a.tree.Root.Dirty = true
	}
	root, err := a.tree.WriteDiffBlocks(t.Context(), collector{blocks: &p.blocks})
	if err != nil {
		t.Fatal(err)
	}
	copy(p.data[:], root.Hash()[2:])
	now := p.data
	a.data = &now
	return p
}

// frame signs and encodes a commit.
func (a *account) frame(t testing.TB, p *parts) []byte {
	t.Helper()
	c := repo.Commit{DID: did, Version: 3, Data: cidOf(p.data), Rev: string(p.m.Rev)}
	if err := c.Sign(a.key); err != nil {
		t.Fatal(err)
	}
	block := synth.NewBlock(synth.AppendCommitBlock(nil, []byte(did), p.m.Rev, c.Sig, &p.data))
	p.m.Root = block.CID
	p.m.CAR = [][]byte{synth.CAR(block.CID, append(slices.Clone(p.blocks), block)...)}
	frame, _ := p.m.Append(nil)
	return frame
}

// Random histories, of tiny repos as well, whose trees grow and shrink: every commit is proven, and of randomly falsified ones, exactly those that
// indigo accepts.
func TestLikeIndigo(t *testing.T) {
	var c proof.Checker
	proven, refuted, wrong, byReason := 0, 0, 0, map[error]int{}
	for seed := range uint64(30) {
		a := newAccount(t, seed)
		public := a.public(t)
		for range 40 {
			p := a.commit(t, []int{1, 1, 1, 2, 5, 30, 200}[a.rng.IntN(7)])
			frame := a.frame(t, p)
			if err := check(t, &c, frame, public); err != nil {
				t.Fatalf("seed %d, commit %d: %v (indigo: %v)", seed, a.seq, err, indigoSays(frame, public))
			}
			if err := indigoSays(frame, public); err != nil {
				wrong++ // indigo undoes a commit that empties the top of its tree to another root than it had
				continue
			}
			q := *p
			q.m.Ops, q.blocks = slices.Clone(p.m.Ops), slices.Clone(p.blocks)
			a.falsify(&q)
			frame = a.frame(t, &q)
			err, want := check(t, &c, frame, public), indigoSays(frame, public)
			stricter := want == nil && q.m.PrevData == nil && errors.Is(err, proof.ErrRoot) // indigo does not look at the root of a first commit
			if (err == nil) != (want == nil) && !stricter {
				t.Fatalf("seed %d, falsified commit %d: %v, indigo: %v", seed, a.seq, err, want)
			}
			if err == nil {
				proven++
				continue
			}
			refuted++
			for _, reason := range []error{proof.ErrCommit, proof.ErrMissing, proof.ErrNode, proof.ErrOp, proof.ErrRoot} {
				if errors.Is(err, reason) {
					byReason[reason]++
				}
			}
		}
	}
	t.Logf("%d falsified commits are proven anyway, %d refuted: %v; %d true ones are refuted by indigo", proven, refuted, byReason, wrong)
	if refuted < 500 || wrong > 100 || byReason[proof.ErrMissing] == 0 || byReason[proof.ErrOp] == 0 || byReason[proof.ErrRoot] == 0 {
		t.Errorf("too few falsified commits of some kind")
	}
}

// falsify changes a commit so that it may no longer be proven.
func (a *account) falsify(p *parts) {
	other := synth.NewBlock([]byte("\xa0")).CID
	switch n := a.rng.IntN(6); {
	case n == 0 && len(p.m.Ops) > 0: // an operation is left out
		i := a.rng.IntN(len(p.m.Ops))
		p.m.Ops = slices.Delete(p.m.Ops, i, i+1)
	case n == 1 && len(p.m.Ops) > 0: // an operation has another prev
		if o := &p.m.Ops[a.rng.IntN(len(p.m.Ops))]; o.Prev != nil {
			o.Prev = &other
		}
	case n == 2: // a node is missing; of records, indigo wants the blocks, too
		if i := a.rng.IntN(len(p.blocks)); p.blocks[i].Bytes[0] == 0xa2 {
			p.blocks = slices.Delete(p.blocks, i, i+1)
		}
	case n == 3 && p.m.PrevData != nil:
		p.m.PrevData = &other
	case n == 4: // a deletion is made up
		for path, link := range a.records {
			p.m.Ops = append(p.m.Ops, synth.Op{Collection: "app.bsky.feed.like", Rkey: []byte(path[len("app.bsky.feed.like/"):]), Action: "delete", Prev: &link})
			break
		}
	default: // a creation is made up
		p.m.Ops = append(p.m.Ops, synth.Op{Collection: "app.bsky.feed.like", Rkey: dict.AppendTID(nil, 1<<60), Action: "create", CID: &other})
	}
}

// A signature by another key, or over another commit, is not the account's.
func TestSignature(t *testing.T) {
	var c proof.Checker
	a := newAccount(t, 3)
	frame := a.frame(t, a.commit(t, 3))
	if err := check(t, &c, frame, newAccount(t, 2).public(t)); !errors.Is(err, atcrypto.ErrInvalidSignature) {
		t.Errorf("another key: %v", err)
	}
	if err := check(t, &c, frame, a.public(t)); err != nil {
		t.Errorf("its own key: %v", err)
	}
}

// BenchmarkCheck checks commits of one operation in repos of 10,000 records, signatures included.
func BenchmarkCheck(b *testing.B) {
	for _, c := range []struct {
		name  string
		check func(frame []byte, key atcrypto.PublicKey) error
	}{
		{"skein", func() func([]byte, atcrypto.PublicKey) error {
			var c proof.Checker
			return func(frame []byte, key atcrypto.PublicKey) error { return check(b, &c, frame, key) }
		}()},
		{"indigo", indigoSays},
	} {
		for _, signed := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/signed=%t", c.name, signed), func(b *testing.B) {
				a := newAccount(b, 3)
				for range 50 {
					a.commit(b, 200)
				}
				var all [][]byte
				for range 100 {
					all = append(all, a.frame(b, a.commit(b, 1)))
				}
				var key atcrypto.PublicKey
				if signed {
					key = a.public(b)
				}
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					if err := c.check(all[n%len(all)], key); err != nil {
						b.Fatal(err)
					}
					n++
				}
			})
		}
	}
}

func cidOf(l synth.Link) cid.Cid {
	hash, err := multihash.Encode(l[:], multihash.SHA2_256)
	if err != nil {
		panic(err)
	}
	return cid.NewCidV1(cid.DagCBOR, hash)
}

// A commit without prevData must be the first: undoing it leaves no record.
func TestFirst(t *testing.T) {
	var c proof.Checker
	a := newAccount(t, 3)
	if err := check(t, &c, a.frame(t, a.commit(t, 3)), a.public(t)); err != nil {
		t.Errorf("the first commit: %v", err)
	}
	p := a.commit(t, 1)
	p.m.PrevData = nil
	if err := check(t, &c, a.frame(t, p), a.public(t)); !errors.Is(err, proof.ErrRoot) {
		t.Errorf("a later commit without prevData: %v, want %v", err, proof.ErrRoot)
	}
}
