package kvtest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/internal/kv"
)

// A Recorder records the writes of a store and repeats them without reads, to measure
// the cluster alone.
type Recorder struct {
	mu    sync.Mutex
	bytes []byte
	rows  []recorded
}

type recorded struct{ key, value uint32 } // lengths

// Wrote records one write. Use it as fdbkv.Options.Wrote.
func (r *Recorder) Wrote(key, value []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bytes = append(append(r.bytes, key...), value...)
	r.rows = append(r.rows, recorded{uint32(len(key)), uint32(len(value))})
}

// Reset forgets everything.
func (r *Recorder) Reset() { r.bytes, r.rows = r.bytes[:0], r.rows[:0] }

// Size returns the number of recorded writes, and the bytes of their keys and values.
func (r *Recorder) Size() (keys, bytes int) { return len(r.rows), len(r.bytes) }

// Blind repeats the writes in another store, with size keys in each transaction and inFlight transactions
// at a time, and returns the duration.
func (r *Recorder) Blind(b *testing.B, store kv.Store, size, inFlight int) time.Duration {
	b.Helper()
	type row struct{ key, value []byte }
	rows := make([]row, len(r.rows))
	at := uint32(0)
	for i, l := range r.rows {
		rows[i] = row{r.bytes[at : at+l.key], r.bytes[at+l.key : at+l.key+l.value]}
		at += l.key + l.value
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	begun := time.Now()
	for range inFlight {
		wg.Go(func() {
			for {
				from := int(next.Add(int64(size))) - size
				if from >= len(rows) {
					return
				}
				err := store.Update(b.Context(), func(tx kv.Txn) error {
					for _, r := range rows[from:min(from+size, len(rows))] {
						tx.Set(r.key, r.value)
					}
					return nil
				})
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(begun)
}
