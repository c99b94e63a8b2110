package graph_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/export"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/memkv"
	"skein.blue/internal/sim/oracle"
)

// readTable reads all rows of a folder of Parquet files.
func readTable(t *testing.T, dir string) (rows []map[string]any) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
	if err != nil || len(names) == 0 {
		t.Fatal(dir, err)
	}
	slices.Sort(names)
	for _, name := range names {
		of, err := parquet.ReadFile[any](name)
		if err != nil {
			t.Fatal(name, err)
		}
		for _, row := range of {
			m, ok := row.(map[string]any)
			if !ok {
				t.Fatalf("%T", row)
			}
			rows = append(rows, m)
		}
	}
	return rows
}

// key returns the record key of a row with time, clock and rkey.
func key(t *testing.T, row map[string]any) string {
	t.Helper()
	if at, ok := row["time"].(int64); ok {
		c, ok := row["clock"].(uint32)
		if !ok || row["rkey"] != nil || row["uri"] != nil {
			t.Fatal(row)
		}
		return string(dict.AppendTID(nil, uint64(at)<<10|uint64(c)))
	}
	k, _ := row["rkey"].(string)
	return k
}

// The tables of a store after any history are the model's records, but for those of inactive accounts
// and those that name them.
func TestTables(t *testing.T) {
	for _, settings := range []dict.Settings{dict.DefaultSettings, sharedSettings} {
		store := memkv.Open(memkv.Options{Merger: merger()})
		s, err := graph.Open(t.Context(), store, graph.Options{Intern: intern.Options{Settings: settings}, SliceSize: 3, Beat: time.Hour})
		must(t, err)
		m, h := oracle.New(), oracle.NewHistory(3, 60)
		var b batch.Batch
		for i := range 6000 {
			e := h.Next()
			m.Apply(e)
			fill(&b, e)
			if i%50 == 0 {
				must(t, s.Apply(t.Context(), "relay", &b))
				b.Reset()
			}
		}
		// A string too long for its group has a row of its own.
		long := "did:web:" + strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + "." + strings.Repeat("c", 60) + "." + strings.Repeat("d", 60) + "." + strings.Repeat("e", 60) + ".example"
		b.AddAccount(1e9, []byte(long), true, false)
		b.Seen(1e9, []byte("2026-05-06T07:08:10Z"))
		// The first bit of a key may be set: it has the form of a TID, and names no time. The dictionary keeps it.
		like := kinds.ByName("like").Kind
		b.AddCommit(1e9+1, &batch.Commit{DID: []byte(long), Rev: dict.AppendTID(nil, 1<<20), Data: make([]byte, 32)})
		b.AddPut(like, []byte("x"), []byte(timeless))
		must(t, s.Apply(t.Context(), "relay", &b))
		b.Reset()
		b.AddCommit(1e9+2, &batch.Commit{DID: []byte(long), Rev: dict.AppendTID(nil, 2<<20), Since: dict.AppendTID(nil, 1<<20), Data: make([]byte, 32)})
		b.AddDelete(like, []byte("x"))
		must(t, s.Apply(t.Context(), "relay", &b))
		b.Reset()
		for _, o := range []export.TableOptions{{}, {Kinds: []string{"like"}, Since: time.UnixMicro(int64(middle(m)))}} {
			o.Dir = filepath.Join(t.TempDir(), "tables")
			told := int64(0)
			o.Progress = func(n int64) { told = max(told, n) }
			got, err := export.WriteTables(t.Context(), store, o)
			must(t, err)
			edges := compareTables(t, o, m, long)
			if got.Edges() != edges || told != edges || edges < 100 {
				t.Fatalf("%d edges in the manifest, %d told, %d read", got.Edges(), told, edges)
			}
			var written export.Manifest
			text, err := os.ReadFile(filepath.Join(o.Dir, "manifest.json"))
			if err = errors.Join(err, json.Unmarshal(text, &written)); err != nil || written.Edges() != edges || len(written.Cursors) != 1 {
				t.Fatalf("%s: %v", text, err)
			}
			if _, err := export.WriteTables(t.Context(), store, o); !errors.Is(err, export.ErrFolder) {
				t.Fatal(err)
			}
		}
		if _, err := export.WriteTables(t.Context(), store, export.TableOptions{Dir: filepath.Join(t.TempDir(), "x"), Kinds: []string{"hug"}}); !errors.Is(err, export.ErrKind) {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := export.WriteTables(ctx, store, export.TableOptions{Dir: filepath.Join(t.TempDir(), "x")}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		must(t, s.Close(t.Context()))
	}
}

const timeless = "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/app.bsky.feed.post/jzzzzzzzzzzzz"

// middle returns the time of a like, in microseconds, that divides the likes.
func middle(m *oracle.Model) uint64 {
	var all []uint64
	for p := range m.Records {
		if tid, ok := dict.ParseTID(p.Rkey); ok && p.Kind == "like" && !m.Hidden[p.DID] {
			all = append(all, tid>>10)
		}
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func compareTables(t *testing.T, o export.TableOptions, m *oracle.Model, long string) (edges int64) {
	t.Helper()
	accounts, uris := map[any]string{}, map[any]string{}
	for i, row := range readTable(t, filepath.Join(o.Dir, "accounts")) {
		did, _ := row["did"].(string)
		r := m.Repos[did]
		if row["id"] != uint32(i) || did != long && (row["known"] != (r != nil) || row["active"] != !m.Hidden[did]) {
			t.Fatalf("row %d: %v", i, row)
		}
		accounts[row["id"]] = did
	}
	if !slices.Contains(slices.Collect(maps.Values(accounts)), long) {
		t.Fatal("the long DID is missing")
	}
	for i, row := range readTable(t, filepath.Join(o.Dir, "uris")) {
		uri, _ := row["uri"].(string)
		if row["id"] != uint32(i) {
			t.Fatalf("row %d: %v", i, row)
		}
		if row["uri"] == nil {
			uri = fmt.Sprintf("at://%s/%s/%s", accounts[row["author"]], row["collection"], key(t, row))
		}
		uris[row["id"]] = uri
	}
	if !slices.Contains(slices.Collect(maps.Values(uris)), timeless) {
		t.Fatal("the URI whose key names no time is missing")
	}
	for _, k := range kinds.All {
		dir := filepath.Join(o.Dir, "edges", k.Name)
		if _, err := os.Stat(dir); (err == nil) != (o.Kinds == nil || slices.Contains(o.Kinds, k.Name)) {
			t.Fatal(dir, err)
		} else if err != nil {
			continue
		}
		subjects := uris
		if k.To.Is() == dict.DID {
			subjects = accounts
		}
		want := map[oracle.Path]string{}
		for p, subject := range m.Records {
			tid, isTID := dict.ParseTID(p.Rkey)
			if p.Kind == k.Name && subject != "" && !m.Hidden[p.DID] && (k.To.Is() == dict.URI || !m.Hidden[subject]) && (!isTID || o.Since.IsZero() || tid>>10 >= uint64(o.Since.UnixMicro())) {
				want[p] = subject
			}
		}
		got := map[oracle.Path]string{}
		last := map[string]any{}
		for _, row := range readTable(t, dir) {
			a, ok := row["actor"].(uint32)
			if was, later := last["actor"].(uint32); !ok || later && a < was {
				t.Fatalf("%s: %v after %v", k.Name, row, last)
			}
			last = row
			p := oracle.Path{DID: accounts[row["actor"]], Kind: k.Name, Rkey: key(t, row)}
			if _, twice := got[p]; twice {
				t.Fatalf("%v twice", p)
			}
			got[p] = subjects[row["subject"]]
			edges++
		}
		if !maps.Equal(got, want) {
			t.Fatalf("%s: %d records, want %d", k.Name, len(got), len(want))
		}
	}
	return edges
}
