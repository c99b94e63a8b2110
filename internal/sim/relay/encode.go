package relay

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"time"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/network"
	"skein.blue/internal/sim/synth"
)

// collection returns the NSID of a kind.
func collection(k kinds.Kind) string {
	switch k {
	case network.Post:
		return "app.bsky.feed.post"
	case network.Other:
		return "app.bsky.feed.threadgate"
	default:
	}
	return k.Info().Collection
}

// An encoder encodes the messages of events in the sizes of the real network, without
// storing repos: the commit block and the blocks of records are true and hash to
// their CIDs; the nodes of the tree are random blocks from a pool. The same event
// yields the same message, except for its time. An encoder is for one goroutine.
type encoder struct {
	n       *network.Network
	pool    *pool
	m       synth.Commit
	ops     []network.Op
	links   []synth.Link // of the ops' records
	prevs   []synth.Link // of the records before the ops
	rkeys   []byte       // of the ops
	head    []byte       // of the CAR
	blocks  []byte       // blocks of records, as sections of a CAR
	section []byte       // the commit block
	block   []byte
	prev    synth.Link
	sig     [64]byte
	did     []byte
	rev     []byte
	since   []byte
	str     []byte
	cid     []byte
	time    []byte
	stamps  stamps // of messages
	created stamps // of records
	// Offsets of the commit block and the first record in the last message, 0 if it
	// has none: for faults that damage them.
	commitAt, recordAt int
}

// message appends the message of an event that passed the relay with a sequence
// number at a time in Unix milliseconds.
func (c *encoder) message(dst []byte, e *network.Event, seq, at int64) []byte {
	c.commitAt, c.recordAt = 0, 0
	c.did = c.n.AppendDID(c.did[:0], int(e.Account))
	c.time = c.stamps.append(c.time[:0], at)
	switch e.Type {
	case network.Commit:
		return c.commit(dst, e, seq)
	case network.Sync:
		root := synth.Link(c.n.Root(int(e.Account), e.Rev))
		block, link := c.commitBlock(e, &root)
		c.blocks = synth.AppendSection(synth.AppendCARHead(c.blocks[:0], &link), &link, block)
		return synth.AppendSync(dst, c.did, c.rev, seq, c.time, c.blocks)
	case network.Account:
		return synth.AppendAccount(dst, c.did, seq, c.time, e.Status == network.Active, statusName(e.Status))
	default:
		return synth.AppendIdentity(dst, c.did, seq, c.time)
	}
}

// commitBlock encodes the commit block of an event, with a fake signature, and stores
// the event's rev in c.rev.
func (c *encoder) commitBlock(e *network.Event, root *synth.Link) (block []byte, link synth.Link) {
	c.rev = dict.AppendTID(c.rev[:0], e.Rev)
	sig := c.sig[:0]
	for i, h := uint64(0), e.Rev; i < 8; i++ {
		h = h*0x9e3779b97f4a7c15 + uint64(e.Account)
		sig = binary.LittleEndian.AppendUint64(sig, h^h>>29)
	}
	c.block = synth.AppendCommitBlock(c.block[:0], c.did, c.rev, sig, root)
	return c.block, sha256.Sum256(c.block)
}

func (c *encoder) commit(dst []byte, e *network.Event, seq int64) []byte {
	start := len(dst)
	c.records(e)
	root := synth.Link(c.n.Root(int(e.Account), e.Rev))
	block, commit := c.commitBlock(e, &root)
	c.head = synth.AppendCARHead(c.head[:0], &commit)
	c.section = synth.AppendSection(c.section[:0], &commit, block)

	m := &c.m
	m.Repo, m.Rev, m.Since, m.Seq, m.Time, m.Root, m.PrevData = c.did, c.rev, nil, seq, c.time, commit, nil
	if e.Since != 0 {
		c.since = dict.AppendTID(c.since[:0], e.Since)
		c.prev = c.n.Root(int(e.Account), e.Since)
		m.Since, m.PrevData = c.since, &c.prev
	}
	// The CAR: its head, nodes, the records, more nodes, the commit.
	r := network.Mix(uint64(e.Seq))
	const around = 390 // the message without its operations and its CAR
	want := sizeOf(r) - around - 110*len(m.Ops) - len(c.blocks) - len(c.section)
	before, after := c.pool.take(r>>32, want, int(r>>16&3))
	m.CAR = append(m.CAR[:0], c.head, before, c.blocks, after, c.section)
	dst, carAt := m.Append(dst)
	if c.recordAt = 0; len(c.blocks) > 0 {
		c.recordAt = carAt - start + len(c.head) + len(before) + len(synth.CIDHead) + 64
	}
	c.commitAt = carAt - start + len(c.head) + len(before) + len(c.blocks) + len(after) + len(c.section) - len(block)/2
	return dst
}

// records puts the operations of a commit into c.m.Ops, and their records into
// c.blocks.
func (c *encoder) records(e *network.Event) {
	c.ops, c.links, c.prevs, c.blocks, c.rkeys, c.m.Ops = c.ops[:0], c.links[:0], c.prevs[:0], c.blocks[:0], c.rkeys[:0], c.m.Ops[:0]
	for k := range e.Ops() {
		o := c.n.Op(e, k)
		c.block = c.record(c.block[:0], &o)
		link := synth.Link(sha256.Sum256(c.block))
		c.ops, c.links = append(c.ops, o), append(c.links, link)
		c.prevs = append(c.prevs, c.n.Root(int(e.Account), o.TID)) // the record before is not stored
		c.rkeys = dict.AppendTID(c.rkeys, o.TID)
		if o.Action != network.Delete {
			c.blocks = synth.AppendSection(c.blocks, &link, c.block)
		}
	}
	for k := range c.ops { // the slices do not move any more
		const tidLen = 13
		op := synth.Op{Action: "create", Collection: collection(c.ops[k].Kind), Rkey: c.rkeys[k*tidLen : (k+1)*tidLen], CID: &c.links[k]}
		switch c.ops[k].Action {
		case network.Update:
			op.Action, op.Prev = "update", &c.prevs[k]
		case network.Delete:
			op.Action, op.CID, op.Prev = "delete", nil, &c.links[k]
		default:
		}
		c.m.Ops = append(c.m.Ops, op)
	}
}

// record appends the record of an operation; for a delete, the deleted record.
func (c *encoder) record(dst []byte, o *network.Op) []byte {
	created := c.created.append(c.str[:0], int64(o.TID>>10/1000))
	c.str = created
	switch o.Kind {
	case network.Post:
		dst = append(dst, "\xa4dtext"...)
		if o.SubjectTID != 0 {
			dst[len(dst)-6]++
		}
		mix := network.Mix(o.TID)
		dst = synth.AppendText(dst, words[o.TID%uint64(len(words)-400):][:20+mix%280])
		dst = synth.AppendText(append(dst, "e$type"...), collection(o.Kind))
		dst = append(dst, "elangs\x81ben"...)
		if o.SubjectTID != 0 { // keys are not in DAG-CBOR's order: nothing here needs it
			link := "ereply\xa1fparent\xa1curi"
			if mix>>32%58 < 8 {
				link = "eembed\xa1frecord\xa1curi"
			}
			at := len(c.str)
			c.str = c.n.AppendSubject(c.str, o)
			created = c.str[:at] // it may have moved
			dst = synth.AppendText(append(dst, link...), c.str[at:])
		}
		return synth.AppendText(append(dst, "icreatedAt"...), created)
	case network.Other:
		dst = synth.AppendText(append(dst, "\xa3e$type"...), collection(o.Kind))
		return synth.AppendText(append(dst, "eallow\x80\x69createdAt"...), created)
	default:
	}
	c.cid = append(c.cid[:0], "bafyrei"...)
	for i, h := 0, o.SubjectTID; i < 52; i++ {
		if i%12 == 0 {
			h = network.Mix(h)
		}
		c.cid = append(c.cid, alphabet[h>>(i%12*5)&31])
	}
	at := len(c.str)
	c.str = c.n.AppendSubject(c.str, o)
	return synth.AppendRecord(dst, o.Kind.Info(), c.str[at:], c.cid, c.str[:at])
}

const alphabet = "abcdefghijklmnopqrstuvwxyz234567"

// words is the text that posts are cut from.
var words = func() string {
	var b []byte
	for i, h := 0, uint64(1); i < 4000; i++ {
		h = network.Mix(h)
		for range 2 + h%8 {
			h = network.Mix(h)
			b = append(b, 'a'+byte(h%26))
		}
		b = append(b, ' ')
	}
	return string(b)
}()

// stamps formats times; most are on the same day as the one before.
type stamps struct {
	day  int64
	text [11]byte // "2006-01-02T"
}

func (s *stamps) append(dst []byte, millis int64) []byte {
	const perDay = 24 * 60 * 60 * 1000
	if day := millis/perDay + 1; day != s.day { // s.day is 0 at first
		s.day = day
		time.UnixMilli(millis).UTC().AppendFormat(s.text[:0], "2006-01-02T")
	}
	ms := uint32(millis % perDay)
	sec := ms / 1000 % 60
	minute := ms / 60_000 % 60
	hour := ms / 3_600_000
	ms %= 1000
	return append(append(dst, s.text[:]...), '0'+byte(hour/10), '0'+byte(hour%10), ':', '0'+byte(minute/10), '0'+byte(minute%10), ':',
		'0'+byte(sec/10), '0'+byte(sec%10), '.', '0'+byte(ms/100), '0'+byte(ms/10%10), '0'+byte(ms%10), 'Z')
}

// quantiles are the sizes of 148 commits of a recorded minute of the real network:
// the minimum, each tenth, the maximum.
var quantiles = [...]int{1500, 3603, 4434, 4880, 5170, 5427, 5800, 6250, 6760, 7412, 9000}

// sizeOf draws the size of a message.
func sizeOf(r uint64) int {
	const tenth = 1 << 12
	at := int(r % uint64((len(quantiles)-1)*tenth))
	lo, hi := quantiles[at/tenth], quantiles[at/tenth+1]
	return lo + (hi-lo)*(at%tenth)/tenth
}

// pool is a supply of blocks that look like nodes of a tree: sections of a CAR,
// concatenated, each true to its CID.
type pool struct {
	sections []byte
	ends     []int32 // of the sections
	starts   []int32 // start of the first section at or after each 512th byte
}

const poolStep = 512

func newPool(seed uint64) *pool {
	p := &pool{}
	h := network.Mix(seed)
	next := func(n int) int { h = network.Mix(h); return int(h % uint64(n)) }
	random := func(n int) []byte {
		b := make([]byte, 0, n+8)
		for len(b) < n {
			h = network.Mix(h)
			b = binary.LittleEndian.AppendUint64(b, h)
		}
		return b[:n]
	}
	for len(p.sections) < 512<<10 {
		var entries []any
		link := func() (l synth.Link) { copy(l[:], random(32)); return l }
		for range 1 + next(8) {
			key := base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(random(8))
			m := synth.Map{{Key: "k", Value: []byte(key)}, {Key: "p", Value: 20 + next(10)}, {Key: "t", Value: nil}, {Key: "v", Value: link()}}
			if next(2) == 0 {
				m[2].Value = link()
			}
			entries = append(entries, m)
		}
		node := synth.NewBlock(synth.CBOR(nil, synth.Map{{Key: "e", Value: entries}, {Key: "l", Value: nil}}))
		p.sections = synth.AppendSection(p.sections, &node.CID, node.Bytes)
		p.ends = append(p.ends, int32(len(p.sections)))
	}
	for s, end := 0, 0; s < len(p.ends); s++ {
		for len(p.starts)*poolStep <= end {
			p.starts = append(p.starts, int32(end))
		}
		end = int(p.ends[s])
	}
	return p
}

// take returns about n bytes of whole sections, at least one, from a place that r
// selects. It splits them in two parts; the first has that many quarters.
func (p *pool) take(r uint64, n, quarters int) (before, after []byte) {
	const most = 16 << 10
	n = min(max(n, poolStep), most)
	start := int(p.starts[r%uint64(len(p.starts)-most/poolStep-4)])
	end := int(p.starts[(start+n)/poolStep])
	middle := min(max(int(p.starts[(start+n*quarters/4)/poolStep]), start), max(end, start))
	return p.sections[start:middle], p.sections[middle:max(end, middle)]
}
