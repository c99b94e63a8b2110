// Package synth encodes messages of the firehose, byte for byte as a relay sends them.
// message.go appends each type of message, its blocks and records, fast enough for the simulated relay (hundreds of
// thousands a second); this file encodes any CBOR; repo.go builds whole repos; serve.go serves a Stream of messages to
// a subscriber: the websocket, pings, error frames. It signs nothing. Messages have no tree: the root of a repo is
// whatever the caller says.
package synth

import (
	"crypto/sha256"
	"fmt"
	"time"

	"skein.blue/consumer/wire"
	"skein.blue/graph/kinds"
)

// Link is a CID as a CBOR link.
type Link [32]byte

// Pair is an entry of a map.
type Pair struct {
	Key   string
	Value any
}

// Map is a map with its entries in order.
type Map []Pair

// CBOR encodes nil, bool, int, int64, string, []byte, Link, Map and []any.
func CBOR(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, 0xf6)
	case bool:
		return appendBool(dst, v)
	case int:
		return CBOR(dst, int64(v))
	case int64:
		return appendInt(dst, v)
	case string:
		return AppendText(dst, v)
	case []byte:
		return append(wire.AppendHead(dst, 2, uint64(len(v))), v...)
	case Link:
		return AppendLink(dst, &v)
	case []any:
		dst = wire.AppendHead(dst, 4, uint64(len(v)))
		for _, x := range v {
			dst = CBOR(dst, x)
		}
		return dst
	case Map:
		dst = wire.AppendHead(dst, 5, uint64(len(v)))
		for _, p := range v {
			dst = CBOR(CBOR(dst, p.Key), p.Value)
		}
		return dst
	}
	panic(fmt.Sprintf("synth: cannot encode %T", v))
}

// Block is a block of a CAR under a CID, which may be wrong.
type Block struct {
	CID   Link
	Bytes []byte
}

// NewBlock returns a block with its true CID.
func NewBlock(b []byte) Block { return Block{sha256.Sum256(b), b} }

// CAR encodes a CAR with blocks.
func CAR(root Link, blocks ...Block) []byte {
	car := AppendCARHead(nil, &root)
	for i := range blocks {
		car = AppendSection(car, &blocks[i].CID, blocks[i].Bytes)
	}
	return car
}

// Message encodes a message of type t.
func Message(t string, body Map) []byte { return appendMessage(nil, t, body) }

func appendMessage(dst []byte, t string, body Map) []byte {
	return CBOR(CBOR(dst, Map{{"t", t}, {"op", 1}}), body)
}

// CommitBlock encodes the commit block of a repo, with an invalid signature.
func CommitBlock(did, rev string, data [32]byte) Block {
	return NewBlock(AppendCommitBlock(nil, []byte(did), []byte(rev), make([]byte, 64), (*Link)(&data)))
}

// Record encodes a record of a kind. An empty subject makes a malformed one.
func Record(kind kinds.Info, subject string) []byte {
	return AppendRecord(nil, &kind, []byte(subject), []byte("bafyreib"), []byte("2026-01-01T00:00:00Z"))
}

// Time returns the event time of a seq.
func Time(seq int64) string {
	return time.Unix(1_700_000_000+seq, 0).UTC().Format("2006-01-02T15:04:05.000Z")
}
