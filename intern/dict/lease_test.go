package dict

import (
	"testing"
)

// TestLeasesRefused: keys of another length or keyspace are refused.
func TestLeasesRefused(t *testing.T) {
	l := goldenLeases[0]
	key, value := AppendLeaseKey(nil, l.Namespace, l.Shard, l.Block), l.Value()
	for _, key := range [][]byte{nil, key[:13], append(key[:14:14], 0), AppendNextKey(nil, DID, 5)} {
		if got, err := DecodeLease(key, value); err == nil {
			t.Errorf("under %x there is %+v", key, got)
		}
	}
}
