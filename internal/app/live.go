package app

import (
	"context"

	"skein.blue/consumer"
	"skein.blue/internal/page"
)

// diskEvery is how many samples share one measurement of the store's size on disk.
const diskEvery = 10

// sampler returns a function that takes the samples shown on the page. c is nil on a query node.
func (x *Index) sampler(version string, c *consumer.Consumer) func(context.Context) (page.Sample, error) {
	n := 0
	var disk uint64
	return func(ctx context.Context) (page.Sample, error) {
		if n%diskEvery == 0 {
			disk = x.KV.DiskBytes()
		}
		n++
		edges, counts, cursors, err := x.state(ctx)
		if err != nil {
			return page.Sample{}, err
		}
		s := page.Sample{Version: version, Engine: x.KV.Engine(), State: "off", Disk: disk, Edges: edges, Counts: counts}
		applied, _ := x.Graph.Events()
		s.Events = applied
		source := ""
		if c != nil {
			st := c.Status()
			source, s.State = c.Source(), string(st.State)
			if st.HasLag {
				s.Lag = new(st.Lag.Seconds())
			}
		}
		for _, cur := range cursors {
			if cur.Source == source || source == "" && (s.CursorTime == nil || cur.Time.After(*s.CursorTime)) {
				s.Cursor, s.CursorTime = new(int64(cur.Seq)), &cur.Time
			}
		}
		if x.Backfill != nil {
			waiting, _ := x.Backfill.Queue()
			s.Waiting = &waiting
			if a, ok := x.Backfill.Audits(); ok {
				s.Audited, s.Differences = &a.Repos, a.Differences
			}
		}
		return s, nil
	}
}
