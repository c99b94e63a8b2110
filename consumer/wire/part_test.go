package wire_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/internal/sim/synth"
)

const carol = "did:plc:cccccccccccccccccccccccc"

// An index around bob takes of alice's messages, one after the other, what concerns bob; and all of them, once she joins.
func TestPart(t *testing.T) {
	block := func(kind, subject string) synth.Block {
		return synth.NewBlock(synth.Record(*kinds.ByName(kind), subject))
	}
	follow, like := "app.bsky.graph.follow/", "app.bsky.feed.like/"
	toBob, toCarol, toPost := block("follow", bob), block("follow", carol), block("like", post)
	item := synth.NewBlock(synth.ListItem(bob, "at://"+alice+"/app.bsky.graph.list/a", "2026-01-01T00:00:00Z"))
	text := synth.NewBlock(synth.CBOR(nil, synth.Map{{Key: "$type", Value: "app.bsky.feed.post"}, {Key: "text", Value: "about " + bob}}))
	op := func(action, path string, b synth.Block) any {
		if action == "delete" {
			return op(action, path, nil)
		}
		return op(action, path, b.CID)
	}
	ops := func(blocks []synth.Block, ops ...any) []byte { return commit(ops, blocks, nil) }
	status := synth.AppendAccount(nil, []byte(alice), 5, []byte("2026-01-01T00:00:00Z"), false, "deactivated")
	active := synth.AppendAccount(nil, []byte(alice), 5, []byte("2026-01-01T00:00:00Z"), true, "")
	root := synth.CommitBlock(alice, rev, [32]byte{7})
	repoSync := synth.AppendSync(nil, []byte(alice), []byte(rev), 5, []byte("2026-01-01T00:00:00Z"), synth.CAR(root.CID, root))

	d := wire.Decoder{Kinds: kinds.BuiltIn, Part: wire.NewPart(bob)}
	for _, step := range []struct {
		what, want string
		frame      []byte
	}{
		{"a stranger is active", "", active},
		{"a deletion by a stranger", "", ops(nil, op("delete", follow+"1", toBob))},
		{"what names nobody", "", ops([]synth.Block{toCarol}, op("create", follow+"1", toCarol))},
		{"a text about a center", "", ops([]synth.Block{text}, op("create", "app.bsky.feed.post/1", text))},
		{"still a stranger", "", active},
		{"a commit that cannot be read, and names a center", "damaged", commit([]any{op("create", follow+"1", toBob)}, []synth.Block{toBob}, set("commit", nil))},
		{"a follow of a center, and another", "put follow 1 " + bob, ops([]synth.Block{toBob, toCarol}, op("create", follow+"1", toBob), op("create", follow+"2", toCarol))},
		{"a like of its post", "put like 3 " + post, ops([]synth.Block{toPost}, op("create", like+"3", toPost))},
		{"a list item has its list", "put listitem 4 " + bob + "|put listitem_list 4 at://" + alice + "/app.bsky.graph.list/a", ops([]synth.Block{item}, op("create", "app.bsky.graph.listitem/4", item))},
		{"no longer a stranger", "account", status},
		{"creations that name nobody", "", ops([]synth.Block{toCarol}, op("create", follow+"5", toCarol))},
		{"an update away from a center", "delete follow 1", ops([]synth.Block{toCarol}, op("update", follow+"1", toCarol))},
		{"a deletion", "delete like 3", ops(nil, op("delete", like+"3", toPost))},
		{"a deletion of what is not indexed", "", ops(nil, op("delete", "app.bsky.feed.post/3", toPost))},
		{"operations that cannot be read", "damaged", commit(nil, nil, set("ops", []any{synth.Map{{Key: "path", Value: 7}}}))},
		{"a commit without its operations", "damaged", commit(nil, nil, set("tooBig", true))},
		{"a missing block", "damaged", ops([]synth.Block{toBob}, op("create", like+"6", toPost), op("create", "app.bsky.feed.post/1", toBob))},
		{"a #sync", "", repoSync},
	} {
		var b batch.Batch
		var m wire.Message
		must(t, wire.Parse(step.frame, &m))
		d.Add(&m, &b)
		var got []string
		for i, line := range describe(&b) {
			line = strings.TrimSpace(line)
			switch _, op, _ := strings.Cut(line, " "); {
			case i == 0 && b.Event(0).Flags&batch.IsOutside == 0:
				got = append(got, "not outside")
			case strings.HasSuffix(line, " damaged"):
				got = append(got, "damaged")
			case strings.HasPrefix(op, "account"):
				got = append(got, "account")
			case i > 0:
				got = append(got, line)
			}
		}
		slices.Sort(got)
		want := strings.Split(step.want, "|")
		slices.Sort(want)
		if fmt.Sprint(got) != fmt.Sprint(want) && (step.want != "" || b.Events() > 0) {
			t.Errorf("%s: %q, want %q", step.what, got, want)
		}
	}

	if lines, _, err := decode(&d, synth.AppendAccount(nil, []byte(carol), 5, []byte("2026-01-01T00:00:00Z"), false, "takendown")); err != nil || len(lines) != 1 {
		t.Errorf("a stranger that is not active: %q, %v", lines, err)
	}
	d.Part.Join([]byte(alice))
	d.Part.Join([]byte(alice))
	for frame, want := range map[string]int{string(status): 1, string(repoSync): 1, string(ops([]synth.Block{toCarol}, op("create", follow+"1", toCarol))): 2} {
		lines, _, err := decode(&d, []byte(frame))
		if err != nil || len(lines) != want {
			t.Errorf("of a member: %q, %v", lines, err)
		}
	}
	if d.Part.Members() != 2 || !d.Part.Has([]byte(alice)) || d.Part.Has([]byte(carol)) {
		t.Errorf("%d members", d.Part.Members())
	}
}

// A rejected commit of an outsider is noted only if it would have been taken.
func TestPartRejected(t *testing.T) {
	toBob := synth.NewBlock(synth.Record(*kinds.ByName("follow"), bob))
	d := wire.Decoder{Kinds: kinds.BuiltIn, Part: wire.NewPart(bob)}
	for blocks, want := range map[*synth.Block]int{nil: 0, &toBob: 1} {
		var all []synth.Block
		if blocks != nil {
			all = append(all, *blocks)
		}
		var b batch.Batch
		var m wire.Message
		must(t, wire.Parse(commit([]any{op("create", "app.bsky.graph.follow/1", toBob.CID)}, all, nil), &m))
		d.Reject(&m, &b, wire.BadSignature)
		if b.Events() != want || want > 0 && b.Event(0).Flags&(batch.IsOutside|batch.IsRefuted) != batch.IsOutside|batch.IsRefuted {
			t.Errorf("%d events, want %d", b.Events(), want)
		}
	}
}
