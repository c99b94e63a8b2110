package archive

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/synth"
)

// all are owned, and what is dropped is ignored.
func all([]byte) bool { return true }

func ignore(wire.Reason) {}

// columns encodes rows as an unpacked block, as segment.go describes it.
func columns(rows []row, witnessed int64) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, uint32(len(rows)))
	column := func(add func(i int)) {
		for i := range rows {
			add(i)
		}
	}
	column(func(i int) { b = le.AppendUint64(b, uint64(rows[i].seq)) })
	column(func(i int) { b = le.AppendUint64(b, uint64(witnessed+int64(i))) })
	column(func(int) { b = le.AppendUint64(b, 0) })
	column(func(i int) { b = append(b, byte(rows[i].kind)) })
	column(func(i int) { b = append(b, byte(len(rows[i].collection))) })
	column(func(i int) { b = le.AppendUint16(b, uint16(len(rows[i].did))) })
	column(func(i int) { b = append(b, byte(len(rows[i].rkey))) })
	column(func(i int) { b = append(b, byte(len(rows[i].rev))) })
	column(func(i int) { b = le.AppendUint32(b, uint32(len(rows[i].payload))) })
	column(func(i int) { b = append(b, rows[i].collection...) })
	column(func(i int) { b = append(b, rows[i].did...) })
	column(func(i int) { b = append(b, rows[i].rkey...) })
	column(func(i int) { b = append(b, rows[i].rev...) })
	column(func(i int) { b = append(b, rows[i].payload...) })
	return b
}

// chronicle is an archive that a test makes up: its rows, and what they leave, in plain maps.
type chronicle struct {
	rng     *rand.Rand
	seq     int64
	clock   uint64
	rows    []row
	records map[string]map[string]string // by DID: collection and rkey → subject
	gone    map[string]bool              // accounts that were deleted, and have not returned
	drops   map[wire.Reason]int
}

func newChronicle(seed uint64) *chronicle {
	return &chronicle{
		rng: rand.New(rand.NewPCG(seed, 77)), clock: uint64(time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()) << 10,
		records: map[string]map[string]string{}, gone: map[string]bool{}, drops: map[wire.Reason]int{},
	}
}

// tid returns a later TID.
func (c *chronicle) tid() []byte {
	c.clock += 1 << 14
	return dict.AppendTID(nil, c.clock)
}

func (c *chronicle) add(r row) {
	c.seq += 1 + int64(c.rng.IntN(3)) // rows of other collections are left out
	r.seq = c.seq
	c.rows = append(c.rows, r)
}

// accountRow returns the payload of an #account message.
func accountRow(active bool, status string) []byte {
	m := synth.Map{{Key: "did", Value: "x"}, {Key: "active", Value: active}}
	if status != "" {
		m = append(m, synth.Pair{Key: "status", Value: status})
	}
	return synth.CBOR(nil, m)
}

// step adds a commit, a message, or nonsense.
func (c *chronicle) step() {
	did := fmt.Sprintf("did:web:a%d.example.com", c.rng.IntN(12))
	if c.records[did] == nil {
		c.records[did] = map[string]string{}
	}
	mine := c.records[did]
	what := c.rng.IntN(40)
	if c.gone[did] && what > 5 { // it returns first
		c.gone[did] = false
		c.add(row{kind: account, did: []byte(did), payload: accountRow(true, "")})
	}
	switch what {
	case 0: // what nobody indexes
		c.add(row{kind: create, did: []byte(did), collection: []byte("app.bsky.feed.post"), rkey: c.tid(), rev: c.tid(), payload: []byte{0xa0}})
		c.add(row{kind: identity, did: []byte(did)})
		c.add(row{kind: 200, did: []byte("nonsense")})
	case 1: // nonsense
		like := []byte("app.bsky.feed.like")
		c.add(row{kind: create, did: []byte("did:nonsense"), collection: like, rkey: c.tid(), rev: c.tid(), payload: []byte{0xa0}})
		c.add(row{kind: create, did: []byte("did:web:new.example.com"), collection: like, rkey: c.tid(), rev: []byte("soon"), payload: []byte{0xa0}})
		c.add(row{kind: account, did: []byte(did), payload: []byte{0xff}})
		c.add(row{kind: account, did: []byte("x"), payload: accountRow(true, "")})
		c.add(row{kind: sync, did: []byte("did:"), rev: c.tid()})
		c.drops[wire.BadDID] += 3
		c.drops[wire.BadRev]++
		c.drops[wire.BadAccount]++
	case 2:
		c.add(row{kind: account, did: []byte(did), payload: accountRow(false, "deleted")})
		clear(mine)
		c.gone[did] = true
	case 3, 4: // the repo is refetched: a sync, then all of its records
		c.gone[did] = false
		c.add(row{kind: account, did: []byte(did), payload: accountRow(true, "")})
		rev := c.tid()
		c.add(row{kind: sync, did: []byte(did), rev: rev})
		clear(mine)
		for range c.rng.IntN(6) {
			c.record(did, rev, createResync)
		}
	default: // a commit
		if c.gone[did] {
			return
		}
		rev := c.tid()
		for range 1 + c.rng.IntN(4) {
			c.record(did, rev, create)
		}
	}
}

// record adds a row of a commit.
func (c *chronicle) record(did string, rev []byte, as kind) {
	mine := c.records[did]
	k := &kinds.All[c.rng.IntN(4)]
	r := row{kind: as, did: []byte(did), rev: rev, collection: []byte(k.Collection), rkey: c.tid()}
	if paths := slices.Sorted(maps.Keys(mine)); as == create && len(paths) > 0 && c.rng.IntN(3) == 0 { // an older record
		collection, rkey, _ := strings.Cut(paths[c.rng.IntN(len(paths))], " ")
		r.collection, r.rkey = []byte(collection), []byte(rkey)
		k = &kinds.All[slices.IndexFunc(kinds.All, func(k kinds.Info) bool { return k.Collection == collection })]
		if r.kind = update; c.rng.IntN(2) == 0 {
			r.kind = remove
			c.add(r)
			delete(mine, collection+" "+rkey)
			return
		}
	}
	subject := fmt.Sprintf("did:web:s%d.example.com", c.rng.IntN(9))
	if k.To.Is().String() == "uri" {
		subject = fmt.Sprintf("at://%s/app.bsky.feed.post/3mb2kxx5ts22a", subject)
	}
	r.payload = synth.AppendRecord(nil, k, []byte(subject), nil, []byte("2026"))
	switch c.rng.IntN(12) {
	case 0: // a path that cannot be one
		r.rkey = []byte("a/b")
		c.drops[wire.BadPath]++
		c.add(r)
		return
	case 1:
		r.payload = synth.AppendRecord(nil, k, []byte("alice"), nil, []byte("2026"))
		subject = ""
		c.drops[wire.BadSubject]++
	case 2:
		r.payload = append(r.payload, 0)
		subject = ""
		c.drops[wire.BadRecord]++
	}
	mine[string(r.collection)+" "+string(r.rkey)] = subject
	c.add(r)
}

// want returns what the index must have, in the form of indexed.
func (c *chronicle) want() map[string]string {
	all := map[string]string{}
	for did, mine := range c.records {
		for path, subject := range mine {
			all[did+" "+path] = subject
		}
	}
	return all
}

// Random rows in random blocks, applied in random writes, some of them twice and after restarts at
// the stored cursor, leave the records that the rows leave in plain maps. Malformed rows are
// counted, and change nothing else.
func TestFold(t *testing.T) {
	for seed := range uint64(30) {
		c := newChronicle(seed)
		for range 250 {
			c.step()
		}
		var blocks [][]byte
		for rest := c.rows; len(rest) > 0; {
			n := min(len(rest), 1+c.rng.IntN(40))
			blocks = append(blocks, columns(rest[:n], 1_800_000_000_000_000))
			rest = rest[n:]
		}
		for _, restarts := range []int{0, 6} {
			store, g := open(t)
			const source = "archive https://archive.example.com"
			drops := map[wire.Reason]int{}
			fold := newFolder(g.Kinds(), g.Owns, 0, func(reason wire.Reason) { drops[reason]++ })
			var filling batch.Batch
			apply := func() {
				if filling.Empty() {
					return
				}
				must(t, g.Apply(t.Context(), source, &filling))
				filling.Reset()
			}
			for n, left := 0, restarts; n < len(blocks); n++ {
				b := block{buf: blocks[n]}
				must(t, b.parse())
				fold.add(&b, &filling)
				switch c.rng.IntN(8) {
				case 0, 1:
					apply()
				case 2: // the same blocks again, as after a new plan
					n = max(n-1-c.rng.IntN(5), -1)
				case 3:
					if left == 0 {
						continue
					}
					left--
					filling.Reset() // lost
					after := int64(0)
					if cursor, ok := g.Cursor(source); ok {
						after = int64(cursor.Seq)
					}
					fold = newFolder(g.Kinds(), g.Owns, after, ignore)
					n = -1
				}
			}
			apply()
			if got, want := indexed(t, store), c.want(); !maps.Equal(got, want) {
				for path := range want {
					if got[path] != want[path] {
						t.Errorf("%s: %q, want %q", path, got[path], want[path])
					}
				}
				t.Fatalf("seed %d, %d restarts: %d records, want %d", seed, restarts, len(got), len(want))
			}
			if cursor, _ := g.Cursor(source); int64(cursor.Seq) != c.seq {
				t.Errorf("seed %d: the cursor is %d, want %d", seed, cursor.Seq, c.seq)
			}
			if restarts == 0 && !maps.Equal(drops, c.drops) {
				t.Errorf("seed %d: dropped %v, want %v", seed, drops, c.drops)
			}
			must(t, check.Store(t.Context(), store, func(p string) { t.Error(p) }, nil))
		}
	}
}

// A commit that changes only collections that are not indexed adds its rev, once.
func TestFoldOtherCollections(t *testing.T) {
	did, other := []byte("did:web:a.example.com"), []byte("did:web:b.example.com")
	post, like := []byte("app.bsky.feed.post"), []byte("app.bsky.feed.like")
	rev := func(n uint64) []byte { return dict.AppendTID(nil, n<<40) }
	rows := []row{
		{kind: create, did: did, collection: like, rkey: rev(1), rev: rev(1)},
		{kind: create, did: did, collection: post, rkey: rev(1), rev: rev(1)},
		{kind: create, did: did, collection: post, rkey: rev(2), rev: rev(2)},
		{kind: remove, did: did, collection: post, rkey: rev(1), rev: rev(2)},
		{kind: remove, did: did, collection: like, rkey: rev(1), rev: rev(2)},
		{kind: create, did: other, collection: post, rkey: rev(3), rev: rev(3)},
		{kind: create, did: other, collection: post, rkey: rev(4), rev: []byte("soon")},
		{kind: remove, did: did, collection: post, rkey: rev(2), rev: rev(5)},
	}
	for i := range rows {
		rows[i].seq = int64(i + 1)
	}
	b := block{buf: columns(rows, 1_800_000_000_000_000)}
	must(t, b.parse())
	var to batch.Batch
	drops := 0
	newFolder(kinds.BuiltIn, all, 0, func(wire.Reason) { drops++ }).add(&b, &to)
	var got []string
	for i := range to.Events() {
		e := to.Event(i)
		got = append(got, fmt.Sprintf("%d %s %s %d", e.Seq, to.Bytes(e.DID), e.Rev, e.Ops.End-e.Ops.Start))
	}
	want := []string{
		fmt.Sprintf("1 %s %s 1", did, rev(1)), fmt.Sprintf("5 %s %s 1", did, rev(2)),
		fmt.Sprintf("6 %s %s 0", other, rev(3)), fmt.Sprintf("8 %s %s 0", did, rev(5)),
	}
	if !slices.Equal(got, want) || drops != 2 { // a payload, and the rev
		t.Errorf("%d dropped, events\n%s\nwant\n%s", drops, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
