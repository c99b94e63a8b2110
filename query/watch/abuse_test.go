package watch

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"skein.blue/graph/write"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// countedStore counts the cost of reads: the bytes, and lookUp for each key that is looked up.
type countedStore struct {
	kv.Store

	read int
	on   func() // called after each read
}

const lookUp = 512

func (s *countedStore) count(n int) {
	s.read += n
	if s.on != nil {
		s.on()
	}
}

func (s *countedStore) View(ctx context.Context, fn func(kv.Reader) error) error {
	return s.Store.View(ctx, func(r kv.Reader) error { return fn(countedReader{r, s}) })
}

type countedReader struct {
	kv.Reader

	s *countedStore
}

func (r countedReader) Get(key []byte) ([]byte, bool, error) {
	v, ok, err := r.Reader.Get(key)
	r.s.count(lookUp + len(v))
	return v, ok, err
}

func (r countedReader) MultiGet(keys [][]byte, each func(i int, value []byte, ok bool) error) error {
	return r.Reader.MultiGet(keys, func(i int, v []byte, ok bool) error {
		r.s.count(lookUp + len(v))
		return each(i, v, ok)
	})
}

func (r countedReader) Scan(lo, hi []byte, reverse bool, each func(key, value []byte) (bool, error)) error {
	return r.Reader.Scan(lo, hi, reverse, func(k, v []byte) (bool, error) {
		r.s.count(lookUp/16 + len(v))
		return each(k, v)
	})
}

// newCounted returns a watched graph whose reads are counted.
func newCounted(t *testing.T) (*watched, *countedStore) {
	t.Helper()
	s := &countedStore{Store: memkv.Open(memkv.Options{Merger: write.NewMerger(write.Limits{}), Limits: memkv.Limits{Key: 1e4, Value: 1e8, Txn: 1e9, Age: time.Hour}})}
	return watchedOn(t, oracle.GraphOn(t, 1, 0, s)), s
}

// begun runs rounds until all subscriptions have begun, and receives their first messages.
func (w *watched) begun(subs ...*Subscriber) {
	w.t.Helper()
	for range 100 {
		w.round()
		if !slices.ContainsFunc(subs, func(s *Subscriber) bool { return s.Messages == nil }) {
			for _, s := range subs {
				<-s.Messages
			}
			return
		}
	}
	w.t.Fatal("some subscriptions have not begun after 100 rounds")
}

// A client watches hundreds of expressions over sets of hundreds of thousands of members, and
// changes all of them at once. That delays no other client: before another client's change is
// sent, only that client's sets are read, and a round is bounded.
func TestAbuseWatchedSets(t *testing.T) {
	const other, star, big = "did:web:other.example.com", "did:web:star.example.com", "did:web:big.example.com"
	members, subs := harness.Size(20_000, 200_000), harness.Size(60, 300)
	did := func(i int) string { return fmt.Sprintf("did:web:m%d.example.com", i) }
	list := func(i int) string { return fmt.Sprintf("at://%s/app.bsky.graph.list/%d", big, i) }
	many := func(from, n int) (all []string) {
		for i := range n {
			all = append(all, did(from+i))
		}
		return all
	}
	lists := func(w *watched) {
		var items []oracle.Op
		for i := range members {
			items = append(items, oracle.Op{Kind: oracle.ListItem, Rkey: w.Key(), Subject: did(i), List: list(i % subs)})
		}
		w.Commit(big, items...)
	}
	hide := func(w *watched) { w.Hide(big, true) }
	for name, attack := range map[string]struct {
		set             func(i int) string
		prepare, change func(w *watched)
	}{
		"an account that follows many is hidden": {
			func(i int) string { return fmt.Sprintf("union(follows(%s),members(did:web:x%d.example.com))", big, i) },
			func(w *watched) { w.PutMany(big, "follow", many(0, members)) }, hide,
		},
		"an author of many lists of many is hidden": {func(i int) string { return fmt.Sprintf("listed(%s)", list(i)) }, lists, hide},
		"an author of many lists of many adds to each": {
			func(i int) string { return fmt.Sprintf("listed(%s)", list(i)) }, lists,
			func(w *watched) {
				var items []oracle.Op
				for i := range subs {
					items = append(items, oracle.Op{Kind: oracle.ListItem, Rkey: w.Key(), Subject: other, List: list(i)})
				}
				w.Commit(big, items...)
			},
		},
		"an account follows thousands at once": {
			func(i int) string {
				return fmt.Sprintf("except(follows(%s),followers(%s),listblockers(at://%s/app.bsky.graph.list/%d))", big, star, big, i)
			},
			func(w *watched) { w.PutMany(big, "follow", many(0, 10)) },
			func(w *watched) { w.PutMany(big, "follow", many(100, maxCandidates-100)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, store := newCounted(t)
			w.Put(other, "follow", did(1))
			w.Put(did(0), "follow", star)
			attack.prepare(w)
			victim := w.subscribe("victim", "followers("+star+")", "")
			all := []*Subscriber{victim}
			for i := range subs {
				all = append(all, w.subscribe("attacker", attack.set(i), ""))
			}
			w.begun(all...)
			attack.change(w)
			w.Put(other, "follow", star)
			start, before := time.Now(), store.read
			var notified time.Duration
			notifiedAt := 0
			look := func() {
				if notifiedAt == 0 && len(victim.Messages) > 0 {
					notified, notifiedAt = time.Since(start), store.read-before
				}
			}
			store.on = look
			w.round()
			look()
			store.on = nil
			took, read := time.Since(start), store.read-before
			harness.Figure(t, fmt.Sprintf("%s, %d members, %d subscriptions", name, members, subs), "the other client is notified after %v and %d KiB read; the round takes %v and reads %d KiB", notified.Round(time.Millisecond), notifiedAt>>10, took.Round(time.Millisecond), read>>10)
			if m := <-victim.Messages; len(m.Entered) != 1 || m.Entered[0] != other {
				t.Errorf("the other client receives %+v, want %s to enter", m, other)
			}
			if notifiedAt > lookupsPerRound*lookUp { // the strings of expressions are looked up first
				t.Errorf("the other client is notified after %d bytes were read, want at most %d", notifiedAt, lookupsPerRound*lookUp)
			}
			if most := clientBudget + 1<<20; read > most {
				t.Errorf("the round reads %d bytes, want at most %d for one client", read, most)
			}
			resets := 0
			for _, s := range all[1:] {
				select {
				case m := <-s.Messages:
					if m.Reset != "" {
						resets++
					} else if len(m.Entered)+len(m.Left) == 0 {
						t.Errorf("a subscriber receives the empty message %+v", m)
					}
				default:
					t.Error("a subscriber of a changed set receives no message")
				}
			}
			t.Logf("%d of %d subscriptions received a reset", resets, subs)
		})
	}
}

// The client that has spent less recently comes first, whatever it has to do now, and spending is
// forgotten over time.
func TestTurns(t *testing.T) {
	w, _ := newCounted(t)
	quiet := w.subscribe("quiet", "followers(did:web:a.example.com)", "")
	busy := w.subscribe("busy", "followers(did:web:b.example.com)", "")
	shared := []*Subscriber{w.subscribe("busy", "followers(did:web:c.example.com)", ""), w.subscribe("quiet", "followers(did:web:c.example.com)", "")}
	w.h.recordSpending([]*turn{{client: "busy", spent: 1 << 20}})
	todo := []task{{w: busy.w}, {w: quiet.w}, {w: shared[0].w}}
	order := w.h.turns(todo)
	slices.SortFunc(order, (*turn).order)
	if len(order) != 2 || order[0].client != "quiet" || len(order[0].todo) != 2 || order[1].todo[0].w != busy.w {
		t.Errorf("turns in the order %+v", order)
	}
	for range 20 {
		w.h.recordSpending(nil)
	}
	if len(w.h.spent) != 0 {
		t.Errorf("spending after twenty idle rounds: %v, want none", w.h.spent)
	}
}
