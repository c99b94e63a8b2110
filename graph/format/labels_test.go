package format

import (
	"fmt"
	"strings"
	"testing"
)

// The versions with the latest statements are kept, and the statement about all versions in any case.
func TestVersionsAreBounded(t *testing.T) {
	for _, whole := range []bool{false, true} {
		var es LabelEntries
		if whole {
			es.Put(LabelEntry{Time: 1})
		}
		for i := range 3 * MaxVersions {
			es.Put(LabelEntry{CID: fmt.Sprintf("bafy%03d", (i*7)%100), Time: int64(10 + i)})
		}
		versions := 0
		for _, e := range es {
			if e.CID != "" {
				if versions++; e.Time < 10+2*MaxVersions {
					t.Errorf("a statement of %d is kept", e.Time)
				}
			}
		}
		if versions != MaxVersions || (es.whole() != nil) != whole {
			t.Errorf("%d versions, with one about all: %v", versions, es.whole() != nil)
		}
	}
}

// What DecodeLabels accepts, it writes again as it was.
func FuzzDecodeLabels(f *testing.F) {
	es := LabelEntries{{Time: 5, Expires: 7}, {CID: "bafya", Time: MaxLabelTime, Negated: true}, {CID: "bafyb", Expired: true, Expires: 1}}
	f.Add(es.Append(nil))
	f.Add([]byte{0, 0})
	f.Add(LabelEntries{{CID: strings.Repeat("x", 255), Time: 1}}.Append(nil))
	f.Fuzz(func(t *testing.T, v []byte) {
		es, err := DecodeLabels(v)
		if err != nil {
			return
		}
		again, err := DecodeLabels(es.Append(nil))
		if err != nil || len(again) != len(es) {
			t.Fatalf("%x: %v, %v", v, again, err)
		}
		for i := range es {
			if es[i] != again[i] {
				t.Errorf("%+v, %+v", es[i], again[i])
			}
		}
	})
}
