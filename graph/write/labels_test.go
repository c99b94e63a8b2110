package write_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/ask"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/graph/read"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sets"
	"skein.blue/internal/sim/memkv"
)

// labelTwin is what the store should have, in plain maps: all statements of all labelers, in the order of
// their arrival.
type labelTwin struct {
	said map[[3]string][]batch.Label // by labeler, value and subject
}

// times returns the times of a subject's live labels. It goes through every statement that ever arrived.
func (m *labelTwin) times(of [3]string, now int64) (times []int64) {
	current := map[string]batch.Label{} // by version
	canceled := int64(0)                // the newest negation of all versions
	for _, l := range m.said[of] {
		if old, known := current[l.CID]; !known || l.Time >= old.Time {
			current[l.CID] = l
		}
		if l.CID == "" && l.Negated {
			canceled = max(canceled, l.Time)
		}
	}
	for _, l := range current {
		if l.CID != "" && l.Time <= canceled {
			continue
		}
		if !l.Negated && (l.Expires == 0 || l.Expires > now) {
			times = append(times, l.Time)
		}
	}
	return times
}

// TestLabels writes random histories of labels: given, taken back, of versions, expiring, out of order,
// twice, through spills and crashes, beside accounts that come and go. The sets, windows and dates equal a
// twin's, and check finds nothing.
func TestLabels(t *testing.T) {
	for processes, settings := range settings {
		for seed := range uint64(3) {
			t.Run(fmt.Sprintf("%s/%d", processes, seed), func(t *testing.T) { testLabels(t, settings, seed) })
		}
	}
}

func testLabels(t *testing.T, settings dict.Settings, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 26))
	store := memkv.Open(faulty(seed))
	o := graph.Options{Intern: intern.Options{Settings: settings, CacheBytes: 64 << 10, Owner: "test"}, StateCache: 4 << 10, Beat: 20 * time.Millisecond}
	s := open(t, store, o)
	var labelers, subjects []string
	for i := range 3 {
		labelers = append(labelers, "did:plc:"+strings.Repeat("l", 23)+string(rune('a'+i)))
	}
	for i := range 200 {
		did := "did:plc:" + strings.Repeat("a", 22) + string(rune('a'+i/26)) + string(rune('a'+i%26))
		subjects = append(subjects, did, fmt.Sprintf("at://%s/app.bsky.feed.post/%s", did, dict.AppendTID(nil, uint64(i+1)<<40)))
	}
	values := []string{"spam", "!hide", "with space, comma"}
	cids := []string{"", "", "", "bafyA", "bafyB"}
	const second = 1_000_000
	const begin = int64(1_700_000_000) * second
	now, sure := begin, 0 // sure: members whose dates were read
	twin := labelTwin{map[[3]string][]batch.Label{}}
	states := map[string]format.Labeler{}
	for _, l := range labelers {
		states[l] = format.Labeler{Name: l, DID: l}
	}
	say := func(labeler string, labels []batch.Label) {
		before := states[labeler]
		after := before
		after.Seq++
		after.Time = time.UnixMicro(now).UTC()
		must(t, s.ApplyLabels(t.Context(), time.UnixMicro(now), labels, before, after))
		states[labeler] = after
		for _, l := range labels {
			of := [3]string{l.Labeler, l.Value, l.Subject}
			twin.said[of] = append(twin.said[of], l)
		}
	}
	said := map[string][]batch.Label{}
	hidden := map[string]bool{}
	var seq format.Seq
	compare := func() {
		t.Helper()
		err := s.View(t.Context(), func(sn *ask.View) error {
			for _, labeler := range labelers {
				for _, value := range values {
					for _, k := range []kinds.Kind{kinds.LabeledAccount, kinds.LabeledRecord} {
						from := now - rng.Int64N(1+now-begin)
						w := read.WindowOf(from, from+int64(rng.IntN(100))*second)
						var want, wantIn []string
						for _, subject := range subjects {
							isDID := !strings.HasPrefix(subject, "at://")
							if isDID != (k == kinds.LabeledAccount) || hidden[subject] {
								continue
							}
							times := twin.times([3]string{labeler, value, subject}, now)
							if len(times) > 0 {
								want = append(want, subject)
							}
							if slices.ContainsFunc(times, func(at int64) bool { return w.Has(format.Path{TID: uint64(at) << format.ClockBits}) }) {
								wantIn = append(wantIn, subject)
							}
						}
						slices.Sort(want)
						slices.Sort(wantIn)
						name := kinds.LabelSet(labeler, value)
						got, err := members(sn, k.Members(), func(id dict.ID) (sets.Set, error) { return actors(sn, k, id) }, dict.URI, name)
						if err != nil {
							return err
						}
						if !slices.Equal(got, want) {
							return fmt.Errorf("%s, kind %d: %d members, want %d: %q, want %q", name, k, len(got), len(want), got, want)
						}
						got, err = members(sn, k.Members(), func(id dict.ID) (sets.Set, error) {
							in, unsure, err := sn.DatedIn(k, id, w)
							sure += int(in.Len())
							if err != nil {
								return in, err
							}
							found, err := sn.ActorsIn(k, id, w, unsure)
							return sets.Or(in, found), err
						}, dict.URI, name)
						if err != nil {
							return err
						}
						if !w.All() && !slices.Equal(got, wantIn) {
							return fmt.Errorf("%s, kind %d, window %v: %q, want %q", name, k, w, got, wantIn)
						}
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		all, err := s.Labelers(t.Context())
		must(t, err)
		for _, l := range all {
			if l != states[l.Name] {
				t.Fatalf("the state of %s is %+v, want %+v", l.Name, l, states[l.Name])
			}
		}
		verify(t, store)
	}
	for step := range 400 {
		now += int64(rng.IntN(2 * second))
		labeler := labelers[rng.IntN(len(labelers))]
		var labels []batch.Label
		for range rng.IntN(40) {
			l := batch.Label{Labeler: labeler, Subject: subjects[rng.IntN(len(subjects))], Value: values[rng.IntN(len(values))]}
			l.LabelEntry = format.LabelEntry{CID: cids[rng.IntN(len(cids))], Time: now - int64(rng.IntN(3*second)), Negated: rng.IntN(3) == 0}
			switch rng.IntN(8) {
			case 0:
				l.Time -= 10 * second // it comes late
			case 1, 2:
				if !l.Negated {
					l.Expires = now - 2*second + int64(rng.IntN(20*second))
				}
			}
			labels = append(labels, l)
		}
		say(labeler, labels)
		if said[labeler] = append(said[labeler], labels...); rng.IntN(25) == 0 { // the labeler sends the last again
			say(labeler, slices.Clone(said[labeler][rng.IntN(len(said[labeler])+1):]))
		}
		for more := true; more; {
			var err error
			more, err = s.ExpireLabels(t.Context(), time.UnixMicro(now))
			must(t, err)
		}
		switch rng.IntN(30) {
		case 0:
			store = store.Reopen(faulty(uint64(store.Counts().Commits)))
			s = open(t, store, o)
		case 1: // the stream gives some accounts another state
			var b batch.Batch
			for range 5 {
				did := subjects[2*rng.IntN(len(subjects)/2)]
				seq++
				hidden[did] = rng.IntN(2) == 0
				b.AddAccount(seq, []byte(did), !hidden[did], false)
				b.Seen(seq, nil)
			}
			apply(t, s, "relay", &b)
		}
		if step%40 == 39 {
			compare()
		}
	}
	if sure < 100 {
		t.Errorf("seed %d: %d members had dates", seed, sure)
	}
}

// Labels that expire together are divided if one write is too small for them, and each write lets others in
// between.
func TestManyLabelsExpire(t *testing.T) {
	o := faulty(1)
	o.Limits.Txn, o.Faults = 20_000, memkv.Faults{}
	store := memkv.Open(o)
	s := open(t, store, graph.Options{})
	state := format.Labeler{Name: "did:web:l.example.com", DID: "did:web:l.example.com"}
	at := time.Unix(1_700_000_000, 0)
	var labels []batch.Label
	for i := range 3000 {
		l := batch.Label{Labeler: state.DID, Subject: fmt.Sprintf("did:web:n%d.example.com", i%7), Value: fmt.Sprint("value", i/7)}
		l.Time, l.Expires = at.UnixMicro(), at.Add(time.Hour).UnixMicro()
		labels = append(labels, l)
	}
	must(t, s.ApplyLabels(t.Context(), at, labels, state, state))
	writes := 0
	for more := true; more; writes++ {
		var err error
		more, err = s.ExpireLabels(t.Context(), at.Add(2*time.Hour))
		must(t, err)
	}
	if writes < 4 {
		t.Errorf("3000 labels expired in %d writes", writes)
	}
	must(t, s.View(t.Context(), func(sn *ask.View) error {
		left, err := members(sn, dict.DID, func(id dict.ID) (sets.Set, error) { return actors(sn, kinds.LabeledAccount, id) }, dict.URI, kinds.LabelSet(state.DID, "value1"))
		if len(left) > 0 {
			t.Errorf("%q have an expired label", left)
		}
		return err
	}))
	verify(t, store)
}
