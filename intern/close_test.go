package intern_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/memkv"
)

// TestSecondClose: a second Close does not panic, even if the first failed or is under way, and
// ids remain.
func TestSecondClose(t *testing.T) {
	for _, settings := range []dict.Settings{dict.DefaultSettings, dict.SharedSettings} {
		for _, failed := range []bool{false, true} {
			store := memkv.Open(memkv.Options{Merger: dict.Merger{}})
			in := open(t, store, intern.Options{Settings: settings})
			var b intern.Batch
			n := b.Add(dict.DID, []byte("did:web:a.example.com"))
			if err := resolve(t.Context(), store, in, &b); err != nil {
				t.Fatal(err)
			}
			id := b.ID(n)
			if failed {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				if err := in.Close(ctx); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: the first Close: %v", settings, err)
				}
			}
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					if err := in.Close(t.Context()); err != nil {
						t.Errorf("%s: %v", settings, err)
					}
				})
			}
			all.Wait()
			if err := in.Close(t.Context()); err != nil {
				t.Errorf("%s: after the Close: %v", settings, err)
			}
			err := store.View(t.Context(), func(r kv.Reader) error {
				b.Reset()
				n := b.Add(dict.DID, []byte("did:web:a.example.com"))
				err := intern.Lookup(r, &b)
				if got := b.ID(n); got != id {
					t.Errorf("%s: the id is %d, and was %d", settings, got, id)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}
