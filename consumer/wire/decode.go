// Package wire decodes the messages of com.atproto.sync.subscribeRepos: it turns the bytes
// of one message into changes of the graph. It walks each message once, without allocations,
// and never panics, whatever the bytes. It knows no connections, clocks or stores.
//
// Of a commit's CAR it reads only the blocks that matter, and checks each against its CID:
// the commit, and the records of indexed collections. Package proof verifies signatures.
package wire

import (
	"bytes"

	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// A Reason says why something was dropped. Reasons are metric labels.
type Reason string

// The reasons why this package drops something.
const (
	BadFrame     Reason = "frame"           // the message cannot be parsed
	BadDID       Reason = "did"             // the repo is not a valid DID
	BadRev       Reason = "rev"             // the commit's rev is not a TID
	BadOps       Reason = "ops"             // the list of operations cannot be parsed
	BadCAR       Reason = "car"             // the CAR cannot be parsed
	BadCommit    Reason = "commit_block"    // the commit block is missing, wrong, or not a commit of this repo
	BadPath      Reason = "path"            // an operation's path is not a collection and a record key
	BadAction    Reason = "action"          // an operation is not create, update or delete
	NoBlock      Reason = "block_missing"   // a record's block is not in the CAR
	BadHash      Reason = "block_hash"      // a record's block does not hash to its CID
	BadRecord    Reason = "record"          // a record is not a CBOR map
	BadSubject   Reason = "record_subject"  // a record's subject is missing or invalid
	MoreSubjects Reason = "record_subjects" // a record names more than kinds.MaxSubjects subjects in an array; the rest was ignored
	BadAccount   Reason = "account"         // an #account without DID or active
	// SpaceSubject is not a fault: the subject is a space, or a record in one (proposal
	// 0016). skein does not index spaces, so the record names no subject.
	SpaceSubject Reason = "space_subject"
	TooBig       Reason = "too_big"    // the commit was too big to send
	FutureRev    Reason = "future_rev" // the commit's rev is too far ahead of the present

	// With signatures verified (package proof):

	BadSignature   Reason = "signature"       // the account's key did not sign the commit
	Unproven       Reason = "proof"           // the operations do not lead from prevData to the commit's tree
	NoKey          Reason = "no_key"          // the account's DID document does not exist, or has no signing key
	KeyUnreachable Reason = "key_unreachable" // the account's DID document could not be fetched
)

// Reasons lists all reasons.
var Reasons = []Reason{
	BadFrame, BadDID, BadRev, BadOps, BadCAR, BadCommit, BadPath, BadAction,
	NoBlock, BadHash, BadRecord, BadSubject, MoreSubjects, BadAccount, SpaceSubject, TooBig, FutureRev,
	BadSignature, Unproven, NoKey, KeyUnreachable,
}

// IsFault reports whether data that was dropped for this reason is malformed or missing, so
// that an operator may want to look at it.
func (r Reason) IsFault() bool { return r != SpaceSubject }

// loses reports whether an operation that was dropped for this reason may have changed something: the
// repo is then desynchronized. For the other reasons, its repo says as little as the message.
func (r Reason) loses() bool {
	return r == NoBlock || r == BadHash || r == BadAction || r == BadOps
}

// Or returns the reason to report for a record with two: the first fault, if there is one.
func (r Reason) Or(other Reason) Reason {
	if r == "" || other != "" && !r.IsFault() {
		return other
	}
	return r
}

// Counts are numbers of operations, by action and by the first kind of their collection.
type Counts [len(actions)][256]int

// Actions of operations, in the order of Counts.
const (
	Create = iota
	Update
	Delete
)

var actions = [...]string{"create", "update", "delete"}

// ActionName returns the name of an action in metrics.
func ActionName(action int) string { return actions[action] }

// A Drop is a part of a message that Add dropped. Its slices point into the frame.
type Drop struct {
	Reason Reason
	Path   []byte
}

// A Decoder owns the memory for decoding. Only one goroutine may use it.
type Decoder struct {
	// Drops are what the last Add dropped.
	Drops []Drop
	// Ops counts all operations on indexed collections so far.
	Ops Counts
	// OtherRevs counts the messages so far whose rev differs from that of their commit
	// block. They are applied anyway: see commitBlock.
	OtherRevs int
	// Owns, if set, reports whether to index an account; events of other accounts are not
	// decoded.
	Owns func(did []byte) bool
	// Latest, if set, returns the highest rev to believe now. It is asked when a rev is above what it
	// returned last.
	Latest func() batch.Rev
	// Kinds is the table of indexed kinds; nil means the built-in one.
	Kinds *kinds.Table

	wants wants
	named []named     // the subjects in the blocks of records
	many  []batch.Ref // of records that can name several
	found [][]byte    // scratch
	ops   []rawOp
	buf   [2][32]byte
	block CommitBlock

	latest [13]byte // the TID of what Latest returned last
}

type rawOp struct {
	of     *kinds.Collection // nil: not indexed
	action []byte
	path   []byte
	cid    []byte
}

// Add adds the changes that the message makes to the batch. Afterwards d.Drops has what it
// dropped.
func (d *Decoder) Add(m *Message, b *batch.Batch) {
	d.Drops = d.Drops[:0]
	switch m.Type {
	case Commit, Sync, Account:
		if !dict.ValidDID(m.DID) {
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

// Reject drops a Commit or a Sync that failed verification. Nothing in it is believed, its rev
// included. Its account counts as having missed an event, so that its repo is fetched, unless the
// account does not exist (NoKey): anybody can make up a DID.
func (d *Decoder) Reject(m *Message, b *batch.Batch, r Reason) {
	d.Drops = d.Drops[:0]
	if d.Owns == nil || d.Owns(m.DID) {
		d.drop(r, nil)
		if r != NoKey {
			b.AddCommit(m.Seq, &batch.Commit{DID: m.DID, Refuted: true})
		}
	}
	if m.Seq > 0 {
		b.Seen(m.Seq, m.Time)
	}
}

func (d *Decoder) drop(r Reason, path []byte) { d.Drops = append(d.Drops, Drop{r, path}) }

func (d *Decoder) commit(m *Message, b *batch.Batch) {
	c := batch.Commit{DID: m.DID, TooBig: m.tooBig, PrevData: digest(m.prevData, &d.buf[0])}
	if dict.ValidTID(m.Since) {
		c.Since = m.Since
	} else if len(m.Since) > 0 {
		c.Since = noSuchRev
	}
	if !dict.ValidTID(m.Rev) {
		d.drop(BadRev, nil)
		b.AddCommit(m.Seq, &c)
		return
	}
	c.Rev = m.Rev
	if m.tooBig {
		d.drop(TooBig, nil)
	}
	reason := d.read(m, &c)
	switch {
	case d.isAhead(c.Rev):
		d.drop(FutureRev, nil)
		c.Rev, c.Data = nil, nil
	case reason == "" && d.hasTooManyEdges(m, b):
		d.drop(BadOps, nil)
		c.Data = nil
	case reason != "" && !m.tooBig: // the blocks of one that is too big are missing anyway
		d.drop(reason, nil)
	}
	if len(c.Data) == 0 {
		b.AddCommit(m.Seq, &c)
		return
	}
	b.AddCommit(m.Seq, &c)
	for i := range d.ops {
		if reason := d.op(i, b); reason != "" {
			d.drop(reason, d.ops[i].path)
			if reason.loses() {
				b.LoseOp()
			}
		}
	}
}

// isAhead reports whether a rev, a TID, is not believed. TIDs compare as strings.
func (d *Decoder) isAhead(rev []byte) bool {
	if d.Latest == nil || bytes.Compare(rev, d.latest[:]) <= 0 {
		return false
	}
	dict.AppendTID(d.latest[:0], uint64(d.Latest()))
	return bytes.Compare(rev, d.latest[:]) > 0
}

// noSuchRev replaces a since that is not a TID: no commit has this rev.
var noSuchRev = []byte("!!!!!!!!!!!!!")

// read parses the operations and the CAR, and fills in c.Data. It returns the reason why the
// commit is not completely readable, or "".
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
	d.named, d.many = d.named[:0], d.many[:0]
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

// commitBlock returns the root of a repo from its commit block, which must belong to the
// message's DID, and stores its rev in c.
//
// The lexicons say that the message's rev "must match that in the commit object", and
// indigo's relay drops a message if it does not. But this is how the reference PDS announces
// an imported repo: it keeps the imported commit block as it was signed, and puts its own
// rev into the message; the next commit's since is the rev of the block. So commitBlock
// believes the block, which the account signed, and counts the message in OtherRevs.
func (d *Decoder) commitBlock(block []byte, m *Message, commit *batch.Commit) (data []byte, ok bool) {
	read := &d.block
	if ok = read.Read(block) && bytes.Equal(read.DID, m.DID) && dict.ValidTID(read.Rev); ok {
		if !bytes.Equal(read.Rev, m.Rev) {
			d.OtherRevs++
			commit.OtherRev = true
		}
		commit.Rev = read.Rev
	}
	return read.Data, ok
}

func (d *Decoder) sync(m *Message, b *batch.Batch) {
	c := batch.Commit{DID: m.DID}
	if dict.ValidTID(m.Rev) {
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
	if d.isAhead(c.Rev) {
		d.drop(FutureRev, nil)
		c.Rev = nil
	}
	b.AddSync(m.Seq, &c)
}

// maxOps bounds the operations of a commit, which must fit into one write. The protocol
// allows 200.
const maxOps = 5000

func (d *Decoder) parseOps(array []byte) bool {
	d.ops = d.ops[:0]
	if d.Kinds == nil {
		d.Kinds = kinds.BuiltIn
	}
	c := Cursor{B: array}
	n := c.Count(Array)
	if n > maxOps {
		return false
	}
	for range n {
		var o rawOp
		for range c.Count(Map) {
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

// op adds an operation, and returns the reason why it, or a part of it, is dropped, or "".
func (d *Decoder) op(i int, b *batch.Batch) (reason Reason) {
	o := &d.ops[i]
	if o.of == nil {
		if bytes.IndexByte(o.path, '/') <= 0 {
			return BadPath
		}
		return ""
	}
	rkey := o.path[len(o.of.NSID)+1:]
	if !dict.ValidRkey(rkey) {
		return BadPath
	}
	counted := o.of.Kinds[0].Kind
	switch string(o.action) {
	case "delete":
		d.Ops[Delete][counted]++
		for _, k := range o.of.Kinds {
			b.AddDelete(k.Kind, rkey)
		}
		return ""
	case "create":
		d.Ops[Create][counted]++
	case "update":
		d.Ops[Update][counted]++
	default:
		return BadAction
	}
	subjects, reason := d.subjects(o, b)
	if reason == NoBlock && d.superseded(i) {
		reason = "" // a commit need not contain blocks that it replaces itself
	}
	for n, k := range o.of.Kinds {
		switch {
		case k.Kind.IsMany():
			if subjects == nil {
				b.AddDelete(k.Kind, rkey)
				break
			}
			one := &subjects[n]
			if one.reason != absent {
				reason = reason.Or(one.reason)
			}
			b.AddSubjects(k.Kind, rkey, d.many[one.from:one.to])
		case subjects == nil: // the block is unreadable: the record names no subject
			b.AddPutRef(k.Kind, rkey, batch.Ref{})
		case subjects[n].reason == absent:
			b.AddDelete(k.Kind, rkey)
		default:
			reason = reason.Or(subjects[n].reason)
			b.AddPutRef(k.Kind, rkey, subjects[n].subject)
		}
	}
	return reason
}

// superseded reports whether a later operation of the commit is on the same path as the
// i-th. It is called rarely.
func (d *Decoder) superseded(i int) bool {
	const enough = 1024 // ops to look at: the protocol allows 200
	for j := i + 1; j < len(d.ops) && j < i+enough; j++ {
		if bytes.Equal(d.ops[j].path, d.ops[i].path) {
			return true
		}
	}
	return false
}

// named is the subject in a record's field of one kind, or the reason why there is none.
type named struct {
	subject  batch.Ref
	from, to int32 // of a kind with many subjects: these are in Decoder.many
	reason   Reason
}

// absent is the reason of a record without an optional subject.
const absent Reason = "absent"

// subjects returns the subjects in the record of an operation, one for each kind of its
// collection; nil and the reason if the record is missing or unreadable.
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
		// The same bytes under another collection: at most one of them fits the $type.
		if w.reads++; w.reads > len(d.Kinds.Collections()) {
			return nil, BadOps
		}
		w.of, w.first, w.reason = o.of, len(d.named), ""
		if !hashes(w.cid, w.block) {
			w.reason = BadHash
		}
		for _, k := range o.of.Kinds {
			one := named{reason: w.reason}
			switch {
			case w.reason != "":
			case k.Kind.IsMany():
				d.found, one.reason = AppendSubjects(d.found[:0], k, w.block)
				one.from = int32(len(d.many))
				for _, subject := range d.found {
					d.many = append(d.many, b.Keep(subject))
				}
				one.to = int32(len(d.many))
			default:
				var subject []byte
				subject, one.reason = Subject(k, w.block)
				one.subject = b.Keep(subject)
			}
			d.named = append(d.named, one)
		}
	}
	return d.named[w.first : w.first+len(o.of.Kinds)], w.reason
}

// Subject returns the subject that a record names, as a slice of the record, or the reason
// why it names none.
func Subject(k *kinds.Info, record []byte) ([]byte, Reason) {
	c := Cursor{B: record}
	subject, there := find(&c, k.To.Field)
	switch {
	case c.Bad || c.I != len(record):
		return nil, BadRecord
	case !there && k.Optional:
		return nil, absent
	case subject != nil && k.To.Form.Valid(subject):
		return subject, ""
	case k.To.Form == kinds.ATURI && dict.ValidSpaceURI(subject):
		return nil, SpaceSubject
	}
	return nil, BadSubject
}

// IsAbsent reports whether Subject returned this reason because an optional subject is
// absent.
func (r Reason) IsAbsent() bool { return r == absent }

// find walks the map at c and returns the text at the path of keys, nil if the value there
// is not a text; there reports whether there is a value. find reads the map to its end.
func find(c *Cursor, keys []string) (found []byte, there bool) {
	seen := false
	for range c.Count(Map) {
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
		case len(keys) == 1 && c.B[c.I] == null:
			c.Skip()
		case len(keys) == 1:
			if there = true; c.B[c.I]>>5 == Text {
				found = c.Text()
			} else {
				c.Skip()
			}
		case c.B[c.I]>>5 == Map:
			found, there = find(c, keys[1:])
		default:
			c.Skip()
		}
	}
	return found, there
}
