package app_test

import (
	"bufio"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"skein.blue/consumer"
	"skein.blue/graph/format"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// hostile is text that a host or a record may contain and that a terminal would obey.
const hostile = "a\x1b]0;owned\x07\x1b[2Kb\x7f\u009b31mc\u202ed\u2066e\nskein: all is well\u2028f"

func obeyed(s string) string {
	i := strings.IndexFunc(s, func(r rune) bool {
		return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028')
	})
	if i < 0 {
		return ""
	}
	return s[max(0, i-20):min(len(s), i+20)]
}

// Strangers' texts in the notes reach an operator's terminal as text. /gaps,
// /deadletters and /resyncs escape what a terminal would obey, write one line per note, and keep
// the text.
func TestAbuseNotes(t *testing.T) {
	x, closeIt := open(t, t.TempDir(), nil)
	defer closeIt()
	replay(t, x, consumer.Options{Frames: plainPDS})
	gap := format.Gap{Source: "relay." + hostile, After: 5, Reason: hostile, Time: time.Now(), Detail: hostile}
	letter := format.DeadLetter{Source: hostile, Seq: 5, DID: hostile, Path: hostile, Reason: hostile, Detail: hostile, Time: time.Now()}
	row := format.Resync{State: format.ResyncFailed, Reason: hostile, Queued: time.Now(), Due: time.Now(), Failure: hostile, Detail: hostile}
	err := x.KV.Update(t.Context(), func(txn kv.Txn) error {
		var actor intern.Batch
		at := actor.Add(dict.DID, []byte("did:plc:6tnmqzyj3aj56cfk2uw7mi5e"))
		if err := intern.Lookup(txn, &actor); err != nil || actor.ID(at) == dict.None {
			t.Fatal(err)
		}
		for key, note := range map[string]any{
			string(format.NoteKey(format.KeyGap, 1, 5, gap.Place())): gap, string(format.NoteKey(format.KeyDeadLetter, 1, 5, "x")): letter,
			string(format.ResyncKey(actor.ID(at))): &row,
		} {
			v, err := json.Marshal(note)
			if err != nil {
				return err
			}
			txn.Set([]byte(key), v)
		}
		return nil
	})
	must(t, err)
	_, admin, stop := serve(t, x, nil)
	defer stop()
	for path, field := range map[string]string{"/gaps": "detail", "/deadletters": "path", "/resyncs": "detail"} {
		lines, found := 0, false
		all := body(t, admin+path)
		if at := obeyed(all); at != "" {
			t.Errorf("%s: a terminal would obey %q", path, at)
		}
		for s := bufio.NewScanner(strings.NewReader(all)); s.Scan(); lines++ {
			var note map[string]any
			if err := json.Unmarshal(s.Bytes(), &note); err != nil {
				t.Errorf("%s: %q: %v", path, s.Text(), err)
			}
			found = found || note[field] == hostile
		}
		if !found {
			t.Errorf("%s: the note's text is missing from %d lines", path, lines)
		}
	}
}
