package app

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein/consumer"
	"skein/graph"
	"skein/internal/human"
	"skein/internal/kv"
)

// monitor registers how the store fares, where the engine can tell.
func (x *Index) monitor() {
	x.Registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_consumer_desynchronized_repos", Help: "Repos of which something was missed.",
		}, func() float64 { n, _ := x.Graph.Incomplete(); return float64(n) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_consumer_partial_repos", Help: "Repos whose past was never seen.",
		}, func() float64 { _, n := x.Graph.Incomplete(); return float64(n) }))
	m, ok := x.KV.(kv.Monitored)
	if !ok {
		return
	}
	x.Registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_store_free_bytes", Help: "Bytes that the disk of the store has left; 0 where that is not known.",
		}, func() float64 { n, _ := m.FreeBytes(); return float64(n) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "skein_store_disk_bytes", Help: "Bytes that the store takes on disk.",
		}, func() float64 { return float64(x.KV.DiskBytes()) }))
}

// state returns what the index holds, for a line of the log, or the page.
func (x *Index) state(ctx context.Context) (edges int64, counts graph.Counts, cursors []graph.Cursor, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err = x.Graph.View(ctx, func(s *graph.Snapshot) (err error) {
		if counts, err = s.Counts(); err == nil {
			cursors, err = s.Cursors()
		}
		return err
	})
	if err != nil { // it is only said less
		x.log.Debug("what the index holds cannot be read", "error", err)
	}
	for _, n := range counts.Records {
		edges += n
	}
	return edges, counts, cursors, err
}

// logStart says what was opened, and where it answers.
func (x *Index) logStart(version string, api, admin net.Addr) {
	edges, counts, cursors, _ := x.state(context.Background())
	args := []any{"version", version, "api", "http://" + api.String(), "admin", "http://" + admin.String(), "engine", x.KV.Engine(), "store", x.Path}
	if x.Graph.Made() {
		args = append(args, "found", "nothing: a new store was made")
	} else {
		args = append(args, "found", human.Count(edges)+" records of "+human.Count(counts.Accounts)+" accounts, "+human.Bytes(x.KV.DiskBytes())+" on disk")
	}
	if len(cursors) > 0 {
		args = append(args, cursorsAttr(cursors))
	}
	x.log.Info("answering", args...)
}

// cursorsAttr lists the cursors, by their sources.
func cursorsAttr(cursors []graph.Cursor) slog.Attr {
	var attrs []any
	for _, c := range cursors {
		attrs = append(attrs, slog.Int64(c.Source, int64(c.Seq)))
	}
	return slog.Group("cursors", attrs...)
}

// sayEvery is how often the log says what is being done.
var sayEvery = time.Minute

// logProgress says now and then what c is doing, until ctx ends.
func (x *Index) logProgress(ctx context.Context, c *consumer.Consumer) {
	go func() {
		ticker := time.NewTicker(sayEvery)
		defer ticker.Stop()
		was := c.Progress().Events
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			edges, counts, _, _ := x.state(ctx)
			st, events := c.Status(), c.Progress().Events
			args := []any{
				"state", string(st.State), "events_per_second", float64((events-was)*10/int64(max(1, sayEvery/time.Second))) / 10,
				"records", edges, "accounts", counts.Accounts, "disk", human.Bytes(x.KV.DiskBytes()),
			}
			if st.Cursor > 0 {
				args = append(args, "cursor", st.Cursor)
			}
			if st.HasLag {
				args = append(args, "lag", st.Lag.Round(time.Millisecond).String())
			}
			if counts.Desynchronized > 0 {
				args = append(args, "desynchronized", counts.Desynchronized)
			}
			x.log.Info("indexing", args...)
			was = events
		}
	}()
}
