package wire

import (
	"bytes"
	"hash/maphash"
	"sync"

	"skein.blue/graph/batch"
)

// A Part decides what of the stream an index of a part of the network takes: the events of the part's members, and of
// everybody else the records that name one of its centers, or a record of one. Any goroutine may call its methods.
//
// It knows accounts by hashes of their DIDs, to be small. An account that counts as a member because of its hash is harmless: its
// commits are indexed, as if it belonged to the part.
type Part struct {
	centers map[string]bool // DIDs
	lengths map[int]bool    // of the centers' DIDs
	seed    maphash.Seed

	mu       sync.RWMutex // guards the fields below
	accounts map[uint64]standing
	members  int
}

// A standing is what an account is to a Part.
type standing uint8

const (
	stranger standing = iota
	noted             // it is not a member, and the index may have records of it
	member
)

// NewPart returns a Part whose members are its centers.
func NewPart(centers ...string) *Part {
	p := &Part{centers: map[string]bool{}, lengths: map[int]bool{}, seed: maphash.MakeSeed(), accounts: map[uint64]standing{}}
	for _, did := range centers {
		p.centers[did], p.lengths[len(did)] = true, true
		p.Join([]byte(did))
	}
	return p
}

// Join makes an account a member.
func (p *Part) Join(did []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := maphash.Bytes(p.seed, did); p.accounts[h] != member {
		p.accounts[h] = member
		p.members++
	}
}

// Note notes that the index may have records of an account that is not a member: from now on its deletions are taken.
func (p *Part) Note(did []byte) {
	if p.of(did) != stranger {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if h := maphash.Bytes(p.seed, did); p.accounts[h] == stranger {
		p.accounts[h] = noted
	}
}

// Has reports whether an account is a member.
func (p *Part) Has(did []byte) bool { return p.of(did) == member }

// Members returns the number of members.
func (p *Part) Members() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.members
}

// of returns the standing of an account. Without a Part, everybody is a member.
func (p *Part) of(did []byte) standing {
	if p == nil {
		return member
	}
	h := maphash.Bytes(p.seed, did)
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.accounts[h]
}

// wants reports whether a message of an account of a standing may change the index. It looks for the centers' DIDs in the
// bytes of the records, which is much cheaper than to decode them. A #sync of an outsider says nothing of the centers.
func (p *Part) wants(m *Message, s standing) bool {
	switch {
	case s == member:
		return true
	case m.Type == Account:
		return s == noted || !m.active // inactive accounts are in no answer
	case m.Type != Commit:
		return false
	}
	// No block says what a deletion or an update removes. Operations that are missing or cannot be read may be such ones.
	return p.mentioned(m.Blocks) ||
		s == noted && (m.TooBig || !EachOp(m.Ops, func(o Op) bool { return string(o.Action) == "create" }))
}

// mentioned reports whether bytes contain the DID of a center.
func (p *Part) mentioned(b []byte) bool {
	const scheme = "did:"
	for {
		i := bytes.Index(b, []byte(scheme))
		if i < 0 {
			return false
		}
		b = b[i:]
		for n := range p.lengths {
			if len(b) >= n && p.centers[string(b[:n])] {
				return true
			}
		}
		b = b[len(scheme):]
	}
}

// names reports whether a subject is a center, or a record of one.
func (p *Part) names(subject []byte) bool {
	if rest, isURI := bytes.CutPrefix(subject, []byte("at://")); isURI {
		subject, _, _ = bytes.Cut(rest, []byte("/"))
	}
	return p.centers[string(subject)]
}

// touchesCenters reports whether an operation of a readable commit of an outsider may change what the index has: it names
// a center, or it may end that a record did.
func (d *Decoder) touchesCenters(b *batch.Batch) bool {
	for i := range d.ops {
		o := &d.ops[i]
		if o.of == nil {
			continue
		}
		isCreate := string(o.Action) == "create"
		if !isCreate && d.standing == noted {
			return true
		}
		if all, reason := d.subjects(o, b); reason.loses() || d.namesCenter(all, b) {
			return true
		}
	}
	return false
}

// namesCenter reports whether one of the subjects of a record names a center.
func (d *Decoder) namesCenter(all []named, b *batch.Batch) bool {
	for _, n := range all {
		for _, subject := range d.refs[n.from:n.to] {
			if d.Part.names(b.Bytes(subject)) {
				return true
			}
		}
	}
	return false
}
