package relay

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	blockstore "github.com/ipfs/go-ipfs-blockstore"
	"github.com/multiformats/go-multihash"

	"skein.blue/intern/dict"
	"skein.blue/internal/sim/network"
	"skein.blue/internal/sim/synth"
)

// fullRepos stores the repo of every account, so that its commits can be verified: the
// trees with indigo's own code, and signatures by one key per account, derived from the
// seed.
type fullRepos struct {
	n     *network.Network
	seed  uint64
	enc   encoder
	repos map[int32]*fullRepo
	// whole also stores the records, so that repos can be exported.
	whole  bool
	status map[int32]network.Status // of accounts that are not Active
}

type fullRepo struct {
	key    *atcrypto.PrivateKeyK256
	tree   mst.Tree
	data   synth.Link // the root of the tree
	commit synth.Block
	rev    uint64

	records map[string]synth.Block // by path, if they are stored
	late    bool                   // data and commit are outdated
	noTree  bool                   // the tree is outdated, too
}

// key returns the signing key of an account.
func key(seed uint64, account int) *atcrypto.PrivateKeyK256 {
	secret := sha256.Sum256(fmt.Appendf(nil, "skein simulate %d %d", seed, account))
	return must(atcrypto.ParsePrivateBytesK256(secret[:]))
}

// must is for calls that fail only because of a bug of ours.
func must[T any](v T, err error) T {
	if err != nil {
		panic(fmt.Sprintf("relay: %v", err))
	}
	return v
}

func link(c *cid.Cid) (l synth.Link) {
	copy(l[:], c.Bytes()[len(synth.CIDHead):])
	return l
}

func cidOf(l synth.Link) cid.Cid {
	return cid.NewCidV1(cid.DagCBOR, must(multihash.Encode(l[:], multihash.SHA2_256)))
}

func (f *fullRepos) repo(account int32) *fullRepo {
	r := f.repos[account]
	if r == nil {
		r = &fullRepo{key: key(f.seed, int(account)), tree: mst.NewEmptyTree(), records: map[string]synth.Block{}}
		f.repos[account] = r
	}
	return r
}

// message encodes the message of an event, and updates its repo.
func (f *fullRepos) message(e *network.Event, seq, at int64) []byte {
	switch {
	case e.Type == network.Commit:
		return f.commitMessage(e, seq, at)
	case e.Type == network.Sync:
		r := f.repo(e.Account)
		return synth.AppendSync(nil, f.did(e), dict.AppendTID(nil, e.Rev), seq, f.enc.stamps.append(nil, at), synth.CAR(r.commit.CID, r.commit))
	case e.Type == network.Account && e.Status == network.Deleted:
		delete(f.repos, e.Account)
	}
	f.note(e)
	return f.enc.message(nil, e, seq, at)
}

func (f *fullRepos) did(e *network.Event) []byte { return f.n.AppendDID(nil, int(e.Account)) }

// collector gathers the new nodes of a tree, and those that prove the change.
type collector struct {
	blockstore.Blockstore
	blocks *[]synth.Block
}

// Put implements blockstore.Blockstore.
func (c collector) Put(_ context.Context, b blocks.Block) error {
	id := b.Cid()
	*c.blocks = append(*c.blocks, synth.Block{CID: link(&id), Bytes: b.RawData()})
	return nil
}

func (f *fullRepos) commitMessage(e *network.Event, seq, at int64) []byte {
	ctx := context.Background()
	r := f.repo(e.Account)
	f.grow(e.Account, r)
	m := synth.Commit{Repo: f.did(e), Rev: dict.AppendTID(nil, e.Rev), Seq: seq, Time: f.enc.stamps.append(nil, at)}
	if e.Since != 0 {
		was := r.data
		m.Since, m.PrevData = dict.AppendTID(nil, e.Since), &was
	}
	var records []synth.Block
	for k := range e.Ops() {
		o := f.n.Op(e, k)
		op := synth.Op{Collection: collection(o.Kind), Rkey: dict.AppendTID(nil, o.TID)}
		path := op.Collection + "/" + string(op.Rkey)
		block := synth.NewBlock(f.enc.record(nil, &o))
		value := cidOf(block.CID)
		there := must(r.tree.Get([]byte(path)))
		if there != nil {
			before := link(there)
			op.Prev = &before
		}
		switch {
		case o.Action == network.Delete && there == nil:
			continue // already deleted: a commit that changes nothing
		case o.Action == network.Delete:
			must(repo.ApplyOp(&r.tree, path, nil))
			op.Action = "delete"
			delete(r.records, path)
		default:
			must(repo.ApplyOp(&r.tree, path, &value))
			records = append(records, block)
			if f.whole {
				r.records[path] = block
			}
			op.Action, op.CID = "create", &block.CID
			if there != nil {
				op.Action = "update"
			}
		}
		m.Ops = append(m.Ops, op)
	}
	if len(m.Ops) == 0 { // a CAR needs the root even if no node is new
		r.tree.Root.Dirty = true
	}
	root := must(r.tree.WriteDiffBlocks(ctx, collector{blocks: &records}))
	r.data = link(root)
	r.rev = e.Rev
	f.sign(r, m.Repo)
	m.Root = r.commit.CID
	m.CAR = [][]byte{synth.CAR(r.commit.CID, append(records, r.commit)...)}
	message, _ := m.Append(nil)
	return message
}

// sign signs the commit of a repo whose data and rev are set.
func (f *fullRepos) sign(r *fullRepo, did []byte) {
	rev := dict.AppendTID(nil, r.rev)
	commit := repo.Commit{DID: string(did), Version: repo.ATPROTO_REPO_VERSION, Data: cidOf(r.data), Rev: string(rev)}
	must(0, commit.Sign(r.key))
	r.commit = synth.NewBlock(synth.AppendCommitBlock(nil, did, rev, commit.Sig, &r.data))
}

// past applies an event that no subscriber receives to its repo. The tree is built when
// it is needed.
func (f *fullRepos) past(e *network.Event) {
	if e.Type == network.Account && e.Status == network.Deleted {
		delete(f.repos, e.Account)
	}
	f.note(e)
	if e.Type != network.Commit {
		return
	}
	r := f.repo(e.Account)
	r.rev, r.late = e.Rev, true
	for k := range e.Ops() {
		o := f.n.Op(e, k)
		path := collection(o.Kind) + "/" + string(dict.AppendTID(nil, o.TID))
		if o.Action == network.Delete {
			delete(r.records, path)
		} else {
			r.records[path] = synth.NewBlock(f.enc.record(nil, &o))
		}
	}
}

// note records the status of an account.
func (f *fullRepos) note(e *network.Event) {
	if e.Type != network.Account {
		return
	}
	if f.status[e.Account] = e.Status; e.Status == network.Active {
		delete(f.status, e.Account)
	}
}

// finish computes the root and the commit of a repo whose records came from the past.
// It returns the records in order.
func (f *fullRepos) finish(account int32, r *fullRepo) []synth.RepoRecord {
	records := make([]synth.RepoRecord, 0, len(r.records))
	for path, b := range r.records {
		records = append(records, synth.RepoRecord{Path: path, Block: b})
	}
	slices.SortFunc(records, func(x, y synth.RepoRecord) int { return strings.Compare(x.Path, y.Path) })
	if r.late {
		r.late, r.noTree = false, true
		r.data = new(synth.Repo).Root(records)
		f.sign(r, f.n.AppendDID(nil, int(account)))
	}
	return records
}

// grow builds the tree of a repo whose records came from the past.
func (f *fullRepos) grow(account int32, r *fullRepo) {
	if r.late {
		f.finish(account, r)
	}
	if !r.noTree {
		return
	}
	r.noTree = false
	all := make(map[string]cid.Cid, len(r.records))
	for path, b := range r.records {
		all[path] = cidOf(b.CID)
	}
	if len(all) > 0 {
		r.tree = *must(mst.LoadTreeFromMap(all))
		must(r.tree.RootCID())
	}
}

// Documents serves the DID documents of the network's accounts under /{did}, as the PLC
// directory does, so that signatures can be verified.
func (r *Simulated) Documents(host func(account int) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		did := strings.TrimPrefix(req.URL.Path, "/")
		account, ok := r.account(did)
		if !ok {
			http.Error(w, "DID not registered: "+did, http.StatusNotFound)
			return
		}
		public := must(key(r.o.Network.Seed, account).PublicKey())
		w.Header().Set("Content-Type", "application/did+ld+json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"@context":    []string{"https://www.w3.org/ns/did/v1", "https://w3id.org/security/multikey/v1"},
			"id":          did,
			"alsoKnownAs": []string{fmt.Sprintf("at://u%d.example.com", account)},
			"verificationMethod": []any{map[string]string{
				"id": did + "#atproto", "type": "Multikey", "controller": did, "publicKeyMultibase": public.Multibase(),
			}},
			"service": []any{map[string]string{"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": "http://" + host(account)}},
		})
	})
}

// account finds an account by its DID.
func (r *Simulated) account(did string) (account int, ok bool) {
	r.mu.Lock()
	if r.dids == nil {
		r.dids = map[string]int32{}
		for i := range r.net.Accounts() {
			r.dids[string(r.net.AppendDID(nil, i))] = int32(i)
		}
	}
	n, ok := r.dids[did]
	r.mu.Unlock()
	return int(n), ok
}
