package check

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Verify reads the whole store and calls report for every violated invariant. It needs a bit
// of memory for each string, and few lookups. progress, if not nil, receives the number of keys read.
//
// Verify proves that the dictionary is one to one and every id lies in a leased block; that
// the records and the sets have the same edges; that every value is sorted and in its one
// form; that the accounts, the hidden set and the erase jobs agree; and that the counts are
// right. It reports damage on the disk, and checks the rest. Then it does not compare the dictionary, the
// edges and the counts, which need the damaged part.
//
// It compares sides by the sums of hashes, and so reads each side once, in its own order (comparison). If the sums differ, it reads them
// again to find what is wrong.
func Verify(r kv.Reader, report func(problem string), progress func(keys int64)) error {
	var mu sync.Mutex // held while a problem is reported
	damage := newTolerant(r, func(problem string) {
		mu.Lock()
		defer mu.Unlock()
		report(problem)
	})
	const most = 20 // possible consequences of damage to report
	later := 0
	each := func(problem string) {
		damaged := damage.any()
		mu.Lock()
		defer mu.Unlock()
		if damaged {
			if later++; later > most {
				return
			}
		}
		report(problem)
	}
	defer func() {
		if later > most {
			report(fmt.Sprintf("%d more problems were found; all may be consequences of the damage", later-most))
		}
	}()
	v := &checker{
		pass: pass{damage, each, &progressed{tell: progress}}, damage: damage, dates: newDates(),
		counts: format.Counts{}.Clone(), hidden: roaring64.New(), recorded: roaring64.New(), erasing: map[dict.ID]bool{}, resyncs: map[dict.ID]bool{},
	}
	return v.run()
}

// Mixed is the error of a check that took longer than the engine keeps a snapshot, if the store
// changed meanwhile. The reported problems may not exist.
type Mixed struct {
	States int // the number of states that the check read
}

// Error implements error.
func (m *Mixed) Error() string {
	return fmt.Sprintf("the store changed during the check, which read %d states", m.States)
}

// Store verifies a whole store, however long it takes.
func Store(ctx context.Context, store kv.Store, report func(problem string), progress func(keys int64)) error {
	var before, after string
	crossed, err := store.ViewAcross(ctx, func(r kv.Reader) error {
		before, _ = read.WriteState(r) // Verify reports an unreadable row
		err := Verify(r, report, progress)
		after, _ = read.WriteState(r)
		return err
	})
	if err == nil && crossed > 0 && before != after {
		return &Mixed{crossed + 1}
	}
	return err
}

type checker struct {
	format.Layout

	inSets       *comparison // the edges of the records, and those of the sets
	inStates     *comparison // the numbers of records in the states of the accounts, and those that the accounts have
	inDates      *comparison // the dates of the records in large sets, and those in the sets
	inDictionary *comparison // the ids of strings, and the strings of ids

	unreadable bool // a chunk, a value of a set, or a group of accounts was malformed
	dictionary *dictionary
	dates      dates

	pass

	damage   *tolerant
	counts   format.Counts
	kinds    *kinds.Table
	reader   chunkReader
	hidden   *roaring64.Bitmap // by the states of the accounts
	recorded *roaring64.Bitmap // accounts that have, or had, records, by their states
	erasing  map[dict.ID]bool
	resyncs  map[dict.ID]bool
	erasable int      // accounts with a job in erasing
	setKey   []byte   // the prefix of the keys of the last set
	over     []uint64 // the ids that its rows override in the leaves
	spilled  uint64   // the partitions of its rows that have leaves, a bit each
	lastLeaf []byte   // the key of its last leaf
}

// parallel runs passes, each with a checker of its own, at the same time if the engine can read one state
// from several goroutines. A pass may change only what no other one uses.
func (v *checker) parallel(passes ...func(w *checker) error) error {
	errs := make([]error, len(passes))
	var wg sync.WaitGroup
	all := make([]*checker, len(passes))
	for i, pass := range passes {
		w := *v
		all[i] = &w
		r, release, ok := v.damage.fork()
		if !ok {
			errs[i] = pass(&w)
			continue
		}
		w.damage, w.r = r, r
		wg.Go(func() { errs[i] = errors.Join(pass(&w), release()) })
	}
	wg.Wait()
	for _, w := range all {
		v.unreadable = v.unreadable || w.unreadable
	}
	return errors.Join(errs...)
}

// malformed reports that something could not be decoded, or returns that it could not be read.
func (v *checker) malformed(err error) error {
	if failure := v.damage.failure(); failure != nil {
		return failure
	}
	v.broken("%v", err)
	return nil
}

func (v *checker) run() error {
	h, err := read.Header(v.r)
	if v.Settings, v.kinds = h.Settings, h.Table; v.kinds == nil {
		v.kinds = kinds.BuiltIn
	}
	if err != nil && v.damage.any() { // the header is unreadable; most stores have these settings
		v.Settings, err = dict.DefaultSettings, nil
	}
	if err != nil {
		return err
	}
	// Strings first: all that follows names ids. Then erase jobs and accounts: accounts that are being erased have lost some of their
	// edges, so the check ignores the rest.
	v.inSets, v.inStates, v.inDates, v.inDictionary = newComparisons(v.kinds)
	v.dictionary = newDictionary(v.pass, v.Settings, v.kinds, v.inDictionary)
	of := func(keyspace byte, check func(k, value []byte) error) func() error {
		return func() error { return v.scan([]byte{keyspace}, check) }
	}
	for _, step := range []func() error{
		of(dict.KeyString, v.dictionary.string), of(format.KeyErase, v.eraseJob), of(format.KeyResync, v.resync), of(format.KeyAccount, v.accounts),
		v.edges, v.ofLabels().labelers, v.totals, v.rest, v.keyspaces,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// rest checks the keyspaces that stay small: cursors, notes, claims, versions; and that erase jobs and the queue are of accounts.
func (v *checker) rest() error {
	if n, m := len(v.erasing)-v.erasable, len(v.resyncs); n+m > 0 && !v.unreadable {
		v.broken("%d erase jobs and %d rows of the resync queue are of accounts without a state", n, m)
	}
	for keyspace, check := range map[byte]func(key, value []byte) error{
		format.KeyCursor:     func(_, value []byte) error { _, err := format.DecodeCursor(value); return err },
		format.KeyDeadLetter: func(key, value []byte) error { return isNote(key, value, new(format.DeadLetter)) },
		format.KeyGap:        func(key, value []byte) error { return isNote(key, value, new(format.Gap)) },
		format.KeyTouched:    func(key, value []byte) error { _, err := format.DecodeTouched(key, value); return err },
		format.KeyClaim: func(key, value []byte) error {
			if len(key) != 1+16 {
				return errors.New("its key is malformed")
			}
			return json.Unmarshal(value, new(format.ClaimRow))
		},
	} {
		err := v.scan([]byte{keyspace}, func(key, value []byte) error {
			if err := check(key, value); err != nil {
				v.broken("%s %x: %v", format.KeyspaceOf(key), key, err)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	_, err := read.Hidden(v.r)
	_, holes := read.Holes(v.r, 0)
	_, past := read.Backfill(v.r, 0)
	_, lacking := read.JSON[map[string]format.Lack](v.r, format.KeyLacking)
	if err := cmp.Or(err, holes, past, lacking); err != nil {
		return v.malformed(err)
	}
	return v.scan(format.KeyHiding, func(key, value []byte) error {
		var h format.Hiding
		if err := json.Unmarshal(value, &h); err != nil || byte(h.Version) != key[len(key)-1] {
			v.broken("changes of the hidden accounts %x: %x", key, value)
		}
		return nil
	})
}

func isNote(key, value []byte, note any) error {
	if len(key) < 13 {
		return errors.New("its key is malformed")
	}
	return json.Unmarshal(value, note)
}

// pass is what reads the store, and reports what is wrong.
type pass struct {
	r        kv.Reader
	report   func(string)
	progress *progressed
}

func (v *pass) broken(format string, args ...any) { v.report(fmt.Sprintf(format, args...)) }

// scan calls check with the rows under a prefix, and counts them.
func (v *pass) scan(prefix []byte, check func(key, value []byte) error) error {
	err := kv.ScanPrefix(v.r, prefix, func(key, value []byte) error {
		v.progress.tick()
		return check(key, value)
	})
	if err != nil {
		return fmt.Errorf("checking the %s: %w", format.KeyspaceOf(prefix), err)
	}
	return nil
}

// progressed counts keys.
type progressed struct {
	keys atomic.Int64

	mu   sync.Mutex // held during tell
	tell func(keys int64)
}

func (p *progressed) tick() {
	const often = 65536
	if n := p.keys.Add(1); n%often == 0 && p.tell != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tell(n)
	}
}

// keyspaces looks for keys in unknown keyspaces.
func (v *checker) keyspaces() error {
	for lo := []byte{0}; ; {
		var key []byte
		if err := v.r.Scan(lo, nil, false, func(k, _ []byte) (bool, error) { key = bytes.Clone(k); return false, nil }); err != nil {
			return err
		}
		if key == nil {
			return nil
		}
		if format.KeyspaceOf(key) == "unknown" {
			v.broken("key %x is in an unknown keyspace", key)
		}
		if lo = kv.PrefixEnd(key[:1]); lo == nil {
			return nil
		}
	}
}

func (v *checker) eraseJob(k, _ []byte) error {
	id, err := format.ParseActorKey(k)
	if err != nil {
		v.broken("%v", err)
		return nil
	}
	v.erasing[id] = true
	return nil
}

func (v *checker) resync(k, value []byte) error {
	id, err := format.ParseActorKey(k)
	if err == nil {
		v.resyncs[id] = true
		_, err = format.FromJSON[format.Resync](value)
	}
	if err != nil {
		v.broken("%v", err)
	}
	return nil
}

// accounts checks a group of accounts.
func (v *checker) accounts(k, value []byte) error {
	if err := v.EachState(k, value, func(id dict.ID, st format.RepoState) error {
		v.counts.Accounts++
		v.counts.Move(&format.RepoState{}, &st)
		if st.Has(format.FlagHidden) {
			v.hidden.Add(uint64(id))
		}
		if st.Has(format.FlagRecords) {
			v.recorded.Add(uint64(id))
		}
		if v.erasing[id] {
			v.erasable++
		}
		if st.Has(format.FlagErasing) != v.erasing[id] {
			v.broken("account %d: its state has erasing=%v, an erase job exists: %v", id, st.Has(format.FlagErasing), v.erasing[id])
		}
		if st.Has(format.FlagResync) != v.resyncs[id] {
			v.broken("account %d: its state has queued=%v, the resync queue has it: %v", id, st.Has(format.FlagResync), v.resyncs[id])
		}
		delete(v.resyncs, id)
		for i, n := range st.Records {
			if n > 0 {
				v.inStates.addNumbers(0, uint64(i+1), uint64(id), uint64(n))
			}
		}
		v.named(dict.DID, id, "account")
		return nil
	}); err != nil {
		v.unreadable = true
		v.broken("%v", err)
	}
	_ = format.EachAccount(value, func(_ byte, row []byte) (bool, error) { // an error was reported
		if st, err := format.DecodeRepoState(row); err == nil && !bytes.Equal(st.Append(nil), row) {
			v.broken("accounts %x: the state %x is not in canonical form", k, row)
		}
		return true, nil
	})
	return nil
}

// named checks that an id has a string.
func (v *checker) named(ns dict.Namespace, id dict.ID, what string) {
	if !v.dictionary.known[ns].Contains(uint64(id)) {
		v.broken("%s %d has no string", what, id)
	}
}

// totals compares the counts.
func (v *checker) totals() error {
	if v.damage.any() {
		v.broken("the dictionary, the edges and the counts were not compared: a part of the store is damaged")
		return nil
	}
	stored, err := read.Counts(v.r)
	if err != nil {
		return v.malformed(err)
	}
	for i := range v.kinds.All { // a kind without records may have no count
		stored.Records[v.kinds.All[i].Name] += 0
		v.counts.Records[v.kinds.All[i].Name] += 0
	}
	if got, want := fmt.Sprintf("%+v", stored), fmt.Sprintf("%+v", v.counts); got != want {
		v.broken("the counts are %s, the store has %s", got, want)
	}
	return nil
}
