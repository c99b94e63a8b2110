package graph

import (
	"context"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
)

// Unwritten returns the partitions that no living writer had at the last look of FollowWriters.
func (s *core) Unwritten() ask.Unwritten {
	return ask.Unwritten{Parts: s.unwritten.Load(), Settings: s.layout.Settings}
}

// FollowWriters watches the heartbeats of the store's writers until ctx ends. A writer is dead if a claim would take its
// partitions over.
func (s *core) FollowWriters(ctx context.Context) error {
	all := claim{end: dict.MaxPartitions, beat: s.o.Beat}
	known, last := map[string]rival{}, time.Now()
	for s.shared() && ctx.Err() == nil {
		var found map[string]rival
		err := s.kv.View(kv.Urgent(ctx), func(r kv.Reader) (err error) { found, err = all.rivals(r); return err })
		if err == nil {
			at := time.Now()
			s.unwritten.Store(all.unwritten(s.layout.Settings.Partitions, known, found, last, at))
			known, last = found, at
		} else {
			s.o.Logger.Debug("cannot read the writers' heartbeats", "error", err)
		}
		_ = sleep(ctx, s.o.Beat)
	}
	return nil
}

// unwritten returns the partitions without a living writer, as bits, when the claims found at a time were known as of the last look.
func (c *claim) unwritten(partitions uint8, known, found map[string]rival, last, at time.Time) uint64 {
	parts := uint64(1)<<partitions - 1 // of 64, all
	for token, v := range found {
		was, isKnown := known[token]
		wasAlive := last.Sub(was.heard) < patience*c.beat
		if v.heard = was.heard; !isKnown || was.beats(v.beat) || wasAlive && c.stalled(last) {
			v.heard = at
		}
		if found[token] = v; len(v.beat) > 0 && at.Sub(v.heard) < patience*c.beat {
			parts &^= v.parts
		}
	}
	return parts
}
