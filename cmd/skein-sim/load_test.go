package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skein.blue/internal/command"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/load"
)

var binary, skein string // skein-sim, and skein

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(path func(string) string) { binary, skein = path("skein-sim"), path("skein") }, "skein-sim", "skein"))
}

// loadReport runs a load test, and reads its report.
func loadReport(t *testing.T, args ...string) (load.Report, string) {
	t.Helper()
	code, stdout, stderr := harness.Run(t, binary, append([]string{"load"}, args...)...)
	var r load.Report
	d := json.NewDecoder(strings.NewReader(stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil || code != 0 {
		t.Fatalf("%d: %v\n%s\n%s", code, err, stdout, stderr)
	}
	return r, stderr
}

// TestLoadCommand runs the load test as a user does. The relay is another process, killed once.
func TestLoadCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	r, stderr := loadReport(t, "--store", dir, "--rate", "4000", "--duration", "4s", "--accounts", "8192", "--kill")
	if !r.Verified || r.Events != 16_000 || r.Edges < 5000 || r.RateOffered != 4000 || r.BytesPerEdge <= 0 ||
		r.Simulator.CPUSeconds <= 0 || r.Simulator.PeakRSS == 0 || r.PeakRSS == 0 || r.MegabytesPerSecond < 1 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(stderr, "killed") {
		t.Error(stderr)
	}
	if code, _, stderr := harness.Run(t, skein, "check", "--store", dir); code != 0 {
		t.Error(code, stderr)
	}
	for _, wrong := range [][]string{
		{"--store", dir, "--seed", "2", "--accounts", "8192"}, // another network
		{"--rate", "-1"},
		{"--rate", "0", "--fault", "stall=1s@1s"},
		{"--fault", "nonsense=1"},
		{"--duration", "0s"},
		{"--kill", "--fault", "jump=5000000@1s"},
	} {
		if code, _, stderr := harness.Run(t, binary, append([]string{"load"}, wrong...)...); code != command.ExitUsage || stderr == "" {
			t.Errorf("%q: exit code %d: %s", wrong, code, stderr)
		}
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "skein-sim-load*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary stores left behind: %q %v", left, err)
	}
}

// TestMemory offers a hundred times the network's peak to a process with a small budget. Events
// that it cannot take in time wait in the relay, not in its memory.
func TestMemory(t *testing.T) {
	const budget = 128 << 20
	r, _ := loadReport(t, "--memory", "128MiB", "--rate", "150000", "--duration", "3s", "--accounts", "300000")
	if !r.Verified {
		t.Errorf("%+v", r)
	}
	// With cgo the C library's heap takes up to twice its share.
	if most := int64(2 * budget); r.PeakRSS > most {
		t.Errorf("%d MiB resident, with a budget of %d", r.PeakRSS>>20, budget>>20)
	}
}

// Errors in the command line of relay are reported.
func TestRelayCommand(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.frames")
	if err := os.WriteFile(broken, []byte("\x00\x00\x00\x09abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{1, "ends within a message", []string{"relay", "--frames", broken}},
		{64, "is negative", []string{"relay", "--rate", "-1"}},
		{64, "sized or full", []string{"relay", "--proofs", "half"}},
		{64, "did you mean relay?", []string{"relai"}},
		{0, "skein-sim 0.", []string{"version"}},
	} {
		code, out, errs := harness.Run(t, binary, c.args...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("skein-sim %s: exit %d, want %d and %q:\n%s%s", strings.Join(c.args, " "), code, c.code, c.want, out, errs)
		}
	}
	for _, name := range []string{"relay", "load"} {
		_, out, _ := harness.Run(t, binary, name, "--help")
		for line := range strings.Lines(out) {
			if strings.Count(line, "(default:") > 1 {
				t.Errorf("%s has a flag with two defaults: %s", name, line)
			}
		}
	}
}

// verify finds the store of a load equal to its network, and different from another one.
func TestVerifyCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	loadReport(t, "--store", dir, "--rate", "4000", "--duration", "1s", "--accounts", "4096")
	if code, _, stderr := harness.Run(t, binary, "verify", "--store", dir, "--accounts", "4096"); code != 0 || !strings.Contains(stderr, " 0 differences") {
		t.Errorf("its own network: %d %s", code, stderr)
	}
	if code, _, stderr := harness.Run(t, binary, "verify", "--store", dir, "--accounts", "4096", "--seed", "2"); code != 1 || !strings.Contains(stderr, "verify: difference:") {
		t.Errorf("another network: %d %s", code, stderr)
	}
	for _, wrong := range [][]string{{"--accounts", "0"}, {"--store", dir, "more"}} {
		if code, _, stderr := harness.Run(t, binary, append([]string{"verify"}, wrong...)...); code != 64 {
			t.Errorf("verify %q: %d %s", wrong, code, stderr)
		}
	}
	if code, _, stderr := harness.Run(t, binary, "verify", "--store", dir+"-missing"); code != 1 || !strings.Contains(stderr, "no store") {
		t.Errorf("no store: %d %s", code, stderr)
	}
}

// A load of a network with a history verifies, and verify finds its store equal to that
// network, and different from one without a history.
func TestPastCommand(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	loadReport(t, "--store", store, "--rate", "4000", "--duration", "1s", "--accounts", "4096", "--past", "6")
	if code, _, stderr := harness.Run(t, binary, "verify", "--store", store, "--accounts", "4096", "--past", "6"); code != 0 || !strings.Contains(stderr, " 0 differences") {
		t.Errorf("its own network: %d %s", code, stderr)
	}
	if code, _, _ := harness.Run(t, binary, "verify", "--store", store, "--accounts", "4096"); code == 0 {
		t.Error("the store is that of a network without a history")
	}
	for _, wrong := range [][]string{
		{"archive", "--past", "0"},
		{"archive", "--accounts", "0"},
		{"relay", "--past", "-1"},
		{"relay", "--past", "5", "--hosts", "4", "--proofs", "full"},
		{"load", "--past", "-1"},
		{"load", "--past", "5", "--backfill", "5", "--rate", "10"},
	} {
		if code, _, stderr := harness.Run(t, binary, wrong...); code != 64 {
			t.Errorf("%q: %d %s", wrong, code, stderr)
		}
	}
}
