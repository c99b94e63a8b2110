package wire_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/sim/synth"
)

const (
	alice = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	bob   = "did:plc:bbbbbbbbbbbbbbbbbbbbbbbb"
	post  = "at://did:plc:bbbbbbbbbbbbbbbbbbbbbbbb/app.bsky.feed.post/3kaaaaaaaaaaa"
	rev   = "3kaaaaaaaaaaa"
)

// must ends a test with an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func op(action, path string, cid any) any {
	return synth.Map{{Key: "cid", Value: cid}, {Key: "path", Value: path}, {Key: "action", Value: action}}
}

// commit encodes a commit of alice; change may spoil it.
func commit(ops []any, blocks []synth.Block, change func(m synth.Map) synth.Map) []byte {
	root := synth.CommitBlock(alice, rev, [32]byte{7})
	m := synth.Map{
		{Key: "ops", Value: ops},
		{Key: "rev", Value: rev},
		{Key: "seq", Value: 5},
		{Key: "repo", Value: alice},
		{Key: "time", Value: "2026-01-01T00:00:00Z"},
		{Key: "since", Value: nil},
		{Key: "blocks", Value: synth.CAR(root.CID, append(slices.Clone(blocks), root)...)},
		{Key: "commit", Value: root.CID},
		{Key: "tooBig", Value: false},
	}
	if change != nil {
		m = change(m)
	}
	return synth.Message("#commit", m)
}

func set(key string, value any) func(synth.Map) synth.Map {
	return func(m synth.Map) synth.Map {
		for i := range m {
			if m[i].Key == key {
				m[i].Value = value
				return m
			}
		}
		return append(m, synth.Pair{Key: key, Value: value})
	}
}

func without(key string) func(synth.Map) synth.Map {
	return func(m synth.Map) synth.Map {
		return slices.DeleteFunc(m, func(p synth.Pair) bool { return p.Key == key })
	}
}

func nested(depth int) []byte {
	return append(bytes.Repeat([]byte{0x81}, depth), 0x01)
}

// dropped returns the reasons of what the decoder dropped last.
func dropped(d *wire.Decoder) string {
	var reasons []string
	for _, drop := range d.Drops {
		reasons = append(reasons, string(drop.Reason))
	}
	return strings.Join(reasons, " ")
}

// Each fault drops only the part of a message that it affects.
func TestBadInput(t *testing.T) {
	follow := func(record []byte) ([]any, []synth.Block) {
		b := synth.NewBlock(record)
		return []any{op("create", "app.bsky.graph.follow/a", b.CID), op("delete", "app.bsky.graph.follow/b", nil)}, []synth.Block{b}
	}
	record := func(r any) []byte {
		ops, blocks := follow(synth.CBOR(nil, r))
		return commit(ops, blocks, nil)
	}
	one := func(path string, r any) []byte {
		b := synth.NewBlock(synth.CBOR(nil, r))
		return commit([]any{op("create", path, b.CID)}, []synth.Block{b}, nil)
	}
	like := func(uri string) []byte {
		return one("app.bsky.feed.like/a", synth.Map{{Key: "subject", Value: synth.Map{{Key: "uri", Value: uri}}}})
	}
	listitem := func(subject, list string) []byte {
		return one("app.bsky.graph.listitem/a", synth.Map{{Key: "list", Value: list}, {Key: "subject", Value: subject}})
	}
	const space = "at://" + bob + "/space/com.example.forum/self"
	const spaceRecord = space + "/" + alice + "/app.bsky.feed.post/3kaaaaaaaaaaa"
	const kept = "  delete follow b" // the rest of the commit
	const none = "  put follow a "   // the record names no subject
	good, goodBlocks := follow(synth.CBOR(nil, synth.Map{{Key: "subject", Value: bob}}))
	liar := goodBlocks[0]
	liar.Bytes = synth.CBOR(nil, synth.Map{{Key: "subject", Value: alice}})
	for name, c := range map[string]struct {
		frame []byte
		drops string
		left  []string // lines that must be in the batch
		not   string   // text that must not be in the batch
	}{
		"good":                  {commit(good, goodBlocks, nil), "", []string{"  put follow a " + bob, kept}, "damaged"},
		"subject missing":       {record(synth.Map{{Key: "$type", Value: "app.bsky.graph.follow"}}), "record_subject", []string{none, kept}, "damaged"},
		"subject empty":         {record(synth.Map{{Key: "subject", Value: ""}}), "record_subject", []string{none, kept}, "damaged"},
		"subject a web address": {record(synth.Map{{Key: "subject", Value: "https://example.com/"}}), "record_subject", []string{none, kept}, "damaged"},
		"subject a number":      {record(synth.Map{{Key: "subject", Value: 5}}), "record_subject", []string{none, kept}, "damaged"},
		"subject a map":         {record(synth.Map{{Key: "subject", Value: synth.Map{{Key: "uri", Value: post}}}}), "record_subject", []string{none, kept}, "damaged"},
		"subject a URI":         {record(synth.Map{{Key: "subject", Value: post}}), "record_subject", []string{none, kept}, "damaged"},
		"subject twice":         {record(synth.Map{{Key: "subject", Value: bob}, {Key: "subject", Value: alice}}), "record", []string{none, kept}, bob},
		"subject too long":      {record(synth.Map{{Key: "subject", Value: "did:web:" + strings.Repeat("a", 2048)}}), "record_subject", []string{none, kept}, "damaged"},
		"record an array":       {record([]any{}), "record", []string{none, kept}, "damaged"},
		"record empty":          {commit([]any{op("create", "app.bsky.graph.follow/a", synth.NewBlock(nil).CID)}, []synth.Block{synth.NewBlock(nil)}, nil), "record", []string{none}, "damaged"},
		"record with a tail": {func() []byte {
			o, b := follow(append(synth.CBOR(nil, synth.Map{{Key: "subject", Value: bob}}), 0))
			return commit(o, b, nil)
		}(), "record", []string{none, kept}, bob},
		"like of a record in a space": {like(spaceRecord), "space_subject", []string{"  put like a \n"}, "damaged"},
		"like of a space":             {like(space), "space_subject", []string{"  put like a \n"}, "damaged"},
		"like of half a space":        {like("at://" + bob + "/space/com.example.forum"), "space_subject", []string{"  put like a \n"}, "damaged"},
		"follow of a space":           {record(synth.Map{{Key: "subject", Value: space}}), "record_subject", []string{none, kept}, "damaged"},
		"list in a space":             {listitem(bob, spaceRecord), "space_subject", []string{"  put listitem a " + bob, "  put listitem_list a \n"}, "damaged"},
		"list in a space, no member":  {listitem("nobody", spaceRecord), "record_subject", []string{"  put listitem a \n", "  put listitem_list a \n"}, "damaged"},
		"createdAt odd":               {record(synth.Map{{Key: "subject", Value: bob}, {Key: "createdAt", Value: 5}}), "", []string{"  put follow a " + bob, kept}, "damaged"},
		"nested 100,000 deep": {func() []byte {
			r := append([]byte{0xa2, 0x61, 'x'}, nested(100_000)...)
			r = synth.CBOR(synth.CBOR(r, "subject"), bob)
			o, b := follow(r)
			return commit(o, b, nil)
		}(), "", []string{"  put follow a " + bob}, "damaged"},
		"huge count in record": {func() []byte {
			o, b := follow([]byte{0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x61})
			return commit(o, b, nil)
		}(), "record", []string{none, kept}, "damaged"},
		"block missing":           {commit(good, nil, nil), "block_missing", []string{"damaged", none, kept}, bob},
		"block does not hash":     {commit(good, []synth.Block{liar}, nil), "block_hash", []string{"damaged", none, kept}, alice + " \n"},
		"cid missing":             {commit([]any{op("create", "app.bsky.graph.follow/a", nil)}, nil, nil), "block_missing", []string{"damaged", none}, bob},
		"created and deleted":     {commit([]any{op("create", "app.bsky.graph.follow/a", synth.Link{1}), op("delete", "app.bsky.graph.follow/a", nil)}, nil, nil), "", []string{none, "  delete follow a"}, "damaged"},
		"two records, one block":  {commit([]any{op("create", "app.bsky.graph.follow/a", goodBlocks[0].CID), op("update", "app.bsky.graph.follow/c", goodBlocks[0].CID)}, goodBlocks, nil), "", []string{"  put follow a " + bob, "  put follow c " + bob}, "damaged"},
		"rkey invalid":            {commit([]any{op("delete", "app.bsky.graph.follow/a b", nil), op("delete", "app.bsky.graph.follow/b", nil)}, nil, nil), "path", []string{kept}, "a b"},
		"rkey empty":              {commit([]any{op("delete", "app.bsky.graph.follow/", nil)}, nil, nil), "", nil, "delete"},
		"rkey dot":                {commit([]any{op("delete", "app.bsky.graph.follow/..", nil)}, nil, nil), "path", nil, "delete"},
		"path without rkey":       {commit([]any{op("delete", "app.bsky.graph.follow", nil)}, nil, nil), "path", nil, "delete"},
		"other collection":        {commit([]any{op("create", "app.bsky.feed.post/a", synth.Link{1})}, nil, nil), "", nil, "put"},
		"action unknown":          {commit([]any{op("move", "app.bsky.graph.follow/a", nil), op("delete", "app.bsky.graph.follow/b", nil)}, nil, nil), "action", []string{"damaged", kept}, "follow a"},
		"DID invalid":             {commit(good, goodBlocks, set("repo", "alice")), "did", nil, "commit"},
		"rev not a TID":           {commit(good, goodBlocks, set("rev", "zzzzzzzzzzzzz")), "rev", []string{"damaged"}, "put"},
		"update, block missing":   {commit([]any{op("update", "app.bsky.graph.follow/a", synth.Link{1})}, nil, nil), "block_missing", []string{"damaged", none}, bob},
		"other rev in the block":  {commit(good, goodBlocks, set("rev", "3kbbbbbbbbbbb")), "", []string{"rev=3kaaaaaaaaaaa data=07", "  put follow a " + bob, kept}, "damaged"},
		"other repo in the block": {commit(good, goodBlocks, set("repo", bob)), "commit_block", []string{"damaged"}, "put"},
		"commit not in the CAR":   {commit(good, goodBlocks, set("commit", synth.Link{9})), "commit_block", []string{"damaged"}, "put"},
		"commit null":             {commit(good, goodBlocks, set("commit", nil)), "commit_block", []string{"damaged"}, "put"},
		"no CAR":                  {commit(good, goodBlocks, set("blocks", []byte{})), "car", []string{"damaged"}, "put"},
		"CAR cut":                 {commit(good, goodBlocks, set("blocks", synth.CAR(synth.Link{}, goodBlocks...)[:100])), "car", []string{"damaged"}, "put"},
		"CAR with a wrong length": {commit(good, goodBlocks, set("blocks", append(synth.CAR(synth.Link{}), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f))), "car", []string{"damaged"}, "put"},
		"CAR version 2":           {commit(good, goodBlocks, set("blocks", []byte("\x0a\xa1gversion\x02"))), "car", []string{"damaged"}, "put"},
		"ops not an array":        {commit(nil, nil, set("ops", "x")), "ops", []string{"damaged"}, "put"},
		"ops missing":             {commit(nil, nil, without("ops")), "ops", []string{"damaged"}, "put"},
		"an op without a path":    {commit(append(slices.Clone(good), synth.Map{{Key: "action", Value: "create"}}), goodBlocks, nil), "ops", []string{"damaged"}, "put"},
		"tooBig":                  {commit(good, goodBlocks, set("tooBig", true)), "too_big", []string{"damaged", "  put follow a " + bob}, "xx"},
		"tooBig without blocks":   {commit(nil, nil, func(m synth.Map) synth.Map { return set("blocks", []byte{})(set("tooBig", true)(m)) }), "too_big", []string{"damaged"}, "put"},
		"unknown fields":          {commit(good, goodBlocks, set("novel", synth.Map{{Key: "x", Value: []any{1, "2"}}})), "", []string{"  put follow a " + bob}, "damaged"},
		"since not a TID":         {commit(good, goodBlocks, set("since", "x")), "", []string{"since=jzzzzzzzzzzzz"}, "damaged"},
		"account without active":  {synth.Message("#account", synth.Map{{Key: "did", Value: alice}, {Key: "seq", Value: 5}}), "account", nil, "account"},
		"account":                 {synth.Message("#account", synth.Map{{Key: "did", Value: alice}, {Key: "seq", Value: 5}, {Key: "active", Value: false}, {Key: "status", Value: "novel"}}), "", []string{"active=false deleted=false"}, "xx"},
		"sync without a CAR":      {synth.Message("#sync", synth.Map{{Key: "did", Value: alice}, {Key: "rev", Value: rev}, {Key: "seq", Value: 5}, {Key: "blocks", Value: []byte{1}}}), "car", []string{"sync"}, "xx"},
		"sync, other rev in the block": {func() []byte {
			b := synth.CommitBlock(alice, rev, [32]byte{7})
			return synth.Message("#sync", synth.Map{{Key: "did", Value: alice}, {Key: "rev", Value: "3kbbbbbbbbbbb"}, {Key: "seq", Value: 5}, {Key: "blocks", Value: synth.CAR(b.CID, b)}})
		}(), "", []string{"sync " + alice + " 3kaaaaaaaaaaa 07"}, "damaged"},
		"no op":      {synth.CBOR(synth.CBOR(nil, synth.Map{{Key: "t", Value: "#commit"}}), synth.Map{}), "", nil, "commit"},
		"novel type": {synth.Message("#novel", synth.Map{{Key: "seq", Value: 5}, {Key: "repo", Value: 7}}), "", nil, "commit"},
		"novel op":   {synth.CBOR(synth.CBOR(nil, synth.Map{{Key: "op", Value: 2}, {Key: "t", Value: "#commit"}}), synth.Map{}), "", nil, "commit"},
	} {
		t.Run(name, func(t *testing.T) {
			d := wire.Decoder{Kinds: kinds.BuiltIn}
			lines, _, err := decode(&d, c.frame)
			must(t, err)
			for _, drop := range d.Drops {
				if !slices.Contains(wire.Reasons, drop.Reason) {
					t.Errorf("reason %q is not in wire.Reasons", drop.Reason)
				}
			}
			if got := dropped(&d); got != c.drops && (name != "rkey empty" || got != "path") {
				t.Errorf("dropped %q, want %q", got, c.drops)
			}
			text := strings.Join(lines, "\n") + "\n"
			for _, want := range c.left {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in:\n%s", want, text)
				}
			}
			if strings.Contains(text, c.not) {
				t.Errorf("%q is in:\n%s", c.not, text)
			}
		})
	}
}

// A rev that is too far ahead of the present is not believed, in a commit, a sync, or a block whose message names
// another. The present is asked for when a rev is above the last one.
func TestFutureRev(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	asked := 0
	d := wire.Decoder{Kinds: kinds.BuiltIn, Latest: func() format.Rev { asked++; return format.LatestRev(at) }}
	tid := func(ahead time.Duration) string { return format.Rev(at.Add(ahead).UnixMicro() << 10).String() }
	for i, c := range []struct {
		block, message string // their revs
		drops, line    string
	}{
		{tid(time.Minute), tid(time.Minute), "", "5 commit " + alice + " rev=" + tid(time.Minute) + " data=0700000000000000"},
		{tid(5 * time.Minute), tid(5 * time.Minute), "", "5 commit " + alice + " rev=" + tid(5*time.Minute) + " data=0700000000000000"},
		{tid(5*time.Minute + 1000), tid(5*time.Minute + 1000), "future_rev", "5 commit " + alice + " damaged"},
		{tid(time.Minute), tid(time.Hour), "", "5 commit " + alice + " rev=" + tid(time.Minute) + " data=0700000000000000"},
		{tid(time.Hour), tid(time.Minute), "future_rev", "5 commit " + alice + " damaged"},
	} {
		b := synth.CommitBlock(alice, c.block, [32]byte{7})
		change := func(m synth.Map) synth.Map {
			return set("rev", c.message)(set("commit", b.CID)(set("blocks", synth.CAR(b.CID, b))(m)))
		}
		lines, _, err := decode(&d, commit([]any{op("delete", "app.bsky.graph.follow/b", nil)}, nil, change))
		if err != nil || lines[0] != c.line || dropped(&d) != c.drops || (len(lines) > 1) != (c.drops == "") {
			t.Errorf("%d: %v dropped %q, %v; want %q dropped %q", i, lines, dropped(&d), err, c.line, c.drops)
		}
		sync := synth.Message("#sync", synth.Map{{Key: "did", Value: alice}, {Key: "rev", Value: c.message}, {Key: "seq", Value: 5}, {Key: "blocks", Value: synth.CAR(b.CID, b)}})
		want := c.block
		if c.drops != "" {
			want = format.Rev(0).String()
		}
		if lines, _, err = decode(&d, sync); err != nil || lines[0] != "5 sync "+alice+" "+want+" 0700000000000000" || dropped(&d) != c.drops {
			t.Errorf("%d, a sync: %v dropped %q, %v", i, lines, dropped(&d), err)
		}
	}
	if asked != 5 {
		t.Errorf("asked for the present %d times, want 5: at first, and for each rev that is refused", asked)
	}
}

// Malformed frames are errors.
func TestUnreadable(t *testing.T) {
	for name, frame := range map[string][]byte{
		"empty":           {},
		"text":            []byte("hello"),
		"header only":     synth.CBOR(nil, synth.Map{{Key: "t", Value: "#commit"}, {Key: "op", Value: 1}}),
		"no seq":          synth.Message("#commit", synth.Map{{Key: "repo", Value: alice}}),
		"seq 0":           synth.Message("#commit", synth.Map{{Key: "seq", Value: 0}}),
		"seq negative":    synth.Message("#account", synth.Map{{Key: "seq", Value: -5}}),
		"seq a text":      synth.Message("#sync", synth.Map{{Key: "seq", Value: "5"}}),
		"seq over 2^63":   append(synth.CBOR(nil, synth.Map{{Key: "t", Value: "#commit"}, {Key: "op", Value: 1}}), 0xa1, 0x63, 's', 'e', 'q', 0x1b, 0xff, 0, 0, 0, 0, 0, 0, 0),
		"repo a number":   synth.Message("#commit", synth.Map{{Key: "seq", Value: 5}, {Key: "repo", Value: 5}}),
		"huge map":        append(synth.CBOR(nil, synth.Map{{Key: "t", Value: "#commit"}, {Key: "op", Value: 1}}), 0xbb, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"indefinite map":  append(synth.CBOR(nil, synth.Map{{Key: "t", Value: "#commit"}, {Key: "op", Value: 1}}), 0xbf, 0xff),
		"nested, not map": nested(1000),
	} {
		var m wire.Message
		if err := wire.Parse(frame, &m); err == nil {
			t.Errorf("%s: read as %+v", name, m)
		}
	}
}

// An argument is read in the shortest form only, as by indigo; a float has no shorter one.
func TestShortestHeads(t *testing.T) {
	for first := range 256 {
		for i := range 65 {
			c := wire.Cursor{B: binary.BigEndian.AppendUint64([]byte{byte(first)}, 1<<i)}
			major, arg := c.Head()
			if isFloat := major == wire.Simple && first&31 > 24; !c.Bad && !isFloat && !bytes.Equal(c.B[:c.I], wire.AppendHead(nil, major, arg)) {
				t.Errorf("% x is read as %d", c.B, arg)
			}
		}
	}
}

// A message of 5 MB is decoded like any other; one with more operations than a
// commit may have is not.
func TestLargeMessage(t *testing.T) {
	for n, drops := range map[int]int{5000: 0, 5001: 1} {
		var ops []any
		var blocks []synth.Block
		for i := range n {
			b := synth.NewBlock(synth.CBOR(nil, synth.Map{{Key: "subject", Value: fmt.Sprintf("did:plc:%024d", i)}, {Key: "pad", Value: make([]byte, 900)}}))
			blocks = append(blocks, b)
			ops = append(ops, op("create", fmt.Sprintf("app.bsky.graph.follow/%d", i), b.CID))
		}
		frame := commit(ops, blocks, nil)
		if len(frame) < 5_000_000 {
			t.Fatalf("only %d bytes", len(frame))
		}
		d := wire.Decoder{Kinds: kinds.BuiltIn}
		lines, _, err := decode(&d, frame)
		if err != nil || len(lines) != 1+n*(1-drops) || len(d.Drops) != drops {
			t.Errorf("%d operations: %d lines, %d drops, %v", n, len(lines), len(d.Drops), err)
		}
	}
}

// Records that share a block of a megabyte cost as much as one, also in
// different collections.
func TestSharedBlock(t *testing.T) {
	b := synth.NewBlock(synth.CBOR(nil, synth.Map{{Key: "subject", Value: "did:web:" + strings.Repeat("a", 253)}, {Key: "pad", Value: make([]byte, 1<<20)}}))
	for _, other := range []string{"app.bsky.graph.follow", "app.bsky.graph.block"} {
		var ops []any
		for i := range 5000 {
			collection := "app.bsky.graph.follow"
			if i%2 == 1 {
				collection = other
			}
			ops = append(ops, op("create", fmt.Sprintf("%s/%d", collection, i), b.CID))
		}
		var m wire.Message
		d := wire.Decoder{Kinds: kinds.BuiltIn}
		var batch batch.Batch
		must(t, wire.Parse(commit(ops, []synth.Block{b}, nil), &m))
		d.Add(&m, &batch)
		if _, n, size := batch.Size(); n != 5000 || size > 100_000 {
			t.Errorf("%d operations need %d bytes, %d drops", n, size, len(d.Drops))
		}
	}
}
