package graph

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"skein/intern"
	"skein/internal/kv"
)

// How the graph lies in the store. Nothing outside this file, chunk.go, row.go
// and container.go knows it. The first byte of a key names the keyspace; ids
// are written by intern.AppendID, other numbers big-endian. Package intern has
// keyspaces of its own in the same store (intern/id.go).
//
//	'r' kind actor bucket(2)     → chunk          the records (chunk.go)
//	'r' kind actor bucket(2) n×1 → chunk          what a chunk spilled
//	'v' kind subject             → row            who has an edge to subject (row.go)
//	'v' kind subject block       → container      what a row spilled (container.go)
//	'v' 0 0 …                    → row, containers  the hidden accounts
//	'a' actor, first of a group  → repo states    (account.go)
//	'e' actor                    → resume key     accounts being erased
//	'c' source                   → cursor row
//	'd' source-number(4) seq(8) path → dead letter, JSON
//	'g' source-number(4) seq(8) reason … → gap, JSON
//	'm' "graph"                  → format version (3)
//	'm' "counts"                 → Counts, JSON
//	'm' "hidden"                 → version of the hidden set (8)
//	'm' "import"                 → nothing        while an import is not finished
//	'm' "secret"                 → 32 random bytes, for opaque query cursors
//	'm' "writer"                 → token of the last write (16), see lane.update
//
// In a store that several processes write (intern.Settings.Partitions), nothing
// that is read to be written again belongs to two partitions, so that two
// writers never conflict on it. Some keys then are longer; their lengths tell
// the two layouts apart:
//
//	'v' kind subject part        → row            the members of one partition
//	'v' kind subject 0xff block  → container      a block's ids are of one partition
//	'a' actor                    → repo state, a group of one
//	'c' 0 part source            → cursor row
//	'm' "counts", "hidden", "writer", each followed by the first partition of
//	                               the lane that writes it; totals are sums
//	'd', 'g'                       the source's number has that in its first byte
//	'p' part                     → claim, JSON    who indexes it (claim.go)
//	'q' token(16)                → heartbeat      of a claim
//
// 'r' answers what a delete names, and is the forward set. 'v' is the reverse
// set. Both are written blind, by merge operands, into a value that is small
// for nearly every actor and subject. One that has grown too large is spilled
// (spill.go): what it holds moves to finer keys under it, and it goes on as the
// place where changes land, which stand over what lies below. So a change
// touches one small value, whatever the size of the set, and whoever reads
// needs no list of what is large.
const (
	keyRecord     = 'r'
	keyReverse    = 'v'
	keyAccount    = 'a'
	keyErase      = 'e'
	keyCursor     = 'c'
	keyDeadLetter = 'd'
	keyGap        = 'g'
	keyClaim      = 'p'
	keyHeartbeat  = 'q'
)

var (
	keyFormat = []byte("mgraph")
	keyCounts = []byte("mcounts")
	keyHidden = []byte("mhidden")
	keySecret = []byte("msecret")
	keyWriter = []byte("mwriter")
	keyImport = []byte("mimport")
)

// Marker returns a key that every store has from its first write on.
func Marker() []byte { return keyFormat }

// formatVersion is that of everything this package stores. 1 had a key per
// record and none of the forms of 2, 2 a key per account.
const formatVersion = 3

// A bucket of records: the upper 14 bits of a TID, which are 12.7 days, or for
// record keys that are no TIDs rawBucket and the first byte of their hash.
const (
	bucketShift = 50
	rawBucket   = 1 << 14
)

// appendRecordsKey appends the prefix of the keys of an actor's records.
func appendRecordsKey(dst []byte, k Kind, actor intern.ID) []byte {
	return intern.AppendID(append(dst, keyRecord, byte(k)), actor)
}

// maxChunkDepth is how often what was spilled may be spilled again: each time
// the next byte of the TID, or of the hash of the record key, is added.
const maxChunkDepth = 6

// appendChunkKey appends the key of the chunk that holds a path, at a depth.
func appendChunkKey(dst []byte, k Kind, actor intern.ID, p path, depth int) []byte {
	dst = binary.BigEndian.AppendUint16(appendRecordsKey(dst, k, actor), p.bucket())
	bits := p.spread()
	for range depth {
		dst = append(dst, byte(bits>>56))
		bits <<= 8
	}
	return dst
}

// parseChunkKey takes a chunk's key apart.
func parseChunkKey(key []byte) (k Kind, actor intern.ID, bucket uint16, depth int, err error) {
	if len(key) > 2 && key[0] == keyRecord {
		id, n := intern.ReadID(key[2:])
		if rest := key[2+n:]; n > 0 && len(rest) >= 2 && len(rest) <= 2+maxChunkDepth {
			return Kind(key[1]), id, binary.BigEndian.Uint16(rest), len(rest) - 2, nil
		}
	}
	return 0, 0, 0, 0, fmt.Errorf("graph: record key %x is malformed", key)
}

// A member's id is its container's block and 16 bits within it.
func blockOf(member uint64) uint64 { return member >> 16 }

// appendRowKey appends the key of a reverse set's row, the prefix of those of
// its containers.
func appendRowKey(dst []byte, k Kind, subject intern.ID) []byte {
	return intern.AppendID(append(dst, keyReverse, byte(k)), subject)
}

// A layout says how the keys look that depend on the store's settings.
type layout struct{ settings intern.Settings }

// shared reports whether several processes may write the store.
func (l layout) shared() bool { return l.settings.Partitions > 1 }

// containersMark stands before the blocks of a set in several partitions.
const containersMark = 0xff

// appendMemberKey appends the key of the row that a member of a set belongs in.
func (l layout) appendMemberKey(dst []byte, k Kind, subject, member intern.ID) []byte {
	dst = appendRowKey(dst, k, subject)
	if l.shared() {
		dst = append(dst, l.settings.PartitionOfID(member))
	}
	return dst
}

// containers returns the prefix of the keys of a set's containers, of which set
// is the prefix of all keys.
func (l layout) containers(set []byte) []byte {
	if !l.shared() {
		return set
	}
	return append(slices.Clone(set), containersMark)
}

// partKey returns the key of what each partition has its own of.
func (l layout) partKey(key []byte, part uint8) []byte {
	if !l.shared() {
		return key
	}
	return append(slices.Clone(key), part)
}

func (l layout) cursorKey(part uint8, source string) []byte {
	if !l.shared() {
		return append([]byte{keyCursor}, source...)
	}
	return append([]byte{keyCursor, 0, part}, source...)
}

func parseCursorKey(key []byte) (part uint8, source string) {
	if len(key) > 2 && key[1] == 0 { // no source begins with it
		return key[2], string(key[3:])
	}
	return 0, string(key[1:])
}

// appendBlock appends a block's number, in 3 bytes or 7: an id without its
// lowest two.
func appendBlock(dst []byte, block uint64) []byte {
	dst = intern.AppendID(dst, intern.ID(block<<16))
	return dst[:len(dst)-2]
}

// parseReverseKey takes the key of a row or of a container apart.
func parseReverseKey(key []byte) (k Kind, subject intern.ID, block uint64, isRow bool, err error) {
	if len(key) > 2 && key[0] == keyReverse {
		id, n := intern.ReadID(key[2:])
		rest := key[2+n:]
		if n > 0 && (len(rest) == 0 || len(rest) == 1 && rest[0] < intern.MaxPartitions) {
			return Kind(key[1]), id, 0, true, nil
		}
		if (len(rest) == 4 || len(rest) == 8) && rest[0] == containersMark {
			rest = rest[1:]
		}
		if first, m := intern.ReadID(append(bytes.Clone(rest), 0, 0)); n > 0 && m == len(rest)+2 {
			return Kind(key[1]), id, blockOf(uint64(first)), false, nil
		}
	}
	return 0, 0, 0, false, fmt.Errorf("graph: set key %x is malformed", key)
}

// accountKey appends the key of the group that an account's state lies in.
func (l layout) accountKey(dst []byte, actor intern.ID) []byte {
	return intern.AppendID(append(dst, keyAccount), actor&^l.accountMask())
}

func eraseKey(actor intern.ID) []byte { return intern.AppendID([]byte{keyErase}, actor) }

// parseActorKey reads the id of an erase key, or the first of a group of accounts.
func parseActorKey(key []byte) (intern.ID, error) {
	if id, n := intern.ReadID(key[1:]); n > 0 && n == len(key)-1 {
		return id, nil
	}
	return 0, fmt.Errorf("graph: account key %x is malformed", key)
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

// add adds what d says.
func (c *Counts) add(d Counts) {
	c.Accounts += d.Accounts
	c.Hidden += d.Hidden
	c.Partial += d.Partial
	c.Desynchronized += d.Desynchronized
	for _, k := range Kinds {
		c.Records[k.Name] += d.Records[k.Name]
	}
	for _, ns := range intern.Namespaces {
		c.Strings[ns.String()] += d.Strings[ns.String()]
	}
}

// readCounts adds up the counts of all lanes, and the strings that were claimed.
func readCounts(r kv.Reader) (Counts, error) {
	total := Counts{}.clone()
	err := eachWithPrefix(r, keyCounts, func(_, v []byte) error {
		c, err := decodeCounts(v)
		total.add(c)
		return err
	})
	if err != nil {
		return total, err
	}
	claimed, err := intern.Claimed(r)
	for _, ns := range intern.Namespaces {
		total.Strings[ns.String()] += claimed[ns]
	}
	return total, err
}

func decodeCounts(v []byte) (c Counts, err error) {
	if err := json.Unmarshal(v, &c); err != nil {
		return c.clone(), fmt.Errorf("graph: reading the counts: %w", err)
	}
	return c.clone(), nil
}

// A cursor row is number(4) seq(8) time, unix microseconds(8) flags(1). The number
// stands for the source in other rows. A new one is drawn when the relay is known
// to have begun its sequence anew. The time is that of the event seq; with
// cursorLive, which a source has until its first event is applied, it is when
// listening began, and seq is 0.
type cursorRow struct {
	number uint32
	seq    Seq
	time   time.Time
	future bool // the relay said that seq is in its future
	live   bool // listened to live, and no event has been applied yet
}

// Flags of a cursor row.
const (
	cursorFuture = 1 << iota
	cursorLive
)

// isCursor reports whether the row says how far the source was applied.
func (c cursorRow) isCursor() bool { return c.number != 0 && !c.live }

func (c cursorRow) value() []byte {
	v := binary.BigEndian.AppendUint32(nil, c.number)
	v = binary.BigEndian.AppendUint64(v, uint64(c.seq))
	v = binary.BigEndian.AppendUint64(v, uint64(c.time.UnixMicro()))
	flags := byte(0)
	if c.future {
		flags |= cursorFuture
	}
	if c.live {
		flags |= cursorLive
	}
	return append(v, flags)
}

func decodeCursor(v []byte) (c cursorRow, err error) {
	if len(v) != 21 {
		return c, fmt.Errorf("graph: cursor row %x is malformed", v)
	}
	c.number = binary.BigEndian.Uint32(v)
	c.seq = Seq(binary.BigEndian.Uint64(v[4:]))
	c.time = time.UnixMicro(int64(binary.BigEndian.Uint64(v[12:])))
	c.future, c.live = v[20]&cursorFuture != 0, v[20]&cursorLive != 0
	return c, nil
}

// hiddenVersion returns the version of the hidden set: the sum of those of its
// parts, which only grow, so that in two states that have one sum all are the
// same.
func (l layout) hiddenVersion(r kv.Reader) (version uint64, err error) {
	if !l.shared() {
		return readVersion(r, keyHidden)
	}
	err = eachWithPrefix(r, keyHidden, func(_, v []byte) error {
		n, err := decodeVersion(v)
		version += n
		return err
	})
	return version, err
}

func readVersion(r kv.Reader, key []byte) (uint64, error) {
	v, ok, err := r.Get(key)
	if err != nil || !ok {
		return 0, err
	}
	return decodeVersion(v)
}

func decodeVersion(v []byte) (uint64, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("graph: the hidden set's version is %x", v)
	}
	return binary.BigEndian.Uint64(v), nil
}
