package load

// What a skein needs for a network of a given size: disk, memory, processor and network traffic.
// It multiplies what one run of the load test measured by what is known of the network.

import (
	"fmt"
	"math"
	"strings"
	"time"

	"skein.blue/internal/say"
)

// Measured is what a run measured.
type Measured struct {
	Edges        int64   // in the store, in the end
	BytesPerEdge float64 // on disk, compacted
	LogicalPer   float64 // bytes of keys and values per edge, before any compression
	EdgesPer     float64 // edges that an event adds on average, deletes subtracted
	FrameBytes   float64 // bytes of an event on the wire
	WrittenPer   float64 // bytes that the process wrote to the disk per event, at the mean rate
	IdleCPU      float64 // seconds of processor time per event, at the mean rate
	BusyCPU      float64 // the same at full rate
	FullRate     float64 // events per second at full rate, beside the simulator
	Memory       int64   // peak resident bytes of the process
	Budget       int64   // --memory of the run, in bytes
}

// Network is what is known of a network.
type Network struct {
	Mean, Peak float64 // events per second
	Edges      float64 // live follows, likes, reposts, blocks and list items, all history
	Accounts   float64
}

// Assumptions about FoundationDB, which the run does not measure.
const (
	// Copies is the number of copies in redundancy mode double.
	Copies = 2
	// Fill is how full the pages of its B-tree are: between half and all of a page is used.
	Fill = 0.7
	// WriterAlone and WriterShare are the processor time of n writers for an event, in seconds (docs/performance.md, measured):
	// each needs WriterAlone, because it reads the whole stream, and all together WriterShare.
	WriterAlone = 8e-6
	WriterShare = 26e-6
)

// A Plan is what a machine needs.
type Plan struct {
	Events        float64 // per second, on average
	Edges         float64 // in the store
	Disk          float64 // bytes
	Spare         float64 // bytes that must be free beside them: compactions, logs, --min-free
	Received      float64 // bytes per day
	Written       float64 // bytes per day
	Cores         float64 // busy on average
	CoresPeak     float64
	ClusterDisk   float64 // bytes on all machines of a FoundationDB cluster
	ClusterWriter int     // writers, with a core each, that the peak needs; 0: it is too high for any number
}

// spare is the share of the store that must be free while it is compacted.
const (
	spare   = 0.15
	minFree = 1 << 30
	day     = 24 * 60 * 60
)

// For computes the Plan of a store with edges, after following the network for some time.
func (m Measured) For(n Network, edges float64, followed time.Duration) Plan {
	edges += followed.Seconds() * n.Mean * m.EdgesPer
	p := Plan{
		Events: n.Mean, Edges: edges, Disk: edges * m.BytesPerEdge,
		Received: n.Mean * m.FrameBytes * day, Written: n.Mean * m.WrittenPer * day,
		Cores: n.Mean * m.IdleCPU, CoresPeak: n.Peak * m.IdleCPU,
		ClusterDisk: edges * m.LogicalPer * Copies / Fill,
	}
	p.Spare = p.Disk*spare + minFree
	if left := 1/n.Peak - WriterAlone; left > 0 {
		p.ClusterWriter = max(1, int(math.Ceil(WriterShare/left)))
	}
	return p
}

// Markdown writes what was measured and the plans for a day, a year, and the network with all of
// its history.
func Markdown(m Measured, n Network) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| measured | |\n|---|--:|\n")
	row := func(name, value string) { fmt.Fprintf(&b, "| %s | %s |\n", name, value) }
	row("edges in the store", say.Count(m.Edges))
	row("bytes on disk per edge, compacted", fmt.Sprintf("%.1f", m.BytesPerEdge))
	row("bytes of keys and values per edge", fmt.Sprintf("%.1f", m.LogicalPer))
	row("edges that an event adds", fmt.Sprintf("%.2f", m.EdgesPer))
	row("bytes received per event", fmt.Sprintf("%.0f", m.FrameBytes))
	row(fmt.Sprintf("bytes written to disk per event, at %.0f events/s", n.Mean), fmt.Sprintf("%.0f", m.WrittenPer))
	row(fmt.Sprintf("processor time per event, at %.0f events/s", n.Mean), fmt.Sprintf("%.1f µs", m.IdleCPU*1e6))
	row("processor time per event, at full rate", fmt.Sprintf("%.1f µs", m.BusyCPU*1e6))
	row("events/s at full rate, beside the simulator", say.Count(int64(m.FullRate)))
	row("peak memory of the process, which also read the archive, with `--memory "+say.Bytes(m.Budget)+"`", say.Bytes(m.Memory))

	const year = 365 * 24 * time.Hour
	plans := []Plan{m.For(n, 0, 24*time.Hour), m.For(n, 0, year), m.For(n, n.Edges, 0), m.For(n, n.Edges, year)}
	fmt.Fprintf(&b, "\n| computed | a day of the stream | a year of the stream | the whole history | the history, a year later |\n|---|--:|--:|--:|--:|\n")
	line := func(name string, value func(Plan) string) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, p := range plans {
			fmt.Fprintf(&b, " %s |", value(p))
		}
		fmt.Fprintln(&b)
	}
	size := func(of func(Plan) float64) func(Plan) string {
		return func(p Plan) string { return say.Bytes(int64(of(p))) }
	}
	line("edges", func(p Plan) string { return say.Count(int64(p.Edges)) })
	line("disk", size(func(p Plan) float64 { return p.Disk }))
	line("free space to keep: 15 % of the disk above, and 1 GiB", size(func(p Plan) float64 { return p.Spare }))
	line("received per day", size(func(p Plan) float64 { return p.Received }))
	line("written per day", size(func(p Plan) float64 { return p.Written }))
	line("cores busy, mean", func(p Plan) string { return fmt.Sprintf("%.2f", p.Cores) })
	line(fmt.Sprintf("cores busy at %.0f events/s", n.Peak), func(p Plan) string { return fmt.Sprintf("%.2f", p.CoresPeak) })
	line("FoundationDB: disk of the cluster", size(func(p Plan) float64 { return p.ClusterDisk }))
	line("FoundationDB: writers", func(p Plan) string {
		if p.ClusterWriter == 0 {
			return "no number suffices"
		}
		return fmt.Sprint(p.ClusterWriter)
	})
	return b.String()
}
