package graph

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"skein/intern"
	"skein/internal/kv"
)

// How the graph lies in the store. Nothing outside this file and container.go
// knows it. The first byte of a key names the keyspace; numbers are
// big-endian; ids take 8 bytes. Package intern has keyspaces of its own in the
// same store (intern/id.go).
//
//	'r' kind actor rkey          → subject id, or nothing: *no subject*
//	'f' kind actor subject rkey  → nothing        the same, by subject
//	'v' kind subject block(6)    → container      who has an edge to subject
//	'v' 0 0(8) block(6)          → container      the hidden accounts
//	'a' actor                    → repo state     (account.go)
//	'e' actor                    → resume key     accounts being erased
//	'c' source                   → cursor row
//	'd' source-number(4) seq(8) path → dead letter, JSON
//	'g' source-number(4) seq(8) kind → gap, JSON
//	'm' "graph"                  → format version (1)
//	'm' "counts"                 → Counts, JSON
//	'm' "hidden"                 → version of the hidden set (8)
//	'm' "secret"                 → 32 random bytes, for opaque query cursors
//	'm' "writer"                 → token of the last write (16), see Store.update
//
// 'r' answers what a delete names. 'f' answers which records name a subject,
// in the time of one seek whatever the actor's size: a delete asks whether
// another record still holds the edge. It is also the forward set. 'v' is
// written blind, by merge operands.
const (
	keyRecord     = 'r'
	keyForward    = 'f'
	keyReverse    = 'v'
	keyAccount    = 'a'
	keyErase      = 'e'
	keyCursor     = 'c'
	keyDeadLetter = 'd'
	keyGap        = 'g'
)

var (
	keyFormat  = []byte("mgraph")
	keyCounts  = []byte("mcounts")
	keyHidden  = []byte("mhidden")
	keySecret  = []byte("msecret")
	keyWriter  = []byte("mwriter")
	emptyValue = []byte{}
)

// formatVersion is that of everything this package stores.
const formatVersion = 1

func appendID(dst []byte, id intern.ID) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(id))
}

func appendRecordKey(dst []byte, k Kind, actor intern.ID, rkey []byte) []byte {
	return append(appendID(append(dst, keyRecord, byte(k)), actor), rkey...)
}

// recordKeyPrefix is the length of a record key before its rkey.
const recordKeyPrefix = 2 + 8

func appendForwardKey(dst []byte, k Kind, actor, subject intern.ID, rkey []byte) []byte {
	return append(appendID(appendID(append(dst, keyForward, byte(k)), actor), subject), rkey...)
}

// forwardKeyPrefix is the length of a forward key before its rkey.
const forwardKeyPrefix = 2 + 8 + 8

// A member's id is its container's block and 16 bits within it.
func blockOf(member intern.ID) uint64 { return uint64(member) >> 16 }

func appendReverseKey(dst []byte, k Kind, subject intern.ID, block uint64) []byte {
	dst = appendID(append(dst, keyReverse, byte(k)), subject)
	return append(dst, byte(block>>40), byte(block>>32), byte(block>>24), byte(block>>16), byte(block>>8), byte(block))
}

const reverseKeyLen = 2 + 8 + 6

// reverseBase returns the id of a container's member 0.
func reverseBase(key []byte) (uint64, error) {
	if len(key) != reverseKeyLen {
		return 0, fmt.Errorf("graph: reverse key %x has a wrong length", key)
	}
	return uint64(binary.BigEndian.Uint16(key[10:]))<<48 | uint64(binary.BigEndian.Uint32(key[12:]))<<16, nil
}

func accountKey(dst []byte, actor intern.ID) []byte { return appendID(append(dst, keyAccount), actor) }

func eraseKey(actor intern.ID) []byte { return appendID([]byte{keyErase}, actor) }

func cursorKey(source string) []byte { return append([]byte{keyCursor}, source...) }

func decodeSubject(value []byte) (intern.ID, error) {
	switch len(value) {
	case 0:
		return intern.None, nil
	case 8:
		return intern.ID(binary.BigEndian.Uint64(value)), nil
	}
	return 0, fmt.Errorf("graph: a record's subject is %x", value)
}

// appendSubject appends a record's value.
func appendSubject(dst []byte, subject intern.ID) []byte {
	if subject == intern.None {
		return dst
	}
	return appendID(dst, subject)
}

// Counts are the totals of the store, kept in the write that changes them.
type Counts struct {
	Accounts       int64            `json:"accounts"`       // repos of which anything is known
	Hidden         int64            `json:"hidden"`         // accounts not active
	Partial        int64            `json:"partial"`        // repos whose past was never seen
	Desynchronized int64            `json:"desynchronized"` // repos of which something was missed
	Records        map[string]int64 `json:"records"`        // live records, by Kind name
	Strings        map[string]int64 `json:"strings"`        // ids given, by namespace
}

func (c Counts) clone() Counts {
	d := c
	d.Records, d.Strings = make(map[string]int64, len(Kinds)), make(map[string]int64, 2)
	for _, k := range Kinds {
		d.Records[k.Name] = c.Records[k.Name]
	}
	for _, ns := range intern.Namespaces {
		d.Strings[ns.String()] = c.Strings[ns.String()]
	}
	return d
}

func readCounts(r kv.Reader) (c Counts, err error) {
	v, ok, err := r.Get(keyCounts)
	if err != nil {
		return c, err
	}
	if ok {
		if err := json.Unmarshal(v, &c); err != nil {
			return c, fmt.Errorf("graph: reading the counts: %w", err)
		}
	}
	return c.clone(), nil
}

// A cursor row is number(4) seq(8) event time, unix microseconds(8) flags(1).
// The number stands for the source in other rows. A new one is drawn when the
// relay is known to have begun its sequence anew.
type cursorRow struct {
	number uint32
	seq    Seq
	time   time.Time
	future bool // the relay said that seq is in its future
}

func (c cursorRow) value() []byte {
	v := binary.BigEndian.AppendUint32(nil, c.number)
	v = binary.BigEndian.AppendUint64(v, uint64(c.seq))
	v = binary.BigEndian.AppendUint64(v, uint64(c.time.UnixMicro()))
	if c.future {
		return append(v, 1)
	}
	return append(v, 0)
}

func decodeCursor(v []byte) (c cursorRow, err error) {
	if len(v) != 21 {
		return c, fmt.Errorf("graph: cursor row %x is malformed", v)
	}
	c.number = binary.BigEndian.Uint32(v)
	c.seq = Seq(binary.BigEndian.Uint64(v[4:]))
	c.time = time.UnixMicro(int64(binary.BigEndian.Uint64(v[12:])))
	c.future = v[20] != 0
	return c, nil
}

func readHiddenVersion(r kv.Reader) (uint64, error) {
	v, ok, err := r.Get(keyHidden)
	if err != nil || !ok {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("graph: the hidden set's version is %x", v)
	}
	return binary.BigEndian.Uint64(v), nil
}
