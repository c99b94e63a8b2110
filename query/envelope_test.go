package query

import (
	"encoding/json"
	"testing"
)

// An error is a frame of its own type, with the names that proposal 0015 gives its fields.
func TestErrorEnvelope(t *testing.T) {
	b, err := json.Marshal(envelope(subscriptionError{"ConsumerTooSlow", "why"}))
	if want := `{"$type":"error","error":"ConsumerTooSlow","message":"why"}`; err != nil || string(b) != want {
		t.Errorf("%s, %v; expected %s", b, err, want)
	}
}
