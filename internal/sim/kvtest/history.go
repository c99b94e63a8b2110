package kvtest

import (
	"bytes"
	"context"
	"errors"
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
		s.kind = stepDeleteRange
		s.key, s.hi = h.bounds()
		// Mostly short ranges: long ones would delete all old keys.
		if end := append(bytes.Clone(s.key), 0xff); h.rng.IntN(30) > 0 && (s.hi == nil || bytes.Compare(end, s.hi) < 0) {
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

// write overwrites what it passed as soon as a call has returned: the memory is the caller's.
func (s *step) write(tx kv.Txn) {
	key, hi, data := bytes.Clone(s.key), bytes.Clone(s.hi), bytes.Clone(s.data)
	switch s.kind {
	case stepSet:
		tx.Set(key, data)
	case stepDelete:
		tx.Delete(key)
	case stepDeleteRange:
		tx.DeleteRange(key, hi)
	case stepMerge:
		tx.Merge(key, data)
	}
	for _, b := range [][]byte{key, hi, data} {
		for i := range b {
			b[i] = 'x'
		}
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
		maps.DeleteFunc(w, func(k, _ string) bool { return k >= key && (s.hi == nil || k < string(s.hi)) })
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

// errEnded ends transactions and reads.
var errEnded = errors.New("ended")

// Write makes one transaction of up to n random steps, between which it reads. One in ten ends with
// an error first, and writes nothing.
func (h *History) Write(t *testing.T, s kv.Store, n int) {
	t.Helper()
	h.round++
	round := fmt.Sprint(h.round)
	steps := make([]step, h.rng.IntN(n+1))
	for i := range steps {
		steps[i] = h.step()
	}
	reads, fails := h.rng.Uint64(), h.rng.IntN(10) == 0
	update := func(tx kv.Txn) error {
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
		if fails {
			return errEnded
		}
		tx.Set([]byte(Round), []byte(round))
		h.state.check(t, tx, rng, 2)
		return nil
	}
	if fails {
		if err := s.Update(context.Background(), update); err != errEnded { //nolint:errorlint // it must not be wrapped
			t.Fatal(err)
		}
		fails = false
	}
	if err := s.Update(context.Background(), update); err != nil {
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

// check makes n random reads, and others within their callbacks. It prefetches for some of them.
func (w State) check(t *testing.T, r kv.Reader, rng *rand.Rand, n int) {
	t.Helper()
	draw := &History{rng: rng}
	for range n {
		w.read(t, r, draw, 2)
	}
}

// read makes a random read. Its callbacks make some more, up to that many levels deep.
func (w State) read(t *testing.T, r kv.Reader, draw *History, levels int) {
	t.Helper()
	if p, ok := r.(kv.Prefetcher); ok {
		for range draw.rng.IntN(3) {
			p.PrefetchGet(draw.key())
			lo, hi := draw.bounds()
			p.PrefetchScan(lo, hi, draw.rng.IntN(4))
		}
	}
	left := 3
	within := func() {
		if left--; levels > 0 && left >= 0 {
			w.read(t, r, draw, levels-1)
		}
	}
	switch draw.rng.IntN(4) {
	case 0:
		key := draw.key()
		v, ok, err := r.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		w.value(t, key, v, ok)
		clear(v) // it is the caller's
	case 1:
		w.multiGet(t, r, draw, within)
	case 2:
		prefix := draw.key()
		n := 0
		if err := kv.ScanPrefix(r, prefix, func(k, v []byte) error {
			if !bytes.HasPrefix(k, prefix) || string(v) != w[string(k)] {
				t.Fatalf("scan of the prefix %q: %q → %q", prefix, k, v)
			}
			if exists(string(k), string(v)) {
				n++
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for k, v := range w {
			if strings.HasPrefix(k, string(prefix)) && exists(k, v) {
				n--
			}
		}
		if n != 0 {
			t.Fatalf("scan of the prefix %q: %d keys too many", prefix, n)
		}
	default:
		lo, hi := draw.bounds()
		w.scan(t, r, lo, hi, draw.rng.IntN(2) == 0, draw.rng.IntN(12)-1, within)
	}
}

// bounds draws the bounds of a range: mostly keys in ascending order, else none, an empty one, or
// any two.
func (h *History) bounds() (lo, hi []byte) {
	switch h.rng.IntN(8) {
	case 0: // nil
	case 1:
		lo = []byte{}
	default:
		lo = h.key()
	}
	switch h.rng.IntN(8) {
	case 0, 1: // nil
	case 2:
		hi = []byte{}
	default:
		hi = h.key()
	}
	if len(hi) > 0 && bytes.Compare(lo, hi) > 0 && h.rng.IntN(8) > 0 {
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

func (w State) multiGet(t *testing.T, r kv.Reader, draw *History, within func()) {
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
	end := len(keys)
	if draw.rng.IntN(4) == 0 && len(keys) > 0 {
		end = draw.rng.IntN(len(keys))
	}
	next := 0
	err := r.MultiGet(keys, func(i int, v []byte, ok bool) error {
		if i != next {
			t.Fatalf("callback for key %d after key %d", i, next-1)
		}
		if next == end {
			return errEnded
		}
		next++
		w.value(t, keys[i], v, ok)
		_ = append(v, "must not overwrite the next value"...)
		if i%(1+len(keys)/3) == 0 {
			within()
			w.value(t, keys[i], v, ok)
		}
		return nil
	})
	if end == len(keys) && err == nil || end < len(keys) && err == errEnded { //nolint:errorlint // it must not be wrapped
		err = nil
	} else if err == nil {
		err = errors.New("it did not end")
	}
	if err != nil || next != end {
		t.Fatalf("%d of %d callbacks: %v", next, end, err)
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
		if ended = n == limit; ended && n%3 == 0 {
			return n%2 == 0, errEnded
		}
		return !ended, nil
	})
	if ended && n%3 == 0 && err == errEnded { //nolint:errorlint // it must not be wrapped
		err = nil
	}
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
			look := func(r kv.Reader) error {
				h.Check(t, r, 6)
				if round%20 == 0 {
					h.state.Equal(t, r)
				}
				return nil
			}
			if err := s.View(context.Background(), look); err != nil {
				t.Fatal(err)
			}
			if crossings, err := s.ViewAcross(context.Background(), look); err != nil || crossings > 0 {
				t.Fatalf("%d crossings, %v", crossings, err)
			}
			if e.Reopen != nil && (round < 3 || round%30 > 27) {
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
