package archive

import (
	"bytes"
	"time"

	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
)

// folder fills batches from blocks, in the order of the archive.
type folder struct {
	owns    func(did []byte) bool
	records int64 // see Progress
	kinds   *kinds.Table
	drop    func(reason wire.Reason)
	did     []byte // of the current commit
	rev     []byte
	open    bool
	last    int64        // the seq of the last row that was added
	found   [][]byte     // scratch
	refs    []batch.Span // scratch
}

func newFolder(table *kinds.Table, owns func([]byte) bool, through int64, drop func(wire.Reason)) *folder {
	return &folder{owns: owns, kinds: table, last: through, drop: drop}
}

// add adds the rows of a block after those already added. It never divides a block:
// the batch gets all of it, or nothing.
func (f *folder) add(b *block, to *batch.Batch) {
	f.open = false
	var r row
	for b.next(&r) {
		if r.seq <= f.last {
			continue // part of a block that was read before
		}
		f.last = r.seq
		to.Seen(batch.Seq(r.seq), nil)
		switch r.kind {
		case create, update, remove, createResync:
			f.commit(&r, to)
		case account, sync:
			f.marker(&r, to)
		default: // identity, and kinds of later versions
		}
	}
	if at := b.lastWitnessed(); at > 0 {
		var buf [len(time.RFC3339Nano)]byte
		to.Seen(batch.Seq(f.last), time.UnixMicro(at).UTC().AppendFormat(buf[:0], time.RFC3339Nano))
	}
}

// commit adds a row of a record. One of a collection that is not indexed adds its rev: the account's next commit must
// follow the last rev of the archive, whatever it changed.
func (f *folder) commit(r *row, to *batch.Batch) {
	if !f.open || !bytes.Equal(r.did, f.did) || !bytes.Equal(r.rev, f.rev) {
		if !f.begin(r, to) {
			return
		}
	}
	if of := f.kinds.Collection(string(r.collection)); of != nil {
		f.op(of, r, to)
	}
}

// begin begins a commit.
func (f *folder) begin(r *row, to *batch.Batch) bool {
	if !dict.ValidDID(r.did) {
		f.drop(wire.BadDID)
		return false
	}
	if !f.owns(r.did) {
		return false
	}
	if !dict.ValidTID(r.rev) {
		f.drop(wire.BadRev)
		return false
	}
	f.open, f.did, f.rev = true, r.did, r.rev
	to.AddArchived(batch.Seq(r.seq), r.did, r.rev)
	return true
}

func (f *folder) op(of *kinds.Collection, r *row, to *batch.Batch) {
	if !dict.ValidRkey(r.rkey) {
		f.drop(wire.BadPath)
		return
	}
	to.ReachArchived(batch.Seq(r.seq))
	if r.kind == remove {
		for _, k := range of.Kinds {
			to.AddDelete(k.Kind, r.rkey)
		}
		return
	}
	var dropped wire.Reason
	for _, k := range of.Kinds {
		var reason wire.Reason
		if f.found, reason = wire.AppendSubjects(f.found[:0], k, r.payload); !reason.IsAbsent() {
			dropped = dropped.Or(reason)
		}
		f.refs = f.refs[:0]
		for _, subject := range f.found {
			f.refs = append(f.refs, to.Keep(subject))
		}
		to.AddSubjects(k, r.rkey, f.refs)
	}
	if dropped != "" {
		f.drop(dropped)
	}
	f.records++
}

// marker adds an #account or a #sync.
func (f *folder) marker(r *row, to *batch.Batch) {
	f.open = false
	if !dict.ValidDID(r.did) {
		f.drop(wire.BadDID)
		return
	}
	if !f.owns(r.did) {
		return
	}
	if r.kind == sync {
		to.AddArchivedSync(batch.Seq(r.seq), r.did, r.rev)
		return
	}
	c := wire.Cursor{B: r.payload}
	isActive, hasActive := false, false
	var status []byte
	for key := range c.Fields {
		switch string(key) {
		case "active":
			isActive, hasActive = c.Bool(), true
		case "status":
			status = c.OptionalText()
		default:
			c.Skip()
		}
	}
	if c.Bad || !hasActive {
		f.drop(wire.BadAccount)
		return
	}
	to.AddArchivedAccount(batch.Seq(r.seq), r.did, isActive, string(status) == "deleted")
}
