package format

import (
	"maps"
	"testing"

	"skein.blue/graph/kinds"
)

// TestCounts: missing entries are 0, and entries of kinds that are not built in survive.
func TestCounts(t *testing.T) {
	c, err := DecodeCounts([]byte(`{"accounts": 3, "records": {"follow": 2, "configured": 5}, "strings": null, "more": 1}`))
	want := map[string]int64{"configured": 5}
	for _, k := range kinds.All {
		want[k.Name] = 0
	}
	want["follow"] = 2
	if err != nil || c.Accounts != 3 || !maps.Equal(c.Records, want) || !maps.Equal(c.Strings, map[string]int64{"did": 0, "uri": 0}) {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := DecodeCounts([]byte(`{"accounts": "many"}`)); err == nil || c.Records == nil {
		t.Errorf("%+v, %v", c, err)
	}
}
