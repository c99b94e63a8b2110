package format

import (
	"testing"
	"time"
)

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
