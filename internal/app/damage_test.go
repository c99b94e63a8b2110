package app_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/check"
	"skein.blue/graph/format"
	"skein.blue/intern/dict"
	"skein.blue/internal/app"
	"skein.blue/internal/kv"
	"skein.blue/internal/kv/pebblekv"
)

// Bits in the store's tables are flipped. check lists the damage and goes on, a query that
// reads it gets a 500 with an error name. The node stays ready, and says so.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	x, closeIt := open(t, dir, nil)
	const accounts, stars = 20_000, 5000
	var b batch.Batch
	for i := range accounts {
		seq := format.Seq(i + 1)
		b.AddCommit(seq, &batch.Commit{DID: fmt.Appendf(nil, "did:web:fan%d.example", i), Rev: dict.AppendTID(nil, uint64(seq)<<30), Data: make([]byte, 32)})
		for j := range 5 {
			b.AddPut(1, dict.AppendTID(nil, uint64(seq)<<30+uint64(j)), fmt.Appendf(nil, "did:web:star%d.example", (i*7+j*911)%stars))
		}
		b.Seen(seq, nil)
	}
	must(t, x.Graph.Apply(t.Context(), "test", &b))
	if s, ok := x.KV.(*pebblekv.Store); !ok || s.Compact(t.Context()) != nil {
		t.Fatal("the store is not compacted")
	}
	// check also finds problems behind the damage: here a key of an unknown kind, in a table of its own.
	must(t, x.KV.Update(t.Context(), func(tx kv.Txn) error { tx.Set([]byte("v\xfebehind"), nil); return nil }))
	closeIt()
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	for _, table := range tables {
		b, err := os.ReadFile(table)
		must(t, err)
		if len(b) < 64<<10 { // that of the key behind the damage
			continue
		}
		b[len(b)*93/100] ^= 0x10 // a block of sets; the index and the footer come last
		must(t, os.WriteFile(table, b, 0o600))
	}
	store, err := app.OpenStore(t.Context(), app.StoreOptions{Store: dir, ReadOnly: true})
	must(t, err)
	var problems []string
	if err := check.Store(t.Context(), store, func(p string) { problems = append(problems, p) }, nil); err != nil {
		t.Errorf("check ended: %v", err)
	}
	must(t, store.Close())
	if all := strings.Join(problems, "\n"); !strings.Contains(all, "set key 76fe") || !strings.Contains(all, ".sst is damaged") || !strings.Contains(all, "were not compared") {
		t.Errorf("check lists:\n%s", all)
	}

	log := &lockedBuffer{}
	x, _ = open(t, dir, slog.New(slog.NewTextHandler(log, nil)))
	base, admin, stop := serve(t, x, nil)
	defer stop()
	answered, damaged := 0, 0
	var code int
	var answer string
	for i := 0; i < stars; i += 50 {
		code, _, answer = get(t, fmt.Sprintf("%s/xrpc/blue.skein.graph.query?set=followers(did:web:star%d.example)", base, i), nil)
		switch {
		case code == http.StatusOK:
			answered++
		case code == http.StatusInternalServerError && strings.Contains(answer, `"StoreDamaged"`):
			damaged++
		default:
			t.Errorf("a query: %d %s", code, answer)
		}
	}
	if answered == 0 || damaged == 0 {
		t.Errorf("%d queries answered, %d met the damage", answered, damaged)
	}
	eventually(t, "the node says that it is damaged", func() bool {
		code, _, answer = get(t, admin+"/readyz", nil)
		return strings.HasPrefix(answer, "ready, but kv: a part of the store is damaged: file ")
	})
	_, _, metrics := get(t, admin+"/metrics", nil)
	if code != http.StatusOK || !strings.Contains(metrics, "\nskein_store_damaged 1\n") || !strings.Contains(log.String(), "skein check lists") {
		t.Errorf("/readyz: %d %s\n%s", code, answer, log)
	}
}

// otherFormat is a Merger of another version of skein.
type otherFormat struct{ kv.Merger }

func (otherFormat) Name() string { return "skein.graph.v3" }

// A store of another format is refused, with one sentence that says what to do, and stays readable for the program that
// made it.
func TestStoreOfAnotherFormat(t *testing.T) {
	o := pebblekv.Options{Dir: filepath.Join(t.TempDir(), "store"), Create: true, Merger: otherFormat{graph.Merger()}, Memory: 8 << 20}
	for range 2 {
		s, err := pebblekv.Open(o)
		must(t, err)
		must(t, s.Close())
		for _, readOnly := range []bool{false, true} {
			s, err := app.OpenStore(t.Context(), app.StoreOptions{Store: o.Dir, Create: !readOnly, ReadOnly: readOnly})
			if err == nil || !errors.Is(err, kv.ErrFormat) || !strings.Contains(err.Error(), o.Dir+" has another format: index again into a new store, or export it") || strings.Contains(err.Error(), "\n") {
				t.Errorf("read-only %v: %v, %v", readOnly, s, err)
			}
		}
	}
}
