package intern

import (
	"fmt"
	"os"
	"testing"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/sim/kvtest"
)

func TestMain(m *testing.M) { os.Exit(kvtest.Main(m)) }

// adders create new strings: URIs of posts in the order of time, DIDs in no order, and URIs
// without a packed form.
var adders = map[string]func(batch *Batch, i int){
	"posts": func(batch *Batch, i int) {
		tid := uint64(1<<60) + uint64(i)*1000<<dict.ClockBits
		batch.Add(dict.URI, fmt.Appendf(nil, "at://did:plc:%s/app.bsky.feed.post/%s", base32Of(uint64(i%5000)), dict.AppendTID(nil, tid)))
	},
	"dids": func(batch *Batch, i int) { batch.Add(dict.DID, fmt.Appendf(nil, "did:plc:%s", base32Of(uint64(i)))) },
	"raw": func(batch *Batch, i int) {
		batch.Add(dict.URI, fmt.Appendf(nil, "at://did:plc:%s/app.bsky.feed.post/post-%d", base32Of(uint64(i%5000)), i))
	},
}

// BenchmarkResolve interns new strings on the embedded engine, in batches, in both directions.
//
//	go test ./intern -run xxx -bench Resolve -benchtime 300x
func BenchmarkResolve(b *testing.B) {
	for name, add := range adders {
		b.Run(name, func(b *testing.B) {
			store, err := pebblekv.Open(pebblekv.Options{Dir: b.TempDir(), Create: true, Merger: Merger{}})
			must(b, err)
			in, err := Open(b.Context(), store, Options{})
			must(b, err)
			const size = 10_000
			var batch Batch
			n := 0
			for b.Loop() {
				b.StopTimer() // measure interning, not making strings
				batch.Reset()
				for range size {
					add(&batch, n)
					n++
				}
				b.StartTimer()
				err := in.Prepare(b.Context(), nil, batch.Len())
				if err == nil {
					err = store.Update(b.Context(), func(tx kv.Txn) error { _, err := in.Resolve(tx, &batch); return err })
				}
				must(b, err)
				in.Committed(&batch)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "strings/s")
			in.Close()
			must(b, store.Close())
		})
	}
}

// BenchmarkClaim interns new strings on FoundationDB, in both directions.
//
//	go test -tags fdb ./intern -run xxx -bench Claim -benchtime 1x
func BenchmarkClaim(b *testing.B) {
	for name, add := range adders {
		b.Run(name, func(b *testing.B) { benchmarkClaim(b, add) })
	}
}

func benchmarkClaim(b *testing.B, add func(batch *Batch, i int)) {
	const size, batches = 10_000, 20
	store := kvtest.Open(b, kvtest.Options(b, Merger{}))
	var took time.Duration
	made, measured := 0, 0
	for b.Loop() {
		in, err := Open(b.Context(), store, Options{Settings: dict.SharedSettings, CacheBytes: 64 << 20})
		must(b, err)
		var batch Batch
		for n := range batches {
			batch.Reset()
			for range size {
				add(&batch, made)
				made++
			}
			begun := time.Now()
			must(b, in.Prepare(b.Context(), &batch, 0))
			if n > 0 { // the first takes the leases
				took, measured = took+time.Since(begun), measured+size
			}
		}
		in.Close()
	}
	b.ReportMetric(float64(measured)/took.Seconds(), "strings/s")
	must(b, store.Close())
}

// base32Of formats a number in 24 characters of base32.
func base32Of(n uint64) []byte {
	out := make([]byte, 24)
	h := n * 0x9e3779b97f4a7c15
	for i := range out {
		out[i] = dict.Base32Alphabet[(h>>(i%12*5)^n>>(i/12*7))&31]
	}
	return out
}
