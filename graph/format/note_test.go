package format

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestNoteKeys: the keys of notes sort by writer, source and event, and contain the source's
// number.
func TestNoteKeys(t *testing.T) {
	var last []byte
	for _, first := range []uint8{0, 1, 63} {
		for _, source := range []uint32{1, 255, 256, 1<<24 - 1} {
			number := NoteNumber(source, first)
			if again := NoteNumber(NoteNumber(source, first+1), first); again != number || number&0xffffff != source || uint8(number>>24) != first {
				t.Errorf("source %d of writer %d is %#x, and that %#x", source, first, number, again)
			}
			for _, seq := range []Seq{0, 1, 255, 256, 1 << 40, 1<<63 - 1} {
				for _, rest := range []string{"", "a", "a/b"} {
					key := NoteKey(KeyGap, number, seq, rest)
					if bytes.Compare(last, key) >= 0 || NumberOf(key) != number || !strings.HasSuffix(string(key), rest) {
						t.Errorf("%x comes after %x, and is of %#x", key, last, NumberOf(key))
					}
					last = key
				}
			}
		}
	}
	for _, short := range []string{"", "g", "g\x01\x02\x03"} {
		if n := NumberOf([]byte(short)); n != 0 {
			t.Errorf("%q is of number %d", short, n)
		}
	}
}

// TestGapPlace: a gap's place distinguishes the gaps after one event, and is the same when the
// gap is found again at another time.
func TestGapPlace(t *testing.T) {
	at := time.Unix(1_767_225_600, 5_000)
	gap := Gap{Reason: "jump", Since: at}
	if place := gap.Place(); place != "jump 2026-01-01T00:00:00.000005Z" {
		t.Error(place)
	}
	same := Gap{Reason: "jump", Since: at.In(time.FixedZone("far", 3600)), Time: at, Detail: "else", Suspect: true}
	other, later := Gap{Reason: "outage", Since: at}, Gap{Reason: "jump", Since: at.Add(1)}
	none := Gap{Reason: "jump"}
	if same.Place() != gap.Place() || other.Place() == gap.Place() || later.Place() == gap.Place() || none.Place() != "jump" {
		t.Errorf("%q, %q, %q, %q", same.Place(), other.Place(), later.Place(), none.Place())
	}
}
