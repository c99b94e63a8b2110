package relay

import (
	"testing"

	"skein.blue/internal/sim/network"
)

// BenchmarkEncode measures encoding a message in the simulated relay, which
// allocates nothing.
//
//	go test ./internal/sim/relay -run xxx -bench Encode
func BenchmarkEncode(b *testing.B) {
	o := network.Options{Seed: 1, Accounts: 300_000}
	enc := encoder{n: network.New(o), pool: newPool(1)}
	n := network.New(o)
	events := make([]network.Event, 4096)
	for i := range events {
		n.Next(&events[i])
	}
	var buf []byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e := &events[i%len(events)]
		buf = enc.message(buf[:0], e, e.Seq, 1_767_225_600_000+e.Seq)
	}
}
