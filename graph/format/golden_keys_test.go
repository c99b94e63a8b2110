package format

import (
	"bytes"
	"fmt"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/harness"
)

var (
	alone  = Layout{Settings: dict.DefaultSettings}
	shared = Layout{Settings: dict.SharedSettings}
)

// goldenTID is the TID of a record in 2026, with clock 17.
const goldenTID = 1_767_225_600_123_456<<ClockBits | 17

// Ids of both lengths, in shards (and so partitions) of SharedSettings.
const (
	shortID = dict.ID(5<<26 | 0x30201)            // shard 5, counter 0x30201
	longID  = dict.ID(1<<63 | 70<<49 | 0x4030201) // shard 70, partition 6
)

func readChunkKey(key []byte) (string, error) {
	k, actor, last, isLeaf, err := ParseChunkKey(key)
	if isLeaf {
		return fmt.Sprintf("leaf of the records of kind %v, actor %#x, up to %s", k, uint64(actor), last.AppendRkey(nil)), err
	}
	return fmt.Sprintf("head of the records of kind %v, actor %#x", k, uint64(actor)), err
}

// readSetKey returns a reader of the keys of sets in a layout.
func readSetKey(l Layout) func(key []byte) (string, error) {
	return func(key []byte) (string, error) {
		k, subject, part, last, isLeaf, err := l.ParseSetKey(key)
		of := fmt.Sprintf("of the set of kind %v, subject %#x, partition %d", k, uint64(subject), part)
		if isLeaf {
			return fmt.Sprintf("leaf %s, up to %#x", of, uint64(last)), err
		}
		return "row " + of, err
	}
}

func readRowGroupKey(key []byte) (string, error) {
	k, first, err := ParseRowGroupKey(key)
	return fmt.Sprintf("row group of kind %v, from subject %#x, partition %d", k, uint64(first), shared.PartitionOfKey(key)), err
}

func readActorKey(key []byte) (string, error) {
	id, err := ParseActorKey(key)
	return fmt.Sprintf("%s, %#x", KeyspaceOf(key), uint64(id)), err
}

func readCursorKey(key []byte) (string, error) {
	part, source := ParseCursorKey(key)
	return fmt.Sprintf("cursor of partition %d, source %q", part, source), nil
}

func readNoteKey(key []byte) (string, error) {
	number := NumberOf(key)
	return fmt.Sprintf("%s, source number %d of partition %d, seq and rest %x", KeyspaceOf(key), number&0xffffff, number>>24, key[5:]), nil
}

// readPlainKey is the reader of keys that no function parses.
func readPlainKey(key []byte) (string, error) {
	return fmt.Sprintf("%s, %q", KeyspaceOf(key), key), nil
}

// goldenKeys lists a key of every shape, in both layouts.
func goldenKeys() []harness.Form {
	tid, raw := Path{TID: goldenTID}, Path{Raw: []byte("self")}
	var forms []harness.Form
	add := func(name string, key []byte, read func([]byte) (string, error)) {
		forms = append(forms, harness.NewForm(name, key, read))
	}
	for _, id := range []struct {
		name string
		id   dict.ID
	}{{"short", shortID}, {"long", longID}} {
		head := AppendRecordsKey(nil, 2, id.id)
		add(fmt.Sprintf("head, %s actor", id.name), head, readChunkKey)
		add(fmt.Sprintf("leaf up to a TID, %s actor", id.name), AppendLeafKey(bytes.Clone(head), tid), readChunkKey)
		add(fmt.Sprintf("leaf up to the last TID, %s actor", id.name), AppendLeafKey(bytes.Clone(head), Path{TID: EndOfTime - 1}), readChunkKey)
		add(fmt.Sprintf("leaf up to a raw key, %s actor", id.name), AppendLeafKey(bytes.Clone(head), raw), readChunkKey)
		for _, l := range []struct {
			name string
			Layout
		}{{"alone", alone}, {"shared", shared}} {
			add(fmt.Sprintf("%s: row, %s subject", l.name, id.name), l.AppendMemberKey(nil, 1, id.id, longID), readSetKey(l.Layout))
			add(fmt.Sprintf("%s: set leaf, %s subject, up to a short id", l.name, id.name), l.AppendSetLeafKey(nil, 1, id.id, shortID), readSetKey(l.Layout))
			add(fmt.Sprintf("%s: set leaf, %s subject, up to a long id", l.name, id.name), l.AppendSetLeafKey(nil, 3, id.id, longID), readSetKey(l.Layout))
			add(fmt.Sprintf("%s, row group, %s subject", l.name, id.name), l.AppendMemberKey(nil, 3, id.id, longID), readRowGroupKey)
			add(fmt.Sprintf("%s: account, %s", l.name, id.name), l.AccountKey(nil, id.id), readActorKey)
		}
		add(fmt.Sprintf("erase, %s", id.name), EraseKey(id.id), readActorKey)
	}
	add("counts", PartKey(KeyCounts, 9), readPlainKey)
	add("hidden", PartKey(KeyHidden, 9), readPlainKey)
	add("piece of a backfill", PieceKey(KeyBackfill, 9, 40_000), readPlainKey)
	add("hiding", HidingKey(9, 257), readPlainKey)
	add("writer", PartKey(KeyWriter, 0), readPlainKey)
	add("cursor", CursorKey(9, "wss://bsky.network"), readCursorKey)
	add("alone: row of hidden", alone.AppendMemberKey(nil, kinds.Hidden, 0, longID), readSetKey(alone))
	add("shared: row of hidden", shared.AppendMemberKey(nil, kinds.Hidden, 0, longID), readSetKey(shared))
	add("header", HeaderKey, readPlainKey)
	add("secret", KeySecret, readPlainKey)
	add("import", KeyImport, readPlainKey)
	add("claim", ClaimKey([]byte("0123456789abcdef")), readPlainKey)
	add("heartbeat", HeartbeatKey([]byte("0123456789abcdef")), readPlainKey)
	for first, number := range []uint32{NoteNumber(7, 0), NoteNumber(7, 1)} {
		add(fmt.Sprintf("dead letter of partition %d", first), NoteKey(KeyDeadLetter, number, 31_527_015_322, "app.bsky.graph.follow/self"), readNoteKey)
		add(fmt.Sprintf("gap of partition %d", first), NoteKey(KeyGap, number, 0, (&Gap{Reason: "began"}).Place()), readNoteKey)
	}
	return forms
}

// TestGoldenKeys: every form of key is written and read as in existing stores.
func TestGoldenKeys(t *testing.T) { harness.CheckGolden(t, "keys.golden", goldenKeys()) }
