package wire

import (
	"bytes"
	"errors"
	"slices"

	"skein.blue/graph/batch"
)

// A Type is the type of a message.
type Type uint8

// The types of messages. Unknown stands for types of later versions of the
// protocol.
const (
	Unknown Type = iota
	Commit
	Sync
	Account
	Identity
	Info
	Error
)

var types = [...]string{"unknown", "commit", "sync", "account", "identity", "info", "error"}

// String returns the name of the type in metrics.
func (t Type) String() string { return types[t] }

// Types is the number of types.
const Types = int(Error) + 1

// ErrFrame means that a message is malformed.
var ErrFrame = errors.New("wire: unreadable frame")

// A Message is the envelope of a message. Its slices point into the frame.
type Message struct {
	Type Type
	Seq  batch.Seq // 0 if it has none
	Time []byte    // as sent; should be RFC 3339

	DID        []byte
	Rev, Since []byte
	CommitCID  []byte // of the commit block of a Commit
	PrevData   []byte // CID of the root of the tree before a Commit; nil if it names none
	Blocks     []byte // the CAR of a Commit or a Sync
	Ops        []byte // of a Commit, as a CBOR array for EachOp; may be nil
	TooBig     bool   // a Commit was too big to send
	Status     []byte

	active, hasAct bool

	Name, Text []byte // of Info and Error
}

// An Op is an operation of a Commit.
type Op struct{ Action, Path, CID, Prev []byte }

// maxOps bounds the operations of a commit, which must fit into one write. The protocol
// allows 200.
const maxOps = 5000

// EachOp calls each for the operations in a CBOR array until it returns false. It reports whether the array
// is well-formed, has at most maxOps, and each returned true for all.
func EachOp(array []byte, each func(Op) bool) bool {
	c := Cursor{B: array}
	n := c.Count(Array)
	if n > maxOps {
		return false
	}
	for range n {
		var o Op
		for range c.Count(Map) {
			switch string(c.Text()) {
			case "action":
				o.Action = c.Text()
			case "path":
				o.Path = c.Text()
			case "cid":
				o.CID = c.Link()
			case "prev":
				o.Prev = c.Link()
			default:
				c.Skip()
			}
		}
		if c.Bad || !each(o) {
			return false
		}
	}
	return !c.Bad
}

// Parse parses a message's envelope into m. It skips everything unknown, as the
// protocol demands.
func Parse(frame []byte, m *Message) error {
	*m = Message{}
	c := Cursor{B: frame}
	if len(frame) > len(commitHeader) && string(frame[:len(commitHeader)]) == commitHeader {
		c.I, m.Type = len(commitHeader), Commit
	} else {
		m.header(&c)
	}
	repo := m.Type == Commit || m.Type == Sync
	for range c.Count(Map) {
		if repo {
			m.repoField(&c)
		} else {
			m.field(&c)
		}
	}
	if c.Bad || m.Type >= Commit && m.Type <= Identity && m.Seq <= 0 {
		return ErrFrame
	}
	return nil
}

// commitHeader is the header of nearly every message, {"t":"#commit","op":1}.
const commitHeader = "\xa2atg#commitbop\x01"

func (m *Message) header(c *Cursor) {
	isMessage, isError := false, false
	for key := range c.Fields {
		switch string(key) {
		case "op":
			switch major, n := c.Head(); {
			case major == Negative && n == 0:
				isError = true
			case major > Negative:
				c.Fail()
			case major == Uint && n == 1:
				isMessage = true
			}
		case "t":
			name, _ := bytes.CutPrefix(c.Text(), []byte("#"))
			m.Type = Type(max(slices.Index(types[:Error], string(name)), int(Unknown)))
		default:
			c.Skip()
		}
	}
	switch {
	case isError:
		m.Type = Error
	case !isMessage: // another op, or none: skipped, as in indigo
		m.Type = Unknown
	}
}

// field parses one entry of a body other than a commit's. It parses fields of a
// single type only in messages of that type, because in others they may mean
// anything.
func (m *Message) field(c *Cursor) {
	isInfo := m.Type == Info || m.Type == Error
	switch key := string(c.Text()); {
	case key == "seq" && (m.Type != Unknown || c.I < len(c.B) && c.B[c.I]>>5 == Uint): // it may mean something else in later versions
		m.seq(c)
	case key == "time" && m.Type != Unknown && !isInfo:
		m.Time = c.OptionalText()
	case key == "did" && (m.Type == Identity || m.Type == Account):
		m.DID = c.Text()
	case key == "active" && m.Type == Account:
		m.active, m.hasAct = c.Bool(), true
	case key == "status" && m.Type == Account:
		m.Status = c.OptionalText()
	case (key == "name" || key == "error") && isInfo:
		m.Name = c.OptionalText()
	case key == "message" && isInfo:
		m.Text = c.OptionalText()
	default:
		c.Skip()
	}
}

func (m *Message) seq(c *Cursor) {
	n := c.Uint()
	if n > 1<<63-1 {
		c.Fail()
		return
	}
	m.Seq = batch.Seq(n)
}

// repoField parses one entry of the body of a #commit or a #sync.
func (m *Message) repoField(c *Cursor) {
	switch string(c.Text()) {
	case "seq":
		m.seq(c)
	case "time":
		m.Time = c.OptionalText()
	case "repo", "did":
		m.DID = c.Text()
	case "rev":
		m.Rev = c.Text()
	case "since":
		m.Since = c.OptionalText()
	case "commit":
		m.CommitCID = c.Link()
	case "prevData":
		m.PrevData = c.Link()
	case "blocks":
		m.Blocks = c.Bytes()
	case "ops":
		m.Ops = c.Item()
	case "tooBig":
		m.TooBig = c.Bool()
	default:
		c.Skip()
	}
}
