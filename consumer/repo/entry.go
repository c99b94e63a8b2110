package repo

import "skein.blue/internal/cbor"

// leftOf returns the link to the subtree that comes first, which stands at the end of a
// node, and where that begins. Whether it does, the entries before it tell.
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

// linkHead is what the link to a block begins with, up to its digest.
const linkHead = "\xd8\x2a\x58\x25\x00" + cidPrefix

// entry is one of a node.
type entry struct {
	prefix uint64 // bytes of the key before
	rest   []byte
	value  []byte
	right  []byte
}

func readEntry(c *cbor.Cursor) (e entry, err error) {
	if e.usual(c) {
		return e, nil
	}
	for range c.Count(cbor.Map) {
		switch string(c.Text()) {
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

// usual reads an entry in the one form that DAG-CBOR has for it, if its key is short, and
// reports whether it is one.
func (e *entry) usual(c *cbor.Cursor) bool {
	const key, prefix, tree, value = "\xa4ak", "ap", "at", "av" + linkHead
	b := c.B[c.I:]
	if len(b) < len(key)+2 || string(b[:len(key)]) != key {
		return false
	}
	n, at := int(b[len(key)])-cbor.Bytes<<5, len(key)+1
	if n == 24 {
		n, at = int(b[at]), at+1
	}
	if n <= 0 || n > 255 || len(b) < at+n+len(prefix)+2+len(tree)+1+digestLen+len(value)+digestLen {
		return false // the last has a shorter form, which is read in the other way
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
