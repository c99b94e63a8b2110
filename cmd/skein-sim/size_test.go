package main

import (
	"regexp"
	"strings"
	"testing"

	"skein.blue/internal/sim/harness"
)

// skein-sim size measures a small store, and prints both tables.
func TestSizeCommand(t *testing.T) {
	code, out, errs := harness.Run(t, binary, "size", "--accounts", "4096", "--past", "60", "--duration", "1s", "--mean", "500", "--peak", "700", "--history", "1e9", "--memory", "64MiB")
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
	for _, args := range [][]string{{"--mean", "0"}, {"--mean", "2000"}, {"--history", "-1"}, {"--duration", "0s"}, {"--past", "0"}, {"--store", "fdb:///x"}} {
		if code, _, errs := harness.Run(t, binary, append([]string{"size"}, args...)...); code != 64 || !strings.Contains(errs, "--") {
			t.Errorf("%q: %d %s", args, code, errs)
		}
	}
}
