package check

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// damage makes the keys from bad to end, both included, unreadable, in a file that has the
// keys from first to last.
func damage(file, first, bad, end, last string) badRange {
	return badRange{bad, end, &kv.Damage{File: file, First: []byte(first), Last: []byte(last), Err: errors.New("checksum mismatch")}}
}

// keyspaceKeys returns the keys of a keyspace, ascending.
func (h *healthy) keyspaceKeys(keyspace byte) (keys []string) {
	for _, k := range slices.Sorted(maps.Keys(h.rows)) {
		if k[0] == keyspace {
			keys = append(keys, k)
		}
	}
	return keys
}

// TestDamage: Verify reports each damaged part once, continues after it, and finds problems
// there. It limits the reports of possible consequences.
func TestDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	eachStore(t, func(t *testing.T, h healthy) {
		for _, keyspace := range []byte("aceilmnrsuv") {
			keys := h.keyspaceKeys(keyspace)
			if len(keys) == 0 {
				continue
			}
			for range 3 {
				at := []int{rng.IntN(len(keys)), rng.IntN(len(keys)), rng.IntN(len(keys)), rng.IntN(len(keys))}
				slices.Sort(at)
				b := h.bench(t)
				b.bad = []badRange{damage("000123.sst", keys[at[0]], keys[at[1]], keys[at[2]], keys[at[3]])}
				b.rows["zz"] = nil
				found := b.problems()
				said, about := 0, fmt.Sprintf("file 000123.sst is damaged; some keys from %x to %x are unreadable and were not checked: checksum mismatch", keys[at[0]], keys[at[3]])
				for _, p := range found {
					if strings.HasPrefix(p, "file ") {
						said++
					}
				}
				if keyspace == 'c' || keyspace == 'n' && said == 0 || keyspace == 'u' && said == 0 || keyspace == 'm' && said == 0 {
					continue // the check does not read all of their rows
				}
				if said != 1 || !slices.Contains(found, about) {
					t.Errorf("keyspace %q: %d reports of damage in %q, want %q", keyspace, said, found, about)
				}
				if !slices.Contains(found, "key 7a7a is in an unknown keyspace") && len(found) < 20 {
					t.Errorf("keyspace %q: the problem after the damage is missing in %q", keyspace, found)
				}
				if len(found) > 25 {
					t.Errorf("keyspace %q: %d reports", keyspace, len(found))
				}
			}
		}
	})
}

// TestNotCompared: edges and counts are not compared if a part of the store is unreadable.
func TestNotCompared(t *testing.T) {
	const notCompared = "the dictionary, the edges and the counts were not compared: a part of the store is damaged"
	eachStore(t, func(t *testing.T, h healthy) {
		records := h.keyspaceKeys(format.KeyRecord)
		for _, damaged := range []bool{false, true} {
			b := h.bench(t)
			if damaged {
				b.bad = []badRange{damage("f", records[0], records[1], records[2], records[3])}
			}
			delete(b.rows, string(b.row(1, b.id(alice), b.id(zoe)))) // an edge on one side only
			b.rows["zz"] = nil
			found := strings.Join(b.problems(), "\n")
			for says, want := range map[string]bool{
				notCompared:              damaged,
				"the records have":       !damaged,
				"in the subject's":       !damaged,
				"is in an unknown keysp": true,
			} {
				if strings.Contains(found, says) != want {
					t.Errorf("damaged=%v: %q says %q=%v", damaged, found, says, !want)
				}
			}
		}
	})
}

// TestDamageOfUnknownPlace: damage without a range ends the check of its keyspace only.
func TestDamageOfUnknownPlace(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		b := h.bench(t)
		b.bad = []badRange{{"r", "r\xff", fmt.Errorf("reading: %w", kv.ErrCorrupt)}}
		b.rows["v\x01\x02"] = nil
		found := strings.Join(b.problems(), "\n")
		for _, want := range []string{"file with an unknown name is damaged", "set key 760102 is malformed"} {
			if !strings.Contains(found, want) {
				t.Errorf("%q does not say %q", found, want)
			}
		}
	})
}

// TestTolerantScan: the tolerant reader returns every key outside damaged files, once and in
// order, and no unreadable key. It reports each file once. Files lie side by side, or with keys between.
func TestTolerantScan(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 2000 {
		b := &table{rows: map[string][]byte{}}
		for range 5 + rng.IntN(60) {
			key := make([]byte, 1+rng.IntN(4))
			for i := range key {
				key[i] = byte(rng.IntN(6))
			}
			b.rows["k"+string(key)] = key
		}
		keys := slices.Sorted(maps.Keys(b.rows))
		fileOf, isBad := make([]string, len(keys)), make([]bool, len(keys))
		for next := rng.IntN(len(keys)); next < len(keys); next += rng.IntN(3) {
			at := make([]int, 4)
			for i := range at {
				at[i] = next + rng.IntN(min(8, len(keys)-next))
			}
			slices.Sort(at)
			next = at[3] + 1
			file := fmt.Sprint(len(b.bad))
			b.bad = append(b.bad, damage(file, keys[at[0]], keys[at[1]], keys[at[2]], keys[at[3]]))
			for i := at[0]; i < next; i++ {
				fileOf[i], isBad[i] = file, i >= at[1] && i <= at[2]
			}
		}
		reports := map[string]int{}
		r := newTolerant(b, func(p string) { reports[strings.Fields(p)[1]]++ })
		lo, hi := keys[0][:1+rng.IntN(len(keys[0]))], "k\xff"
		if rng.IntN(2) == 0 {
			hi = keys[rng.IntN(len(keys))]
		}
		var got []string
		must(t, r.Scan([]byte(lo), []byte(hi), false, func(k, v []byte) (bool, error) {
			if !bytes.Equal(v, b.rows[string(k)]) {
				t.Errorf("%x has %x, want %x", k, v, b.rows[string(k)])
			}
			got = append(got, string(k))
			return true, nil
		}))
		met := map[string]int{}
		for i, k := range keys {
			if k < lo || k >= hi {
				continue
			}
			if isBad[i] {
				met[fileOf[i]] = 1
			}
			if _, is := slices.BinarySearch(got, k); fileOf[i] == "" && !is || isBad[i] && is {
				t.Errorf("key %x, of file %q, bad=%v, was read=%v; of %x", k, fileOf[i], isBad[i], is, keys)
			}
		}
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) || r.any() != (len(met) > 0) || !maps.Equal(met, reports) {
			t.Errorf("%x, of %x; met damage: %v, reports %v", got, keys, met, reports)
		}
	}
}

// TestTolerantErrors: the caller's own error and errors that are not damage are returned
// unchanged, and end the scan.
func TestTolerantErrors(t *testing.T) {
	b := &table{rows: map[string][]byte{"k1": nil, "k2": nil, "k5": nil, "k9": nil}}
	b.bad = []badRange{damage("a", "k3", "k5", "k6", "k7")}
	r := newTolerant(b, func(string) {})
	own := fmt.Errorf("my own: %w", kv.ErrCorrupt)
	n := 0
	if err := kv.ScanPrefix(r, []byte("k"), func(_, _ []byte) error { n++; return own }); err != own || n != 1 || r.any() { //nolint:errorlint // the identical error
		t.Errorf("%v, after %d keys", err, n)
	}
	n = 0
	if err := r.Scan([]byte("k"), nil, false, func(_, _ []byte) (bool, error) { n++; return n < 2, nil }); err != nil || n != 2 || r.any() {
		t.Errorf("%v, after %d keys", err, n)
	}
	n = 0
	if err := r.Scan([]byte("k"), []byte("l"), true, func(_, _ []byte) (bool, error) { n++; return true, nil }); err != nil || n != 1 || !r.any() {
		t.Errorf("in reverse: %v, after %d keys", err, n)
	}
	gone := errors.New("gone")
	b.bad = []badRange{{"k2", "k2", gone}}
	if err := r.Scan([]byte("k"), nil, false, func(_, _ []byte) (bool, error) { return true, nil }); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	if _, _, err := r.Get([]byte("k2")); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	if err := r.MultiGet([][]byte{[]byte("k1"), []byte("k2")}, func(int, []byte, bool) error { return nil }); !errors.Is(err, gone) {
		t.Errorf("%v", err)
	}
	if err := r.MultiGet([][]byte{[]byte("k1"), []byte("k2")}, func(int, []byte, bool) error { return own }); !errors.Is(err, own) {
		t.Errorf("%v", err)
	}
}

// TestTolerantGet: an unreadable key counts as missing. After many of them, keys in damaged
// files are no longer looked up; others still are.
func TestTolerantGet(t *testing.T) {
	b := &table{rows: map[string][]byte{"j": []byte("before"), "k": []byte("lost"), "l": []byte("behind")}}
	b.bad = []badRange{damage("a", "k", "k", "k", "k")}
	reports := 0
	r := newTolerant(b, func(string) { reports++ })
	for range 2 * mostFailed {
		if v, ok, err := r.Get([]byte("k")); v != nil || ok || err != nil {
			t.Fatalf("%q, %v, %v", v, ok, err)
		}
	}
	if reports != 1 || len(b.gets) != mostFailed+1 {
		t.Errorf("%d reports; looked up %d times, want %d", reports, len(b.gets), mostFailed+1)
	}
	for key, want := range map[string]string{"j": "before", "l": "behind"} {
		if v, ok, err := r.Get([]byte(key)); err != nil || !ok || string(v) != want {
			t.Errorf("%q: %q, %v, %v", key, v, ok, err)
		}
	}
}

// TestTolerantMultiGet: keys are looked up together until there is damage; then each once more, but those that
// were given already.
func TestTolerantMultiGet(t *testing.T) {
	for _, bad := range []string{"", "k10", "k37", "k59"} {
		b := &table{rows: map[string][]byte{}}
		var keys [][]byte
		for n := 10; n < 60; n++ {
			keys = append(keys, fmt.Appendf(nil, "k%d", n))
			b.rows[string(keys[len(keys)-1])] = fmt.Append(nil, n)
		}
		if bad != "" {
			b.bad = []badRange{damage("a", bad, bad, bad, bad)}
		}
		r := newTolerant(b, func(string) {})
		for again := range 2 {
			calls, together := 0, b.multi
			if err := r.MultiGet(keys, func(i int, v []byte, ok bool) error {
				if want := fmt.Sprint(i + 10); i != calls || ok != (string(keys[i]) != bad) || ok && string(v) != want {
					t.Errorf("damage at %q: call %d is for key %d: %q %v", bad, calls, i, v, ok)
				}
				calls++
				return nil
			}); err != nil || calls != len(keys) {
				t.Errorf("damage at %q: %d calls: %v", bad, calls, err)
			}
			if want := bad == "" || again == 0; b.multi > together != want {
				t.Errorf("damage at %q, time %d: looked up together: %v", bad, again, b.multi > together)
			}
		}
	}
}
