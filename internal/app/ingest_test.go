package app_test

import (
	"flag"
	"os"
	"testing"
	"time"

	"skein.blue/consumer"
	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/internal/app"
	"skein.blue/internal/frames"
	"skein.blue/internal/sim/oracle"
)

var (
	ingestEvents = flag.Int("ingest.events", 1_000_000, "number of events for BenchmarkIngest")
	ingestFile   = flag.String("ingest.frames", plainPDS, "file of frames for BenchmarkIngest to vary")
	ingestDir    = flag.String("ingest.dir", "", "folder to keep BenchmarkIngest's store in")
	ingestKinds  = flag.String("ingest.kinds", "", "file of kinds that BenchmarkIngest indexes, too")
)

// variations makes n distinct messages from the frames of a file.
func variations(tb testing.TB, path string, n int) [][]byte {
	tb.Helper()
	all, err := frames.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	out := make([][]byte, 0, n)
	for copies := uint64(0); len(out) < n; copies++ {
		c := oracle.NewCopy(1, copies)
		for _, f := range all {
			v, err := c.Frame(f, uint64(len(out)+1))
			if err != nil {
				tb.Fatal(err)
			}
			if out = append(out, v); len(out) == n {
				break
			}
		}
	}
	return out
}

// All variations decode, and no repo is desynchronized.
func TestVariations(t *testing.T) {
	x, closeIt := open(t, t.TempDir(), nil)
	defer closeIt()
	all := variations(t, plainPDS, 3*2115)
	var d wire.Decoder
	for i, f := range all {
		var m wire.Message
		var b batch.Batch
		if err := wire.Parse(f, &m); err != nil {
			t.Fatal(err)
		}
		if d.Add(&m, &b); len(d.Drops) > 0 {
			t.Fatalf("frame %d: %q", i, d.Drops)
		}
	}
	replay(t, x, consumer.Options{Relay: "ws://memory", Read: feedAll(all)})
	base, _, stop := serve(t, x, nil)
	defer stop()
	s := getStats(t, base)
	if s.Accounts != 90 || s.Desynchronized != 0 || s.Partial != 0 || s.Records["like"] != 3*562 {
		t.Errorf("%+v", s)
	}
}

func feedAll(all [][]byte) func(func([]byte) error) error {
	return func(handle func([]byte) error) error {
		for _, f := range all {
			if err := handle(f); err != nil {
				return err
			}
		}
		return nil
	}
}

// BenchmarkIngest indexes a million distinct events, recorded frames varied by a seed, from
// memory until they are committed, and shows where the time goes.
//
//	go test ./internal/app -run xxx -bench Ingest -benchtime 1x -timeout 30m
//
// decode is the time of decoding alone, measured beforehand; decoding runs concurrently with the
// rest. The others are shares of the applier's time.
func BenchmarkIngest(b *testing.B) {
	all := variations(b, *ingestFile, *ingestEvents)
	var bytes int64
	start := time.Now()
	var d wire.Decoder
	var m wire.Message
	var decoded batch.Batch
	for i, f := range all {
		bytes += int64(len(f))
		if err := wire.Parse(f, &m); err != nil {
			b.Fatal(err)
		}
		d.Add(&m, &decoded)
		if i%10_000 == 0 {
			decoded.Reset()
		}
	}
	decode := time.Since(start)
	decoded = batch.Batch{}
	var more []kinds.Info
	if *ingestKinds != "" {
		file, err := os.ReadFile(*ingestKinds)
		if err == nil {
			more, err = kinds.Parse(string(file))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		dir := *ingestDir
		if dir == "" {
			dir = b.TempDir()
		}
		x, err := app.OpenIndex(b.Context(), app.StoreOptions{Store: dir, Create: true, Kinds: more})
		if err != nil {
			b.Fatal(err)
		}
		c, err := x.Consumer(consumer.Options{Relay: "ws://memory", Read: feedAll(all)})
		if err != nil {
			b.Fatal(err)
		}
		start := time.Now()
		if err := c.Run(b.Context()); err != nil {
			b.Fatal(err)
		}
		took := time.Since(start)
		n := float64(len(all))
		b.ReportMetric(n/took.Seconds(), "events/s")
		b.ReportMetric(float64(bytes)/took.Seconds()/1e6, "MB/s")
		t := x.Graph.Timing()
		b.ReportMetric(decode.Seconds()/took.Seconds()*100, "decode%")
		b.ReportMetric(t.Intern.Seconds()/took.Seconds()*100, "intern%")
		b.ReportMetric(t.Read.Seconds()/took.Seconds()*100, "read%")
		b.ReportMetric(t.Walk.Seconds()/took.Seconds()*100, "graph%")
		b.ReportMetric(t.Commit.Seconds()/took.Seconds()*100, "commit%")
		if err := x.Close(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
