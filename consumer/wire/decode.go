// Package wire decodes the messages of com.atproto.sync.subscribeRepos: it turns the bytes
// of one message into changes of the graph. It walks each message once, without allocations,
// and never panics, whatever the bytes. It knows no connections, clocks or stores.
//
// Of a commit's CAR it reads only the blocks that matter, and checks each against its CID:
// the commit, and the records of indexed collections. Package proof verifies signatures.
package wire

import (
	"bytes"
	"slices"

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

// A Drop is a part of a message that Add dropped. Its slices point into the frame.
type Drop struct {
	Reason Reason
	Path   []byte
}

// A Decoder owns the memory for decoding. Only one goroutine may use it.
type Decoder struct {
	// Drops are what the last Add dropped.
	Drops []Drop
	// Ops counts the operations on indexed collections so far.
	Ops int64
	// OtherRev, if set, is called for each message whose rev differs from that of its commit
	// block. They are applied anyway: see commitBlock.
	OtherRev func()
	// Owns, if set, reports whether to index an account; events of other accounts are not
	// decoded.
	Owns func(did []byte) bool
	// Part, if set, says which accounts are indexed whole, and what of the others.
	Part *Part
	// Latest, if set, returns the highest rev to believe now. It is asked when a rev is above what it
	// returned last.
	Latest func() batch.Rev
	// Kinds is the table of indexed kinds.
	Kinds *kinds.Table

	wants wants
	named []named      // in the blocks of records
	refs  []batch.Span // the subjects
	found [][]byte     // scratch
	ops   []rawOp
	block CommitBlock

	standing standing // of the message's account

	latest [13]byte // the TID of what Latest returned last
}

type rawOp struct {
	Op

	of *kinds.Collection // nil: not indexed
}

// Add adds the changes that the message makes to the batch. Afterwards d.Drops has what it
// dropped.
func (d *Decoder) Add(m *Message, b *batch.Batch) {
	d.Drops, d.standing = d.Drops[:0], d.Part.of(m.DID)
	switch {
	case m.Type != Commit && m.Type != Sync && m.Type != Account: // changes no edge
	case !dict.ValidDID(m.DID):
		d.drop(BadDID, nil)
	case !d.Wants(m):
	case m.Type == Commit:
		d.commit(m, b)
	case m.Type == Sync:
		d.sync(m, b)
	case !m.hasAct:
		d.drop(BadAccount, nil)
	default:
		b.AddAccount(m.Seq, m.DID, m.active, string(m.Status) == "deleted")
		d.mark(m, b)
	}
}

// Wants reports whether Add may index something of a message. Any goroutine may call it.
func (d *Decoder) Wants(m *Message) bool {
	return (d.Owns == nil || d.Owns(m.DID)) && d.Part.wants(m, d.Part.of(m.DID))
}

// mark marks the last event of the batch if its account is outside the Part.
func (d *Decoder) mark(m *Message, b *batch.Batch) {
	if d.standing != member {
		d.Part.Note(m.DID)
		b.Event(b.Events() - 1).Flags |= batch.IsOutside
	}
}

// Reject drops a Commit or a Sync that failed verification. Nothing in it is believed, its rev
// included. Its account counts as having missed an event, so that its repo is fetched, unless the
// account does not exist (NoKey): anybody can make up a DID.
func (d *Decoder) Reject(m *Message, b *batch.Batch, r Reason) {
	d.Drops, d.standing = d.Drops[:0], d.Part.of(m.DID)
	if d.Wants(m) {
		d.drop(r, nil)
		if r != NoKey {
			b.AddCommit(m.Seq, &batch.Commit{DID: m.DID, Refuted: true})
			d.mark(m, b)
		}
	}
}

func (d *Decoder) drop(r Reason, path []byte) { d.Drops = append(d.Drops, Drop{r, path}) }

func (d *Decoder) commit(m *Message, b *batch.Batch) {
	c := batch.Commit{DID: m.DID, TooBig: m.TooBig, Since: m.Since}
	if len(m.PrevData) == cidLen {
		c.PrevData = m.PrevData[4:]
	} else if len(m.PrevData) > 0 {
		c.PrevData = noSuchRoot
	}
	if !dict.ValidTID(m.Rev) {
		d.drop(BadRev, nil)
		b.AddCommit(m.Seq, &c)
		d.mark(m, b)
		return
	}
	c.Rev = m.Rev
	if m.TooBig {
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
	case reason != "" && !m.TooBig: // the blocks of one that is too big are missing anyway
		d.drop(reason, nil)
	case reason == "" && !m.TooBig && d.standing != member && !d.touchesCenters(b):
		return
	}
	b.AddCommit(m.Seq, &c)
	d.mark(m, b)
	if len(c.Data) == 0 {
		return
	}
	for i := range d.ops {
		if reason := d.op(i, b); reason != "" {
			d.drop(reason, d.ops[i].Path)
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

// noSuchRoot replaces a prevData that is not a CID of this protocol: no commit has it.
var noSuchRoot = make([]byte, 32)

// read parses the operations and the CAR, and fills in c.Data. It returns the reason why the
// commit is not completely readable, or "".
func (d *Decoder) read(m *Message, c *batch.Commit) Reason {
	if !d.parseOps(m.Ops) {
		return BadOps
	}
	_, start := carHeader(m.Blocks)
	if start == 0 {
		return BadCAR
	}
	if len(m.CommitCID) == 0 {
		return BadCommit
	}
	d.wants.reset()
	d.named, d.refs = d.named[:0], d.refs[:0]
	d.wants.add(m.CommitCID)
	for i := range d.ops {
		if o := &d.ops[i]; o.of != nil {
			d.wants.add(o.CID)
		}
	}
	if !d.wants.find(m.Blocks, start) {
		return BadCAR
	}
	return d.commitBlock(m.CommitCID, m, c)
}

// commitBlock stores the root and the rev of a commit block in c. The block must belong to the message's DID.
//
// The lexicons say that the message's rev "must match that in the commit object", and
// indigo's relay drops a message if it does not. But this is how the reference PDS announces
// an imported repo: it keeps the imported commit block as it was signed, and puts its own
// rev into the message; the next commit's since is the rev of the block. So commitBlock
// believes the block, which the account signed, and calls OtherRev.
func (d *Decoder) commitBlock(cid []byte, m *Message, c *batch.Commit) Reason {
	w := d.wants.lookup(cid)
	if w == nil || w.block == nil || !hashes(cid, w.block) {
		return BadCommit
	}
	k := &d.block
	if !k.Read(w.block) || !bytes.Equal(k.DID, m.DID) || !dict.ValidTID(k.Rev) {
		return BadCommit
	}
	if !bytes.Equal(k.Rev, m.Rev) {
		c.OtherRev = true
		if d.OtherRev != nil {
			d.OtherRev()
		}
	}
	c.Rev, c.Data = k.Rev, k.Data[4:]
	return ""
}

func (d *Decoder) sync(m *Message, b *batch.Batch) {
	c := batch.Commit{DID: m.DID}
	if dict.ValidTID(m.Rev) {
		c.Rev = m.Rev
	} else {
		d.drop(BadRev, nil)
	}
	if root, start := carHeader(m.Blocks); start == 0 || len(root) == 0 {
		d.drop(BadCAR, nil)
	} else {
		d.wants.reset()
		d.wants.add(root)
		if !d.wants.find(m.Blocks, start) || d.commitBlock(root, m, &c) != "" {
			d.drop(BadCommit, nil)
		}
	}
	if d.isAhead(c.Rev) {
		d.drop(FutureRev, nil)
		c.Rev = nil
	}
	b.AddSync(m.Seq, &c)
}

func (d *Decoder) parseOps(array []byte) bool {
	d.ops = d.ops[:0]
	return EachOp(array, func(o Op) bool {
		d.ops = append(d.ops, rawOp{o, d.Kinds.CollectionOf(o.Path)})
		return o.Action != nil && o.Path != nil
	})
}

// op adds an operation, and returns the reason why it, or a part of it, is dropped, or "".
func (d *Decoder) op(i int, b *batch.Batch) (reason Reason) {
	o := &d.ops[i]
	if o.of == nil {
		if bytes.IndexByte(o.Path, '/') <= 0 {
			return BadPath
		}
		return ""
	}
	rkey := o.Path[len(o.of.NSID)+1:]
	if !dict.ValidRkey(rkey) {
		return BadPath
	}
	switch string(o.Action) {
	case "delete":
		d.Ops++
		for _, k := range o.of.Kinds {
			b.AddDelete(k.Kind, rkey)
		}
		return ""
	case "create", "update":
		d.Ops++
	default:
		return BadAction
	}
	all, reason := d.subjects(o, b)
	if reason == NoBlock && d.superseded(i) {
		reason = "" // a commit need not contain blocks that it replaces itself
	}
	if d.standing != member && !d.namesCenter(all, b) {
		if string(o.Action) == "update" { // the record may have named one before
			for _, k := range o.of.Kinds {
				b.AddDelete(k.Kind, rkey)
			}
		}
		return reason
	}
	for n, k := range o.of.Kinds {
		var subjects []batch.Span
		switch {
		case all != nil:
			subjects = d.refs[all[n].from:all[n].to]
			if !all[n].reason.IsAbsent() {
				reason = reason.Or(all[n].reason)
			}
		case !k.Kind.IsMany(): // the block is missing: the record names no subject
			subjects = nobody
		}
		b.AddSubjects(k, rkey, subjects)
	}
	return reason
}

// nobody are the subjects of a record that should name one, and does not.
var nobody = []batch.Span{{}}

// superseded reports whether a later operation of the commit is on the same path as the
// i-th. It is called rarely.
func (d *Decoder) superseded(i int) bool {
	const enough = 1024 // ops to look at: the protocol allows 200
	later := d.ops[i+1 : min(len(d.ops), i+enough)]
	return slices.ContainsFunc(later, func(o rawOp) bool { return bytes.Equal(o.Path, d.ops[i].Path) })
}

// named says which subjects the field of one kind in a record names, and why it does not name more.
type named struct {
	from, to int32 // in Decoder.refs
	reason   Reason
}

// subjects returns the subjects in the record of an operation, one named for each kind of its
// collection; nil and the reason if the record is missing.
func (d *Decoder) subjects(o *rawOp, b *batch.Batch) ([]named, Reason) {
	w := d.wants.lookup(o.CID)
	if w == nil || w.block == nil {
		return nil, NoBlock
	}
	if w.of != o.of {
		// The same bytes under another collection: at most one of them fits the $type.
		if w.reads++; w.reads > len(d.Kinds.Collections()) {
			return nil, BadOps
		}
		w.of, w.first, w.reason = o.of, len(d.named), ""
		record := w.block
		if !hashes(w.cid, record) {
			w.reason, record = BadHash, nil
		}
		for _, k := range o.of.Kinds {
			one := named{from: int32(len(d.refs))}
			d.found, one.reason = AppendSubjects(d.found[:0], k, record)
			for _, subject := range d.found {
				d.refs = append(d.refs, b.Keep(subject))
			}
			one.to, one.reason = int32(len(d.refs)), w.reason.Or(one.reason)
			d.named = append(d.named, one)
		}
	}
	return d.named[w.first : w.first+len(o.of.Kinds)], w.reason
}

// absent is the reason of a record without an optional subject.
const absent Reason = "absent"

// IsAbsent reports whether AppendSubjects returned this reason because an optional subject is
// absent.
func (r Reason) IsAbsent() bool { return r == absent }
