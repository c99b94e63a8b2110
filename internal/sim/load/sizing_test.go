package load_test

import (
	"math"
	"testing"
	"time"

	"skein.blue/internal/sim/load"
)

var (
	measured = load.Measured{Edges: 1000, BytesPerEdge: 20, LogicalPer: 35, EdgesPer: 0.5, FrameBytes: 2000, WrittenPer: 100, IdleCPU: 40e-6, BusyCPU: 8e-6, FullRate: 150_000, Memory: 1 << 30, Budget: 1 << 30}
	known    = load.Network{Mean: 1000, Peak: 1500, Edges: 15e9, Accounts: 41e6}
)

// Plans follow from what was measured by multiplication, here by hand.
func TestPlans(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > want/1e9 {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	day := measured.For(known, 0, 24*time.Hour)
	near("edges of a day", day.Edges, 43_200_000)
	near("disk of a day", day.Disk, 864_000_000)
	near("free beside it", day.Spare, 864_000_000*0.15+1<<30)
	near("received", day.Received, 172.8e9)
	near("written", day.Written, 8.64e9)
	near("cores", day.Cores, 0.04)
	near("cores at the peak", day.CoresPeak, 0.06)
	near("disk of a cluster", day.ClusterDisk, 43_200_000*35*2/0.7)
	all := measured.For(known, known.Edges, 0)
	near("disk of all", all.Disk, 300e9)
	for peak, want := range map[float64]int{known.Peak: 1, 20_000: 1, 40_000: 2, 100_000: 13, 130_000: 0} {
		if got := measured.For(load.Network{Peak: peak}, 0, 0).ClusterWriter; got != want {
			t.Errorf("%d writers for %v events/s, want %d", got, peak, want)
		}
	}
}
