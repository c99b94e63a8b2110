package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/api/bsky"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/bluesky-social/indigo/events"
	"github.com/ipfs/go-cid"

	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/sim/synth"
)

const (
	plainPDS   = "../../testdata/pds/plain-pds.frames"
	plainRelay = "../../testdata/pds/plain-relay.frames"
	// realNetwork has data of other people, and is not in this repository.
	realNetwork = "../../../shared/testdata/public/jetstream/frames-be.frames"
)

func read(t testing.TB, path string) [][]byte {
	t.Helper()
	all, err := synth.ReadFrames(path)
	if errors.Is(err, os.ErrNotExist) && path == realNetwork {
		t.Skipf("%s is missing: frames of the real network are not in the repository", path)
	}
	must(t, err)
	return all
}

// decode describes in text how our decoder reads a frame.
func decode(d *wire.Decoder, frame []byte) ([]string, *wire.Message, error) {
	var m wire.Message
	var b batch.Batch
	if err := wire.Parse(frame, &m); err != nil {
		return nil, nil, err
	}
	d.Add(&m, &b)
	return describe(&b), &m, nil
}

// describe lists the events of a batch in words, one per line, each commit before its operations.
func describe(b *batch.Batch) (lines []string) {
	for i := range b.Events() {
		e := b.Event(i)
		switch e.Kind {
		case batch.EventAccount:
			lines = append(lines, fmt.Sprintf("%d account %s active=%t deleted=%t", e.Seq, b.Bytes(e.DID), e.Flags&batch.IsActive != 0, e.Flags&batch.IsDeleted != 0))
			continue
		case batch.EventSync:
			lines = append(lines, fmt.Sprintf("%d sync %s %s %x", e.Seq, b.Bytes(e.DID), e.Rev, e.Data))
			continue
		default:
		}
		line := fmt.Sprintf("%d commit %s", e.Seq, b.Bytes(e.DID))
		if e.Flags&batch.HasRev != 0 {
			line += fmt.Sprintf(" rev=%s", e.Rev)
		}
		if e.Flags&batch.HasSince != 0 {
			line += fmt.Sprintf(" since=%s", e.Since)
		}
		if e.Flags&batch.HasData != 0 {
			line += fmt.Sprintf(" data=%x", e.Data)
		}
		if e.Flags&batch.HasPrevData != 0 {
			line += fmt.Sprintf(" prevData=%x", e.PrevData)
		}
		if e.Flags&batch.IsDamaged != 0 {
			line += " damaged"
		}
		lines = append(lines, line)
		for n := e.Ops.Start; n < e.Ops.End; n++ {
			o := b.Op(n)
			if o.Delete {
				lines = append(lines, fmt.Sprintf("  delete %s %s", o.Kind, b.Bytes(o.Rkey)))
			} else {
				lines = append(lines, fmt.Sprintf("  put %s %s %s", o.Kind, b.Bytes(o.Rkey), b.Bytes(o.Subject)))
			}
		}
	}
	return lines
}

// indigoSays describes in the same text how indigo reads a frame. Like this package, it takes the
// rev from the commit block, which the account signed, and not from the message.
func indigoSays(frame []byte) ([]string, error) {
	r := bytes.NewReader(frame)
	var h events.EventHeader
	if err := h.UnmarshalCBOR(r); err != nil {
		return nil, err
	}
	if h.Op != events.EvtKindMessage {
		return nil, nil
	}
	switch h.MsgType {
	case "#account":
		var e comatproto.SyncSubscribeRepos_Account
		if err := e.UnmarshalCBOR(r); err != nil {
			return nil, err
		}
		deleted := !e.Active && e.Status != nil && *e.Status == "deleted"
		return []string{fmt.Sprintf("%d account %s active=%t deleted=%t", e.Seq, e.Did, e.Active, deleted)}, nil
	case "#sync":
		var e comatproto.SyncSubscribeRepos_Sync
		if err := e.UnmarshalCBOR(r); err != nil {
			return nil, err
		}
		commit, _, err := repo.LoadCommitFromCAR(context.Background(), bytes.NewReader(e.Blocks))
		if err != nil {
			return nil, err
		}
		return []string{fmt.Sprintf("%d sync %s %s %x", e.Seq, e.Did, commit.Rev, hashOf(commit.Data))}, nil
	case "#commit":
		var e comatproto.SyncSubscribeRepos_Commit
		if err := e.UnmarshalCBOR(r); err != nil {
			return nil, err
		}
		return oracleCommit(&e)
	}
	return nil, nil
}

// hashOf returns the part of a root's hash that a batch describes. A root whose CID does not have
// the length of a SHA-256 is no root.
func hashOf(c cid.Cid) []byte {
	b := c.Bytes()
	if len(b) == 36 {
		return b[4:12]
	}
	return make([]byte, 8)
}

func oracleCommit(e *comatproto.SyncSubscribeRepos_Commit) ([]string, error) {
	commit, rr, err := repo.LoadRepoFromCAR(context.Background(), bytes.NewReader(e.Blocks))
	if err != nil {
		return nil, err
	}
	line := fmt.Sprintf("%d commit %s rev=%s", e.Seq, e.Repo, commit.Rev)
	if e.Since != nil && *e.Since != "" {
		since := *e.Since
		if _, err := syntax.ParseTID(since); err != nil {
			since = format.NoRev.String()
		}
		line += " since=" + since
	}
	line += fmt.Sprintf(" data=%x", hashOf(commit.Data))
	if e.PrevData != nil {
		line += fmt.Sprintf(" prevData=%x", hashOf(cid.Cid(*e.PrevData)))
	}
	lines := []string{line}
	for i, op := range e.Ops {
		if op == nil {
			return nil, fmt.Errorf("operation %d is null", i)
		}
		collection, rkey, _ := strings.Cut(op.Path, "/")
		for _, k := range kinds.All {
			switch {
			case k.Collection != collection:
			case op.Action == "delete":
				lines = append(lines, fmt.Sprintf("  delete %s %s", k.Name, rkey))
			case op.Cid == nil:
				return nil, fmt.Errorf("%s of %s without a CID", op.Action, op.Path)
			default:
				b, err := rr.RecordStore.Get(context.Background(), cid.Cid(*op.Cid))
				subject := ""
				if err == nil {
					subject, err = oracleSubject(k.Name, b.RawData())
					if err != nil {
						return nil, err
					}
				}
				lines = append(lines, fmt.Sprintf("  put %s %s %s", k.Name, rkey, subject))
			}
		}
	}
	return lines, nil
}

func oracleSubject(kind string, record []byte) (string, error) {
	r := bytes.NewReader(record)
	switch kind {
	case "follow":
		var x bsky.GraphFollow
		err := x.UnmarshalCBOR(r)
		return did(x.Subject), err
	case "block":
		var x bsky.GraphBlock
		err := x.UnmarshalCBOR(r)
		return did(x.Subject), err
	case "listblock":
		var x bsky.GraphListblock
		err := x.UnmarshalCBOR(r)
		return uri(x.Subject), err
	case "listitem":
		var x bsky.GraphListitem
		err := x.UnmarshalCBOR(r)
		return did(x.Subject), err
	case "listitem_list":
		var x bsky.GraphListitem
		err := x.UnmarshalCBOR(r)
		return uri(x.List), err
	case "like":
		var x bsky.FeedLike
		if err := x.UnmarshalCBOR(r); err != nil || x.Subject == nil {
			return "", err
		}
		return uri(x.Subject.Uri), nil
	default:
		var x bsky.FeedRepost
		if err := x.UnmarshalCBOR(r); err != nil || x.Subject == nil {
			return "", err
		}
		return uri(x.Subject.Uri), nil
	}
}

func did(s string) string {
	if _, err := syntax.ParseDID(s); err != nil {
		return ""
	}
	return s
}

func uri(s string) string {
	if _, err := syntax.ParseATURI(s); err != nil {
		return ""
	}
	return s
}

func TestAgainstIndigo(t *testing.T) {
	for _, path := range []string{plainPDS, plainRelay, realNetwork} {
		t.Run(filepath.Base(path), func(t *testing.T) {
			d := wire.Decoder{Kinds: kinds.BuiltIn}
			n, puts := 0, 0
			for i, frame := range read(t, path) {
				want, err := indigoSays(frame)
				if err != nil {
					t.Fatalf("indigo: frame %d: %v", i, err)
				}
				got, _, err := decode(&d, frame)
				if err != nil {
					t.Fatalf("frame %d: %v", i, err)
				}
				if !slices.Equal(got, want) {
					t.Errorf("frame %d:\n got %q\nwant %q", i, got, want)
				}
				if len(d.Drops) > 0 {
					t.Errorf("frame %d: dropped %q", i, d.Drops)
				}
				n += len(want)
				for _, line := range want {
					if strings.HasPrefix(line, "  put") {
						puts++
					}
				}
			}
			if n < 100 || puts < 50 {
				t.Errorf("only %d events, %d records: too few to compare", n, puts)
			}
		})
	}
}

func TestErrorAndInfo(t *testing.T) {
	for file, want := range map[string]string{
		"error-futurecursor":    "error FutureCursor Cursor in the future.",
		"error-consumertooslow": "error ConsumerTooSlow Stream consumer too slow",
		"info-outdatedcursor":   "info OutdatedCursor Requested cursor exceeded limit. Possibly missing events",
	} {
		var m wire.Message
		must(t, wire.Parse(read(t, "../../testdata/pds/"+file+".frames")[0], &m))
		if got := fmt.Sprintf("%s %s %s", m.Type, m.Name, m.Text); got != want {
			t.Errorf("%s: %q", file, got)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	all := read(t, plainPDS)
	d := wire.Decoder{Kinds: kinds.BuiltIn}
	var b batch.Batch
	var m wire.Message
	run := func() {
		b.Reset()
		for _, frame := range all {
			must(t, wire.Parse(frame, &m))
			d.Add(&m, &b)
		}
	}
	run()
	if n := testing.AllocsPerRun(5, run); n != 0 {
		t.Errorf("%v allocations for %d frames", n, len(all))
	}
}

// FuzzDecode looks for panics, and for frames that indigo and this package read
// differently. This package may read what indigo rejects: indigo stops at the
// first fault, while we drop as little as possible.
func FuzzDecode(f *testing.F) {
	all, err := synth.ReadFrames(plainPDS)
	must(f, err)
	for i := 0; i < len(all); i += 50 {
		f.Add(all[i])
	}
	f.Add(all[2091]) // 150 likes in one commit
	f.Add(otherRev(f, all[2091]))
	f.Fuzz(func(t *testing.T, frame []byte) {
		d := wire.Decoder{Kinds: kinds.BuiltIn}
		got, m, err := decode(&d, frame)
		want, oerr := indigoSays(frame)
		if err != nil || oerr != nil || len(d.Drops) > 0 || m.Type == wire.Unknown {
			return
		}
		if m.Type == wire.Commit && len(got) > 0 && !slices.Equal(got, want) {
			t.Errorf("\n got %q\nwant %q", got, want)
		}
	})
}

// otherRev returns a copy of a commit's frame whose rev differs from the one in its commit block.
func otherRev(t testing.TB, frame []byte) []byte {
	t.Helper()
	frame = bytes.Clone(frame)
	var m wire.Message
	must(t, wire.Parse(frame, &m))
	if m.Rev[4] == 'p' { // Rev is a slice of frame
		m.Rev[4] = 'r'
	} else {
		m.Rev[4] = 'p'
	}
	return frame
}

// A message may have another rev than its commit block. The account signed the block.
func TestOtherRev(t *testing.T) {
	frame := read(t, plainPDS)[2091]
	revs := 0
	d := wire.Decoder{Kinds: kinds.BuiltIn, OtherRev: func() { revs++ }}
	want, _, err := decode(&d, frame)
	if err != nil || revs != 0 {
		t.Fatalf("%v, %d other revs in a frame as recorded", err, revs)
	}
	got, _, err := decode(&d, otherRev(t, frame))
	if err != nil || revs != 1 || len(d.Drops) > 0 || !slices.Equal(got, want) {
		t.Errorf("%v, %d other revs, dropped %q\n got %q\nwant %q", err, revs, d.Drops, got, want)
	}
}

// Every frame, cut at every length and with every byte changed in two ways, may
// be readable or not, but neither panics nor invents anything: a decoded record
// has the bytes that its CID names.
func TestDamagedFrames(t *testing.T) {
	all := read(t, plainPDS)
	d := wire.Decoder{Kinds: kinds.BuiltIn}
	for _, i := range []int{0, 1, 2, 3, 700, 1500, 2098} {
		frame := all[i]
		honest, _, err := decode(&d, frame)
		must(t, err)
		allowed := map[string]bool{}
		for _, line := range honest {
			allowed[line] = true
		}
		for n := range frame {
			if _, _, err := decode(&d, frame[:n]); err == nil {
				t.Fatalf("frame %d cut to %d of %d bytes was read", i, n, len(frame))
			}
			for _, flip := range []byte{1, 0x80} {
				bad := bytes.Clone(frame)
				bad[n] ^= flip
				lines, _, err := decode(&d, bad)
				if err != nil {
					continue
				}
				for _, line := range lines {
					if f := strings.Fields(line); f[0] == "put" && len(f) == 4 && !strings.Contains(strings.Join(honest, "\n"), f[3]) {
						t.Fatalf("frame %d with byte %d changed: %q is invented", i, n, line)
					}
				}
			}
		}
	}
}

// commits returns the #commit frames of a file.
func commits(b *testing.B, path string) (out [][]byte) {
	var m wire.Message
	for _, f := range read(b, path) {
		if err := wire.Parse(f, &m); err != nil {
			b.Fatal(err)
		}
		if m.Type == wire.Commit {
			out = append(out, f)
		}
	}
	return out
}

// BenchmarkDecode compares decoding commit frames into edge changes, including
// hash checks, with indigo's decoders. Each operation decodes all commits of a
// file. Those of accounts whose partitions another writer indexes are foreign.
//
//	go test ./consumer/wire -run xxx -bench Decode -benchmem
func BenchmarkDecode(b *testing.B) {
	for _, path := range []string{plainPDS, realNetwork} {
		b.Run(filepath.Base(path), func(b *testing.B) {
			all := commits(b, path)
			for name, owns := range map[string]func([]byte) bool{"skein": nil, "foreign": func([]byte) bool { return false }} {
				b.Run(name, func(b *testing.B) {
					d := wire.Decoder{Kinds: kinds.BuiltIn, Owns: owns}
					var batch batch.Batch
					var m wire.Message
					b.ReportAllocs()
					for b.Loop() {
						batch.Reset()
						for _, f := range all {
							if err := wire.Parse(f, &m); err != nil {
								b.Fatal(err)
							}
							d.Add(&m, &batch)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(all)), "ns/event")
				})
			}
			b.Run("indigo", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					for _, f := range all {
						if err := indigoDecode(f); err != nil {
							b.Fatal(err)
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(all)), "ns/event")
			})
		})
	}
}

// indigoDecode decodes a commit as a consumer built on indigo does.
func indigoDecode(frame []byte) error {
	r := bytes.NewReader(frame)
	var h events.EventHeader
	if err := h.UnmarshalCBOR(r); err != nil {
		return err
	}
	var e comatproto.SyncSubscribeRepos_Commit
	if err := e.UnmarshalCBOR(r); err != nil {
		return err
	}
	_, rr, err := repo.LoadRepoFromCAR(context.Background(), bytes.NewReader(e.Blocks))
	if err != nil {
		return err
	}
	for _, op := range e.Ops {
		if op.Cid == nil {
			continue
		}
		collection, _, _ := strings.Cut(op.Path, "/")
		i := slices.IndexFunc(kinds.All, func(k kinds.Info) bool { return k.Collection == collection })
		if i < 0 {
			continue
		}
		blk, err := rr.RecordStore.Get(context.Background(), cid.Cid(*op.Cid))
		if err != nil {
			return err
		}
		if _, err := oracleSubject(kinds.All[i].Name, blk.RawData()); err != nil {
			return err
		}
	}
	return nil
}
