package app_test

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"skein.blue/consumer"
	"skein.blue/consumer/backfill"
	"skein.blue/consumer/labels"
	"skein.blue/internal/app"
	"skein.blue/internal/backup"
)

// served is one metric of a daemon.
type served struct{ name, help string }

var describes = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*?)"(?:, unit: "[^"]*")?, constLabels: \{.*\}, variableLabels: \{.*\}\}$`)

// allMetrics returns every metric that a daemon with all parts registers, with or without a
// value, and the families with values.
func allMetrics(t *testing.T) ([]served, map[string]*dto.MetricFamily) {
	t.Helper()
	x, err := app.OpenIndex(t.Context(), app.StoreOptions{
		Store: t.TempDir(), Create: true, Memory: 64 << 20, Backfill: &backfill.Options{Relay: "ws://127.0.0.1:1", PLC: "http://127.0.0.1:1"},
	})
	must(t, err)
	t.Cleanup(func() { must(t, x.Close(t.Context())) })
	labels.NewMetrics(x.Registry)
	to, err := backup.OpenTarget(filepath.Join(t.TempDir(), "backups"))
	must(t, err)
	_, _, stop := serveWith(t, x, app.ServeOptions{Consume: &consumer.Options{Relay: "ws://127.0.0.1:1", Cursor: new(int64)}, Backup: &app.BackupSchedule{Job: app.BackupJob{Target: to}, Every: time.Hour}})
	descs := make(chan *prometheus.Desc)
	go func() {
		x.Registry.Describe(descs)
		close(descs)
	}()
	seen := map[string]served{}
	for d := range descs {
		m := describes.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("this test cannot parse the description %s", d)
		}
		if strings.HasPrefix(m[1], "go_") || strings.HasPrefix(m[1], "process_") {
			continue // the client library's own
		}
		seen[m[1]] = served{m[1], m[2]}
	}
	families, err := x.Registry.Gather()
	must(t, err)
	stop()
	gathered := map[string]*dto.MetricFamily{}
	for _, f := range families {
		gathered[f.GetName()] = f
	}
	var all []served
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		all = append(all, seen[name])
	}
	return all, gathered
}

// Every metric follows Prometheus's conventions: the prefix, a unit, _total for counters only, a
// help text.
func TestMetricNames(t *testing.T) {
	all, gathered := allMetrics(t)
	for _, m := range all {
		if !strings.HasPrefix(m.name, "skein_") {
			t.Errorf("%s: the name does not start with skein_", m.name)
		}
		if !strings.HasSuffix(m.help, ".") || len(m.help) < 10 {
			t.Errorf("%s: the help is not a sentence: %q", m.name, m.help)
		}
		f := gathered[m.name]
		if f == nil { // it has no labels yet, so its name decides its type
			kind := dto.MetricType_GAUGE
			if strings.HasSuffix(m.name, "_total") {
				kind = dto.MetricType_COUNTER
			}
			f = &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: &kind}
		}
		problems, err := promlint.NewWithMetricFamilies([]*dto.MetricFamily{f}).Lint()
		must(t, err)
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
		if counts := f.GetType() == dto.MetricType_COUNTER; counts != strings.HasSuffix(m.name, "_total") {
			t.Errorf("%s is a %s", m.name, f.GetType())
		}
		if f.GetType() == dto.MetricType_HISTOGRAM && !strings.HasSuffix(m.name, "_seconds") {
			t.Errorf("%s: a histogram without a unit", m.name)
		}
	}
}
