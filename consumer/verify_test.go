package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skein.blue/consumer"
	"skein.blue/consumer/wire"
	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/read"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/synth"
)

// judge is a Verifier that takes its time, and decides by the account's name.
type judge struct {
	mu      sync.Mutex
	most    int // messages at a time
	now     int
	changed []string
}

// Verify implements consumer.Verifier.
func (j *judge) Verify(_ context.Context, m *wire.Message) (wire.Reason, error) {
	j.mu.Lock()
	j.now++
	j.most = max(j.most, j.now)
	j.mu.Unlock()
	time.Sleep(rand.N(5 * time.Millisecond))
	j.mu.Lock()
	defer j.mu.Unlock()
	j.now--
	for _, r := range []wire.Reason{wire.BadSignature, wire.NoKey, wire.KeyUnreachable} {
		if bytes.Contains(m.DID, []byte(strings.ReplaceAll(string(r), "_", ""))) {
			return r, errors.New("the judge says " + string(r))
		}
	}
	return "", nil
}

// Changed implements consumer.Verifier.
func (j *judge) Changed(did []byte) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.changed = append(j.changed, string(did))
}

// root is the root of the tree of the honest account after its commit i.
func root(i int64) (r [32]byte) {
	r[0], r[1] = byte(i), byte(i>>8)
	return r
}

func before(i int64) *[32]byte {
	if i == 0 {
		return nil
	}
	r := root(i - 1)
	return &r
}

func since(i int64) string {
	if i == 0 {
		return ""
	}
	return oracle.TID(1<<50 + uint64(i-1))
}

func deadLetters(t *testing.T, store kv.Store) (letters []format.DeadLetter) {
	t.Helper()
	err := store.View(t.Context(), func(r kv.Reader) (err error) {
		letters, err = read.DeadLetters(r)
		return err
	})
	must(t, err)
	return letters
}

// A message that the Verifier refutes is dropped, becomes a dead letter, and desynchronizes its repo, unless
// the account does not exist. All other messages are applied in order, although they are verified
// side by side.
func TestVerifier(t *testing.T) {
	var all [][]byte
	const honest = 200
	for i := range int64(honest) {
		all = append(all, oracle.Frame(&oracle.Event{ // one repo: any disorder would break its chain
			Type: oracle.CommitEvent, Seq: i + 1, DID: "did:web:honest.example.com", Rev: oracle.TID(1<<50 + uint64(i)), Since: since(i), Data: root(i), PrevData: before(i),
			Ops: []oracle.Op{{Kind: "follow", Rkey: oracle.TID(uint64(i+1) << 20), Subject: fmt.Sprintf("did:web:%d.example.com", i)}},
		}))
	}
	for i, reason := range []wire.Reason{wire.BadSignature, wire.NoKey, wire.KeyUnreachable} {
		all = append(all, oracle.Frame(&oracle.Event{
			Type: oracle.CommitEvent, Seq: honest + int64(i) + 1, DID: "did:web:" + strings.ReplaceAll(string(reason), "_", "") + ".example.com", Rev: oracle.TID(1 << 51),
			Ops: []oracle.Op{{Kind: "follow", Rkey: oracle.TID(1 << 30), Subject: "did:web:victim.example.com"}},
		}))
	}
	all = append(all, synth.AppendIdentity(nil, []byte("did:web:honest.example.com"), honest+4, []byte(synth.Time(honest+4))))

	g, store := open(t)
	j := &judge{}
	run(t, g, consumer.Options{Verifier: j}, all...)
	if n := follows(t, g); n != honest {
		t.Errorf("%d follows, want %d", n, honest)
	}
	states := map[string]string{}
	err := g.View(t.Context(), func(s *ask.View) error {
		for _, name := range []string{"honest", "signature", "nokey", "keyunreachable"} {
			st, known, _, err := s.Account("did:web:" + name + ".example.com")
			if err != nil {
				return err
			}
			states[name] = fmt.Sprint(known, st.Has(format.FlagDesync), st.Has(format.FlagHasRev))
		}
		return nil
	})
	want := map[string]string{"honest": "true false true", "signature": "true true false", "nokey": "false false false", "keyunreachable": "true true false"}
	if err != nil || fmt.Sprint(states) != fmt.Sprint(want) {
		t.Errorf("accounts known, desynchronized, with a rev: %v, want %v (%v)", states, want, err)
	}
	var letters []string
	for _, l := range deadLetters(t, store) {
		letters = append(letters, l.Reason)
		if l.Detail != "the judge says "+l.Reason {
			t.Errorf("the dead letter of %s has the detail %q", l.DID, l.Detail)
		}
	}
	slices.Sort(letters)
	if got := strings.Join(letters, " "); got != "key_unreachable no_key signature" {
		t.Errorf("dead letters: %s", got)
	}
	if j.most < 2 || len(j.changed) != 1 || j.changed[0] != "did:web:honest.example.com" {
		t.Errorf("%d messages were verified at a time; changed: %v", j.most, j.changed)
	}
}
