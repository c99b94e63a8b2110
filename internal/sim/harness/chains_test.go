package harness_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/events"
	"github.com/gorilla/websocket"
)

// link is the last commit of a repo in a stream.
type link struct{ rev, data string }

// readChains reads the whole stream of a PDS or relay, with indigo's decoders, and
// returns the repos with a commit that does not continue the previous one, with the
// reason.
func readChains(ctx context.Context, port int) (broken map[string]string, err error) {
	conn, resp, err := websocket.DefaultDialer.DialContext(ctx, fmt.Sprintf("ws://127.0.0.1:%d/xrpc/com.atproto.sync.subscribeRepos?cursor=0", port), nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(), resp.Body.Close()) }()
	last, broken := map[string]link{}, map[string]string{}
	for {
		if err := conn.SetReadDeadline(time.Now().Add(3 * time.Second)); err != nil {
			return nil, err
		}
		_, frame, err := conn.ReadMessage()
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			return broken, nil // the end of the stream
		}
		if err != nil {
			return nil, err
		}
		r := bytes.NewReader(frame)
		var h events.EventHeader
		if err := h.UnmarshalCBOR(r); err != nil {
			return nil, err
		}
		switch h.MsgType {
		case "#account":
			var e comatproto.SyncSubscribeRepos_Account
			if err := e.UnmarshalCBOR(r); err != nil {
				return nil, err
			}
			if !e.Active && e.Status != nil && *e.Status == "deleted" {
				delete(last, e.Did)
			}
		case "#sync":
			var e comatproto.SyncSubscribeRepos_Sync
			if err := e.UnmarshalCBOR(r); err != nil {
				return nil, err
			}
			commit, _, err := repo.LoadCommitFromCAR(ctx, bytes.NewReader(e.Blocks))
			if err != nil {
				return nil, err
			}
			// The relay repeats some, and old ones prove nothing.
			if was, known := last[e.Did]; known && commit.Rev >= was.rev && commit.Data.String() != was.data {
				broken[e.Did] = fmt.Sprintf("at seq %d: #sync with another root", e.Seq)
			}
		case "#commit":
			var e comatproto.SyncSubscribeRepos_Commit
			if err := e.UnmarshalCBOR(r); err != nil {
				return nil, err
			}
			commit, _, err := repo.LoadCommitFromCAR(ctx, bytes.NewReader(e.Blocks))
			if err != nil {
				return nil, err
			}
			was, known := last[e.Repo]
			switch {
			case known && e.Rev <= was.rev:
				continue
			case known && (e.Since == nil || *e.Since != was.rev || e.PrevData != nil && e.PrevData.String() != was.data):
				broken[e.Repo] = fmt.Sprintf("at seq %d: since or prevData do not match the previous commit", e.Seq)
			}
			last[e.Repo] = link{e.Rev, commit.Data.String()}
		}
	}
}
