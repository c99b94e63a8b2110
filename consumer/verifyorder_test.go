package consumer_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skein.blue/consumer"
	"skein.blue/consumer/wire"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/relay"
	"skein.blue/internal/sim/synth"
)

// witness is a Verifier that notes what it is asked. The first commits wait until the witness has
// seen the commit of another account, which comes last in the stream: until then, the reader has
// passed all messages.
type witness struct {
	mu    sync.Mutex
	calls []string
	other chan struct{} // closed when the other account's commit is being verified
	last  chan struct{} // closed when, after that, the last account's commit is being verified
}

func (w *witness) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, what)
}

// Verify implements consumer.Verifier.
func (w *witness) Verify(_ context.Context, m *wire.Message) (wire.Reason, error) {
	switch {
	case strings.HasPrefix(string(m.DID), "did:web:last."):
		<-w.other
		close(w.last)
		return "", nil
	case strings.HasPrefix(string(m.DID), "did:web:b."):
		close(w.other) // if it waited for the first account, the test would not end
	}
	w.note(fmt.Sprintf("begin %d", m.Seq))
	<-w.last
	w.note(fmt.Sprintf("end %d", m.Seq))
	return "", nil
}

// Changed implements consumer.Verifier.
func (w *witness) Changed(did []byte) {
	if strings.HasPrefix(string(did), "did:web:a.") {
		w.note("changed")
	}
}

// position returns the index of a call, -1 if it was not made.
func (w *witness) position(what string) int { return slices.Index(w.calls, what) }

func commitOf(did string, seq int64) []byte {
	return oracle.Frame(&oracle.Event{
		Type: oracle.CommitEvent, Seq: seq, DID: did, Rev: oracle.TID(1<<50 + uint64(seq)),
		Ops: []oracle.Op{{Kind: "follow", Rkey: oracle.TID(uint64(seq) << 20), Subject: "did:web:subject.example.com"}},
	})
}

func identityOf(did string, seq int64) []byte {
	return synth.AppendIdentity(nil, []byte(did), seq, []byte(synth.Time(seq)))
}

// An #identity does not overtake the commits before it, nor do later commits overtake it, although
// messages are verified side by side: else a commit is checked with a key that its account began
// to use later, and a valid commit is refuted.
func TestIdentityDoesNotOvertake(t *testing.T) {
	const a, b, last = "did:web:a.example.com", "did:web:b.example.com", "did:web:last.example.com"
	all := [][]byte{
		commitOf(a, 1), commitOf(a, 2), identityOf(b, 3), identityOf(a, 4), commitOf(a, 5), commitOf(b, 6),
		identityOf(a, 7), identityOf(a, 8), commitOf(a, 9), commitOf(last, 10),
	}
	g, _ := open(t)
	w := &witness{other: make(chan struct{}), last: make(chan struct{})}
	srv := serve(t, relay.NewRecorded(all))
	zero := int64(0)
	runTo(t, g, consumer.Options{Relay: srv, Cursor: &zero, Verifier: w, Until: 10, Idle: 10 * time.Second})
	order := [][2]string{
		{"end 1", "begin 5"}, {"end 2", "begin 5"}, {"end 5", "begin 9"},
	}
	for _, o := range order {
		if w.position(o[0]) < 0 || w.position(o[0]) > w.position(o[1]) {
			t.Errorf("%q is not before %q: %v", o[0], o[1], w.calls)
		}
	}
	changed := 0
	for i, c := range w.calls {
		if c != "changed" {
			continue
		}
		changed++
		for _, before := range []string{"end 1", "end 2"} {
			if w.position(before) > i {
				t.Errorf("an #identity overtook commit %s: %v", before[4:], w.calls)
			}
		}
		if after := map[int]string{1: "begin 5", 3: "begin 9"}[changed]; after != "" && w.position(after) < i {
			t.Errorf("a commit overtook #identity %d (%q): %v", changed, after, w.calls)
		}
	}
	if changed != 3 {
		t.Errorf("%d changes, want 3: %v", changed, w.calls)
	}
	if len(w.calls) != 5*2+3 {
		t.Errorf("a message was verified twice: %v", w.calls)
	}
	if n := follows(t, g); n != 6 {
		t.Errorf("%d follows, want 6", n)
	}
}
