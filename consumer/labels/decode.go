package labels

import (
	"errors"
	"maps"
	"slices"

	"skein.blue/consumer/wire"
)

// mostLabels is the largest number of labels of one message. Labelers send one, or a few.
const mostLabels = 5000

// A message is one frame of the stream.
type message struct {
	kind       wire.Type  // Info, Error, or Unknown: #labels, and types to ignore
	seq        int64      // of #labels
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
	Negated        bool
	CreatedAt      string
	ExpiresAt      string
	Sig            []byte

	fields map[string][]byte // the values that are signed, as sent
}

// labelVersion is the version of labels that counts.
const labelVersion = 1

// unsigned returns what the labeler signs: the fields that the schema has, without the signature, in the canonical order.
func (l *rawLabel) unsigned() []byte {
	b := wire.AppendHead(nil, wire.Map, uint64(len(l.fields)))
	for _, key := range slices.Sorted(maps.Keys(l.fields)) { // all of the same length
		b = append(append(wire.AppendHead(b, wire.Text, uint64(len(key))), key...), l.fields[key]...)
	}
	return b
}

// futureCursor is the name of the error for a cursor above the labeler's last number.
const futureCursor = "FutureCursor"

var errFrame = errors.New("a message is not a frame of subscribeLabels")

// decode reads a frame: a header and a body, both CBOR maps
// (https://atproto.com/specs/event-stream). It never panics, whatever the bytes. With an error, the message has the
// labels that stand before what cannot be read: each has a signature of its own, so nothing else vouches for it.
func decode(b []byte) (m message, err error) {
	var e wire.Message
	if err := wire.Parse(b, &e); e.Type == wire.Info || e.Type == wire.Error {
		return message{kind: e.Type, name: string(e.Name), text: string(e.Text)}, err
	}
	c := wire.Cursor{B: b}
	kind := ""
	for key := range c.Fields {
		if string(key) == "t" {
			kind = string(c.Text())
		} else {
			c.Skip()
		}
	}
	if kind != "" && kind != "#labels" {
		return m, nil
	}
	for key := range c.Fields {
		switch string(key) {
		case "seq":
			m.seq = int64(c.Uint())
		case "labels":
			m.readLabels(&c)
		default:
			c.Skip()
		}
	}
	if c.Bad || c.I != len(b) || kind == "" || m.seq <= 0 {
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
	l.fields = map[string][]byte{}
	for k := range c.Fields {
		key, start := string(k), c.I
		if c.Null() {
			continue
		}
		switch key {
		case "ver":
			l.Version = int64(c.Uint())
		case "src":
			l.SourceDID = string(c.Text())
		case "uri":
			l.URI = string(c.Text())
		case "cid":
			l.CID = string(c.Text())
		case "val":
			l.Val = string(c.Text())
		case "neg":
			l.Negated = c.Bool()
		case "cts":
			l.CreatedAt = string(c.Text())
		case "exp":
			l.ExpiresAt = string(c.Text())
		case "sig":
			l.Sig = append([]byte{}, c.Bytes()...)
			continue
		default:
			c.Skip()
			continue
		}
		l.fields[key] = c.B[start:c.I]
	}
	return l
}
