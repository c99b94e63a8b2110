package read_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
)

// TestNotes: all fields of notes are read, by source and seq, not by time.
func TestNotes(t *testing.T) {
	rows := map[string][]byte{}
	dead, gaps := map[string]format.DeadLetter{}, map[string]format.Gap{}
	for i := range 300 {
		when := time.Unix(int64(i*7%100), 0).UTC()
		seq, number := format.Seq(i*3%301), format.NoteNumber(uint32(1+i%3), uint8(i%2*32))
		reason := fmt.Sprintf("reason \"<&>\" %d", i)
		key := format.NoteKey(format.KeyDeadLetter, number, seq, reason)
		d := format.DeadLetter{Source: "relay", Seq: seq, Time: when, Reason: reason, DID: "did:plc:a", Path: "a/b", Detail: "more"}
		g := format.Gap{Source: "relay", After: seq, Time: when, Reason: reason, Suspect: i%2 == 0, Since: when.Add(-time.Hour), Detail: "more"}
		dead[string(key[1:])], gaps[string(key[1:])] = d, g
		for keyspace, note := range map[byte]any{format.KeyDeadLetter: d, format.KeyGap: g} {
			text, err := json.Marshal(note)
			if err != nil {
				t.Fatal(err)
			}
			key[0] = keyspace
			rows[string(key)] = text
		}
	}
	raw(t, rows, func(r kv.Reader) {
		gotDead, err := read.DeadLetters(r)
		gotGaps, gerr := read.Gaps(r)
		for i, key := range slices.Sorted(maps.Keys(dead)) {
			if i >= len(gotDead) || i >= len(gotGaps) || gotDead[i] != dead[key] || gotGaps[i] != gaps[key] {
				t.Fatalf("note %d of %d and %d is not %+v: %v, %v", i, len(gotDead), len(gotGaps), dead[key], err, gerr)
			}
		}
	})
}

// TestMalformedNotes: an error names the note.
func TestMalformedNotes(t *testing.T) {
	for _, keyspace := range []byte{format.KeyDeadLetter, format.KeyGap} {
		key := format.NoteKey(keyspace, 2, 1, "")
		raw(t, map[string][]byte{string(key): []byte("{")}, func(r kv.Reader) {
			_, err := read.DeadLetters(r)
			if keyspace == format.KeyGap {
				_, err = read.Gaps(r)
			}
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("reading note %x", key)) {
				t.Errorf("a truncated note: %v", err)
			}
		})
	}
}
