package oracle_test

import (
	"testing"

	"skein.blue/internal/sim/oracle"
)

// The oracle and the recorder of the stream agree.
func TestFilesAgree(t *testing.T) {
	tr, err := oracle.ReadTruth("../../../testdata/pds/plain-truth.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range tr.Check() {
		t.Error(d)
	}
	if len(tr.Views.Active["followers"]) < 10 || len(tr.Records) < 100 {
		t.Error("the file is nearly empty")
	}
}
