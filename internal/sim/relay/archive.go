package relay

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"skein.blue/intern/dict"
	"skein.blue/internal/sim/network"
)

// An Archive is the archive of a network's history, as Jetstream v2 serves it (consumer/archive describes the
// format): the repos of its accounts, one after the other. It makes each block when it is asked for, and keeps
// none, so a billion records need no disk. It implements http.Handler: planSnapshot, with one page that lists
// blocks, and getBlock.
type Archive struct {
	net    *network.Network
	made   time.Time
	starts []int64 // by accounts/archiveStep: the records of all accounts before

	writers sync.Pool // of *blockWriter
	mu      sync.Mutex
	large   []*largeRepo // the last ones used, the newest at the end
}

// largeRepo is a repo of several blocks, which are usually asked for one after the other.
type largeRepo struct {
	account int
	once    sync.Once
	ops     []network.Op
}

const (
	archiveBlock   = 4096 // records; the size of jetstream's own
	archiveSegment = 1024 // blocks
	archiveStep    = 64   // accounts between two entries of Archive.starts
	largeRepos     = 8    // that are kept, each of some hundred thousand records at most
)

// NewArchive returns the archive of a network that has a history. It goes through all accounts, which takes
// a second for ten million.
func NewArchive(o network.Options) *Archive {
	a := &Archive{net: network.New(o), made: time.Now()}
	records := int64(0)
	for account := range a.net.Accounts() {
		if account%archiveStep == 0 {
			a.starts = append(a.starts, records)
		}
		h := a.net.Repo(account)
		records += int64(h.Count)
	}
	a.starts = append(a.starts, records)
	a.writers.New = func() any {
		w := &blockWriter{enc: encoder{n: a.net}}
		w.zstd, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)) // fails only for wrong options
		return w
	}
	return a
}

// Records returns how many records the archive has. Their sequence numbers begin with 1.
func (a *Archive) Records() int64 { return a.starts[len(a.starts)-1] }

// block returns a block, counted from 0: its zstd frame.
func (a *Archive) block(n int64) []byte {
	w, _ := a.writers.Get().(*blockWriter)
	defer a.writers.Put(w)
	w.reset()
	first := n * archiveBlock
	end := min(first+archiveBlock, a.Records())
	step, found := slices.BinarySearch(a.starts, first)
	if !found {
		step--
	}
	at := a.starts[step]
	for account := step * archiveStep; at < end; account++ {
		h := a.net.Repo(account)
		from := max(first-at, 0)
		if int64(h.Count) > from {
			ops := a.ops(&h, account, w)
			for i := from; i < min(int64(h.Count), end-at); i++ {
				w.row(account, &ops[i], at+i+1, a.made)
			}
		}
		at += int64(h.Count)
	}
	return w.frame()
}

// ops returns the records of an account, in the order of its repo.
func (a *Archive) ops(h *network.Repo, account int, w *blockWriter) []network.Op {
	if h.Count <= archiveBlock/2 {
		w.ops = a.net.AppendRepo(w.ops[:0], h, compareOps)
		return w.ops
	}
	a.mu.Lock()
	i := slices.IndexFunc(a.large, func(r *largeRepo) bool { return r.account == account })
	var repo *largeRepo
	if i >= 0 {
		repo = a.large[i]
		a.large = slices.Delete(a.large, i, i+1)
	} else {
		repo = &largeRepo{account: account}
		if len(a.large) == largeRepos {
			a.large = slices.Delete(a.large, 0, 1)
		}
	}
	a.large = append(a.large, repo)
	a.mu.Unlock()
	repo.once.Do(func() { repo.ops = a.net.AppendRepo(nil, h, compareOps) })
	return repo.ops
}

func compareOps(x, y network.Op) int {
	return cmp.Or(cmp.Compare(collection(x.Kind), collection(y.Kind)), cmp.Compare(x.TID, y.TID))
}

// blockWriter makes blocks. It is for one goroutine.
type blockWriter struct {
	enc  encoder
	zstd *zstd.Encoder
	ops  []network.Op

	rows     int
	account  int // of did and rev
	did, rev []byte
	fixed    [9][]byte
	columns  [5][]byte // collections, DIDs, record keys, revs, payloads
	body     []byte
	whole    []byte
}

func (w *blockWriter) reset() {
	w.rows, w.account = 0, -1
	for i := range w.fixed {
		w.fixed[i] = w.fixed[i][:0]
	}
	for i := range w.columns {
		w.columns[i] = w.columns[i][:0]
	}
}

// row adds a record.
func (w *blockWriter) row(account int, o *network.Op, seq int64, witnessed time.Time) {
	if account != w.account {
		w.account = account
		w.did = w.enc.n.AppendDID(w.did[:0], account)
		w.rev = dict.AppendTID(w.rev[:0], w.enc.n.RevOf(account))
	}
	w.rows++
	w.body = w.enc.record(w.body[:0], o)
	name := collection(o.Kind)
	le, f := binary.LittleEndian, &w.fixed
	f[0] = le.AppendUint64(f[0], uint64(seq))
	f[1] = le.AppendUint64(f[1], uint64(witnessed.UnixMicro()))
	f[2] = le.AppendUint64(f[2], 0)
	f[3], f[4], f[5] = append(f[3], 1), append(f[4], byte(len(name))), le.AppendUint16(f[5], uint16(len(w.did)))
	f[6], f[7], f[8] = append(f[6], 13), append(f[7], byte(len(w.rev))), le.AppendUint32(f[8], uint32(len(w.body)))
	c := &w.columns
	c[0], c[1] = append(c[0], name...), append(c[1], w.did...)
	c[2], c[3] = dict.AppendTID(c[2], o.TID), append(c[3], w.rev...)
	c[4] = append(c[4], w.body...)
}

// frame returns the added rows as a block.
func (w *blockWriter) frame() []byte {
	b := binary.LittleEndian.AppendUint32(w.whole[:0], uint32(w.rows))
	for _, f := range w.fixed {
		b = append(b, f...)
	}
	for _, c := range w.columns {
		b = append(b, c...)
	}
	w.whole = b
	return w.zstd.EncodeAll(b, nil)
}

// plannedBlocks is a part of a plan.
type plannedBlocks struct {
	Name     string     `json:"name"`
	Index    int64      `json:"index"`
	Checksum string     `json:"checksum"`
	MinSeq   int64      `json:"minSeq"`
	MaxSeq   int64      `json:"maxSeq"`
	Mode     string     `json:"mode"`
	Blocks   []blockRun `json:"blocks"`
}

type blockRun struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// plan lists the blocks that have records after a sequence number.
func (a *Archive) plan(after int64) (all []plannedBlocks) {
	const records = archiveSegment * archiveBlock
	for s := max(after, 0) / records; s*records < a.Records(); s++ {
		first, last := s*records, min((s+1)*records, a.Records())
		run := blockRun{max(after-first, 0) / archiveBlock, (last - first - 1) / archiveBlock}
		if last > after {
			all = append(all, plannedBlocks{
				Name: fmt.Sprintf("seg_%010d.jss", s), Index: s, Checksum: fmt.Sprintf("%016x", s+1), MinSeq: first + 1, MaxSeq: last, Mode: "blocks", Blocks: []blockRun{run},
			})
		}
	}
	return all
}

// ServeHTTP implements http.Handler.
func (a *Archive) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/xrpc/network.bsky.jetstream.planSnapshot":
		var in struct{ AfterSeq int64 }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			refuse(w, "InvalidRequest")
			return
		}
		reply(w, http.StatusOK, map[string]any{"plannedThroughSeq": a.Records(), "sealedTipSeq": a.Records(), "segments": a.plan(in.AfterSeq), "stats": map[string]int{}})
	case "/xrpc/network.bsky.jetstream.getBlock":
		var segment int64
		_, err := fmt.Sscanf(r.URL.Query().Get("segment"), "seg_%d.jss", &segment)
		index, indexErr := strconv.ParseInt(r.URL.Query().Get("blockIndex"), 10, 64)
		n := segment*archiveSegment + index
		if err != nil || indexErr != nil || segment < 0 || index < 0 || index >= archiveSegment || n*archiveBlock >= a.Records() {
			http.NotFound(w, r)
			return
		}
		frame := a.block(n)
		w.Header().Set("Content-Length", strconv.Itoa(len(frame)))
		_, _ = w.Write(frame)
	default:
		http.NotFound(w, r)
	}
}
