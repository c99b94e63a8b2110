package format

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"skein.blue/intern/dict"
)

// TestUnreadable: a value that keeps others as they were is refused by every reader and fold of records, sets and
// posts, and keeps all of their bytes, however they are brought together.
func TestUnreadable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		var values [][]byte
		for range 1 + rng.IntN(4) {
			v := make([]byte, rng.IntN(400))
			for i := range v {
				v[i] = byte(rng.Uint32() >> rng.IntN(25))
			}
			values = append(values, v)
		}
		v := AppendUnreadable(nil, values)
		cut := rng.IntN(len(values))
		parts := [][]byte{AppendUnreadable(nil, values[:cut]), AppendUnreadable(nil, values[cut:])}
		if again := AppendUnreadable(nil, parts); !bytes.Equal(again, v) {
			t.Fatalf("%x in parts is %x", v, again)
		}
		errs := map[string]error{}
		_, errs["row"] = ParseRow(5, v)
		coder, err := CoderOfKey(AppendRecordsKey(nil, 1, 5))
		if err != nil {
			t.Fatal(err)
		}
		_, _, errs["records"] = coder.Read(nil, v)
		_, errs["group of rows"] = RowIn(v, 5)
		for name, key := range map[string][]byte{
			"chunk": AppendRecordsKey(nil, 1, 5), "fold of a row": AppendRowKey(nil, 1, 5), "fold of a group of rows": alone.AppendMembersKey(nil, 2, 5),
		} {
			base := rng.IntN(2) == 0
			_, _, errs[name] = new(Folder).Fold(nil, key, [][]byte{v, {}}, base)
		}
		for name, err := range errs {
			if !errors.Is(err, dict.ErrStored) {
				t.Fatalf("%s: %v of %x", name, err, v)
			}
		}
	}
}
