package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"skein.blue/consumer"
	"skein.blue/consumer/wire"
	"skein.blue/internal/sim/oracle"
)

// slow is a Verifier that lets nothing pass until all messages are read, and then lets an account join.
type slow struct {
	read  chan struct{}
	join  func()
	asked []string // guarded by turn
	turn  chan struct{}
}

// Verify implements consumer.Verifier.
func (s *slow) Verify(_ context.Context, m *wire.Message) (wire.Reason, error) {
	<-s.read
	s.turn <- struct{}{}
	s.join()
	s.asked = append(s.asked, fmt.Sprint(m.Seq))
	<-s.turn
	return "", nil
}

// Changed implements consumer.Verifier.
func (*slow) Changed([]byte) {}

// In a part of the network, only messages are verified that are wanted when they are read; no others are indexed, even if
// their account has joined before they are decoded.
func TestVerifierOfAPart(t *testing.T) {
	commit := func(seq int64, who string, op oracle.Op) []byte {
		op.Kind, op.Rkey = "follow", oracle.TID(1<<20)
		return oracle.Frame(&oracle.Event{Type: oracle.CommitEvent, Seq: seq, DID: "did:web:" + who + ".example.com", Rev: oracle.TID(1<<50 + uint64(seq)), Ops: []oracle.Op{op}})
	}
	const center, other = "did:web:center.example.com", "did:web:other.example.com"
	part := wire.NewPart(center)
	s := &slow{read: make(chan struct{}), turn: make(chan struct{}, 1), join: func() { part.Join([]byte("did:web:joins.example.com")) }}
	frames := [][]byte{
		commit(1, "fan", oracle.Op{Subject: center}),
		commit(2, "fan", oracle.Op{Delete: true}),
		commit(3, "joins", oracle.Op{Subject: other}),
		commit(4, "stranger", oracle.Op{Subject: other}),
		commit(5, "stays", oracle.Op{Subject: center}),
		commit(6, "center", oracle.Op{Subject: other}),
	}
	g, _ := open(t)
	runTo(t, g, consumer.Options{Relay: "ws://memory", Part: part, Verifier: s, Read: func(yield func([]byte) bool) {
		for _, f := range frames {
			if !yield(f) {
				return
			}
		}
		close(s.read)
	}})
	slices.Sort(s.asked)
	if n := follows(t, g); n != 2 || fmt.Sprint(s.asked) != "[1 2 5 6]" {
		t.Errorf("%d follows, want those of the center and of who stays; verified: %v", n, s.asked)
	}
	if at := cursor(g, "memory"); at != 6 {
		t.Errorf("the cursor is %d", at)
	}
}
