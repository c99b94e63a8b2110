package consumer

import (
	"testing"

	"skein.blue/internal/sim/harness"
)

func TestMain(m *testing.M) {
	harness.Waiting()
	m.Run()
}

// must ends a test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
