// Package synth makes messages of the firehose from scratch: valid ones from
// the events of package model, and damaged ones for tests. It signs nothing
// and keeps no tree: the root of a repo is whatever the event says.
package synth

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"skein/graph/kinds"
	"skein/internal/oracle"
)

// CBOR writers.

// Head appends the head of an item: its major type and its number.
func Head(dst []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(dst, major<<5|byte(n))
	case n < 1<<8:
		return append(dst, major<<5|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, major<<5|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, major<<5|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major<<5|27), n)
}

// Link is a CID as a CBOR link.
type Link [32]byte

// Pair is an entry of a map.
type Pair struct {
	Key   string
	Value any
}

// Map is a map in the order given.
type Map []Pair

// CBOR encodes nil, bool, int, int64, string, []byte, Link, Map and []any.
func CBOR(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, 0xf6)
	case bool:
		if v {
			return append(dst, 0xf5)
		}
		return append(dst, 0xf4)
	case int:
		return CBOR(dst, int64(v))
	case int64:
		if v < 0 {
			return Head(dst, 1, uint64(-1-v))
		}
		return Head(dst, 0, uint64(v))
	case string:
		return append(Head(dst, 3, uint64(len(v))), v...)
	case []byte:
		return append(Head(dst, 2, uint64(len(v))), v...)
	case Link:
		return append(append(dst, "\xd8\x2aX\x25\x00\x01q\x12\x20"...), v[:]...)
	case []any:
		dst = Head(dst, 4, uint64(len(v)))
		for _, x := range v {
			dst = CBOR(dst, x)
		}
		return dst
	case Map:
		dst = Head(dst, 5, uint64(len(v)))
		for _, p := range v {
			dst = CBOR(CBOR(dst, p.Key), p.Value)
		}
		return dst
	}
	panic(fmt.Sprintf("synth: cannot encode %T", v))
}

// Block is a block of a CAR under a CID that may be a lie.
type Block struct {
	CID   Link
	Bytes []byte
}

// NewBlock returns a block under its true CID.
func NewBlock(b []byte) Block { return Block{sha256.Sum256(b), b} }

// CAR makes a CAR of blocks.
func CAR(root Link, blocks ...Block) []byte {
	h := CBOR(nil, Map{{"roots", []any{root}}, {"version", 1}})
	car := append(binary.AppendUvarint(nil, uint64(len(h))), h...)
	for _, b := range blocks {
		car = binary.AppendUvarint(car, uint64(36+len(b.Bytes)))
		car = append(append(car, "\x01q\x12\x20"...), b.CID[:]...)
		car = append(car, b.Bytes...)
	}
	return car
}

// Message makes a message of type t.
func Message(t string, body Map) []byte {
	return CBOR(CBOR(nil, Map{{"t", t}, {"op", 1}}), body)
}

// CommitBlock makes the commit block of a repo.
func CommitBlock(did, rev string, data [32]byte) Block {
	return NewBlock(CBOR(nil, Map{
		{"did", did}, {"rev", rev}, {"sig", make([]byte, 64)}, {"data", Link(data)}, {"prev", nil}, {"version", 3},
	}))
}

// Record makes the record of a kind. An empty subject makes a malformed one.
func Record(kind kinds.Info, subject string) []byte {
	m := Map{{"$type", kind.Collection}}
	switch {
	case subject == "":
	case len(kind.To.Field) == 2:
		m = append(m, Pair{kind.To.Field[0], Map{{"cid", "bafyreib"}, {kind.To.Field[1], subject}}})
	default:
		m = append(m, Pair{kind.To.Field[0], subject})
	}
	return CBOR(nil, append(m, Pair{"createdAt", "2026-01-01T00:00:00Z"}))
}

// Time is the event time of a seq.
func Time(seq int64) string {
	return time.Unix(1_700_000_000+seq, 0).UTC().Format("2006-01-02T15:04:05.000Z")
}

func info(name string) kinds.Info {
	for _, k := range kinds.All {
		if k.Name == name {
			return k
		}
	}
	panic("synth: no kind " + name)
}

// Frame makes the message of an event.
func Frame(e *oracle.Event) []byte {
	seq, at := Pair{"seq", e.Seq}, Pair{"time", Time(e.Seq)}
	switch e.Type {
	case oracle.IdentityEvent:
		return Message("#identity", Map{{"did", e.DID}, seq, at})
	case oracle.AccountEvent:
		m := Map{{"did", e.DID}, seq, at, {"active", e.Active}}
		if e.Deleted {
			m = append(m, Pair{"status", "deleted"})
		} else if !e.Active {
			m = append(m, Pair{"status", "takendown"})
		}
		return Message("#account", m)
	case oracle.SyncEvent:
		b := CommitBlock(e.DID, e.Rev, e.Data)
		return Message("#sync", Map{{"did", e.DID}, {"rev", e.Rev}, seq, at, {"blocks", CAR(b.CID, b)}})
	default:
		return commit(e)
	}
}

func commit(e *oracle.Event) []byte {
	var ops []any
	var blocks []Block
	for i, o := range e.Ops {
		k := info(o.Kind)
		path := k.Collection + "/" + o.Rkey
		if o.Delete {
			ops = append(ops, Map{{"cid", nil}, {"path", path}, {"action", "delete"}})
			continue
		}
		b := NewBlock(Record(k, o.Subject))
		blocks = append(blocks, b)
		ops = append(ops, Map{{"cid", b.CID}, {"path", path}, {"action", []string{"create", "update"}[i%2]}})
	}
	root := CommitBlock(e.DID, e.Rev, e.Data)
	blocks = append(blocks, root)
	car := CAR(root.CID, blocks...)
	if e.Damaged {
		car = car[:len(car)-5]
	}
	m := Map{
		{"ops", ops},
		{"rev", e.Rev},
		{"seq", e.Seq},
		{"repo", e.DID},
		at(e),
		{"blobs", []any{}},
		{"since", orNull(e.Since)},
		{"blocks", car},
		{"commit", root.CID},
		{"rebase", false},
		{"tooBig", e.TooBig},
	}
	if e.PrevData != nil {
		m = append(m, Pair{"prevData", Link(*e.PrevData)})
	}
	return Message("#commit", m)
}

func at(e *oracle.Event) Pair { return Pair{"time", Time(e.Seq)} }

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return strings.Clone(s)
}
