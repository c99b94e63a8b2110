package backfill

import (
	"context"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/format"
)

// watchGaps compares all revs with what hosts say after a hole in the stream.
func (m *Manager) watchGaps(ctx context.Context) {
	const settle, every = 15 * time.Second, 5 * time.Second
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if hole := m.newestHole(ctx); !hole.IsZero() && time.Since(hole) > m.settle(settle) {
			m.compare(ctx, hole)
		}
		select {
		case <-ticker.C:
		case <-m.gaps:
		case <-ctx.Done():
			return
		}
	}
}

// lookForGaps has the gaps looked at now.
func (m *Manager) lookForGaps() {
	select {
	case m.gaps <- struct{}{}:
	default:
	}
}

func (m *Manager) settle(standard time.Duration) time.Duration {
	if m.o.Settle > 0 {
		return m.o.Settle
	}
	return standard
}

// newestHole returns when the newest hole in the stream was noticed that was not compared
// since, the zero time if there is none.
func (m *Manager) newestHole(ctx context.Context) (hole time.Time) {
	if m.o.Relay == "" {
		return hole
	}
	compared := m.o.Store.Backfill().Done[format.DoneComparison]
	gaps, err := m.readGaps(ctx)
	if err != nil {
		m.log.Error("the gaps could not be read", "error", err)
	}
	for _, g := range gaps {
		if g.Suspect && g.Time.After(compared) && g.Time.After(hole) && g.Reason != format.KindAdded {
			hole = g.Time
		}
	}
	return hole
}

func (m *Manager) readGaps(ctx context.Context) (gaps []format.Gap, err error) {
	err = m.o.Store.View(ctx, func(s *graph.Snapshot) (err error) { gaps, err = s.Gaps(); return err })
	return gaps, err
}

// compare begins to compare the revs of the relay's list with the index's. What the
// stream has not told by now, of what was before the hole was noticed, it will not tell.
func (m *Manager) compare(ctx context.Context, hole time.Time) {
	job := &listJob{hosts: map[string]format.HostBackfill{m.o.Relay: {}}, until: hole, whole: m.o.Store.Backfill().Whole()}
	if _, err := m.reserve(job); err != nil {
		return // when the other has ended
	}
	m.log.Info("after a hole in the stream, what the index has of each repo is compared with the relay's list", "noticed", hole.Format(time.RFC3339))
	m.beginList(ctx, job)
}
