package labels

import (
	"errors"

	"skein.blue/consumer/wire"
)

// The types of messages.
const (
	typeLabels = "#labels"
	typeInfo   = "#info"
	typeError  = "#error" // a frame whose op is -1
)

// mostLabels is the largest number of labels of one message. Labelers send one, or a few.
const mostLabels = 5000

// A message is one frame of the stream.
type message struct {
	kind       string // its type; types that are none of the above are ignored
	seq        int64
	labels     []rawLabel // those that can be read
	unreadable int        // how many cannot
	name       string     // of an info or an error
	text       string     // its message
}

// A rawLabel is a label as it is sent (com.atproto.label.defs#label). "" stands for what is absent.
type rawLabel struct {
	Version        int64
	SourceDID, URI string
	CID            string
	Val            string
	Negated        *bool
	CreatedAt      string
	ExpiresAt      string
	Sig            []byte
}

// labelVersion is the version of labels that counts.
const labelVersion = 1

// unsigned returns what the labeler signs: the fields that the schema has, without the signature.
func (l *rawLabel) unsigned() []byte {
	fields, b := uint64(0), []byte(nil)
	text := func(s string) { b = append(wire.AppendHead(b, wire.Text, uint64(len(s))), s...) }
	field := func(key, value string) {
		if value != "" {
			fields++
			text(key)
			text(value)
		}
	}
	field("cid", l.CID)
	field("cts", l.CreatedAt)
	field("exp", l.ExpiresAt)
	if l.Negated != nil {
		fields++
		text("neg")
		value := uint64(20) // false
		if *l.Negated {
			value = 21
		}
		b = wire.AppendHead(b, wire.Simple, value)
	}
	field("src", l.SourceDID)
	field("uri", l.URI)
	field("val", l.Val)
	fields++
	text("ver")
	b = wire.AppendHead(b, wire.Uint, uint64(l.Version))
	return append(wire.AppendHead(nil, wire.Map, fields), b...)
}

// futureCursor is the name of the error for a cursor above the labeler's last number.
const futureCursor = "FutureCursor"

var errFrame = errors.New("a message is not a frame of subscribeLabels")

// decode reads a frame: a header and a body, both CBOR maps
// (https://atproto.com/specs/event-stream). It never panics, whatever the bytes. With an error, the message has the
// labels that stand before what cannot be read: each has a signature of its own, so nothing else vouches for it.
func decode(b []byte) (m message, err error) {
	c := wire.Cursor{B: b}
	failed := false
	for key := range c.Fields {
		switch string(key) {
		case "op":
			major, _ := c.Head()
			failed = major == wire.Negative
		case "t":
			m.kind = string(c.Text())
		default:
			c.Skip()
		}
	}
	if failed {
		m.kind = typeError
	}
	if c.Bad || m.kind == "" {
		return m, errFrame
	}
	for k := range c.Fields {
		switch key := string(k); {
		case key == "seq" && m.kind == typeLabels:
			m.seq = int64(c.Uint())
		case key == "labels" && m.kind == typeLabels:
			m.readLabels(&c)
		case (key == "name" || key == "error") && m.kind != typeLabels:
			m.name = string(c.OptionalText())
		case key == "message" && m.kind != typeLabels:
			m.text = string(c.OptionalText())
		default:
			c.Skip()
		}
	}
	if c.Bad || c.I != len(b) || m.kind == typeLabels && m.seq <= 0 {
		return m, errFrame
	}
	return m, nil
}

// readLabels reads an array of labels.
func (m *message) readLabels(c *wire.Cursor) {
	n := c.Count(wire.Array)
	if n > mostLabels || m.labels != nil { // too many, or the key is there twice
		c.Fail()
		return
	}
	for range n {
		start := c.I
		if c.Skip(); c.Bad {
			return
		}
		one := wire.Cursor{B: c.B[start:c.I]}
		l := readLabel(&one)
		if one.Bad || l.SourceDID == "" || l.URI == "" || l.Val == "" || l.CreatedAt == "" { // the schema requires them
			m.unreadable++
			continue
		}
		m.labels = append(m.labels, l)
	}
}

// readLabel reads a label. Fields that are not in the schema are left out, as they are of what is signed.
func readLabel(c *wire.Cursor) (l rawLabel) {
	for key := range c.Fields {
		switch string(key) {
		case "ver":
			l.Version = int64(c.Uint())
		case "src":
			l.SourceDID = string(c.Text())
		case "uri":
			l.URI = string(c.Text())
		case "cid":
			l.CID = string(c.OptionalText())
		case "val":
			l.Val = string(c.Text())
		case "neg":
			if !c.Null() {
				neg := c.Bool()
				l.Negated = &neg
			}
		case "cts":
			l.CreatedAt = string(c.Text())
		case "exp":
			l.ExpiresAt = string(c.OptionalText())
		case "sig":
			if !c.Null() {
				l.Sig = append([]byte{}, c.Bytes()...)
			}
		default:
			c.Skip()
		}
	}
	return l
}
