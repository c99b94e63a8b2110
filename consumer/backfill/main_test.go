package backfill

import (
	"testing"

	"skein.blue/internal/testing/parallel"
)

func TestMain(m *testing.M) {
	parallel.Waiting()
	m.Run()
}
