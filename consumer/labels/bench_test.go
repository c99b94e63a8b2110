package labels

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/labeling"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/write"
	"skein.blue/intern"
	"skein.blue/internal/kv/pebblekv"
)

// BenchmarkVerify decodes and verifies labels.
//
//	go test ./consumer/labels -run xxx -bench . -benchtime 20000x
func BenchmarkVerify(b *testing.B) {
	for name, make := range map[string]func() (atcrypto.PrivateKey, error){
		"k256": func() (atcrypto.PrivateKey, error) { return atcrypto.GeneratePrivateKeyK256() },
		"p256": func() (atcrypto.PrivateKey, error) { return atcrypto.GeneratePrivateKeyP256() },
	} {
		b.Run(name, func(b *testing.B) {
			key, err := make()
			if err != nil {
				b.Fatal(err)
			}
			public, err := key.PublicKey()
			if err != nil {
				b.Fatal(err)
			}
			l := labeling.Label{SourceDID: labelerDID, URI: did(0), Val: "spam", CreatedAt: "2026-01-01T00:00:00.000Z", Version: 1}
			if err := l.Sign(key); err != nil {
				b.Fatal(err)
			}
			m := frame(1, "#labels", map[string]any{"seq": int64(1), "labels": []any{&l}})
			b.ReportAllocs()
			for b.Loop() {
				got, err := decode(m)
				if err != nil || public.HashAndVerify(got.labels[0].unsigned(), got.labels[0].Sig) != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWrite writes labels of new accounts, each with one label, into an embedded store, and reports how
// many bytes of disk each takes, its account included.
func BenchmarkWrite(b *testing.B) {
	dir := b.TempDir()
	store, err := pebblekv.Open(pebblekv.Options{Dir: dir, Create: true, Memory: 256 << 20, Merger: write.NewMerger(write.Limits{})})
	if err != nil {
		b.Fatal(err)
	}
	g, err := graph.Open(b.Context(), store, graph.Options{Intern: intern.Options{Owner: "bench"}, Embedded: true})
	if err != nil {
		b.Fatal(err)
	}
	state := format.Labeler{Name: labelerDID, DID: labelerDID}
	n := 0
	for b.Loop() {
		labels := make([]batch.Label, messagesAtOnce)
		for i := range labels {
			n++
			labels[i] = batch.Label{Labeler: labelerDID, Value: "spam", Subject: fmt.Sprintf("did:plc:%s", base32(n))}
			labels[i].Time = 1_700_000_000_000_000 + int64(n)*1_000_003
		}
		after := state
		after.Seq++
		if err := g.ApplyLabels(b.Context(), time.Unix(1_800_000_000, 0), labels, state, after); err != nil {
			b.Fatal(err)
		}
		state = after
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "labels/s")
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
	var size int64
	_ = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() && filepath.Ext(info.Name()) == ".sst" {
			size += info.Size()
		}
		return nil
	})
	b.ReportMetric(float64(size)/float64(n), "B/label")
}

// base32 spreads numbers over the identifiers of did:plc.
func base32(n int) string {
	x := uint64(n) * 0x9e3779b97f4a7c15
	b := make([]byte, 24)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz234567"[x&31]
		x = x>>5 | x<<59
		x *= 0xbf58476d1ce4e5b9
	}
	return string(b)
}
