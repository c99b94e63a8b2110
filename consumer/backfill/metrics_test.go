package backfill

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// The gauges show the Status of the moment of the scrape.
func TestMetrics(t *testing.T) {
	st := Status{}
	reg := prometheus.NewRegistry()
	NewMetrics(reg, func() Status { return st })
	st = Status{
		Accounts: 40, Complete: 10, Failed: map[string]int64{failInvalid: 2, failTooLarge: 1},
	}
	want := `
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
`
	names := []string{"skein_backfill_coverage_ratio", "skein_backfill_failed_repos"}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
}
