package app

import (
	"context"

	"skein.blue/internal/page"
)

// diskEvery is how many samples share one measurement of the store's size on disk.
const diskEvery = 10

// sampler returns a function that takes the samples shown on the page.
func (s *server) sampler() func(context.Context) (page.Sample, error) {
	n := 0
	var disk uint64
	return func(ctx context.Context) (page.Sample, error) {
		if n%diskEvery == 0 {
			disk = s.KV.DiskBytes()
		}
		n++
		edges, counts, cursors, err := s.state(ctx)
		if err != nil {
			return page.Sample{}, err
		}
		s.fresh.note(cursors)
		now := page.Sample{Version: s.o.Version, Engine: s.KV.Engine(), State: "off", Disk: disk, Edges: edges, Counts: counts}
		applied, _ := s.Graph.Events()
		now.Events = applied
		if s.stream != nil {
			st := s.stream.Status()
			now.State = string(st.State)
			if st.HasLag {
				now.Lag = new(st.Lag.Seconds())
			}
		}
		for _, cur := range cursors {
			if cur.Source == s.source || s.source == "" && (now.CursorTime == nil || cur.Time.After(*now.CursorTime)) {
				now.Cursor, now.CursorTime = new(int64(cur.Seq)), &cur.Time
			}
		}
		if s.Backfill != nil {
			waiting, _ := s.Backfill.Queue()
			now.Waiting = &waiting
			if a, ok := s.Backfill.Audits(); ok {
				now.Audited, now.Differences = &a.Repos, a.Differences
			}
		}
		return now, nil
	}
}
