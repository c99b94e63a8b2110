package wire

import "encoding/binary"

// CBOR major types.
const (
	majorUint = iota
	majorNegative
	majorBytes
	majorText
	majorArray
	majorMap
	majorTag
	majorSimple
)

// cursor reads DAG-CBOR from b at i. After the first thing that is not as
// asked, bad is set and every further read returns nothing: callers check once
// at the end. It never reads beyond b and allocates nothing.
type cursor struct {
	b   []byte
	i   int
	bad bool
}

func (c *cursor) fail() { c.bad, c.i = true, len(c.b) }

// head reads the head of the next item: its major type and its argument.
// Indefinite lengths, which DAG-CBOR forbids, are bad. Most heads are one
// byte; this much of it is inlined where it is called.
func (c *cursor) head() (major byte, arg uint64) {
	if c.i < len(c.b) && c.b[c.i]&31 < 24 {
		first := c.b[c.i]
		c.i++
		return first >> 5, uint64(first & 31)
	}
	return c.longHead()
}

func (c *cursor) longHead() (major byte, arg uint64) {
	if c.i >= len(c.b) {
		c.fail()
		return majorSimple, 0
	}
	first := c.b[c.i]
	major = first >> 5
	if first&31 == 24 && c.i+1 < len(c.b) {
		c.i += 2
		return major, uint64(c.b[c.i-1])
	}
	info := first & 31
	n := 1 << (info - 24)
	p := c.b[c.i+1:]
	if info > 27 || len(p) < n {
		c.fail()
		return majorSimple, 0
	}
	switch info {
	case 25:
		arg = uint64(binary.BigEndian.Uint16(p))
	case 26:
		arg = uint64(binary.BigEndian.Uint32(p))
	default:
		arg = binary.BigEndian.Uint64(p)
	}
	c.i += 1 + n
	return major, arg
}

// str reads a byte or text string.
func (c *cursor) str(want byte) []byte {
	if c.i < len(c.b) && c.b[c.i]>>5 == want { // short strings, at once
		if n := int(c.b[c.i] & 31); n < 24 && n < len(c.b)-c.i {
			start := c.i + 1
			c.i = start + n
			return c.b[start:c.i:c.i]
		}
	}
	major, n := c.head()
	if major != want || n > uint64(len(c.b)-c.i) {
		c.fail()
		return nil
	}
	s := c.b[c.i : c.i+int(n) : c.i+int(n)]
	c.i += int(n)
	return s
}

func (c *cursor) text() []byte  { return c.str(majorText) }
func (c *cursor) bytes() []byte { return c.str(majorBytes) }

// count reads the head of an array or a map and returns its length. An item
// takes a byte at least, so a length beyond what is left is bad.
func (c *cursor) count(want byte) int {
	major, n := c.head()
	if major != want || n > uint64(len(c.b)-c.i) {
		c.fail()
		return 0
	}
	return int(n)
}

func (c *cursor) uint() uint64 {
	major, n := c.head()
	if major != majorUint {
		c.fail()
	}
	return n
}

func (c *cursor) boolean() bool {
	major, n := c.head()
	if c.bad || major != majorSimple || n != 20 && n != 21 {
		c.fail()
	}
	return n == 21
}

const (
	cborNull     = 0xf6
	cidTag       = 42
	cidMultibase = 0
)

// null skips a null if one is next.
func (c *cursor) null() bool {
	if c.i < len(c.b) && c.b[c.i] == cborNull {
		c.i++
		return true
	}
	return false
}

// optionalText reads a text or null.
func (c *cursor) optionalText() []byte {
	if c.null() {
		return nil
	}
	return c.text()
}

// link reads a CID link, or null.
func (c *cursor) link() []byte {
	if c.null() {
		return nil
	}
	if major, tag := c.head(); major != majorTag || tag != cidTag {
		c.fail()
		return nil
	}
	b := c.bytes()
	if len(b) < 2 || b[0] != cidMultibase {
		c.fail()
		return nil
	}
	return b[1:]
}

// skip skips one item, however deeply nested, in one loop: it counts how many
// items are still to come.
func (c *cursor) skip() {
	for left := uint64(1); left > 0 && !c.bad; left-- {
		major, n := c.head()
		switch major {
		case majorBytes, majorText:
			if n > uint64(len(c.b)-c.i) {
				c.fail()
				return
			}
			c.i += int(n)
		case majorArray, majorMap:
			if n > uint64(len(c.b)-c.i) {
				c.fail()
				return
			}
			if left += n; major == majorMap {
				left += n
			}
		case majorTag:
			left++
		}
	}
}
