package kvtest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skein.blue/internal/kv"
)

// A History is a random history of writes, with a naive model of the state that they
// must produce. Merges go into keys that begin with m; for those, an empty value equals
// a missing key. Each transaction also sets the key Round, which shows a retry that an
// attempt with an unknown outcome was committed.
type History struct {
	rng   *rand.Rand
	state State
	round int
}

// A State has the keys and values of a store.
type State map[string]string

// Round is the key whose value counts the committed transactions of a History.
const Round = "\x02round"

// NewHistory begins a history. The same seed gives the same history.
func NewHistory(seed uint64) *History {
	return &History{rng: rand.New(rand.NewPCG(seed, 1)), state: State{}}
}

// State returns a copy of the state that the store must have now.
func (h *History) State() State { return maps.Clone(h.state) }

type step struct {
	kind          stepKind
	key, hi, data []byte
}

type stepKind uint8

const (
	stepSet stepKind = iota
	stepDelete
	stepDeleteRange
	stepMerge
)

// key draws a key. Keys are short and have few distinct bytes, so that many are equal or
// prefixes of others; a few are long.
func (h *History) key() []byte {
	const bytesOfKeys = "\x00\x01az\xfe\xff"
	var key []byte
	if h.rng.IntN(2) == 0 {
		key = append(key, 'm')
	}
	for range h.rng.IntN(4) {
		key = append(key, bytesOfKeys[h.rng.IntN(len(bytesOfKeys))])
	}
	if h.rng.IntN(40) == 0 {
		key = append(key, bytes.Repeat([]byte{bytesOfKeys[h.rng.IntN(len(bytesOfKeys))]}, 300)...)
	}
	if len(key) == 0 { // Pebble cannot store an empty key
		key = append(key, 0)
	}
	return key
}

func (h *History) step() step {
	s := step{key: h.key()}
	merged := s.key[0] == 'm'
	switch n := h.rng.IntN(20); {
	case n < 3:
		s.kind = stepDelete
	case n < 4:
		s.kind, s.hi = stepDeleteRange, h.key()
		if bytes.Compare(s.key, s.hi) > 0 {
			s.key, s.hi = s.hi, s.key
		}
		// Mostly short ranges: long ones would delete all old keys.
		if end := append(bytes.Clone(s.key), 0xff); h.rng.IntN(8) > 0 && bytes.Compare(end, s.hi) < 0 {
			s.hi = end
		}
	case n < 14 && merged:
		s.kind, s.data = stepMerge, []byte{byte(h.rng.IntN(6)), byte(h.rng.IntN(2))}
	case merged:
		s.data = []byte{byte(h.rng.IntN(6)), 1}
	default:
		s.data = make([]byte, h.rng.IntN(20))
		if h.rng.IntN(30) == 0 {
			s.data = make([]byte, h.rng.IntN(5000))
		}
		for i := range s.data {
			s.data[i] = byte(h.rng.Uint32())
		}
	}
	return s
}

func (s *step) write(tx kv.Txn) {
	switch s.kind {
	case stepSet:
		tx.Set(s.key, s.data)
	case stepDelete:
		tx.Delete(s.key)
	case stepDeleteRange:
		tx.DeleteRange(s.key, s.hi)
	case stepMerge:
		tx.Merge(s.key, s.data)
	}
}

func (w State) apply(t *testing.T, s *step) {
	t.Helper()
	key := string(s.key)
	switch s.kind {
	case stepSet:
		w[key] = string(s.data)
	case stepDelete:
		delete(w, key)
	case stepDeleteRange:
		maps.DeleteFunc(w, func(k, _ string) bool { return k >= key && k < string(s.hi) })
	case stepMerge:
		values := [][]byte{s.data}
		if old, ok := w[key]; ok {
			values = [][]byte{[]byte(old), s.data}
		}
		v, err := LastByte{}.Fold(nil, s.key, values, true)
		if err != nil {
			t.Fatal(err)
		}
		w[key] = string(v)
	}
}

// Write makes one transaction of up to n random steps, between which it reads.
func (h *History) Write(t *testing.T, s kv.Store, n int) {
	t.Helper()
	h.round++
	round := fmt.Sprint(h.round)
	steps := make([]step, h.rng.IntN(n+1))
	for i := range steps {
		steps[i] = h.step()
	}
	reads := h.rng.Uint64()
	err := s.Update(context.Background(), func(tx kv.Txn) error {
		v, _, err := tx.Get([]byte(Round))
		if err != nil || string(v) == round {
			return err // an earlier attempt was committed
		}
		rng := rand.New(rand.NewPCG(reads, 2))
		for i := range steps {
			if i%8 == 0 {
				h.state.check(t, tx, rng, 1)
				h.state.check(t, tx.Snapshot(), rng, 1)
			}
			steps[i].write(tx)
		}
		tx.Set([]byte(Round), []byte(round))
		h.state.check(t, tx, rng, 2)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range steps {
		h.state.apply(t, &steps[i])
	}
	h.state[Round] = round
}

// Check makes n random reads, and compares them with the state that r must show now.
func (h *History) Check(t *testing.T, r kv.Reader, n int) {
	t.Helper()
	h.state.check(t, r, h.rng, n)
}

// Equal fails the test unless r has exactly the keys and values of w.
func (w State) Equal(t *testing.T, r kv.Reader) {
	t.Helper()
	for _, reverse := range []bool{false, true} {
		w.scan(t, r, nil, nil, reverse, -1, nil)
	}
}

// exists reports whether a key with this value counts as existing.
func exists(key, value string) bool { return value != "" || !strings.HasPrefix(key, "m") }

// in returns the keys in [lo, hi).
func (w State) in(lo, hi []byte, reverse bool) []string {
	var keys []string
	for k, v := range w {
		if k >= string(lo) && (hi == nil || k < string(hi)) && exists(k, v) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	if reverse {
		slices.Reverse(keys)
	}
	return keys
}

func (w State) check(t *testing.T, r kv.Reader, rng *rand.Rand, n int) {
	t.Helper()
	draw := &History{rng: rng}
	for range n {
		switch rng.IntN(4) {
		case 0:
			key := draw.key()
			v, ok, err := r.Get(key)
			if err != nil {
				t.Fatal(err)
			}
			w.value(t, key, v, ok)
		case 1:
			w.multiGet(t, r, draw)
		case 2:
			lo, hi := draw.bounds()
			w.scan(t, r, lo, hi, rng.IntN(2) == 0, rng.IntN(12)-1, nil)
		default:
			lo, hi := draw.bounds()
			nested := 3
			w.scan(t, r, lo, hi, rng.IntN(2) == 0, rng.IntN(12)-1, func() {
				if nested--; nested >= 0 {
					lo, hi := draw.bounds()
					w.scan(t, r, lo, hi, rng.IntN(2) == 0, rng.IntN(5)-1, nil)
				}
			})
		}
	}
}

// bounds draws the bounds of a Scan: keys in ascending order, or none.
func (h *History) bounds() (lo, hi []byte) {
	switch h.rng.IntN(8) {
	case 0: // nil
	case 1:
		lo = []byte{}
	default:
		lo = h.key()
	}
	if h.rng.IntN(4) > 0 {
		hi = h.key()
	}
	if hi != nil && bytes.Compare(lo, hi) > 0 {
		lo, hi = hi, lo
	}
	return lo, hi
}

// value compares the result of reading key. For keys with merges, an empty value may be
// reported as missing or existing.
func (w State) value(t *testing.T, key, v []byte, ok bool) {
	t.Helper()
	want, has := w[string(key)]
	if string(v) != want || ok != has && exists(string(key), "") {
		t.Fatalf("%q is %q (%v), want %q (%v)", key, v, ok, want, has)
	}
}

func (w State) multiGet(t *testing.T, r kv.Reader, draw *History) {
	t.Helper()
	keys := make([][]byte, []int{0, 1, 3, 7, 8, 9, 40, 300}[draw.rng.IntN(8)])
	if draw.rng.IntN(100) == 0 {
		keys = make([][]byte, 2500)
	}
	for i := range keys {
		if keys[i] = draw.key(); i > 0 && draw.rng.IntN(3) == 0 {
			keys[i] = keys[draw.rng.IntN(i)]
		}
	}
	next := 0
	err := r.MultiGet(keys, func(i int, v []byte, ok bool) error {
		if i != next {
			t.Fatalf("callback for key %d after key %d", i, next-1)
		}
		next++
		w.value(t, keys[i], v, ok)
		return nil
	})
	if err != nil || next != len(keys) {
		t.Fatalf("%d of %d callbacks: %v", next, len(keys), err)
	}
}

// scan compares a Scan that ends after limit keys, or at the end if limit is -1. It calls
// within for each key.
func (w State) scan(t *testing.T, r kv.Reader, lo, hi []byte, reverse bool, limit int, within func()) {
	t.Helper()
	want := w.in(lo, hi, reverse)
	if limit >= 0 {
		want = want[:min(limit, len(want))]
	}
	n, ended := 0, limit == 0
	if ended {
		return
	}
	err := r.Scan(lo, hi, reverse, func(k, v []byte) (bool, error) {
		if ended {
			t.Fatalf("the scan of [%q, %q) continues after its callback ended it", lo, hi)
		}
		key, value := string(k), string(v)
		if !exists(key, value) {
			return true, nil
		}
		if n == len(want) || key != want[n] || value != w[key] {
			t.Fatalf("scan of [%q, %q), reverse %v: key %d is %q → %q, want %q", lo, hi, reverse, n, key, value, want[min(n, len(want)):])
		}
		if within != nil {
			within()
			if string(k) != key || string(v) != value {
				t.Fatalf("scan of [%q, %q): nested reads changed %q → %q into %q → %q", lo, hi, key, value, k, v)
			}
		}
		n++
		ended = n == limit
		return !ended, nil
	})
	if err != nil || n != len(want) {
		t.Fatalf("scan of [%q, %q), reverse %v: %d keys, want %d: %v", lo, hi, reverse, n, len(want), err)
	}
}

// testHistories applies random histories to the engine, and compares it with the model
// after each step.
func testHistories(t *testing.T, e Engine) {
	for seed := range uint64(4) {
		s := e.Open(t, LastByte{})
		h := NewHistory(seed)
		for round := range 120 {
			if round%10 == 9 { // a View that is older than concurrent writes
				view(t, s, func(r kv.Reader) {
					old := h.State()
					for range 3 {
						h.Write(t, s, 40)
						old.check(t, r, h.rng, 4)
					}
					old.Equal(t, r)
				})
			} else {
				h.Write(t, s, 40)
			}
			view(t, s, func(r kv.Reader) {
				h.Check(t, r, 6)
				if round%20 == 0 {
					h.state.Equal(t, r)
				}
			})
			if e.Reopen != nil && round%30 == 29 {
				s = e.Reopen(t, s)
			}
		}
		view(t, s, func(r kv.Reader) { h.state.Equal(t, r) })
		if len(h.state) < 20 {
			t.Errorf("the history leaves only %d keys, too few to prove anything", len(h.state))
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
