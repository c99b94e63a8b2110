package format

import (
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
	k, actor, bucket, depth, err := ParseChunkKey(key)
	return fmt.Sprintf("records of kind %v, actor %#x, bucket %d, depth %d [%x]", k, uint64(actor), bucket, depth,
		key[len(key)-depth:]), err
}

func readSetKey(key []byte) (string, error) {
	k, subject, block, isRow, err := ParseReverseKey(key)
	if isRow {
		part := "the only partition"
		if at := len(AppendRowKey(nil, k, subject)); len(key) > at {
			part = fmt.Sprintf("partition %d", key[at])
		}
		return fmt.Sprintf("row of the set of kind %v, subject %#x, %s", k, uint64(subject), part), err
	}
	return fmt.Sprintf("container of the set of kind %v, subject %#x, block %#x", k, uint64(subject), block), err
}

func readRowGroupKey(key []byte) (string, error) {
	k, first, err := ParseRowGroupKey(key)
	return fmt.Sprintf("row group of kind %v, from subject %#x", k, uint64(first)), err
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
		for depth := range MaxChunkDepth + 1 {
			add(fmt.Sprintf("chunk of TIDs, %s actor, depth %d", id.name, depth), AppendChunkKey(nil, 2, id.id, tid, depth), readChunkKey)
		}
		for _, depth := range []int{0, 1, MaxChunkDepth} {
			add(fmt.Sprintf("chunk of raw keys, %s actor, depth %d", id.name, depth), AppendChunkKey(nil, 1, id.id, raw, depth), readChunkKey)
		}
		for _, l := range []struct {
			name string
			Layout
		}{{"alone", alone}, {"shared", shared}} {
			row := l.AppendMemberKey(nil, 1, id.id, longID)
			add(fmt.Sprintf("%s: row, %s subject", l.name, id.name), row, readSetKey)
			add(fmt.Sprintf("%s: container, %s subject, short block", l.name, id.name), AppendContainerKey(nil, row, BlockOf(uint64(shortID))), readSetKey)
			add(fmt.Sprintf("%s: container, %s subject, long block", l.name, id.name), AppendContainerKey(nil, row, BlockOf(uint64(longID))), readSetKey)
			add(fmt.Sprintf("%s: account, %s", l.name, id.name), l.AccountKey(nil, id.id), readActorKey)
		}
		add(fmt.Sprintf("row group, %s subject", id.name), alone.AppendMemberKey(nil, 3, id.id, longID), readRowGroupKey)
		add(fmt.Sprintf("erase, %s", id.name), EraseKey(id.id), readActorKey)
	}
	for i, l := range []Layout{alone, shared} {
		name := []string{"alone", "shared"}[i]
		add(name+": counts", l.PartKey(KeyCounts, 9), readPlainKey)
		add(name+": hidden", l.PartKey(KeyHidden, 9), readPlainKey)
		add(name+": hiding", l.HidingKey(9, 257), readPlainKey)
		add(name+": writer", l.PartKey(KeyWriter, 9), readPlainKey)
		add(name+": cursor", l.CursorKey(9, "wss://bsky.network"), readCursorKey)
		add(name+": row of hidden", l.AppendMemberKey(nil, kinds.Hidden, 0, longID), readSetKey)
	}
	add("header", HeaderKey, readPlainKey)
	add("secret", KeySecret, readPlainKey)
	add("import", KeyImport, readPlainKey)
	add("claim", ClaimKey(63), readPlainKey)
	add("heartbeat", HeartbeatKey([]byte("0123456789abcdef")), readPlainKey)
	for first, number := range []uint32{NoteNumber(7, 0), NoteNumber(7, 1)} {
		add(fmt.Sprintf("dead letter of partition %d", first), NoteKey(KeyDeadLetter, number, 31_527_015_322, "app.bsky.graph.follow/self"), readNoteKey)
		add(fmt.Sprintf("gap of partition %d", first), NoteKey(KeyGap, number, 0, (&Gap{Reason: "began"}).Place()), readNoteKey)
	}
	return forms
}

// TestGoldenKeys: every form of key is written and read as in existing stores.
func TestGoldenKeys(t *testing.T) { harness.CheckGolden(t, "keys.golden", goldenKeys()) }
