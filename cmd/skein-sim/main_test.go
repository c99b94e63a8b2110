package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"skein.blue/internal/command"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/load"
)

// programVariable makes the tests' program be skein-sim.
const programVariable = "TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
	}
	_ = os.Setenv(programVariable, "skein-sim") // for child processes
	harness.Waiting()
	os.Exit(m.Run())
}

// run runs skein-sim as another process, to its end.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// loadReport runs a load test, and reads its report.
func loadReport(t *testing.T, args ...string) (load.Report, string) {
	t.Helper()
	code, stdout, stderr := run(t, append([]string{"load"}, args...)...)
	var r load.Report
	d := json.NewDecoder(strings.NewReader(stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil || code != 0 || !r.Verified {
		t.Fatalf("%d: %v\n%s\n%s", code, err, stdout, stderr)
	}
	return r, stderr
}

// The load test runs as a user runs it. The relay is another process, killed once.
func TestLoadCommand(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "store")
	r, stderr := loadReport(t, "--store", dir, "--rate", "4000", "--duration", "2s", "--accounts", "8192", "--kill")
	if r.Events != 8_000 || r.Edges < 2500 || r.RateOffered != 4000 || r.BytesPerEdge <= 0 ||
		r.Simulator.CPUSeconds <= 0 || r.Simulator.PeakRSS == 0 || r.PeakRSS == 0 || r.MegabytesPerSecond < 1 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(stderr, "killed") {
		t.Error(stderr)
	}
	if code, _, stderr := run(t, "load", "--store", dir, "--seed", "2", "--accounts", "8192"); code != command.ExitUsage || stderr == "" {
		t.Errorf("another network: %d %s", code, stderr)
	}
}

// A process with a small budget is offered a hundred times the network's peak. Events
// that it cannot take in time wait in the relay, not in its memory.
func TestMemory(t *testing.T) {
	t.Parallel()
	const budget = 128 << 20
	r, _ := loadReport(t, "--memory", "128MiB", "--rate", "150000", "--duration", "2s", "--accounts", "300000")
	// With cgo the C library's heap takes up to twice its share.
	if most := int64(2 * budget); r.PeakRSS > most {
		t.Errorf("%d MiB resident, with a budget of %d", r.PeakRSS>>20, budget>>20)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "skein-sim-load*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary stores left behind: %q %v", left, err)
	}
}

// Errors in command lines are reported.
func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		code       int
		want, line string
	}{
		{64, "is negative", "relay --rate -1"},
		{1, "no such file", "relay --frames nothing"},
		{1, "no store", "verify --store nothing"},
		{64, "sized or full", "relay --proofs half"},
		{64, "--past", "relay --past -1"},
		{64, "did you mean relay?", "relai"},
		{0, "skein-sim 0.", "version"},
		{64, "--past", "archive --past 0"},
		{64, "--accounts", "archive --accounts 0"},
		{64, "is negative", "load --rate -1"},
		{64, "--fault needs --rate", "load --rate 0 --fault stall=1s@1s"},
		{64, "--fault", "load --fault nonsense=1"},
		{64, "--duration", "load --duration 0s"},
		{64, "--fault jump", "load --kill --fault jump=5000000@1s"},
		{64, "--past", "load --past 5 --backfill 5 --rate 10"},
		{64, "--mean", "size --mean 0"},
		{64, "--peak", "size --mean 2000"},
		{64, "--history", "size --history -1"},
		{64, "--duration", "size --duration 0s"},
		{64, "--past", "size --past 0"},
		{64, "--store", "size --store fdb:///x"},
	} {
		var out bytes.Buffer
		code := command.Run(t.Context(), &command.Environment{Stdout: &out, Stderr: &out}, commandLine, append([]string{"skein-sim"}, strings.Fields(c.line)...))
		if code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("skein-sim %s: exit %d, want %d and %q:\n%s", c.line, code, c.code, c.want, out.String())
		}
	}
}

// skein-sim size measures a small store, and prints both tables.
func TestSizeCommand(t *testing.T) {
	t.Parallel()
	code, out, errs := run(t, "size", "--accounts", "4096", "--past", "60", "--duration", "1s", "--mean", "500", "--peak", "700", "--history", "1e9", "--memory", "64MiB")
	if code != 0 {
		t.Fatalf("%d: %s", code, errs)
	}
	for _, want := range []string{
		`\| edges that an event adds \| 0\.[5-9]\d \|`, `\| bytes received per event \| [45]\d\d\d \|`, `at 500 events/s \|`, `at 700 events/s \|`,
		`\| edges \| [2-4]\d\.\d M \| 1\d\.\d G \| 1\.0 G \|`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}
