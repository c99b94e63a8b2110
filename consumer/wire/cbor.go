package wire

import "encoding/binary"

// CBOR major types.
const (
	Uint = iota
	Negative
	Bytes
	Text
	Array
	Map
	Tag
	Simple
)

// Cursor reads DAG-CBOR (https://ipld.io/specs/codecs/dag-cbor/spec/) from B at I, in place. It covers what
// the decoders need, not the whole format, and is for one goroutine. After the first item of an unexpected type or form,
// Bad is set and every further read returns nothing, so callers check once at the end. It
// never reads beyond B and never allocates.
type Cursor struct {
	B   []byte // the input
	I   int    // the position in B
	Bad bool   // the input is malformed or unexpected
}

// Fail sets Bad: all further reads return nothing.
func (c *Cursor) Fail() { c.Bad, c.I = true, len(c.B) }

// Head reads the head of the next item: its major type and its argument. Indefinite lengths, and arguments that
// fit a shorter head, are bad: DAG-CBOR forbids them. Most heads have one byte; this part of Head is inlined into callers.
func (c *Cursor) Head() (major byte, arg uint64) {
	if c.I < len(c.B) && c.B[c.I]&31 < 24 {
		first := c.B[c.I]
		c.I++
		return first >> 5, uint64(first & 31)
	}
	return c.longHead()
}

func (c *Cursor) longHead() (major byte, arg uint64) {
	if c.I >= len(c.B) {
		c.Fail()
		return Simple, 0
	}
	major, info := c.B[c.I]>>5, c.B[c.I]&31
	p := c.B[c.I+1:]
	if info == 24 && len(p) > 0 && p[0] >= 24 {
		c.I += 2
		return major, uint64(p[0])
	}
	n := 1 << (info - 24)
	if info == 24 || info > 27 || len(p) < n {
		c.Fail()
		return Simple, 0
	}
	switch info {
	case 25:
		arg = uint64(binary.BigEndian.Uint16(p))
	case 26:
		arg = uint64(binary.BigEndian.Uint32(p))
	default:
		arg = binary.BigEndian.Uint64(p)
	}
	c.I += 1 + n
	if arg>>(4*n) == 0 && major != Simple { // floats have all their bytes
		c.Fail()
	}
	return major, arg
}

// str reads a byte or text string.
func (c *Cursor) str(want byte) []byte {
	if c.I < len(c.B) && c.B[c.I]>>5 == want { // the fast path for short strings
		if n := int(c.B[c.I] & 31); n < 24 && n < len(c.B)-c.I {
			start := c.I + 1
			c.I = start + n
			return c.B[start:c.I:c.I]
		}
	}
	major, n := c.Head()
	if major != want || n > uint64(len(c.B)-c.I) {
		c.Fail()
		return nil
	}
	s := c.B[c.I : c.I+int(n) : c.I+int(n)]
	c.I += int(n)
	return s
}

// Text reads a text string.
func (c *Cursor) Text() []byte { return c.str(Text) }

// Bytes reads a byte string.
func (c *Cursor) Bytes() []byte { return c.str(Bytes) }

// Count reads the head of an array or a map and returns its length. An item has at least
// one byte, so a length beyond the remaining bytes is bad.
func (c *Cursor) Count(want byte) int {
	major, n := c.Head()
	if major != want || n > uint64(len(c.B)-c.I) {
		c.Fail()
		return 0
	}
	return int(n)
}

// Fields reads a map: it yields each key, after which the loop must read or skip the value. It ends with the
// map, or once Bad is set. The hottest loops of this package are written out, because a call for each key
// makes them some 5 % slower.
func (c *Cursor) Fields(yield func(key []byte) bool) {
	for n := c.Count(Map); n > 0 && !c.Bad; n-- {
		if !yield(c.Text()) {
			return
		}
	}
}

// Uint reads an unsigned integer.
func (c *Cursor) Uint() uint64 {
	major, n := c.Head()
	if major != Uint {
		c.Fail()
	}
	return n
}

// Bool reads a boolean.
func (c *Cursor) Bool() bool {
	one := c.Item()
	if string(one) != "\xf4" && string(one) != "\xf5" {
		c.Fail()
	}
	return string(one) == "\xf5"
}

const (
	null         = 0xf6
	cidTag       = 42
	cidMultibase = 0
)

// Null skips a null if one is next.
func (c *Cursor) Null() bool {
	if c.I < len(c.B) && c.B[c.I] == null {
		c.I++
		return true
	}
	return false
}

// OptionalText reads a text or null.
func (c *Cursor) OptionalText() []byte {
	if c.Null() {
		return nil
	}
	return c.Text()
}

// Link reads a CID link, or null.
func (c *Cursor) Link() []byte {
	if c.Null() {
		return nil
	}
	if major, tag := c.Head(); major != Tag || tag != cidTag {
		c.Fail()
		return nil
	}
	b := c.Bytes()
	if len(b) < 2 || b[0] != cidMultibase {
		c.Fail()
		return nil
	}
	return b[1:]
}

// Item skips one item, and returns its bytes.
func (c *Cursor) Item() []byte {
	start := c.I
	c.Skip()
	if c.Bad {
		return nil
	}
	return c.B[start:c.I]
}

// Skip skips one item, however deeply nested, in one loop: it counts the items that are
// left.
func (c *Cursor) Skip() {
	for left := uint64(1); left > 0 && !c.Bad; left-- {
		major, n := c.Head()
		switch major {
		case Bytes, Text:
			if n > uint64(len(c.B)-c.I) {
				c.Fail()
				return
			}
			c.I += int(n)
		case Array, Map:
			if n > uint64(len(c.B)-c.I) {
				c.Fail()
				return
			}
			if left += n; major == Map {
				left += n
			}
		case Tag:
			left++
		}
	}
}

// AppendHead appends the head of an item: its major type, and its argument in the shortest form.
func AppendHead(b []byte, major byte, arg uint64) []byte {
	major <<= 5
	switch {
	case arg < 24:
		return append(b, major|byte(arg))
	case arg < 1<<8:
		return append(b, major|24, byte(arg))
	case arg < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(arg))
	case arg < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(arg))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), arg)
}
