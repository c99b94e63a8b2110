package graph

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// A busy store has no time for what can wait until it is released, and counts what is urgent, and what is not.
type busy struct {
	kv.Store

	mu          sync.Mutex
	urgent, not int
	release     chan struct{}
}

func (b *busy) count(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if kv.IsUrgent(ctx) {
		b.urgent++
	} else {
		b.not++
	}
}

// counted returns what was counted since the last call.
func (b *busy) counted() (urgent, not int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	urgent, not = b.urgent, b.not
	b.urgent, b.not = 0, 0
	return urgent, not
}

func (b *busy) View(ctx context.Context, fn func(kv.Reader) error) error {
	b.count(ctx)
	return b.Store.View(ctx, fn)
}

func (b *busy) Update(ctx context.Context, fn func(kv.Txn) error) error {
	b.count(ctx)
	return b.Store.Update(ctx, fn)
}

func (b *busy) ViewAcross(ctx context.Context, fn func(kv.Reader) error) (int, error) {
	select {
	case <-b.release:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	return b.Store.ViewAcross(ctx, fn)
}

// TestUrgent: claims, heartbeats, watching them, and cursors without data are urgent; data is not.
func TestUrgent(t *testing.T) {
	bubble(t, func(t *testing.T, store *memkv.Store) {
		b := &busy{Store: store}
		c := writer(b, "a", time.Second)
		must(t, c.take(t.Context()))
		ctx, stop := context.WithCancel(t.Context())
		node := &core{kv: b, o: Options{Beat: time.Second, Logger: slog.New(slog.DiscardHandler)}, watch: &watch{store: b, beat: time.Second}}
		node.layout.Settings = sharedForTests
		go func() { _ = node.FollowWriters(ctx) }()
		time.Sleep(10 * time.Second)
		stop()
		must(t, c.close(t.Context()))
		if urgent, not := b.counted(); urgent < 20 || not > 0 {
			t.Errorf("heartbeats: %d calls are urgent, %d not", urgent, not)
		}
		s, err := Open(t.Context(), b, Options{Intern: intern.Options{Settings: sharedForTests}, Beat: time.Hour})
		must(t, err)
		b.counted()
		must(t, s.SetLive(t.Context(), "relay", time.Now(), nil))
		if urgent, not := b.counted(); urgent != 1 || not > 0 {
			t.Errorf("a cursor: %d calls are urgent, %d not", urgent, not)
		}
		hideOne(t, s, "relay", 1) // which makes the other cursors
		b.counted()
		hideOne(t, s, "relay", 2)
		if urgent, not := b.counted(); urgent > 0 || not == 0 {
			t.Errorf("data: %d calls are urgent, %d not", urgent, not)
		}
		must(t, s.Close(t.Context()))
	})
}

// hideOne applies one event of a source.
func hideOne(t *testing.T, s *Store, source string, seq format.Seq) {
	t.Helper()
	var b batch.Batch
	b.AddAccount(seq, []byte("did:plc:a1"), seq%2 == 1, false)
	b.Seen(seq, nil)
	if err := s.Apply(t.Context(), source, &b); err != nil {
		t.Error(err)
	}
}

// TestPastWaits: while the engine has no time for what can wait, writes of the past wait, and hold nothing up.
func TestPastWaits(t *testing.T) {
	for _, settings := range []dict.Settings{dict.DefaultSettings, sharedForTests} {
		bubble(t, func(t *testing.T, store *memkv.Store) {
			b := &busy{Store: store, release: make(chan struct{})}
			s, err := Open(t.Context(), b, Options{Intern: intern.Options{Settings: settings}})
			must(t, err)
			var past sync.WaitGroup
			var done [2]bool
			for i, archived := range []bool{false, true} {
				past.Go(func() {
					var b batch.Batch
					source := ""
					if archived {
						source = "archive"
						b.AddArchived(1, []byte("did:plc:a2"), []byte("3kaaaaaaaaaaa"))
						b.Seen(1, nil)
					} else {
						b.AddResync([]byte("did:plc:a3"), batch.Cause{Reason: "test"})
					}
					if err := s.Apply(t.Context(), source, &b); err != nil {
						t.Error(err)
					}
					done[i] = true
				})
			}
			synctest.Wait()
			hideOne(t, s, "relay", 1)
			if done[0] || done[1] {
				t.Errorf("the past did not wait: %v", done)
			}
			close(b.release)
			past.Wait()
			must(t, s.Close(t.Context()))
		})
	}
}
