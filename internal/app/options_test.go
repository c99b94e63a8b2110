package app_test

import (
	"testing"

	"skein.blue/consumer"
	"skein.blue/internal/app"
)

// A size has a unit, or none.
func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"7": 7, "512MiB": 512 << 20, "1.5K": 1500, "2 GB": 2e9, "1T": 1e12, "1X": -1, "much": -1, "-1": -1, "1e30": -1, "MiB": -1, "NaN": -1} {
		n, err := app.ParseBytes(text)
		if (err != nil) != (want < 0) || err == nil && n != want {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}

// Relays and labelers see who asks.
func TestUserAgent(t *testing.T) {
	n := app.Network{Relay: "ws://127.0.0.1:1", PLC: app.DefaultPLC, UserAgent: "skein/1 (+https://skein.blue)"}
	var o consumer.Options
	n.Consume(&o)
	l, err := n.Labels([]string{"did:plc:6tnmqzyj3aj56cfk2uw7mi5e"})
	if err != nil || o.UserAgent != n.UserAgent || l.UserAgent != n.UserAgent || o.Verifier != nil {
		t.Errorf("%v: %+v, %+v", err, o, l)
	}
}
