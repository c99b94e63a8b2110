package app_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"skein.blue/consumer"
	"skein.blue/internal/app"
)

// The text of --ids sets what it names, and nothing else; that of a size has a unit, or none.
func TestOptionsFromText(t *testing.T) {
	for text, want := range map[string]string{
		"bits=12":             "12 0",
		"lease=4096":          "0 4096",
		"lease=65536,bits=32": "32 65536",
	} {
		var o app.StoreOptions
		var got string
		if err := o.ParseIDs(text); err != nil {
			got = err.Error()
		} else {
			got = fmt.Sprint(o.Settings.ShardBits, o.Settings.LeaseSize)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "bits=0", "bits", "bits=33", "bits=12x", "lease=65537", "lease=131072", "lease=-1", "more=1"} {
		if err := new(app.StoreOptions).ParseIDs(text); err == nil || !strings.HasPrefix(err.Error(), strconv.Quote(text)+": expected bits=14") {
			t.Errorf("%q: %v", text, err)
		}
	}
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
