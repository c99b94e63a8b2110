package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/graph/format"
	"skein.blue/internal/app"
	"skein.blue/internal/kv/pebblekv"
)

// A Sample says what a run did in one part of it: about ten seconds.
type Sample struct {
	Phase     string           `json:"phase"` // history, prefill or stream
	Edges     int64            `json:"edges"` // in the store, at the end of the part
	Seconds   float64          `json:"seconds"`
	Done      int64            `json:"done"`        // records of the history, or events
	CPU       float64          `json:"cpu_seconds"` // of the indexer; in a prefill, also of the simulator, which then runs in its process
	OtherCPU  float64          `json:"simulator_cpu_seconds"`
	DiskBytes uint64           `json:"disk_bytes"`        // at the end
	Arrived   int64            `json:"arrived_bytes"`     // bytes of the writes that the engine was given
	Written   []int64          `json:"written_bytes"`     // to tables, by level of the LSM tree
	Keyspaces map[string]int64 `json:"written_keyspaces"` // to tables, by keyspace, before compression
	Peak      int64            `json:"peak_rss_bytes"`    // of the whole run so far
	LagP99    float64          `json:"lag_p99_ms"`        // of the whole run so far
	Strings   int64            `json:"strings"`           // new ones in this part
	Elapsed   float64          `json:"elapsed_seconds"`   // of the phase in this process, at the end
}

// sampler writes samples as JSON, one a line.
type sampler struct {
	to    io.Writer // nil: nowhere
	phase string
	table *pebblekv.TableBytes
	x     *app.Index
	other func() time.Duration // processor time of the simulator
	begun time.Time
	last  mark
}

// mark is the state at the end of a part.
type mark struct {
	at       time.Time
	done     int64
	cpu      time.Duration
	otherCPU time.Duration
	strings  int64
	written  pebblekv.Written
	tables   map[byte]int64
}

// sampleEvery is how long a part lasts.
const sampleEvery = 10 * time.Second

// begin begins the first part. done is how much of the phase an earlier run has done.
func (s *sampler) begin(phase string, done int64, x *app.Index, other func() time.Duration) {
	s.phase, s.x, s.other, s.begun = phase, x, other, time.Now()
	s.last = s.now(done)
	if counts, err := s.counts(context.Background()); err == nil {
		s.last.strings = interned(counts)
	}
}

func (s *sampler) now(done int64) mark {
	m := mark{at: time.Now(), done: done, otherCPU: s.other()}
	m.cpu, _ = usage()
	if s.table != nil {
		m.tables = s.table.Sum()
	}
	if p, ok := s.x.KV.(*pebblekv.Store); ok {
		m.written = p.Written()
	}
	return m
}

func (s *sampler) counts(ctx context.Context) (c format.Counts, err error) {
	err = s.x.Graph.View(ctx, func(v *ask.View) error { c, err = v.Counts(); return err })
	return c, err
}

func interned(c format.Counts) (n int64) {
	for _, v := range c.Strings {
		n += v
	}
	return n
}

// tick ends a part if it has lasted long enough. done counts from the beginning of the phase.
func (s *sampler) tick(ctx context.Context, done int64, lag Quantiles) error {
	if time.Since(s.last.at) < sampleEvery {
		return nil
	}
	return s.end(ctx, done, lag)
}

// end ends a part, however long it is: the last of a phase, for instance.
func (s *sampler) end(ctx context.Context, done int64, lag Quantiles) error {
	if s.to == nil {
		return nil
	}
	counts, err := s.counts(ctx)
	if err != nil {
		return err
	}
	m := s.now(done)
	m.strings = interned(counts)
	_, peak := usage()
	l := &s.last
	out := Sample{
		Phase: s.phase, Edges: edges(counts), Seconds: m.at.Sub(l.at).Seconds(), Done: done - l.done,
		CPU: (m.cpu - l.cpu).Seconds(), OtherCPU: (m.otherCPU - l.otherCPU).Seconds(), DiskBytes: s.x.KV.DiskBytes(),
		Arrived: m.written.Arrived - l.written.Arrived, Peak: peak, LagP99: lag.P99, Elapsed: m.at.Sub(s.begun).Seconds(),
		Strings: m.strings - l.strings,
	}
	for i, n := range m.written.Levels {
		if i < len(l.written.Levels) {
			n -= l.written.Levels[i]
		}
		out.Written = append(out.Written, n)
	}
	for keyspace, n := range m.tables {
		if n -= l.tables[keyspace]; n > 0 {
			if out.Keyspaces == nil {
				out.Keyspaces = map[string]int64{}
			}
			out.Keyspaces[string(rune(keyspace))] = n
		}
	}
	s.last = m
	if err := json.NewEncoder(s.to).Encode(out); err != nil {
		return fmt.Errorf("writing a sample: %w", err)
	}
	return nil
}
