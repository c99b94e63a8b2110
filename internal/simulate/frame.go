package simulate

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"time"

	"skein/graph/kinds"
	"skein/internal/network"
	"skein/internal/syntax"
	"skein/internal/synth"
)

// collections are the kinds' NSIDs, by their number.
var collections = func() (nsid [network.Other + 1]string) {
	nsid[network.Post] = "app.bsky.feed.post"
	nsid[network.Other] = "app.bsky.feed.threadgate"
	for _, k := range kinds.All {
		switch k.Name {
		case "follow":
			nsid[network.Follow] = k.Collection
		case "like":
			nsid[network.Like] = k.Collection
		case "repost":
			nsid[network.Repost] = k.Collection
		case "block":
			nsid[network.Block] = k.Collection
		}
	}
	return nsid
}()

// An encoder makes the messages of events, of the size that they have on the
// real network, without keeping the repos: the commit block and the blocks of
// records are true and hash to their CIDs, and what would be nodes of the tree
// are blocks out of a pool. The same event makes the same message, but for its
// time. An encoder is for one goroutine.
type encoder struct {
	n      *network.Network
	pool   *pool
	ops    []network.Op
	links  []synth.Link // of the ops' records
	blocks []byte       // the record blocks, as sections of a CAR
	block  []byte
	did    []byte
	str    []byte
	stamps stamps // of messages
	made   stamps // of records
	// Where, in the last message, is the block of the commit and that of the
	// first record, 0 if it has none: what a fault may damage.
	commitAt, recordAt int
}

// cidHead is a CID up to its digest: version 1, DAG-CBOR, SHA-256.
const cidHead = "\x01\x71\x12\x20"

const linkHead = "\xd8\x2a\x58\x25\x00" + cidHead

func appendText(dst []byte, s string) []byte { return append(synth.Head(dst, 3, uint64(len(s))), s...) }

func appendBytes(dst, s []byte) []byte { return append(synth.Head(dst, 3, uint64(len(s))), s...) }

func appendTID(dst []byte, tid uint64) []byte { return syntax.AppendTID(append(dst, 0x60|13), tid) }

func appendLink(dst []byte, l *synth.Link) []byte { return append(append(dst, linkHead...), l[:]...) }

// appendSection appends a block as a section of a CAR.
func appendSection(dst []byte, l *synth.Link, block []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(cidHead)+len(l)+len(block)))
	return append(append(append(dst, cidHead...), l[:]...), block...)
}

// message appends the message of an event with a sequence number, that passed
// the relay at a time in Unix milliseconds.
func (c *encoder) message(dst []byte, e *network.Event, seq, at int64) []byte {
	c.commitAt, c.recordAt = 0, 0
	c.did = c.n.AppendDID(c.did[:0], int(e.Account))
	switch e.Type {
	case network.Commit:
		return c.commit(dst, e, seq, at)
	case network.Sync:
		root := synth.Link(c.n.Root(int(e.Account), e.Rev))
		commit, link := c.commitBlock(e, &root)
		c.blocks = appendSection(carHead(c.blocks[:0], &link), &link, commit)
		dst = append(dst, "\xa2ate#syncbop\x01\xa5cdid"...)
		dst = appendBytes(dst, c.did)
		dst = appendTID(append(dst, "crev"...), e.Rev)
		dst = c.seqTime(dst, seq, at)
		dst = append(dst, "fblocks"...)
		return append(synth.Head(dst, 2, uint64(len(c.blocks))), c.blocks...)
	case network.Account:
		dst = append(dst, "\xa2ath#accountbop\x01"...)
		status := [...]string{network.Deactivated: "deactivated", network.TakenDown: "takendown", network.Suspended: "suspended", network.Deleted: "deleted"}[e.Status]
		dst = append(dst, 0xa4)
		if status != "" {
			dst[len(dst)-1] = 0xa5
		}
		dst = appendBytes(append(dst, "cdid"...), c.did)
		dst = c.seqTime(dst, seq, at)
		dst = append(append(dst, "factive"...), 0xf4)
		if e.Status == network.Active {
			dst[len(dst)-1] = 0xf5
		}
		if status != "" {
			dst = appendText(append(dst, "fstatus"...), status)
		}
		return dst
	default:
		dst = append(dst, "\xa2ati#identitybop\x01\xa3cdid"...)
		dst = appendBytes(dst, c.did)
		return c.seqTime(dst, seq, at)
	}
}

func (c *encoder) seqTime(dst []byte, seq, at int64) []byte {
	dst = synth.Head(append(dst, "cseq"...), 0, uint64(seq))
	dst = append(dst, "dtime\x78\x18"...)
	return c.stamps.append(dst, at)
}

// carHead appends the head of a CAR with one root.
func carHead(dst []byte, root *synth.Link) []byte {
	dst = append(dst, 58)
	dst = appendLink(append(dst, "\xa2eroots\x81"...), root)
	return append(dst, "gversion\x01"...)
}

func (c *encoder) commitBlock(e *network.Event, root *synth.Link) (block []byte, link synth.Link) {
	b := append(c.block[:0], "\xa6cdid"...)
	b = appendBytes(b, c.did)
	b = appendTID(append(b, "crev"...), e.Rev)
	b = append(b, "csig\x58\x40"...)
	for i, h := uint64(0), e.Rev; i < 8; i++ {
		h = h*0x9e3779b97f4a7c15 + uint64(e.Account)
		b = binary.LittleEndian.AppendUint64(b, h^h>>29)
	}
	b = appendLink(append(b, "ddata"...), root)
	b = append(b, "dprev\xf6gversion\x03"...)
	c.block = b
	return b, sha256.Sum256(b)
}

func (c *encoder) commit(dst []byte, e *network.Event, seq, at int64) []byte {
	start := len(dst)
	root := synth.Link(c.n.Root(int(e.Account), e.Rev))
	c.ops, c.links, c.blocks = c.ops[:0], c.links[:0], c.blocks[:0]
	for k := range e.Ops() {
		o := c.n.Op(e, k)
		c.block = c.record(c.block[:0], &o)
		link := synth.Link(sha256.Sum256(c.block))
		c.ops, c.links = append(c.ops, o), append(c.links, link)
		if o.Action != network.Delete {
			c.blocks = appendSection(c.blocks, &link, c.block)
		}
	}
	block, commit := c.commitBlock(e, &root)

	dst = append(dst, "\xa2atg#commitbop\x01"...)
	dst = append(dst, 0xac)
	if e.Since == 0 {
		dst[len(dst)-1] = 0xab
	}
	dst = c.appendOps(dst, e)
	dst = appendTID(append(dst, "crev"...), e.Rev)
	dst = synth.Head(append(dst, "cseq"...), 0, uint64(seq))
	dst = appendBytes(append(dst, "drepo"...), c.did)
	dst = append(dst, "dtime\x78\x18"...)
	dst = c.stamps.append(dst, at)
	dst = append(dst, "eblobs\x80esince"...)
	if e.Since == 0 {
		dst = append(dst, 0xf6)
	} else {
		dst = appendTID(dst, e.Since)
	}
	// The CAR: its head, nodes, the records, more nodes, the commit.
	r := mix(uint64(e.Seq))
	const around = 59 + 41 + 80 // of the CAR, and of the message behind it
	want := sizeOf(r) - (len(dst) - start) - len(c.blocks) - len(block) - around
	before, after := c.pool.take(r>>32, want, int(r>>16&3))
	size := 59 + len(before) + len(after) + len(c.blocks) + sectionSize(len(block))
	dst = synth.Head(append(dst, "fblocks"...), 2, uint64(size))
	dst = carHead(dst, &commit)
	dst = append(dst, before...)
	if c.recordAt = 0; len(c.blocks) > 0 {
		c.recordAt = len(dst) - start + len(cidHead) + 64
		dst = append(dst, c.blocks...)
	}
	dst = append(dst, after...)
	dst = appendSection(dst, &commit, block)
	c.commitAt = len(dst) - start - len(block)/2
	dst = appendLink(append(dst, "fcommit"...), &commit)
	dst = append(dst, "frebase\xf4ftooBig\xf4"...)
	if e.Since != 0 {
		was := synth.Link(c.n.Root(int(e.Account), e.Since))
		dst = appendLink(append(dst, "hprevData"...), &was)
	}
	return dst
}

func sectionSize(block int) int {
	n := len(cidHead) + 32 + block
	var v [binary.MaxVarintLen64]byte
	return binary.PutUvarint(v[:], uint64(n)) + n
}

func (c *encoder) appendOps(dst []byte, e *network.Event) []byte {
	dst = synth.Head(append(dst, "cops"...), 4, uint64(len(c.ops)))
	for k := range c.ops {
		o := &c.ops[k]
		if o.Action == network.Create {
			dst = append(dst, "\xa3ccid"...)
		} else {
			dst = append(dst, "\xa4ccid"...)
		}
		if o.Action == network.Delete {
			dst = append(dst, 0xf6)
		} else {
			dst = appendLink(dst, &c.links[k])
		}
		nsid := collections[o.Kind]
		dst = synth.Head(append(dst, "dpath"...), 3, uint64(len(nsid)+14))
		dst = syntax.AppendTID(append(append(dst, nsid...), '/'), o.TID)
		switch o.Action {
		case network.Update:
			was := synth.Link(c.n.Root(int(e.Account), o.TID)) // what it was before is not kept
			dst = append(appendLink(append(dst, "dprev"...), &was), "factionfupdate"...)
		case network.Delete:
			dst = append(appendLink(append(dst, "dprev"...), &c.links[k]), "factionfdelete"...)
		default:
			dst = append(dst, "factionfcreate"...)
		}
	}
	return dst
}

// record appends the record of an operation, which for a delete is what the
// operation deletes.
func (c *encoder) record(dst []byte, o *network.Op) []byte {
	nsid := collections[o.Kind]
	switch o.Kind {
	case network.Post:
		dst = append(dst, "\xa4dtext"...)
		text := words[o.TID%uint64(len(words)-400):][:20+mix(o.TID)%280]
		dst = appendText(dst, text)
		dst = appendText(append(dst, "e$type"...), nsid)
		dst = append(dst, "elangs\x81ben"...)
	case network.Like, network.Repost:
		dst = appendText(append(dst, "\xa3e$type"...), nsid)
		dst = append(dst, "gsubject\xa2ccid"...)
		dst = append(dst, "\x78\x3bbafyrei"...)
		for i, h := 0, o.SubjectTID; i < 52; i++ {
			if i%12 == 0 {
				h = mix(h)
			}
			dst = append(dst, alphabet[h>>(i%12*5)&31])
		}
		dst = append(dst, "curi"...)
		c.str = c.n.AppendSubject(c.str[:0], o)
		dst = appendBytes(dst, c.str)
	case network.Follow, network.Block:
		dst = appendText(append(dst, "\xa3e$type"...), nsid)
		c.str = c.n.AppendSubject(c.str[:0], o)
		dst = appendBytes(append(dst, "gsubject"...), c.str)
	default:
		dst = appendText(append(dst, "\xa3e$type"...), nsid)
		dst = append(dst, "eallow\x80"...)
	}
	dst = append(dst, "icreatedAt\x78\x18"...)
	return c.made.append(dst, int64(o.TID>>10/1000))
}

const alphabet = "abcdefghijklmnopqrstuvwxyz234567"

// words are what posts are made of.
var words = func() string {
	var b []byte
	for i, h := 0, uint64(1); i < 4000; i++ {
		h = mix(h)
		for range 2 + h%8 {
			h = mix(h)
			b = append(b, 'a'+byte(h%26))
		}
		b = append(b, ' ')
	}
	return string(b)
}()

// mix is the finalizer of splitmix64.
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// stamps writes times, of which most lie in the same day as the one before.
type stamps struct {
	day  int64
	text [11]byte // "2006-01-02T"
}

func (s *stamps) append(dst []byte, millis int64) []byte {
	const perDay = 24 * 60 * 60 * 1000
	if day := millis/perDay + 1; day != s.day { // 0: none yet
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

// quantiles are the sizes of the messages in ../shared/testdata/public/jetstream,
// 148 commits of the real network: the least, each tenth, the greatest.
var quantiles = [...]int{1500, 3603, 4434, 4880, 5170, 5427, 5800, 6250, 6760, 7412, 9000}

// sizeOf draws the size of a message.
func sizeOf(r uint64) int {
	const tenth = 1 << 12
	at := int(r % uint64((len(quantiles)-1)*tenth))
	lo, hi := quantiles[at/tenth], quantiles[at/tenth+1]
	return lo + (hi-lo)*(at%tenth)/tenth
}

// pool is a supply of blocks that look like nodes of a tree: sections of a CAR,
// end to end, each true to its CID.
type pool struct {
	sections []byte
	ends     []int32 // of the sections
	starts   []int32 // the section that begins at or after each 512th byte
}

const poolStep = 512

func newPool(seed uint64) *pool {
	p := &pool{}
	h := mix(seed)
	next := func(n int) int { h = mix(h); return int(h % uint64(n)) }
	random := func(n int) []byte {
		b := make([]byte, 0, n+8)
		for len(b) < n {
			h = mix(h)
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
		p.sections = appendSection(p.sections, &node.CID, node.Bytes)
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
// draws, in two parts, of which the first has so many quarters.
func (p *pool) take(r uint64, n, quarters int) (before, after []byte) {
	const most = 16 << 10
	n = min(max(n, poolStep), most)
	start := int(p.starts[r%uint64(len(p.starts)-most/poolStep-4)])
	end := int(p.starts[(start+n)/poolStep])
	middle := min(max(int(p.starts[(start+n*quarters/4)/poolStep]), start), max(end, start))
	return p.sections[start:middle], p.sections[middle:max(end, middle)]
}
