package load

import (
	"math"
	"sync"
	"time"
)

// Quantiles are quantiles of durations, in milliseconds.
type Quantiles struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Report is the result of a run. Behind is the age of the newest queryable
// event by the relay's clock, sampled over the run: it grows if the indexer
// does not keep up.
type Report struct {
	RateOffered          float64        `json:"rate_offered"`
	Events               int64          `json:"events"`
	Seconds              float64        `json:"seconds"`
	EventsPerSecond      float64        `json:"events_per_second"`
	MegabytesPerSecond   float64        `json:"megabytes_per_second"`
	OpsIndexed           int64          `json:"ops_indexed"`
	Lag                  Quantiles      `json:"lag_ms"`
	Behind               Quantiles      `json:"behind_ms"`
	CPUSeconds           float64        `json:"cpu_seconds"`
	PeakRSS              int64          `json:"peak_rss_bytes"`
	Simulator            SimulatorUsage `json:"simulator"`
	DiskBytes            uint64         `json:"disk_bytes"`
	Edges                int64          `json:"edges"`
	BytesPerEdge         float64        `json:"bytes_per_edge"`
	Interned             int64          `json:"interned"`
	Repos                int64          `json:"repos,omitempty"` // fetched repos
	ReposPerSecond       float64        `json:"repos_per_second,omitempty"`
	RepoRecordsPerSecond float64        `json:"repo_records_per_second,omitempty"`
	Verified             bool           `json:"verified"`
}

// SimulatorUsage is the relay's usage.
type SimulatorUsage struct {
	CPUSeconds float64 `json:"cpu_seconds"`
	PeakRSS    int64   `json:"peak_rss_bytes"`
}

// histogram counts durations in steps of 2.5 %.
type histogram struct {
	mu     sync.Mutex // guards the fields below
	counts [1024]int64
	most   time.Duration
	total  int64
}

// histogramSteps is the number of steps per factor of e: a step is 2.5 %.
const histogramSteps = 40.0

func (h *histogram) add(d time.Duration, n int) {
	at := 0
	if us := float64(d.Microseconds()); us > 1 {
		at = min(int(math.Log(us)*histogramSteps), len(h.counts)-1)
	}
	h.mu.Lock()
	h.counts[at] += int64(n)
	h.most = max(h.most, d)
	h.total += int64(n)
	h.mu.Unlock()
}

func (h *histogram) quantiles() (q Quantiles) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := func(share float64) float64 {
		left := int64(math.Ceil(float64(h.total) * share))
		for i, n := range h.counts {
			if left -= n; left <= 0 {
				return math.Round(math.Exp(float64(i+1)/histogramSteps)/10) / 100
			}
		}
		return 0
	}
	if h.total == 0 {
		return q
	}
	most := float64(h.most.Milliseconds())
	return Quantiles{min(at(0.5), most), min(at(0.99), most), most}
}
