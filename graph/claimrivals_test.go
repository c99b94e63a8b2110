package graph

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// TestShardsOfClaims: the writers of two partitions may draw ids from the same shards or from disjoint
// ones, but not from overlapping ranges.
func TestShardsOfClaims(t *testing.T) {
	ranges := func(first, last uint32) *dict.ShardRange { return &dict.ShardRange{First: first, Last: last} }
	for name, test := range map[string]struct {
		one, two *dict.ShardRange
		overlap  bool
	}{
		"all and all":       {nil, nil, false},
		"all and some":      {nil, ranges(0, 9), false},
		"some and all":      {ranges(0, 9), nil, false},
		"the same":          {ranges(0, 9), ranges(0, 9), false},
		"neighbours":        {ranges(0, 9), ranges(10, 19), false},
		"disjoint, swapped": {ranges(10, 19), ranges(0, 9), false},
		"one shared shard":  {ranges(0, 10), ranges(10, 19), true},
		"from below":        {ranges(10, 19), ranges(0, 10), true},
		"within":            {ranges(0, 99), ranges(10, 19), true},
		"around":            {ranges(10, 19), ranges(0, 99), true},
		"the same end":      {ranges(0, 99), ranges(10, 99), true},
	} {
		store := open(memkv.Faults{})
		o := options("one", 0, 2, beat)
		o.Shards = test.one
		take(t, store, o)
		o = options("two", 2, 4, patient)
		o.Shards = test.two
		if test.overlap {
			refused(t, store, o, "overlap those of one", test.one.String(), test.two.String())
			continue
		}
		if c, err := takeClaim(t.Context(), store, o); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if err := c.close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestClaimGivenUp: takeClaim does not wait any longer once the rival gives up its claim.
func TestClaimGivenUp(t *testing.T) {
	store := open(memkv.Faults{})
	first, err := takeClaim(t.Context(), store, options("first", 0, 4, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	log := make(messages, 10)
	o := options("second", 3, 8, 300*time.Millisecond)
	o.Logger = slog.New(log)
	closed := make(chan error)
	go func() {
		<-log // watching has begun
		closed <- first.close(context.Background())
	}()
	start := time.Now()
	take(t, store, o)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took >= 4*o.Beat {
		t.Errorf("takeClaim waited for %v", took)
	}
	if got := owners(t, store); got != "second3 second4 second5 second6 second7" {
		t.Errorf("owners %s", got)
	}
}

// TestAnotherClaimed: a writer that appears while another is watched is alive.
func TestAnotherClaimed(t *testing.T) {
	store := open(memkv.Faults{})
	take(t, store, options("silent", 0, 1, time.Hour))
	log := make(messages, 10)
	o := options("second", 0, 4, 200*time.Millisecond)
	o.Logger = slog.New(log)
	go func() {
		<-log
		if _, err := takeClaim(context.WithoutCancel(t.Context()), store, options("third", 2, 3, time.Hour)); err != nil {
			t.Error(err)
		}
	}()
	refused(t, store, o, "partition 2 is written by third", "it is alive")
	if got := owners(t, store); got != "silent0 third2" {
		t.Errorf("owners %s", got)
	}
}

// racing is a store in which another writer claims before the first write.
type racing struct {
	kv.Store

	before func()
}

func (r *racing) Update(ctx context.Context, fn func(kv.Txn) error) error {
	if before := r.before; before != nil {
		r.before = nil
		before()
	}
	return r.Store.Update(ctx, fn)
}

// TestRacingClaims: if two writers find the partitions free at the same time, one gets them.
func TestRacingClaims(t *testing.T) {
	store := open(memkv.Faults{})
	refused(t, &racing{store, func() { take(t, store, options("quick", 5, 7, beat)) }}, options("slow", 0, 8, beat), "partition 5 was just taken by quick")
	if got := owners(t, store); got != "quick5 quick6" {
		t.Errorf("owners %s", got)
	}
}

// TestClaimingStopped: a writer that is stopped while it waits returns the cause, and claims nothing.
func TestClaimingStopped(t *testing.T) {
	store := open(memkv.Faults{})
	take(t, store, options("silent", 0, 4, time.Hour))
	why := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	log := make(messages, 10)
	o := options("second", 0, 4, 0) // 0 means a second
	o.Logger = slog.New(log)
	go func() {
		if text := <-log; !strings.Contains(text, "for=4s") {
			t.Errorf("the log says %q", text)
		}
		cancel(why)
	}()
	if _, err := takeClaim(ctx, store, o); !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
	if got := owners(t, store); got != "silent0 silent1 silent2 silent3" {
		t.Errorf("owners %s", got)
	}
	// A claim outlives the context that it was taken with.
	ctx, cancel = context.WithCancelCause(t.Context())
	c, err := takeClaim(ctx, store, options("third", 4, 5, beat))
	if err != nil {
		t.Fatal(err)
	}
	before := rows(t, store, format.KeyHeartbeat)
	cancel(why)
	eventually(t, "it does not beat", func() bool { return !maps.Equal(rows(t, store, format.KeyHeartbeat), before) })
	if err := c.close(context.WithoutCancel(ctx)); err != nil {
		t.Error(err)
	}
}

// TestClaimsGone: a writer that lost some of its claims cannot write. The error has their
// number.
func TestClaimsGone(t *testing.T) {
	store := open(memkv.Faults{})
	c := take(t, store, options("a", 4, 8, time.Hour))
	for n := 1; n <= 4; n++ {
		gone := uint8(8 - n)
		if err := store.Update(t.Context(), func(tx kv.Txn) error { tx.Delete(format.ClaimKey(gone)); return nil }); err != nil {
			t.Fatal(err)
		}
		want := string(rune('0'+n)) + " of the 4 claims of this writer are gone"
		if err := checked(t, store, c); !errors.Is(err, ErrClaimed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestWriteUnderWay: a takeover conflicts with a write that is under way. The write fails with
// ErrClaimed and changes nothing.
func TestWriteUnderWay(t *testing.T) {
	store := open(memkv.Faults{})
	old := take(t, store, options("old", 0, 4, time.Hour))
	attempts := 0
	err := store.Update(t.Context(), func(tx kv.Txn) error {
		if err := old.check(tx); err != nil {
			return err
		}
		if attempts++; attempts == 1 {
			take(t, store, options("new", 3, 4, beat))
		}
		tx.Set([]byte("written"), nil)
		return nil
	})
	if !errors.Is(err, ErrClaimed) || attempts != 1 {
		t.Errorf("%v, after %d attempts", err, attempts)
	}
	if n := len(rows(t, store, 'w')); n != 0 {
		t.Error("the write was committed")
	}
}

// TestBeatNoConflict: a writer's heartbeat does not conflict with its writes.
func TestBeatNoConflict(t *testing.T) {
	store := open(memkv.Faults{})
	c := take(t, store, options("a", 0, 64, time.Millisecond))
	for range 20 {
		attempts := 0
		if err := store.Update(t.Context(), func(tx kv.Txn) error {
			attempts++
			if err := c.check(tx); err != nil {
				return err
			}
			before := rows(t, store, format.KeyHeartbeat)
			eventually(t, "it does not beat", func() bool { return !maps.Equal(rows(t, store, format.KeyHeartbeat), before) })
			tx.Set([]byte("written"), nil)
			return nil
		}); err != nil || attempts != 1 {
			t.Errorf("%d attempts: %v", attempts, err)
		}
	}
}

// TestMalformedClaims: every reader of a malformed row returns an error, and does not take the
// partition for free.
func TestMalformedClaims(t *testing.T) {
	good, err := json.Marshal(format.ClaimRow{Token: []byte("t"), Owner: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		key   string
		value string
		says  string
	}{
		"no JSON":         {"p\x01", "{", "claim 7001 is malformed"},
		"another type":    {"p\x01", `{"token":5}`, "claim 7001 is malformed"},
		"empty":           {"p\x01", "", "claim 7001 is malformed"},
		"a key too long":  {"p\x01\x02", string(good), "the key of claim 700102 is malformed"},
		"an invalid time": {"p\x02", `{"since":"yesterday"}`, "claim 7002 is malformed"},
	} {
		store := open(memkv.Faults{})
		c := take(t, store, options("a", 0, 4, time.Hour))
		write := func(value func(kv.Txn)) {
			if err := store.Update(t.Context(), func(tx kv.Txn) error { value(tx); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		was := rows(t, store, format.KeyClaim)
		write(func(tx kv.Txn) { tx.Set([]byte(test.key), []byte(test.value)) })
		_, took := takeClaim(t.Context(), store, options("b", 0, 4, beat))
		_, beside := takeClaim(t.Context(), store, options("b", 8, 9, beat))
		listed := store.View(t.Context(), func(r kv.Reader) error { _, err := Writers(r); return err })
		for i, err := range []error{took, beside, listed, checked(t, store, c)} {
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %d: %v, want %q", name, i, err, test.says)
			}
		}
		write(func(tx kv.Txn) {
			tx.Delete([]byte(test.key))
			for part, value := range was {
				tx.Set([]byte("p"+part), []byte(value))
			}
		})
		if err := checked(t, store, c); err != nil {
			t.Errorf("%s, repaired: %v", name, err)
		}
	}
}

// TestWriters: Writers lists the owners of claims, and which of them are alive. An owner with
// several claims is alive if one of its heartbeats is recent.
func TestWriters(t *testing.T) {
	store := open(memkv.Faults{})
	ago := func(d time.Duration) []byte {
		return binary.BigEndian.AppendUint64(nil, uint64(time.Now().Add(-d).UnixMilli()))
	}
	if err := store.Update(t.Context(), func(tx kv.Txn) error {
		for i, c := range []struct {
			owner string
			beat  []byte // nil for none
		}{
			{"now", ago(0)},
			{"a while ago", ago(6 * time.Second)},
			{"long ago", ago(10 * time.Second)},
			{"ahead", ago(-time.Minute)}, // another machine's clock
			{"never", nil},
			{"cut", []byte{1, 2, 3}},
			{"restarted", ago(time.Hour)},
			{"restarted", ago(0)},
			{"dying", ago(0)},
			{"dying", ago(time.Hour)},
		} {
			token := []byte{byte(i)}
			v, err := json.Marshal(format.ClaimRow{Token: token, Owner: c.owner})
			if err != nil {
				return err
			}
			tx.Set(format.ClaimKey(uint8(i*2)), v)
			if c.beat != nil {
				tx.Set(format.HeartbeatKey(token), c.beat)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"now": true, "a while ago": true, "long ago": false, "ahead": true, "restarted": true, "dying": true}
	var got map[string]bool
	if err := store.View(t.Context(), func(r kv.Reader) (err error) { got, err = Writers(r); return err }); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, want %v: %v", got, want, err)
	}
	// A running writer is alive.
	store = open(memkv.Faults{})
	take(t, store, options("a", 0, 64, beat))
	if err := store.View(t.Context(), func(r kv.Reader) (err error) { got, err = Writers(r); return err }); err != nil || !maps.Equal(got, map[string]bool{"a": true}) {
		t.Errorf("%v: %v", got, err)
	}
}
