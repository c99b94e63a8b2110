package graph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/internal/kv"
)

// defaultBeat is the interval of heartbeats. A writer that misses patience beats is dead.
const (
	defaultBeat = time.Second
	patience    = 4
)

// A watch follows the claims and the heartbeats of a store's writers, to tell which of them are alive. It compares no clocks.
// Silence counts only while our own reads succeed in time: if the store stalls, a healthy writer is silent, too. So watching
// starts again after a stall, and the write that takes over checks the heartbeat once more.
type watch struct {
	store kv.Store
	beat  time.Duration // the interval of heartbeats
	log   *slog.Logger

	mu     sync.Mutex // guards the fields below
	rivals map[string]rival
	last   time.Time // of the last look
}

// rival is a writer that is watched.
type rival struct {
	row   format.ClaimRow
	beat  []byte
	beats int       // how often its heartbeat changed since watching began
	heard time.Time // when that was last, or watching began again
	dead  bool      // the heartbeat stood still for too long at the last look
}

// alive is how many heartbeats say that a writer lives. One may still have been on its way to the store when the writer died.
const alive = 2

// changed reports whether the heartbeat is not the one that was seen.
func (v rival) changed(beat []byte) bool { return !bytes.Equal(v.beat, beat) }

// claims reads the claims of all writers, by token.
func claims(r kv.Reader) (map[string]format.ClaimRow, error) {
	rows := map[string]format.ClaimRow{}
	err := kv.ScanPrefix(r, []byte{format.KeyClaim}, func(k, v []byte) error {
		row, err := format.FromJSON[format.ClaimRow](v)
		if err != nil {
			return fmt.Errorf("claim %x is malformed: %w", k, err)
		}
		rows[string(k[1:])] = row
		return nil
	})
	return rows, err
}

// look reads the claims and the heartbeats.
func (w *watch) look(ctx context.Context) error {
	found := map[string]rival{}
	err := w.store.View(kv.Urgent(ctx), func(r kv.Reader) error {
		clear(found)
		rows, err := claims(r)
		for token, row := range rows {
			beat, _, failed := r.Get(format.HeartbeatKey([]byte(token)))
			found[token], err = rival{row: row, beat: bytes.Clone(beat)}, errors.Join(err, failed)
		}
		return err
	})
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Now()
	// By the monotonic clock. A shorter stall leaves a healthy writer enough time to beat, because it is watched for four beats.
	stalled := at.Sub(w.last) > 2*w.beat
	for token, v := range found {
		was, known := w.rivals[token]
		v.beats, v.heard = was.beats, was.heard
		switch {
		case !known && !w.last.IsZero(): // it came
			v.beats = alive
		case known && was.changed(v.beat):
			v.beats++
		}
		if !known || was.changed(v.beat) || !was.dead && stalled {
			v.heard = at
		}
		v.dead = at.Sub(v.heard) >= patience*w.beat
		found[token] = v
	}
	w.rivals, w.last = found, at
	return nil
}

// seen returns what is known of a writer as of the last look. One that came since is alive.
func (w *watch) seen(token string) rival {
	w.mu.Lock()
	defer w.mu.Unlock()
	if v, known := w.rivals[token]; known {
		return v
	}
	return rival{beats: alive}
}

// living returns the claims of the writers that were not dead at the last look.
func (w *watch) living() map[string]format.ClaimRow {
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := map[string]format.ClaimRow{}
	for token, v := range w.rivals {
		if !v.dead {
			rows[token] = v.row
		}
	}
	return rows
}

// Unwritten returns the partitions that no living writer had at the last look of FollowWriters.
func (s *core) Unwritten() ask.Unwritten {
	return ask.Unwritten{Parts: format.Partitions(s.unwritten.Load()), Settings: s.layout.Settings}
}

// FollowWriters watches the store's writers until ctx ends. A writer is dead if others would take its partitions over.
func (s *core) FollowWriters(ctx context.Context) error {
	for s.layout.Shared() && ctx.Err() == nil {
		if err := s.watch.look(ctx); err != nil {
			s.o.Logger.Debug("cannot read the writers' heartbeats", "error", err)
		} else {
			parts := format.AllPartitions(s.layout.Settings.Partitions)
			for token, row := range s.watch.living() {
				if s.watch.seen(token).beats > 0 { // one that this process has not heard may be dead
					parts &^= row.Parts
				}
			}
			s.unwritten.Store(uint64(parts))
			if s.o.Joins && s.claim != nil && s.claim.isDue() {
				select {
				case s.due <- struct{}{}:
				default: // it is known
				}
			}
		}
		_ = sleep(ctx, s.o.Beat)
	}
	return nil
}

// Due returns a channel that receives when Move would give up or take over partitions.
func (s *core) Due() <-chan struct{} { return s.due }
