package backfill

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"skein.blue/graph/batch"
)

// The gauges show the Status of the moment of the scrape.
func TestMetrics(t *testing.T) {
	st := Status{}
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg, func() Status { return st })
	st = Status{
		Waiting: 7, Inactive: 3, Accounts: 40, Complete: 10, ArchiveSeq: 5, ArchiveTip: 9, Compared: time.UnixMilli(1_800_000_000_500),
		Failed: map[string]int64{failInvalid: 2, failTooLarge: 1},
	}
	want := `
# HELP skein_backfill_archive_seq Sequence number up to which the archive has been read.
# TYPE skein_backfill_archive_seq gauge
skein_backfill_archive_seq 5
# HELP skein_backfill_compared_timestamp_seconds Time at which all repos had been compared with the relay's list; 0: never.
# TYPE skein_backfill_compared_timestamp_seconds gauge
skein_backfill_compared_timestamp_seconds 1.8000000005e+09
# HELP skein_backfill_coverage_ratio Share of the accounts in the index whose records are all in it, as far as known; 0 without accounts.
# TYPE skein_backfill_coverage_ratio gauge
skein_backfill_coverage_ratio 0.25
# HELP skein_backfill_failed_repos Repos given up, by reason.
# TYPE skein_backfill_failed_repos gauge
skein_backfill_failed_repos{reason="host"} 0
skein_backfill_failed_repos{reason="identity"} 0
skein_backfill_failed_repos{reason="invalid"} 2
skein_backfill_failed_repos{reason="no_did"} 0
skein_backfill_failed_repos{reason="no_pds"} 0
skein_backfill_failed_repos{reason="no_room"} 0
skein_backfill_failed_repos{reason="not_found"} 0
skein_backfill_failed_repos{reason="older"} 0
skein_backfill_failed_repos{reason="private_host"} 0
skein_backfill_failed_repos{reason="refused"} 0
skein_backfill_failed_repos{reason="signature"} 0
skein_backfill_failed_repos{reason="too_large"} 1
# HELP skein_backfill_inactive_repos Repos whose host reports that the account is inactive.
# TYPE skein_backfill_inactive_repos gauge
skein_backfill_inactive_repos 3
# HELP skein_backfill_waiting_repos Repos queued for a fetch.
# TYPE skein_backfill_waiting_repos gauge
skein_backfill_waiting_repos 7
`
	names := []string{"skein_backfill_archive_seq", "skein_backfill_compared_timestamp_seconds", "skein_backfill_coverage_ratio", "skein_backfill_failed_repos", "skein_backfill_inactive_repos", "skein_backfill_waiting_repos"}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	st = Status{}
	want = strings.NewReplacer("_ratio 0.25", "_ratio 0", "seq 5", "seq 0", "1.8000000005e+09", "0", "repos 7", "repos 0", "repos 3", "repos 0",
		"\"invalid\"} 2", "\"invalid\"} 0", "\"too_large\"} 1", "\"too_large\"} 0").Replace(want)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Errorf("of an empty index: %v", err)
	}
	m.outcome(batch.Placed)
	m.outcome(batch.Older)
	m.failed(failHost)
	m.fetched(1000, time.Second)
	m.spaces(0)
	m.spaces(4)
	m.dropped("bad_did")
	for name, c := range map[string]struct {
		got  prometheus.Collector
		want float64
	}{
		"placed": {m.Repos.WithLabelValues(batch.Placed.String()), 1}, "older": {m.Repos.WithLabelValues(batch.Older.String()), 1}, "failures": {m.Failed.WithLabelValues(failHost), 1},
		"bytes": {m.Bytes, 1000}, "spaces": {m.Dropped.WithLabelValues("space_subject"), 4}, "dropped": {m.Dropped.WithLabelValues("bad_did"), 1},
	} {
		if got := testutil.ToFloat64(c.got); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Audits run one after the other, find what differs, and repair it, until the Manager stops.
func TestAuditsRun(t *testing.T) {
	w := newWorld(t, 2)
	var all []*account
	for i := range 12 {
		all = append(all, w.add(i, 6))
	}
	metrics := NewMetrics(prometheus.NewRegistry(), func() Status { return Status{} })
	x := w.index(newStore(), func(o *Options) { o.Relay, o.Metrics, o.Audit = "", metrics, 3600*500 }) // every 2 ms
	if _, ok := idle(t, Options{}).Audits(); ok {
		t.Error("audits without Options.Audit")
	}
	w.fetched(x, all...)
	same := func() float64 { return testutil.ToFloat64(metrics.Audited.WithLabelValues(auditSame)) }
	await := func(what string, is func() bool) {
		t.Helper()
		for began := time.Now(); !is(); time.Sleep(2 * time.Millisecond) {
			if time.Since(began) > 30*time.Second {
				t.Fatalf("not in 30 s: %s", what)
			}
		}
	}
	await("100 audits", func() bool { return same() > 100 })
	if a, ok := x.m.Audits(); !ok || a.Differences != 0 || a.Records != 6*a.Repos {
		t.Errorf("%+v, %v", a, ok)
	}
	// A commit that the relay lost, unnoticed: the index's rev and the host's differ. The stream's next
	// commit then shows it. Records that differ at the same rev are found by audits alone.
	w.mu.Lock()
	a := all[5]
	for path := range a.records {
		a.records[path] += "x"
	}
	a.packedRev = 0
	w.mu.Unlock()
	await("the difference", func() bool { a, _ := x.m.Audits(); return a.Differences > 0 })
	x.settle(t)
	x.has(t, w)
	rng := rand.New(rand.NewPCG(1, 1))
	x.deliver(t, func(b *batch.Batch) { w.commit(rng, a, b) })
	before := same()
	await("audits after the repair", func() bool { return same() > before+100 })
	x.has(t, w)
}
