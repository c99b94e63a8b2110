package consumer

import (
	"testing"

	"skein.blue/internal/sim/harness"
)

func TestMain(m *testing.M) {
	harness.Waiting()
	m.Run()
}
