package repo

import "skein.blue/consumer/wire"

// leftOf returns the link to the leftmost subtree, which is at the end of a node, and its
// offset. Only parsing the entries before it proves that the link is there.
func leftOf(data []byte) (cid []byte, at int, ok bool) {
	const none, head = "al\xf6", "al" + linkHead
	if at = len(data) - len(none); at > 0 && string(data[at:]) == none {
		return nil, at, true
	}
	if at = len(data) - len(head) - digestLen; at > 0 && string(data[at:at+len(head)]) == head {
		return data[len(data)-cidLen:], at, true
	}
	return nil, 0, false
}

// linkHead begins every link to a block, up to its digest.
const linkHead = "\xd8\x2a\x58\x25\x00" + cidPrefix

// entry is an entry of a node.
type entry struct {
	prefix uint64 // bytes shared with the previous key
	rest   []byte
	value  []byte
	right  []byte
}

func readEntry(c *wire.Cursor) (e entry, err error) {
	if e.usual(c) {
		return e, nil
	}
	for key := range c.Fields {
		switch string(key) {
		case "p":
			e.prefix = c.Uint()
		case "k":
			e.rest = c.Bytes()
		case "v":
			e.value = c.Link()
		case "t":
			e.right = c.Link()
		default:
			c.Fail()
		}
	}
	if c.Bad || len(e.rest) == 0 || len(e.value) == 0 {
		return e, errEntry
	}
	return e, nil
}

// usual parses an entry with a short key in its canonical DAG-CBOR form, and reports
// whether the entry had that form.
func (e *entry) usual(c *wire.Cursor) bool {
	const key, prefix, tree, value = "\xa4ak", "ap", "at", "av" + linkHead
	b := c.B[c.I:]
	if len(b) < len(key)+2 || string(b[:len(key)]) != key {
		return false
	}
	n, at := int(b[len(key)])-wire.Bytes<<5, len(key)+1
	if n == 24 {
		n, at = int(b[at]), at+1
	}
	if n <= 0 || n > 255 || len(b) < at+n+len(prefix)+2+len(tree)+1+digestLen+len(value)+digestLen {
		return false // the last entry may have a shorter form, which readEntry parses
	}
	e.rest = b[at : at+n : at+n]
	if b = b[at+n:]; string(b[:len(prefix)]) != prefix {
		return false
	}
	switch p := b[len(prefix)]; {
	case p < 24:
		e.prefix, b = uint64(p), b[len(prefix)+1:]
	case p == 24:
		e.prefix, b = uint64(b[len(prefix)+1]), b[len(prefix)+2:]
	default:
		return false
	}
	if string(b[:len(tree)]) != tree {
		return false
	}
	switch b = b[len(tree):]; {
	case b[0] == 0xf6:
		e.right, b = nil, b[1:]
	case len(b) > len(linkHead)+digestLen && string(b[:len(linkHead)]) == linkHead:
		e.right, b = b[len(linkHead)-len(cidPrefix):len(linkHead)+digestLen], b[len(linkHead)+digestLen:]
	default:
		return false
	}
	if len(b) < len(value)+digestLen || string(b[:len(value)]) != value {
		return false
	}
	e.value = b[len(value)-len(cidPrefix) : len(value)+digestLen]
	c.I = len(c.B) - len(b) + len(value) + digestLen
	return true
}
