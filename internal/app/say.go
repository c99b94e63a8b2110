package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/kv"
	"skein.blue/internal/say"
)

// gauge returns a metric that is read when it is asked for.
func gauge(name, help string, read func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
}

// oneIf returns 1 for true and 0 for false.
func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// monitor registers metrics of the store, as far as the engine has them.
func (x *Index) monitor() {
	x.Registry.MustRegister(
		gauge("skein_consumer_desynchronized_repos", "Repos with missed events.", func() float64 { n, _ := x.Graph.Incomplete(); return float64(n) }),
		gauge("skein_consumer_partial_repos", "Repos whose history is not indexed.", func() float64 { _, n := x.Graph.Incomplete(); return float64(n) }))
	if c, ok := x.KV.(interface{ Collector() prometheus.Collector }); ok {
		x.Registry.MustRegister(c.Collector())
	}
	if m, ok := x.KV.(kv.Monitored); ok {
		x.Registry.MustRegister(
			gauge("skein_store_free_bytes", "Free bytes on the store's disk; 0 if unknown.", func() float64 { n, _ := m.FreeBytes(); return float64(n) }),
			gauge("skein_store_full", "1 while nothing is written because the disk has too little free space.", func() float64 { return oneIf(x.diskFull()) }),
			gauge("skein_store_disk_bytes", "Bytes of the store on disk.", func() float64 { return float64(x.KV.DiskBytes()) }))
	}
}

// diskFull reports whether the store accepts no writes because its disk is full.
func (x *Index) diskFull() bool {
	h, ok := x.KV.(kv.Health)
	return ok && errors.Is(h.Healthy(), kv.ErrDiskFull)
}

// awaitSpace waits until the disk has space, and then calls Space. It returns early if ctx ends.
func (s *server) awaitSpace(ctx context.Context) {
	for ticker := time.NewTicker(time.Second); ; {
		if !s.diskFull() {
			ticker.Stop()
			s.o.Space()
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			ticker.Stop()
			return
		}
	}
}

// buildInfo registers the metric of the program's version.
func (s *server) buildInfo(version, commit string) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "skein_build_info", Help: "Always 1; the labels describe the running program.",
		ConstLabels: prometheus.Labels{"version": version, "commit": cmp.Or(commit, "unknown"), "go_version": runtime.Version(), "engine": s.KV.Engine()},
	})
	info.Set(1)
	s.Registry.MustRegister(info)
}

// state returns what the index holds, for the log and the page.
func (x *Index) state(ctx context.Context) (edges int64, counts format.Counts, cursors []format.Cursor, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err = x.Graph.View(ctx, func(s *ask.View) (err error) {
		if counts, err = s.Counts(); err == nil {
			cursors, err = s.Cursors()
		}
		return err
	})
	if err != nil { // the log and the page then show less
		x.log.Debug("cannot read the index's state", "error", err)
	}
	for name, n := range counts.Records {
		if name != kinds.ListItem.String() { // a listitem record counts as two kinds
			edges += n
		}
	}
	return edges, counts, cursors, err
}

// answering calls Ready, and logs the addresses, the store, and what it holds.
func (x *Index) answering(o *ServeOptions, f *front) {
	api, admin := f.api.Addr(), f.adminAt()
	if o.Ready != nil { // before the log: who reads it may send a signal at once
		o.Ready(api, admin)
	}
	edges, counts, cursors, _ := x.state(context.Background())
	args := []any{"version", o.Version, "api", "http://" + api.String()}
	if admin != nil {
		args = append(args, "admin", "http://"+admin.String())
	}
	args = append(args, "engine", x.KV.Engine(), "store", x.Path, "memory", say.Bytes(cmp.Or(x.memory, DefaultMemory())))
	if x.Graph.Made() {
		args = append(args, "found", "nothing; created a new store")
	} else {
		args = append(args, "found", say.Count(edges)+" records of "+say.Count(counts.Accounts)+" accounts, "+say.Bytes(x.KV.DiskBytes())+" on disk")
	}
	if len(cursors) > 0 {
		args = append(args, cursorsAttr(cursors))
	}
	x.log.Info("answering", args...)
}

// cursorsAttr lists the cursors by source.
func cursorsAttr(cursors []format.Cursor) slog.Attr {
	var attrs []any
	for _, c := range cursors {
		attrs = append(attrs, slog.Int64(c.Source, int64(c.Seq)))
	}
	return slog.Group("cursors", attrs...)
}

// logEvery is how often progress is logged.
const logEvery = time.Minute

// logProgress logs the progress of the stream until ctx ends.
func (s *server) logProgress(ctx context.Context) {
	c := s.stream
	ticker := time.NewTicker(logEvery)
	defer ticker.Stop()
	was := c.Progress().Events
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		edges, counts, _, _ := s.state(ctx)
		st, events := c.Status(), c.Progress().Events
		args := []any{
			"state", string(st.State), "events_per_second", float64((events-was)*10/int64(logEvery/time.Second)) / 10,
			"records", edges, "accounts", counts.Accounts, "disk", say.Bytes(s.KV.DiskBytes()),
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
		s.log.Info("indexing", args...)
		was = events
	}
}
