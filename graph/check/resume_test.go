package check

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// interrupted is a store whose View ends after some keys of the passes, as if its context had. Its readers fork.
type interrupted struct {
	kv.Store

	rows map[string][]byte
	only byte         // count the keys of this keyspace; 0: of those that passes read
	left atomic.Int64 // keys until then
	end  context.CancelFunc

	mu   sync.Mutex // guards read
	read map[byte]int
}

type interruptedReader struct {
	table

	i *interrupted
}

func (i *interrupted) reader() *interruptedReader {
	return &interruptedReader{table{rows: i.rows}, i}
}

func (i *interrupted) ViewAcross(_ context.Context, fn func(kv.Reader) error) (crossings int, err error) {
	return 0, fn(i.reader())
}

func (r *interruptedReader) Fork() (kv.Reader, func() error) {
	return r.i.reader(), func() error { return nil }
}

func (r *interruptedReader) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) error {
	return r.table.Scan(lo, hi, reverse, func(key, value []byte) (bool, error) {
		passes := []byte{dict.KeyString, dict.KeyID, dict.KeyPosts, format.KeyDates, format.KeyRecord, format.KeyRows, format.KeyReverse}
		if key[0] == r.i.only || r.i.only == 0 && slices.Contains(passes, key[0]) {
			if r.i.left.Add(-1) < 0 {
				r.i.end()
				return false, context.Canceled
			}
			r.i.mu.Lock()
			r.i.read[key[0]]++
			r.i.mu.Unlock()
		}
		return each(key, value)
	})
}

// resumed checks a store, and interrupts the check every so many keys of a keyspace, which next returns. It returns the problems of the
// check that ended, the number of interruptions, and the number of keys that were read in each keyspace.
func resumed(t *testing.T, rows map[string][]byte, file string, only byte, next func() int64) (problems []string, interruptions int, read map[byte]int) {
	t.Helper()
	store := &interrupted{rows: rows, only: only, read: map[byte]int{}}
	went := 0
	for {
		var ctx context.Context
		ctx, store.end = context.WithCancel(t.Context())
		store.left.Store(next())
		problems = nil
		p := &Progress{
			File: file, Program: "test", keeping: func(pass) bool { return true }, Warn: func(err error) { t.Error(err) },
			Resumed: func(time.Time, int64) { went++ },
		}
		err := Resume(ctx, store, p, func(p string) { problems = append(problems, p) }, nil)
		store.end()
		if err == nil {
			break
		}
		var i *Interrupted
		if !errors.Is(err, context.Canceled) || errors.As(err, &i) != (len(problems) == 0) {
			t.Fatalf("%v, after the problems %q", err, problems)
		}
		if _, err := os.Stat(file); (err == nil) != (i != nil) {
			t.Fatalf("after %v: %v", i, err)
		}
		interruptions++
	}
	if left, err := filepath.Glob(file + "*"); len(left) > 0 || err != nil {
		t.Errorf("the check left %q, %v", left, err)
	}
	if len(problems) == 0 && went != interruptions {
		t.Errorf("of %d interrupted checks, %d went on", interruptions, went)
	}
	return problems, interruptions, store.read
}

// TestResumed: a check that is interrupted again and again ends, reads each key once, but for those of an actor or set that an
// interruption divided, and finds nothing wrong with a healthy store.
func TestResumed(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		file := filepath.Join(t.TempDir(), "progress")
		whole, none, once := resumed(t, h.rows, file, 0, func() int64 { return 1 << 40 })
		if len(whole) > 0 || none > 0 {
			t.Fatalf("%d interruptions, %q", none, whole)
		}
		total := 0
		for _, n := range once {
			total += n
		}
		largest := largestGroups(t, h.rows)
		for seed := range uint64(6) {
			rng := rand.New(rand.NewPCG(seed, 0))
			// With fewer keys than the largest set and actor have, a check would not get beyond them, so the number grows.
			most := total / 4
			problems, n, read := resumed(t, h.rows, file, 0, func() int64 { most += most / 8; return int64(total/8 + rng.IntN(most)) })
			if len(problems) > 0 || n < 3 {
				t.Errorf("seed %d: %d interruptions, %q", seed, n, problems)
			}
			for keyspace, want := range once {
				if got := read[keyspace]; got < want || got > want+2*n*largest[keyspace] { // two passes read the dates
					t.Errorf("seed %d: %d keys of keyspace %q were read with %d interruptions; a check that is not interrupted reads %d", seed, got, keyspace, n, want)
				}
			}
		}
	})
}

// TestResumedAnywhere: a check can be interrupted at any key of a set or its dates, whose keys belong together.
func TestResumedAnywhere(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		file := filepath.Join(t.TempDir(), "progress")
		rng := rand.New(rand.NewPCG(1, 0))
		for _, keyspace := range []byte{dict.KeyID, dict.KeyPosts, format.KeyRows, format.KeyReverse, format.KeyDates} {
			n := 0
			for k := range h.rows {
				if k[0] == keyspace {
					n++
				}
			}
			if keyspace == format.KeyDates {
				n *= 2 // two passes read them
			}
			for _, at := range rng.Perm(n)[:min(n, 40)] {
				keys := []int64{int64(at), 1 << 40}
				problems, interruptions, _ := resumed(t, h.rows, file, keyspace, func() int64 { next := keys[0]; keys = keys[1:]; return next })
				if len(problems) > 0 || interruptions != 1 {
					t.Errorf("interrupted at key %d of keyspace %q: %d times, %q", at, keyspace, interruptions, problems)
				}
			}
		}
	})
}

// largestGroups returns how many keys of each keyspace are read together: those of an actor or a set.
func largestGroups(t *testing.T, rows map[string][]byte) map[byte]int {
	t.Helper()
	groups, largest := map[string]int{}, map[byte]int{}
	for k := range rows {
		group := k
		switch k[0] {
		case format.KeyRecord:
			kind, actor, _, _, err := format.ParseChunkKey([]byte(k))
			if err != nil {
				t.Fatal(err)
			}
			group = fmt.Sprintf("r %d %d", kind, actor)
		case format.KeyReverse:
			kind, subject, _, _, err := format.ParseReverseKey([]byte(k))
			if err != nil {
				t.Fatal(err)
			}
			group = fmt.Sprintf("v %d %d", kind, subject)
		case format.KeyDates:
			kind, subject, _, err := format.ParseDatesKey([]byte(k))
			if err != nil {
				t.Fatal(err)
			}
			group = fmt.Sprintf("d %d %d", kind, subject)
		}
		groups[group]++
		largest[k[0]] = max(largest[k[0]], groups[group])
	}
	return largest
}

// TestResumedFinds: a check that was interrupted finds what it would have found at once, and one that was interrupted after it had found
// something starts over.
func TestResumedFinds(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		for name, breaks := range map[string]func(b *bench){
			"a string without an id": func(b *bench) { delete(b.rows, form(zoe)) },
			"an id without a string": func(b *bench) { delete(b.rows, b.first(dict.KeyString, func(string, []byte) bool { return true })) },
			"a set without its record": func(b *bench) {
				delete(b.rows, b.first(format.KeyRecord, func(k string, _ []byte) bool { return k[1] == 1 }))
			},
			"a record without its set":      func(b *bench) { delete(b.rows, string(b.AppendMemberKey(nil, 1, b.id(alice), b.id(zoe)))) },
			"a member that is not repeated": func(b *bench) { b.chunk(1, b.id(zoe), 900, 0, at(900, 7, b.id(alice))) },
			"no hidden set": func(b *bench) {
				for {
					k := b.first(format.KeyReverse, func(k string, _ []byte) bool { return k[1] == byte(kinds.Hidden) })
					if k == "" {
						return
					}
					delete(b.rows, k)
				}
			},
			"dates without a block": func(b *bench) { delete(b.rows, b.first(format.KeyDates, func(string, []byte) bool { return true })) },
		} {
			b := h.bench(t)
			breaks(b)
			want := b.problems()
			if len(want) == 0 { // not in this store
				continue
			}
			slices.Sort(want)
			file := filepath.Join(t.TempDir(), "progress")
			for seed := range uint64(3) {
				// Each time it gets further, as it may have to start over.
				most := int64(100)
				rng := rand.New(rand.NewPCG(seed, 0))
				got, n, _ := resumed(t, b.rows, file, 0, func() int64 { most += 1 + most/2; return rng.Int64N(most) })
				if slices.Sort(got); n == 0 || !slices.Equal(got, want) {
					t.Errorf("%s, after %d interruptions: %q, want %q", name, n, got, want)
				}
			}
		}
	})
}

// TestNotResumed: a check starts over if the store or the program has changed, or the file is damaged; a file of something else stays.
func TestNotResumed(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		file := filepath.Join(t.TempDir(), "progress")
		interrupt := func(program string, rows map[string][]byte, keys int64) (went bool, warned string, err error) {
			store := &interrupted{rows: rows, read: map[byte]int{}}
			ctx, end := context.WithCancel(t.Context())
			store.end = end
			defer end()
			store.left.Store(keys)
			p := &Progress{
				File: file, Program: program, keeping: func(pass) bool { return true },
				Resumed: func(time.Time, int64) { went = true }, Warn: func(err error) { warned += err.Error() },
			}
			err = Resume(ctx, store, p, func(p string) { t.Error(p) }, nil)
			return went, warned, err
		}
		for name, test := range map[string]struct {
			change  func(b *bench) (program string)
			goes    bool
			warns   string
			foreign bool
		}{
			"the same":        {change: func(*bench) string { return "one" }, goes: true},
			"another program": {change: func(*bench) string { return "two" }, warns: "has changed since"},
			"a write": {change: func(b *bench) string {
				b.rows[b.first('m', func(k string, _ []byte) bool { return strings.HasPrefix(k, string(format.KeyWriter)) })] = []byte("another token")
				return "one"
			}, warns: "has changed since"},
			"a lease": {change: func(b *bench) string {
				k := b.first(dict.KeyNext, func(string, []byte) bool { return true })
				b.rows[k] = append([]byte{1}, b.rows[k][1:]...)
				return "one"
			}, warns: "has changed since"},
			"a claim of strings": {change: func(b *bench) string {
				b.rows[string([]byte{dict.KeyClaims, byte(dict.DID), 1, 2})] = []byte{0, 0, 0, 0, 0, 0, 0, 0}
				return "one"
			}, warns: "has changed since"},
			"a flipped bit": {change: func(*bench) string { flip(t, file, -20); return "one" }, warns: "damaged; the check starts over"},
			"a short file":  {change: func(*bench) string { put(t, file, fileMagic); return "one" }, warns: "damaged; the check starts over"},
			"another file":  {change: func(*bench) string { put(t, file, "memory: 1GiB\n"); return "one" }, warns: "is not the progress of a check", foreign: true},
			"a folder": {change: func(*bench) string {
				_ = os.Remove(file)
				if err := os.MkdirAll(filepath.Join(file, "x"), 0o700); err != nil {
					t.Error(err)
				}
				return "one"
			}, warns: "cannot keep the progress", foreign: true},
		} {
			b := h.bench(t)
			if went, warned, err := interrupt("one", b.rows, 300); err == nil || went || warned != "" {
				t.Fatalf("%s: %v %q %v", name, went, warned, err)
			}
			if _, err := os.Stat(file); err != nil {
				t.Fatal(err)
			}
			program := test.change(b)
			went, warned, err := interrupt(program, b.rows, 1<<40)
			if err != nil || went != test.goes || !strings.Contains(warned, test.warns) || (warned == "") != (test.warns == "") {
				t.Errorf("%s: it went on: %v, %q, %v", name, went, warned, err)
			}
			if _, err := os.Stat(file); (err == nil) != test.foreign {
				t.Errorf("%s: the file: %v", name, err)
			}
			if err := os.RemoveAll(file); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestProgressIsWritten: the file is written while the check runs, too, so that a crash of the program or the machine costs a minute.
func TestProgressIsWritten(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		file := filepath.Join(t.TempDir(), "progress")
		p := &Progress{File: file, Program: "test"}
		s, _ := p.newSaver("state")
		v := &checker{progress: &progressed{}, dictionary: newDictionary(nil, h.layout.Settings, kinds.BuiltIn, nil, nil), dates: newDates(1)}
		s.v = v
		s.keep(passStrings, []byte("s1"), v)
		if _, err := os.Stat(file); err == nil {
			t.Error("the file was written at once")
		}
		s.written = s.written.Add(-writeEvery)
		v.dictionary.known[dict.DID].Add(7)
		s.keep(passStrings, []byte("s2"), v)
		again, read := p.newSaver("state")
		if read == nil || string(again.from(passStrings, 's')) != "s2" || again.resumes(passIDs) {
			t.Fatalf("%d bytes, %q", len(read), again.from(passStrings, 's'))
		}
		w := &checker{progress: &progressed{}, dictionary: newDictionary(nil, h.layout.Settings, kinds.BuiltIn, nil, nil), dates: newDates(2)}
		if err := again.restore(w, read); err != nil || w.seed != v.seed || !w.dictionary.known[dict.DID].Contains(7) {
			t.Error(err)
		}
	})
}

// TestProgressStays: a file stays if a later one cannot be written, and a file of something else in its way stays, too.
func TestProgressStays(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		file := filepath.Join(t.TempDir(), "progress")
		var warned []error
		p := &Progress{File: file, Warn: func(err error) { warned = append(warned, err) }}
		s, _ := p.newSaver("state")
		v := &checker{progress: &progressed{}, dictionary: newDictionary(nil, h.layout.Settings, kinds.BuiltIn, nil, nil), dates: newDates(1)}
		s.v = v
		s.keep(passStrings, []byte("s1"), v)
		if s.write(); !s.saved || len(warned) > 0 {
			t.Fatal(warned)
		}
		put(t, file+".new", "somebody's")
		s.keep(passStrings, []byte("s2"), v)
		s.write()
		if s.close(context.Canceled) || len(warned) != 1 || !strings.Contains(fmt.Sprint(warned), "progress.new: the file exists") {
			t.Errorf("%v", warned)
		}
		if b, err := os.ReadFile(file + ".new"); string(b) != "somebody's" {
			t.Errorf("%q, %v", b, err)
		}
		again, read := p.newSaver("state")
		if read == nil || string(again.from(passStrings, 's')) != "s1" {
			t.Errorf("%d bytes, %q", len(read), again.from(passStrings, 's'))
		}
		if err := os.Remove(file + ".new"); err != nil {
			t.Fatal(err)
		}
		if again.v = v; !again.close(context.Canceled) || len(warned) != 1 {
			t.Errorf("%v", warned)
		}
	})
}

// TestInterruptedAtTheEnd: a check whose context ends does not report that as a problem of the store, wherever it is.
func TestInterruptedAtTheEnd(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		file := filepath.Join(t.TempDir(), "progress")
		ended := 0
		for keyspace := range byte(0x80) {
			for at := range int64(11) {
				ctx, end := context.WithCancel(t.Context())
				store := &interrupted{rows: h.rows, only: keyspace, read: map[byte]int{}, end: end}
				store.left.Store(at)
				p := &Progress{File: file, Program: "test", keeping: func(pass) bool { return true }}
				err := Resume(ctx, store, p, func(problem string) { t.Errorf("interrupted at key %d of keyspace %q: %s", at, keyspace, problem) }, nil)
				end()
				if store.left.Load() >= 0 { // it does not have so many keys
					break
				}
				if ended++; !errors.Is(err, context.Canceled) && (err != nil || keyspace != format.KeyWriter[0]) { // whose state is read once more after the check
					t.Errorf("interrupted at key %d of keyspace %q: %v", at, keyspace, err)
				}
			}
		}
		if ended < 60 {
			t.Errorf("%d checks were interrupted", ended)
		}
	})
}

// TestProgressCannotBeWritten: the check goes on without the file.
func TestProgressCannotBeWritten(t *testing.T) {
	eachStore(t, func(t *testing.T, h healthy) {
		store := &interrupted{rows: h.rows, read: map[byte]int{}}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		store.end = end
		store.left.Store(300)
		var warned []error
		p := &Progress{File: filepath.Join(t.TempDir(), "missing", "progress"), Warn: func(err error) { warned = append(warned, err) }}
		err := Resume(ctx, store, p, func(p string) { t.Error(p) }, nil)
		var i *Interrupted
		if !errors.Is(err, context.Canceled) || errors.As(err, &i) || len(warned) != 1 || !strings.Contains(fmt.Sprint(warned), "cannot be saved") {
			t.Errorf("%v, %v", err, warned)
		}
	})
}

func flip(t *testing.T, file string, at int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)+at] ^= 1
	put(t, file, string(b))
}

func put(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// FuzzProgress: any file is read or refused, without a panic.
func FuzzProgress(f *testing.F) {
	f.Add([]byte(fileMagic))
	f.Fuzz(func(t *testing.T, file []byte) { _ = new(saved).decode(file) })
}
