// Package wire reads the messages of com.atproto.sync.subscribeRepos: it turns
// the bytes of one message into the changes that it makes to the graph. Each
// message is walked once, and nothing is allocated. It never panics, whatever
// the bytes. It knows no connection, no clock and no store.
//
// Of a commit's CAR only the blocks that matter are looked at, found by CID
// and checked against it: the commit, and the records of indexed collections.
// Signatures are not verified: the relay is trusted for those.
package wire

import (
	"bytes"

	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/cbor"
	"skein.blue/internal/syntax"
)

// A Reason says why something was dropped. Reasons are metric labels.
type Reason string

// The reasons for which this package drops things.
const (
	BadFrame   Reason = "frame"          // the message cannot be parsed
	BadDID     Reason = "did"            // the repo is not a valid DID
	BadRev     Reason = "rev"            // the commit's rev is not a TID
	BadOps     Reason = "ops"            // the list of operations cannot be parsed
	BadCAR     Reason = "car"            // the CAR cannot be parsed
	BadCommit  Reason = "commit_block"   // the commit block is missing, wrong, or no commit of this repo
	BadPath    Reason = "path"           // an operation's path is no collection and record key
	BadAction  Reason = "action"         // an operation is none of create, update, delete
	NoBlock    Reason = "block_missing"  // a record's block is not in the CAR
	BadHash    Reason = "block_hash"     // a record's block does not hash to its CID
	BadRecord  Reason = "record"         // a record is no CBOR map
	BadSubject Reason = "record_subject" // a record's subject is missing or invalid
	BadAccount Reason = "account"        // an #account without DID or active
	// SpaceSubject is no fault: the subject is a space, or a record in one (proposal 0016).
	// Spaces are not indexed, so the record names no subject.
	SpaceSubject Reason = "space_subject"
	TooBig       Reason = "too_big" // the commit was too big to be sent
)

// Reasons lists them.
var Reasons = []Reason{
	BadFrame, BadDID, BadRev, BadOps, BadCAR, BadCommit, BadPath, BadAction,
	NoBlock, BadHash, BadRecord, BadSubject, BadAccount, SpaceSubject, TooBig,
}

// IsFault reports whether something that was dropped for the reason is malformed or missing,
// so that an operator may want to look at it.
func (r Reason) IsFault() bool { return r != SpaceSubject }

// Or returns the reason for which a record is dropped that has both: the first fault, if
// there is one.
func (r Reason) Or(other Reason) Reason {
	if r == "" || other != "" && !r.IsFault() {
		return other
	}
	return r
}

// Counts of operations seen, by action, and by the first kind of their collection.
type Counts [len(actions)][256]int

// Actions of operations, in the order of Counts.
const (
	Create = iota
	Update
	Delete
)

var actions = [...]string{"create", "update", "delete"}

// ActionName returns the name of an action, as in metrics.
func ActionName(action int) string { return actions[action] }

// A Drop is something that Add dropped. Its slices point into the frame.
type Drop struct {
	Reason Reason
	Path   []byte
}

// A Decoder has the memory that decoding needs. One goroutine uses it.
type Decoder struct {
	// Drops are what the last Add dropped.
	Drops []Drop
	// Ops counts the operations of indexed collections since the Decoder was
	// made.
	Ops Counts
	// OtherRevs counts the messages whose rev is not that of their commit block,
	// since the Decoder was made. They are read all the same: see commitBlock.
	OtherRevs int
	// Owns, if set, says whether an account's events are wanted at all: the
	// events of others are not looked into.
	Owns func(did []byte) bool
	// Kinds is what is indexed; nil means what is built in.
	Kinds *kinds.Table

	wants wants
	named []named // what the blocks of records name
	ops   []rawOp
	buf   [2][32]byte
}

type rawOp struct {
	of     *kinds.Collection // nil: not indexed
	action []byte
	path   []byte
	cid    []byte
}

// Add adds what the message does to the batch. What it drops is in d.Drops
// afterwards.
func (d *Decoder) Add(m *Message, b *batch.Batch) {
	d.Drops = d.Drops[:0]
	switch m.Type {
	case Commit, Sync, Account:
		if !syntax.ValidDID(m.DID) {
			d.drop(BadDID, nil)
			break
		}
		if d.Owns != nil && !d.Owns(m.DID) {
			break
		}
		switch m.Type {
		case Commit:
			d.commit(m, b)
		case Sync:
			d.sync(m, b)
		default:
			if !m.hasAct {
				d.drop(BadAccount, nil)
				break
			}
			b.AddAccount(m.Seq, m.DID, m.active, string(m.Status) == "deleted")
		}
	default: // changes no edge
	}
	if m.Seq > 0 {
		b.Seen(m.Seq, m.Time)
	}
}

func (d *Decoder) drop(r Reason, path []byte) { d.Drops = append(d.Drops, Drop{r, path}) }

func (d *Decoder) commit(m *Message, b *batch.Batch) {
	c := batch.Commit{DID: m.DID, TooBig: m.tooBig, PrevData: digest(m.prevData, &d.buf[0])}
	if syntax.ValidTID(m.Since) {
		c.Since = m.Since
	} else if len(m.Since) > 0 {
		c.Since = noSuchRev
	}
	if !syntax.ValidTID(m.Rev) {
		d.drop(BadRev, nil)
		b.AddCommit(m.Seq, &c)
		return
	}
	c.Rev = m.Rev
	if m.tooBig {
		d.drop(TooBig, nil)
	}
	if reason := d.read(m, &c); reason != "" {
		if !m.tooBig { // such a commit comes without its blocks
			d.drop(reason, nil)
		}
		b.AddCommit(m.Seq, &c)
		return
	}
	b.AddCommit(m.Seq, &c)
	for i := range d.ops {
		d.op(i, b)
	}
}

// noSuchRev stands for a since that is not a TID: nobody's rev.
var noSuchRev = []byte("!!!!!!!!!!!!!")

// read parses the operations and the CAR, and fills in c.Data. It returns why
// the commit cannot be read whole, or nothing.
func (d *Decoder) read(m *Message, c *batch.Commit) Reason {
	if !d.parseOps(m.ops) {
		return BadOps
	}
	_, start := carHeader(m.blocks)
	if start == 0 {
		return BadCAR
	}
	if len(m.commit) == 0 {
		return BadCommit
	}
	d.wants.reset(len(d.ops) + 1)
	d.named = d.named[:0]
	commit := d.wants.add(m.commit)
	for i := range d.ops {
		if o := &d.ops[i]; o.of != nil && len(o.cid) > 0 {
			d.wants.add(o.cid)
		}
	}
	if !d.wants.find(m.blocks[start:]) {
		return BadCAR
	}
	w := d.wants.list[commit]
	if w.block == nil || !hashes(w.cid, w.block) {
		return BadCommit
	}
	data, ok := d.commitBlock(w.block, m, c)
	if !ok {
		return BadCommit
	}
	c.Data = digest(data, &d.buf[1])
	return ""
}

// commitBlock reads the root of a repo from its commit, which must be that of
// the message's DID, and puts its rev into c.
//
// The lexicons say that the message's rev "must match that in the commit
// object", and indigo's relay drops a message where it does not. But the
// reference PDS announces an imported repo so: it keeps the imported commit
// block as it was signed, and writes a rev of its own over the message; the next
// commit's since names that of the block. So the block, which the account signed,
// is believed, and the message counted in OtherRevs.
func (d *Decoder) commitBlock(block []byte, m *Message, commit *batch.Commit) (data []byte, ok bool) {
	c := cbor.Cursor{B: block}
	var gotDID, gotRev []byte
	version := uint64(0)
	for range c.Count(cbor.Map) {
		switch string(c.Text()) {
		case "did":
			gotDID = c.Text()
		case "rev":
			gotRev = c.Text()
		case "data":
			data = c.Link()
		case "version":
			version = c.Uint()
		default:
			c.Skip()
		}
	}
	ok = !c.Bad && c.I == len(block) && version == 3 && len(data) > 0 && bytes.Equal(gotDID, m.DID) && syntax.ValidTID(gotRev)
	if ok {
		if !bytes.Equal(gotRev, m.Rev) {
			d.OtherRevs++
			commit.OtherRev = true
		}
		commit.Rev = gotRev
	}
	return data, ok
}

func (d *Decoder) sync(m *Message, b *batch.Batch) {
	c := batch.Commit{DID: m.DID}
	if syntax.ValidTID(m.Rev) {
		c.Rev = m.Rev
	} else {
		d.drop(BadRev, nil)
	}
	if root, start := carHeader(m.blocks); start == 0 || len(root) == 0 {
		d.drop(BadCAR, nil)
	} else {
		d.wants.reset(1)
		d.wants.add(root)
		whole := d.wants.find(m.blocks[start:])
		block := d.wants.list[0].block
		data, ok := d.commitBlock(block, m, &c)
		if whole && block != nil && hashes(root, block) && ok {
			c.Data = digest(data, &d.buf[0])
		} else {
			d.drop(BadCommit, nil)
		}
	}
	b.AddSync(m.Seq, &c)
}

// maxOps bounds the operations of a commit, whose write is never split. The
// protocol allows 200.
const maxOps = 5000

func (d *Decoder) parseOps(array []byte) bool {
	d.ops = d.ops[:0]
	if d.Kinds == nil {
		d.Kinds = kinds.BuiltIn
	}
	c := cbor.Cursor{B: array}
	n := c.Count(cbor.Array)
	if n > maxOps {
		return false
	}
	for range n {
		var o rawOp
		for range c.Count(cbor.Map) {
			switch string(c.Text()) {
			case "action":
				o.action = c.Text()
			case "path":
				o.path = c.Text()
			case "cid":
				o.cid = c.Link()
			default:
				c.Skip()
			}
		}
		if c.Bad || o.action == nil || o.path == nil {
			return false
		}
		o.of = d.Kinds.CollectionOf(o.path)
		d.ops = append(d.ops, o)
	}
	return !c.Bad
}

func (d *Decoder) op(i int, b *batch.Batch) {
	o := &d.ops[i]
	if o.of == nil {
		if bytes.IndexByte(o.path, '/') <= 0 {
			d.drop(BadPath, o.path)
		}
		return
	}
	rkey := o.path[len(o.of.NSID)+1:]
	if !syntax.ValidRkey(rkey) {
		d.drop(BadPath, o.path)
		return
	}
	counted := o.of.Kinds[0].Kind
	switch string(o.action) {
	case "delete":
		d.Ops[Delete][counted]++
		for _, k := range o.of.Kinds {
			b.AddDelete(k.Kind, rkey)
		}
		return
	case "create":
		d.Ops[Create][counted]++
	case "update":
		d.Ops[Update][counted]++
	default:
		d.drop(BadAction, o.path)
		return
	}
	subjects, reason := d.subjects(o, b)
	if reason == NoBlock && d.superseded(i) {
		reason = "" // what this commit itself replaces it need not bring
	}
	for n, k := range o.of.Kinds {
		switch {
		case subjects == nil: // the block cannot be read: the path names nothing
			b.AddPutRef(k.Kind, rkey, batch.Ref{})
		case subjects[n].reason == absent:
			b.AddDelete(k.Kind, rkey)
		default:
			reason = reason.Or(subjects[n].reason)
			b.AddPutRef(k.Kind, rkey, subjects[n].subject)
		}
	}
	if reason != "" {
		d.drop(reason, o.path)
	}
}

// superseded reports whether a later operation of the commit is on the same
// path as the i-th. It is asked rarely.
func (d *Decoder) superseded(i int) bool {
	const enough = 1024 // ops looked at: the protocol allows 200
	for j := i + 1; j < len(d.ops) && j < i+enough; j++ {
		if bytes.Equal(d.ops[j].path, d.ops[i].path) {
			return true
		}
	}
	return false
}

// named is what a record names at the field of a kind, or why it names nothing.
type named struct {
	subject batch.Ref
	reason  Reason
}

// absent is the reason of a record that may well name nothing, and does not.
const absent Reason = "absent"

// subjects returns what the record of an operation names, for each kind of its
// collection; nil, and why, if the record is not there or cannot be read.
func (d *Decoder) subjects(o *rawOp, b *batch.Batch) ([]named, Reason) {
	if len(o.cid) == 0 {
		return nil, NoBlock
	}
	n, _ := d.wants.lookup(o.cid)
	if n < 0 || d.wants.list[n].block == nil {
		return nil, NoBlock
	}
	w := &d.wants.list[n]
	if w.of != o.of {
		// The same bytes under other collections: its $type fits one at most.
		if w.reads++; w.reads > len(d.Kinds.Collections()) {
			return nil, BadRecord
		}
		w.of, w.first, w.reason = o.of, len(d.named), ""
		if !hashes(w.cid, w.block) {
			w.reason = BadHash
		}
		for _, k := range o.of.Kinds {
			subject, reason := []byte(nil), w.reason
			if reason == "" {
				subject, reason = Subject(k, w.block)
			}
			d.named = append(d.named, named{b.Keep(subject), reason})
		}
	}
	return d.named[w.first : w.first+len(o.of.Kinds)], w.reason
}

// Subject returns the subject that a record names, which points into it, or why it names
// none.
func Subject(k *kinds.Info, record []byte) ([]byte, Reason) {
	c := cbor.Cursor{B: record}
	subject, there := find(&c, k.To.Field)
	switch {
	case c.Bad || c.I != len(record):
		return nil, BadRecord
	case !there && k.Optional:
		return nil, absent
	case subject != nil && k.To.Is.Valid(subject):
		return subject, ""
	case k.To.Is == dict.URI && syntax.ValidSpaceURI(subject):
		return nil, SpaceSubject
	}
	return nil, BadSubject
}

// IsAbsent reports whether a reason of Subject is that the record may well name nothing,
// and does not.
func (r Reason) IsAbsent() bool { return r == absent }

const cborNull = 0xf6

// find walks the map at c and returns the text at the path of keys, nil if it is not a
// text; there says whether anything is. It reads the map to its end.
func find(c *cbor.Cursor, keys []string) (found []byte, there bool) {
	seen := false
	for range c.Count(cbor.Map) {
		if key := c.Text(); string(key) != keys[0] {
			c.Skip()
			continue
		}
		if seen {
			c.Fail() // DAG-CBOR has no key twice
			return nil, false
		}
		seen = true
		switch {
		case c.I >= len(c.B):
			c.Fail()
		case len(keys) == 1 && c.B[c.I] == cborNull:
			c.Skip()
		case len(keys) == 1:
			if there = true; c.B[c.I]>>5 == cbor.Text {
				found = c.Text()
			} else {
				c.Skip()
			}
		case c.B[c.I]>>5 == cbor.Map:
			found, there = find(c, keys[1:])
		default:
			c.Skip()
		}
	}
	return found, there
}
