package app_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const deployed = "../../deploy/"

func fileText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

var metricName = regexp.MustCompile(`\bskein_(?:audit|backfill|build|consumer|graph|intern|query|ready|store)[a-z_]*\b`)

// Alerts, manifests and documents name only metrics that exist.
func TestDeployedMetrics(t *testing.T) {
	all, _ := allMetrics(t)
	names := map[string]bool{}
	for _, m := range all {
		names[m.name] = true
	}
	pages, err := filepath.Glob("../../docs/*.md")
	must(t, err)
	named := 0
	for _, file := range append(pages, "../../README.md", deployed+"alerts.yml", deployed+"grafana/skein.json") {
		text := fileText(t, file)
		for _, at := range metricName.FindAllStringIndex(text, -1) {
			name := strings.TrimRight(text[at[0]:at[1]], "_")
			if !names[name] { // a series of a histogram
				name = strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
			}
			if at[0] > 0 && text[at[0]-1] == '#' { // #skein_graph is an entry of the DID document
				continue
			}
			if strings.HasSuffix(text[at[0]:at[1]], "_") { // skein_backfill_…
				continue
			}
			named++
			if !names[name] {
				t.Errorf("%s names %s", file, name)
			}
		}
	}
	if named < 15 {
		t.Errorf("found only %d names", named)
	}
}

// Every alert has a severity, a link to its entry in the runbook, and tests that it fires and that
// it does not (promtool runs them, see .ci/deploy). The runbook explains no other alert.
func TestAlerts(t *testing.T) {
	rules, tests, runbook := fileText(t, deployed+"alerts.yml"), fileText(t, "../../.ci/alerts.test.yml"), fileText(t, "../../docs/runbook.md")
	alerts := strings.Split(rules, "\n      - alert: ")[1:]
	if len(alerts) < 15 {
		t.Fatalf("%d alerts", len(alerts))
	}
	for _, a := range alerts {
		name, _, _ := strings.Cut(a, "\n")
		for what, there := range map[string]bool{
			"severity":               strings.Contains(a, "{severity: page}") || strings.Contains(a, "{severity: warn}"),
			"link to the runbook":    strings.Contains(a, `runbook_url: "https://skein.blue/docs/runbook.md#`+strings.ToLower(name)+`"`),
			"entry in the runbook":   strings.Contains(runbook, "\n### "+name+"\n"),
			"test that it fires":     regexp.MustCompile(`alertname: ` + name + `\n\s+exp_alerts:\n`).MatchString(tests),
			"test that it is silent": strings.Contains(tests, "alertname: "+name+", exp_alerts: []}"),
		} {
			if !there {
				t.Errorf("%s has no %s", name, what)
			}
		}
	}
	if n := strings.Count(runbook, "\n### "); n != len(alerts) {
		t.Errorf("the runbook explains %d alerts; there are %d", n, len(alerts))
	}
}

// selector matches a metric of an alert and its first label's values, without those of !~.
var selector = regexp.MustCompile(`\b(skein_[a-z_]+)(?:\{([a-z_]+)=~?"([^"]+)"\})?`)

// Every series that an alert looks at exists from the start: Prometheus sees a rise from 0 only if
// there was a 0. Three have nothing to be 0 of.
func TestAlertedSeriesExist(t *testing.T) {
	_, gathered := allMetrics(t)
	later := map[string]string{
		"skein_consumer_lag_seconds": "there is no event yet",
		"skein_labeler_current":      "there is a series for each configured labeler, from its start",
	}
	exists := func(name, label, value string) bool {
		for _, m := range gathered[name].GetMetric() {
			if label == "" {
				return true
			}
			for _, l := range m.GetLabel() {
				if l.GetName() == label && l.GetValue() == value {
					return true
				}
			}
		}
		return false
	}
	looked := 0
	for _, rule := range strings.Split(fileText(t, deployed+"alerts.yml"), "\n      - alert: ")[1:] {
		rule, _, _ = strings.Cut(rule, "\n        labels:")
		for _, m := range selector.FindAllStringSubmatch(rule, -1) {
			name := strings.TrimSuffix(m[1], "_bucket")
			for value := range strings.SplitSeq(m[3], "|") {
				looked++
				if !exists(name, m[2], value) && later[name] == "" {
					t.Errorf("there is no %s with %s=%q before the first error", name, m[2], value)
				}
			}
		}
	}
	if looked < 25 {
		t.Errorf("only %d series were found in the alerts", looked)
	}
}

// The dashboard is JSON that Grafana reads, and each panel has a query and a place of its own.
func TestDashboard(t *testing.T) {
	var d struct {
		UID    string
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(fileText(t, deployed+"grafana/skein.json")), &d); err != nil || d.UID == "" || len(d.Panels) < 20 {
		t.Fatalf("%d panels: %v", len(d.Panels), err)
	}
	at := map[[2]int]string{}
	for _, p := range d.Panels {
		if p.Type != "row" && (len(p.Targets) == 0 || p.Targets[0].Expr == "") {
			t.Errorf("%s has no query", p.Title)
		}
		if g := p.GridPos; g.X+g.W > 24 || at[[2]int{g.X, g.Y}] != "" {
			t.Errorf("%s is at %+v, where %q is", p.Title, g, at[[2]int{g.X, g.Y}])
		}
		at[[2]int{p.GridPos.X, p.GridPos.Y}] = p.Title
	}
}

// Deployments and workflows pin the images, base images and actions of others to digests. Deployments run with minimal
// privileges. systemd learns when the daemon answers and how to reload it.
func TestDeployed(t *testing.T) {
	pinned := regexp.MustCompile(`^(skein(-fdb)?:\d+\.\d+\.\d+|[a-z/-]+:v?\d+\.\d+[a-z0-9.-]*@sha256:[0-9a-f]{64}|[a-z/-]+@[0-9a-f]{40})$`)
	images, bases := regexp.MustCompile(`(?m)^\s*image:\s*(\S+)`), regexp.MustCompile(`(?m)^FROM (?:--\S+ )?(\S+)`)
	actions, workflows := regexp.MustCompile(`(?m)^\s*- uses: (\S+)`), "../.github/workflows/"
	for file, find := range map[string]*regexp.Regexp{
		"compose.yml": images, "compose.fdb.yml": images, "compose.watch.yml": images, "kubernetes.yml": images, "kubernetes.fdb.yml": images, "Dockerfile": bases, "Dockerfile.fdb": bases,
		workflows + "ci.yml": actions, workflows + "nightly.yml": actions, workflows + "release.yml": actions,
	} {
		found := find.FindAllStringSubmatch(fileText(t, deployed+file), -1)
		if len(found) == 0 {
			t.Errorf("%s names no image", file)
		}
		for _, m := range found {
			if m[1] != "scratch" && !pinned.MatchString(m[1]) {
				t.Errorf("%s: %s is not pinned", file, m[1])
			}
		}
	}
	for file, wants := range map[string][]string{
		"kubernetes.yml":     {"seccompProfile: {type: RuntimeDefault}", "kind: NetworkPolicy", "storage: 300Gi", "readOnlyRootFilesystem: true", "SKEIN_ADMIN_TOKEN"},
		"kubernetes.fdb.yml": {"seccompProfile: {type: RuntimeDefault}", "kind: NetworkPolicy", "readOnlyRootFilesystem: true", "SKEIN_ADMIN_TOKEN"},
		"skein.service":      {"\nType=notify\n", "\nExecReload=/bin/kill -HUP $MAINPID\n", "\nMemoryMax=", "\nTimeoutStartSec=", "\nWatchdogSec="},
		"alerts.yml":         {"absent(", "skein_build_info"},
		"Dockerfile":         {"THIRD_PARTY_NOTICES.txt"},
		"../.goreleaser.yaml": {
			"go run ./.ci/notices ./cmd/skein >dist.notices/THIRD_PARTY_NOTICES.txt", "{src: dist.notices/THIRD_PARTY_NOTICES.txt, strip_parent: true}",
		},
	} {
		text := fileText(t, deployed+file)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", file, strings.TrimSpace(want))
			}
		}
	}
	// Every pod has a seccomp profile, and every container, including init containers, is confined.
	for _, file := range []string{"kubernetes.yml", "kubernetes.fdb.yml"} {
		text := fileText(t, deployed+file)
		pods, containers := strings.Count(text, "\n    spec:"), strings.Count(text, " image: ")
		if n := strings.Count(text, "seccompProfile:"); n != pods {
			t.Errorf("%s: %d of %d pods have a seccomp profile", file, n, pods)
		}
		if n := strings.Count(text, "allowPrivilegeEscalation: false"); n != containers {
			t.Errorf("%s: %d of %d containers cannot gain privileges", file, n, containers)
		}
	}
}
