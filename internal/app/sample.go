package app

import (
	"cmp"
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/page"
	"skein.blue/internal/say"
	"skein.blue/query/evidence"
)

// sample returns the state of the index, for the page and the log.
func (s *server) sample(ctx context.Context) (page.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	now := page.Sample{Version: s.o.Version, Engine: s.KV.Engine(), State: s.status().State, Disk: s.KV.DiskBytes()}
	var cursors []format.Cursor
	err := s.Graph.View(ctx, func(v *ask.View) error {
		x := evidence.IndexOf(v)
		if missing := x.All(); missing != nil {
			now.Reason = missing.Reason
		}
		now.Members = x.Past.Around.Members
		var errs [2]error
		now.Counts, errs[0] = v.Counts()
		cursors, errs[1] = v.Cursors()
		return errors.Join(errs[:]...)
	})
	if err != nil {
		return now, err
	}
	for _, c := range cursors {
		if !c.IsStream() { // an archive changes nothing of complete accounts
			continue
		}
		s.stored.Store(max(s.stored.Load(), c.Time.UnixMicro()))
		if c.Source == s.source || s.source == "" && (now.CursorTime == nil || c.Time.After(*now.CursorTime)) {
			now.Cursor, now.CursorTime = new(int64(c.Seq)), &c.Time
		}
	}
	for name, n := range now.Counts.Records {
		if name != kinds.ListItem.String() { // a listitem record counts as two kinds
			now.Edges += n
		}
	}
	now.Events, _ = s.Graph.Events()
	if st := s.status(); st.HasLag {
		now.Lag = new(st.Lag.Seconds())
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

// accounts returns the DIDs of some active accounts in the index, for the page to ask about: the centers of its part, or the first ones.
func (s *server) accounts(ctx context.Context) (dids []string) {
	_ = s.Graph.View(ctx, func(v *ask.View) error { // if it fails, the page asks about none
		if dids = slices.Clone(v.Known().Past.Around.Centers); len(dids) > 0 {
			return nil
		}
		var ids []dict.ID
		err := v.EachAccount(0, func(id dict.ID, st *format.RepoState) bool {
			if !st.Has(format.FlagHidden) {
				ids = append(ids, id)
			}
			return len(ids) < 30
		})
		return errors.Join(err, v.Strings(dict.DID, ids, func(_ int, did []byte) error { dids = append(dids, string(did)); return nil }))
	})
	return dids
}

// answering calls Ready, and logs the addresses, the store, and what it holds.
func (s *server) answering(o *ServeOptions, f *front) {
	api, admin := f.api.Addr(), net.Addr(nil)
	if f.admin != nil {
		admin = f.admin.Addr()
	}
	if o.Ready != nil { // before the log: who reads it may send a signal at once
		o.Ready(api, admin)
	}
	now, _ := s.sample(context.Background())
	args := []any{"version", o.Version, "api", "http://" + api.String()}
	if admin != nil {
		args = append(args, "admin", "http://"+admin.String())
	}
	args = append(args, "engine", now.Engine, "store", s.Path, "memory", say.Bytes(cmp.Or(s.memory, DefaultMemory())))
	if s.Graph.Made() {
		args = append(args, "found", "nothing; created a new store")
	} else {
		args = append(args, "found", say.Count(now.Edges)+" records of "+say.Count(now.Counts.Accounts)+" accounts, "+say.Bytes(now.Disk)+" on disk")
	}
	if now.Cursor != nil {
		args = append(args, "cursor", *now.Cursor)
	}
	s.log.Info("answering", args...)
}

// logEvery is how often progress is logged.
const logEvery = time.Minute

// logProgress logs the progress of the stream until ctx ends.
func (s *server) logProgress(ctx context.Context) error {
	ticker := time.NewTicker(logEvery)
	defer ticker.Stop()
	for was, _ := s.Graph.Events(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, err := s.sample(ctx)
		if err != nil {
			continue
		}
		args := []any{
			"state", now.State, "events_per_second", float64((now.Events-was)*10/int64(logEvery/time.Second)) / 10,
			"records", now.Edges, "accounts", now.Counts.Accounts, "disk", say.Bytes(now.Disk),
		}
		if now.Cursor != nil {
			args = append(args, "cursor", *now.Cursor)
		}
		if now.Lag != nil {
			args = append(args, "lag", time.Duration(*now.Lag*float64(time.Second)).Round(time.Millisecond).String())
		}
		if now.Counts.Desynchronized > 0 {
			args = append(args, "desynchronized", now.Counts.Desynchronized)
		}
		s.log.Info("indexing", args...)
		was = now.Events
	}
}

// gauge returns a metric that is read when it is asked for.
func gauge(name, help string, read func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
}

// buildInfo registers the metric of the program's version.
func (s *server) buildInfo(version, commit string) {
	s.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "skein_build_info", Help: "Always 1; the labels describe the running program.",
		ConstLabels: prometheus.Labels{"version": version, "commit": cmp.Or(commit, "unknown"), "go_version": runtime.Version(), "engine": s.KV.Engine()},
	}, func() float64 { return 1 }))
}
