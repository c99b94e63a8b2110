package upgrade

import (
	"context"
	"testing"

	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// forgetful keeps a snapshot only for some keys, like FoundationDB for five seconds: a View that reads
// more fails; ViewAcross goes on.
type forgetful struct{ kv.Store }

type forgetfulReader struct {
	kv.Reader
	left *int
}

func (r forgetfulReader) Scan(lo, hi []byte, reverse bool, each func(k, v []byte) (bool, error)) error {
	return r.Reader.Scan(lo, hi, reverse, func(k, v []byte) (bool, error) {
		if *r.left--; *r.left < 0 {
			return false, kv.ErrTooOld
		}
		return each(k, v)
	})
}

func (f forgetful) View(ctx context.Context, fn func(kv.Reader) error) error {
	left := 50
	return f.Store.View(ctx, func(r kv.Reader) error { return fn(forgetfulReader{r, &left}) })
}

// An upgrade of a store that is larger than one snapshot can read ends.
func TestUpgradeAcrossSnapshots(t *testing.T) {
	if _, err := Run(t.Context(), forgetful{load(t, gunzip(t, "v6-several.kv.gz"), memkv.Faults{})}, nil); err != nil {
		t.Fatal(err)
	}
}
