package query_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/internal/sim/oracle"
)

// histogramAnswer is an answer of histogram.
type histogramAnswer struct {
	Type                           string
	Total, Earlier, Later, Undated int
	BucketSeconds                  int64
	Buckets                        []struct {
		Start string
		Count int
	}
}

// Random sets, with windows of their own and of the histogram: every member is counted once, in the
// bucket of the record that list shows, or as earlier, later or undated.
func TestHistogram(t *testing.T) {
	t.Parallel()
	w := spreadWorld(t, 27)
	rng := rand.New(rand.NewPCG(13, 13))
	times := w.times()
	counted, undated, earlier, refused, chosen := 0, 0, 0, 0, 0
	for range 600 {
		own, window := w.span(rng, times)
		s, p := own, url.Values{}
		if rng.IntN(2) == 0 {
			also, asked := w.span(rng, times)
			for name, at := range asked {
				p.Set(name, at)
			}
			switch {
			case own.all:
				s = also
			case !also.all:
				s = span{false, max(own.from, also.from), min(own.to, also.to)}
			}
		}
		l := w.leaf(rng, s)
		p.Set("set", l.text(window))
		seconds := int64(0)
		if rng.IntN(3) > 0 {
			seconds = []int64{60, 61, 3600, 86400, 7 * 86400, 30 * 86400}[rng.IntN(6)]
			p.Set("bucket", fmt.Sprintf("%ds", seconds))
		}
		end := time.Now().UnixMicro()
		if p.Has("until") {
			end = math.MaxInt64
		}
		var want histogramAnswer
		last := int64(math.MinInt64)
		var dated []int64
		for _, record := range l.records {
			switch made, ok := oracle.Micros(record[strings.LastIndexByte(record, '/')+1:]); {
			case !ok || made == 0:
				want.Undated++
			case made >= end:
				want.Later++
			default:
				dated, last = append(dated, made), max(last, made)
			}
		}
		status, body, _ := w.get("histogram?" + p.Encode())
		if status == 400 && p.Has("since") && strings.Contains(body, "span more than 1000 buckets") {
			if length := max(seconds, 60) * 1e6; last/length-slices.Min(dated)/length < 1000 {
				t.Fatalf("%v: %s; %v", p, body, dated)
			}
			refused++
			continue
		}
		var got histogramAnswer
		w.ask("histogram", p, &got)
		length := got.BucketSeconds * 1e6
		if seconds > 0 && got.BucketSeconds != seconds || length == 0 || got.Buckets == nil {
			t.Fatalf("%v: %+v", p, got)
		}
		most := 1000
		if seconds == 0 {
			if chosen++; !p.Has("since") {
				most = 120
			}
		}
		counts, first := map[int64]int{}, last/length-int64(most)+1
		for _, made := range dated {
			if made/length < first {
				want.Earlier++
			} else {
				counts[made/length]++
			}
		}
		if got.Total != len(l.members) || got.Undated != want.Undated || got.Later != want.Later || got.Earlier != want.Earlier || len(got.Buckets) > most {
			t.Fatalf("%v: %+v; want %d, undated %d, later %d, earlier %d", p, got, len(l.members), want.Undated, want.Later, want.Earlier)
		}
		for i, b := range got.Buckets {
			start, err := time.Parse(time.RFC3339, b.Start)
			if err != nil || start.UnixMicro()%length != 0 {
				t.Fatalf("%v: a bucket of %d s starts at %s: %v", p, got.BucketSeconds, b.Start, err)
			}
			n := start.UnixMicro() / length
			if b.Count != counts[n] || (i == 0 && want.Earlier == 0 || i == len(got.Buckets)-1) && b.Count == 0 {
				t.Fatalf("%v: bucket %s has %d, want %d", p, b.Start, b.Count, counts[n])
			}
			counted += b.Count
			delete(counts, n)
		}
		if len(counts) > 0 {
			t.Fatalf("%v: no buckets for %v", p, counts)
		}
		undated, earlier = undated+want.Undated, earlier+want.Earlier
	}
	if counted < 500 || undated < 10 || earlier < 25 || refused < 3 || chosen < 50 {
		t.Errorf("%d counted, %d undated, %d earlier; %d refused, %d without a bucket", counted, undated, earlier, refused, chosen)
	}
}

// Clients choose record keys. One that names a time long ago, and one in the future, do not change the
// buckets of the others.
func TestHistogramOfForgedTimes(t *testing.T) {
	w := newWorld(t, 28, 0)
	star, hour := oracle.NewHistory(28, 40).Accounts()[0], time.Now().UTC().Truncate(time.Hour).Add(-4*time.Hour)
	follow := func(n int, at time.Time) {
		w.happen(&oracle.Event{Type: oracle.CommitEvent, Seq: int64(n + 1), DID: fmt.Sprintf("did:plc:%s%c%c", strings.Repeat("a", 22), 'a'+n/26, 'a'+n%26), Rev: oracle.TID(uint64(1<<20 + n)), Ops: []oracle.Op{{Kind: "follow", Rkey: oracle.TID(uint64(at.UnixMicro())<<10 | uint64(n)), Subject: star}}})
	}
	for n := range 20 {
		follow(n, hour.Add(time.Duration(n)*10*time.Minute))
	}
	follow(20, time.Date(1975, 1, 2, 3, 4, 5, 0, time.UTC))
	follow(21, time.Now().AddDate(50, 0, 0))
	var got histogramAnswer
	w.ask("histogram", url.Values{"set": {"followers(" + star + ")"}, "bucket": {"1h"}}, &got)
	if got.Total != 22 || got.Earlier != 1 || got.Later != 1 || len(got.Buckets) != 1000 || got.Buckets[999].Count != 2 || got.Buckets[998].Count != 6 {
		t.Errorf("by the hour: %+v", got)
	}
	got = histogramAnswer{}
	w.ask("histogram", url.Values{"set": {"followers(" + star + ")"}, "until": {"2200-01-01"}, "since": {"2020-01-01"}, "bucket": {"30d"}}, &got)
	if got.Total != 21 || got.Later+got.Earlier != 0 || got.Buckets[len(got.Buckets)-1].Count != 1 {
		t.Errorf("with until: %+v", got)
	}
	for since, want := range map[string][2]int{"2020-01-01": {21, 1}, "7d": {20, 0}} { // a window since an age ends now
		got = histogramAnswer{}
		w.ask("histogram", url.Values{"set": {"followers(" + star + ")"}, "since": {since}, "bucket": {"30d"}}, &got)
		if got.Total != want[0] || got.Later != want[1] {
			t.Errorf("since %s: %+v", since, got)
		}
	}
	// A bucket length that skein chooses fits nearly all.
	for n := 22; n < 222; n++ {
		follow(n, hour.Add(time.Duration(n-22)*time.Minute))
	}
	got = histogramAnswer{}
	w.ask("histogram", url.Values{"set": {"followers(" + star + ")"}}, &got)
	if got.Total != 222 || got.Earlier != 1 || got.Later != 1 || got.BucketSeconds != 300 {
		t.Errorf("in chosen buckets: %d, %d earlier, %d later, %d s", got.Total, got.Earlier, got.Later, got.BucketSeconds)
	}
}
