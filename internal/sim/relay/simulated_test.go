package relay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/gorilla/websocket"
	"github.com/ipfs/go-cid"

	"skein.blue/consumer/wire"
	"skein.blue/internal/sim/network"
)

func small(seed uint64) network.Options { return network.Options{Seed: seed, Accounts: 4096} }

// serveSimulated runs a relay and returns its address.
func serveSimulated(tb testing.TB, o Options) (r *Simulated, address string) {
	tb.Helper()
	r = NewSimulated(o)
	mux := http.NewServeMux()
	mux.Handle("GET /xrpc/com.atproto.sync.subscribeRepos", r)
	mux.Handle("GET /{did}", r.Documents(func(int) string { return "relay.test" }))
	s := httptest.NewServer(mux)
	ctx, stop := context.WithCancel(tb.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	tb.Cleanup(func() { stop(); <-done; s.CloseClientConnections(); s.Close() })
	return r, strings.TrimPrefix(s.URL, "http://")
}

func subscribe(tb testing.TB, address, cursor string) *websocket.Conn {
	tb.Helper()
	if cursor != "" {
		cursor = "?cursor=" + cursor
	}
	conn, resp, err := websocket.DefaultDialer.DialContext(tb.Context(), "ws://"+address+"/xrpc/com.atproto.sync.subscribeRepos"+cursor, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(); _ = resp.Body.Close() })
	return conn
}

func read(tb testing.TB, conn *websocket.Conn) []byte {
	tb.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		tb.Fatal(err)
	}
	kind, b, err := conn.ReadMessage()
	if err != nil || kind != websocket.BinaryMessage {
		tb.Fatal(kind, err)
	}
	return b
}

// commitOf decodes a #commit as indigo does; nil if the message is of another
// type.
func commitOf(tb testing.TB, frame []byte) *comatproto.SyncSubscribeRepos_Commit {
	tb.Helper()
	const head = "\xa2atg#commitbop\x01"
	if !bytes.HasPrefix(frame, []byte(head)) {
		return nil
	}
	var c comatproto.SyncSubscribeRepos_Commit
	if err := c.UnmarshalCBOR(bytes.NewReader(frame[len(head):])); err != nil {
		tb.Fatalf("%v\n%q", err, frame)
	}
	return &c
}

// Messages for load are distinct, indigo can read each, their true parts are
// true, and they have the sizes of the real network.
func TestRealisticMessages(t *testing.T) {
	n := network.New(small(1))
	enc := encoder{n: n, pool: newPool(1)}
	seen := map[[32]byte]bool{}
	var sizes []int
	types := map[string]int{}
	var e network.Event
	for range 20_000 {
		n.Next(&e)
		frame := enc.message(nil, &e, e.Seq, 1_700_000_000_123)
		if h := sha256.Sum256(frame); seen[h] {
			t.Fatal("the same message twice:", e)
		} else {
			seen[h] = true
		}
		var m wire.Message
		if err := wire.Parse(frame, &m); err != nil || int64(m.Seq) != e.Seq || string(m.Time) != "2023-11-14T22:13:20.123Z" {
			t.Fatalf("%v %+v", err, m)
		}
		types[m.Type.String()]++
		c := commitOf(t, frame)
		if c == nil {
			continue
		}
		sizes = append(sizes, len(frame))
		blocks := map[string][]byte{}
		if err := wire.EachBlock(m.Blocks, func(cid, block []byte) {
			if sum := sha256.Sum256(block); string(sum[:]) != string(cid[len(cid)-32:]) {
				t.Fatalf("a block does not hash to its CID: %+v", e)
			}
			blocks[string(cid)] = block
		}); err != nil {
			t.Fatal(err)
		}
		least := 2 // the commit, and a node
		if slices.ContainsFunc(c.Ops, func(op *comatproto.SyncSubscribeRepos_RepoOp) bool { return op.Cid != nil }) {
			least = 3
		}
		if len(blocks) < least {
			t.Fatalf("%d blocks", len(blocks))
		}
		var commit repo.Commit
		if err := commit.UnmarshalCBOR(bytes.NewReader(blocks[string(cid.Cid(c.Commit).Bytes())])); err != nil || commit.VerifyStructure() != nil || commit.Rev != c.Rev || commit.DID != c.Repo {
			t.Fatalf("%v %+v", err, commit)
		}
		types["ops"] += len(c.Ops)
		for i, op := range c.Ops {
			nsid, _, err := syntax.ParseRepoPath(op.Path)
			if err != nil || nsid.String() != collection(n.Op(&e, i).Kind) {
				t.Fatal(op.Path, err)
			}
			types[op.Action]++
			if (op.Action == "delete") != (op.Cid == nil) || (op.Action == "create") != (op.Prev == nil) {
				t.Fatalf("%+v", op)
			}
			if op.Cid != nil && blocks[string(cid.Cid(*op.Cid).Bytes())] == nil {
				t.Fatalf("the record's block is missing: %+v", e)
			}
		}
		for _, when := range []string{c.Rev, *orEmpty(c.Since)} {
			if _, err := syntax.ParseTID(when); when != "" && err != nil {
				t.Fatal(err)
			}
		}
	}
	slices.Sort(sizes)
	for _, want := range []struct{ percent, least, most int }{{10, 3300, 3900}, {50, 5200, 5700}, {90, 7100, 7800}} {
		if got := sizes[len(sizes)*want.percent/100]; got < want.least || got > want.most {
			t.Errorf("%d %% of the messages have at most %d bytes, want %d to %d", want.percent, got, want.least, want.most)
		}
	}
	for _, what := range []string{"commit", "identity", "account", "sync", "create", "update", "delete"} {
		if types[what] == 0 {
			t.Errorf("no %s among %v", what, types)
		}
	}
	if types["ops"] <= types["commit"] {
		t.Error("no commit has several operations")
	}
}

func orEmpty(s *string) *string {
	if s == nil {
		return new(string)
	}
	return s
}

// indigo can verify every commit: its tree by inverting its operations, and its
// signature by the DID documents that the relay serves.
func TestVerifiableCommits(t *testing.T) {
	const events = 4000
	_, address := serveSimulated(t, Options{Network: small(2), Full: true, Events: events, Window: 2 * events, Rate: 1e6})
	conn := subscribe(t, address, "0")
	dir := documents{"http://" + address}
	commits, signatures := 0, 0
	before := map[string]string{} // the root of each repo
	for seq := int64(1); seq <= events; seq++ {
		frame := read(t, conn)
		var m wire.Message
		if err := wire.Parse(frame, &m); err != nil || int64(m.Seq) != seq {
			t.Fatal(m.Seq, seq, err)
		}
		if m.Type == wire.Account && string(m.Status) == "deleted" {
			delete(before, string(m.DID))
		}
		c := commitOf(t, frame)
		if c == nil {
			continue
		}
		if _, err := repo.VerifyCommitMessage(t.Context(), c); err != nil {
			t.Fatalf("%d: %v\n%+v", seq, err, c)
		}
		if root, known := before[c.Repo]; known && (c.PrevData == nil || c.PrevData.String() != root || c.Since == nil) {
			t.Fatalf("%d: the chain of %s is broken", seq, c.Repo)
		}
		if seq%10 == 0 {
			if err := repo.VerifyCommitSignature(t.Context(), dir, c); err != nil {
				t.Fatal(err)
			}
			signatures++
		}
		commit, _, err := repo.LoadCommitFromCAR(t.Context(), bytes.NewReader(c.Blocks))
		if err != nil {
			t.Fatal(err)
		}
		before[c.Repo] = commit.Data.String()
		commits++
	}
	if commits < events*9/10 || signatures < 300 {
		t.Fatal(commits, signatures)
	}
}

// documents resolves DIDs through the documents that a relay serves.
type documents struct{ url string }

func (d documents) LookupDID(ctx context.Context, did syntax.DID) (*identity.Identity, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/"+did.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var doc identity.DIDDocument
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", b, err)
	}
	id := identity.ParseIdentity(&doc)
	return &id, nil
}

func (d documents) LookupHandle(context.Context, syntax.Handle) (*identity.Identity, error) {
	return nil, identity.ErrHandleNotFound
}

func (d documents) Lookup(ctx context.Context, i syntax.AtIdentifier) (*identity.Identity, error) {
	did, err := i.AsDID()
	if err != nil {
		return nil, err
	}
	return d.LookupDID(ctx, did)
}

func (d documents) Purge(context.Context, syntax.AtIdentifier) error { return nil }

// A relay serves cursors in the past, in the future, and none.
func TestCursor(t *testing.T) {
	r, address := serveSimulated(t, Options{Network: small(3), From: 5000, Window: 1024, Rate: 1000, Events: 3000})
	var m wire.Message
	next := func(conn *websocket.Conn) *wire.Message {
		m = wire.Message{}
		if err := wire.Parse(read(t, conn), &m); err != nil {
			t.Fatal(err)
		}
		return &m
	}
	if m := next(subscribe(t, address, "4800")); m.Seq != 4801 {
		t.Errorf("the event after cursor 4800 is %d", m.Seq)
	}
	old := subscribe(t, address, "7")
	if m := next(old); m.Type != wire.Info || string(m.Name) != "OutdatedCursor" {
		t.Errorf("%+v", m)
	}
	if m := next(old); m.Seq < 4400 || m.Seq > 7000 {
		t.Errorf("the event after OutdatedCursor is %d", m.Seq)
	}
	if m := next(subscribe(t, address, "999999999")); m.Type != wire.Error || string(m.Name) != "FutureCursor" {
		t.Errorf("%+v", m)
	}
	head := r.Head()
	if m := next(subscribe(t, address, "")); int64(m.Seq) <= head && r.Head() < 8000 {
		t.Errorf("the first live event is %d, after %d", m.Seq, head)
	}
	resp, err := http.Get("http://" + address + "/xrpc/com.atproto.sync.subscribeRepos?cursor=x")
	if err != nil || resp.StatusCode != http.StatusBadRequest {
		t.Error(resp, err)
	}
	_ = resp.Body.Close()
}

// A reader that does not read until it is too far behind receives
// ConsumerTooSlow.
func TestTooSlow(t *testing.T) {
	r, address := serveSimulated(t, Options{Network: small(6), Rate: 200_000, Window: 20_000, Events: 400_000})
	conn := subscribe(t, address, "")
	read(t, conn)
	for r.Head() < 100_000 {
		time.Sleep(10 * time.Millisecond)
	}
	var m wire.Message
	for m.Type != wire.Error {
		m = wire.Message{}
		if err := wire.Parse(read(t, conn), &m); err != nil {
			t.Fatal(err)
		}
	}
	if string(m.Name) != "ConsumerTooSlow" {
		t.Errorf("%s: %s", m.Name, m.Text)
	}
}
