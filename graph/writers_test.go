package graph

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
)

// follow makes a node watch the store's writers, whose partitions are four.
func follow(t *testing.T, conn *connection) (node *core, unwritten func(after time.Duration, want string)) {
	t.Helper()
	node = &core{kv: conn, layout: format.Layout{Settings: dict.Settings{ShardBits: 8, LeaseSize: 256, Partitions: 4}}, o: Options{Beat: time.Second, Logger: writer(nil, "", 0).log}, watch: writer(conn, "", time.Second).watch}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- node.FollowWriters(ctx) }()
	t.Cleanup(func() {
		if stop(); <-done != nil {
			t.Error("it failed")
		}
	})
	return node, func(after time.Duration, want string) {
		t.Helper()
		time.Sleep(after)
		synctest.Wait()
		if got := fmt.Sprintf("%04b, %d %%", node.Unwritten().Parts, node.Unwritten().Percent()); got != want {
			t.Errorf("unwritten: %s, want %s", got, want)
		}
	}
}

// TestUnwritten: a node knows within six seconds that a writer is dead, at once that one has stopped or was taken over in part, and
// within a second that there is another. Stalls of the store kill nobody, and revive nobody.
func TestUnwritten(t *testing.T) {
	bubble(t, func(t *testing.T, store *memkv.Store) {
		theirs := &connection{Store: store}
		a, b := joining(theirs, "a", time.Second), joining(theirs, "b", time.Second)
		ours := &connection{Store: store}
		_, unwritten := follow(t, ours)
		unwritten(0, "1111, 100 %")
		for _, c := range []*claim{a, b} {
			must(t, c.take(t.Context()))
		}
		unwritten(1500*time.Millisecond, "0000, 0 %")
		moved(t, a, 3)
		unwritten(1500*time.Millisecond, "1100, 50 %")
		moved(t, b, 12)
		unwritten(1500*time.Millisecond, "0000, 0 %")
		unwritten(time.Minute, "0000, 0 %")

		b.stop()
		b.stopped.Wait()
		unwritten(3*time.Second, "0000, 0 %")
		unwritten(3*time.Second, "1100, 50 %")
		theirs.stall(22*time.Second, 22*time.Second)
		unwritten(1500*time.Millisecond, "1100, 50 %")
		ours.stall(20*time.Second, 20*time.Second)
		unwritten(20200*time.Millisecond, "1100, 50 %") // a could not beat, and b is as dead as before
		unwritten(10*time.Second, "1100, 50 %")
		ours.setAway(true)
		theirs.stall(9*time.Second, 9*time.Second)
		time.Sleep(9 * time.Second)
		ours.setAway(false)
		unwritten(3*time.Second, "1100, 50 %")

		c := take(t, joining(store, "c", time.Second))
		for !c.isDue() { // it did not know b
			must(t, c.look(t.Context()))
			time.Sleep(time.Second)
		}
		moved(t, c, 12)
		unwritten(1500*time.Millisecond, "0000, 0 %")
		_, ofAnother := follow(t, &connection{Store: store})
		ofAnother(0, "1111, 100 %") // it has heard none of them
		ofAnother(1500*time.Millisecond, "0000, 0 %")
		must(t, a.close(t.Context()))
		unwritten(1500*time.Millisecond, "0011, 50 %")
		c.stop()
		c.stopped.Wait()
		unwritten(6*time.Second, "1111, 100 %")
	})
}

// TestUnwrittenAccounts: an account is unwritten if its partition is, whether it has an id or not.
func TestUnwrittenAccounts(t *testing.T) {
	node := &core{layout: format.Layout{Settings: sharedForTests}}
	for part := range sharedForTests.Partitions {
		node.unwritten.Store(1 << part)
		for i := range 100 {
			did := fmt.Sprintf("did:plc:a%d", i)
			id := dict.ID(uint64(i+1) << 32) // of shard i+1
			if got := node.Unwritten().Has(did, dict.None); got != (sharedForTests.PartitionOf([]byte(did)) == part) {
				t.Errorf("%s of partition %d: %v", did, part, got)
			}
			if got := node.Unwritten().Has(did, id); got != (sharedForTests.PartitionOfID(id) == part) {
				t.Errorf("%d of partition %d: %v", id, part, got)
			}
		}
	}
	node.unwritten.Store(0)
	if u := node.Unwritten(); u.Percent() != 0 || u.Has("did:plc:a1", dict.None) {
		t.Errorf("%+v", u)
	}
	node.unwritten.Store(1)
	if u := node.Unwritten(); u.Percent() != 13 {
		t.Errorf("an eighth is %d %%", u.Percent())
	}
}

var sharedForTests = dict.Settings{ShardBits: 8, LeaseSize: 256, Partitions: 8}
