package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"skein.blue/internal/sim/oracle"
)

// A set is the same in every format, in one stream or page by page, and an export of a running
// daemon's store has what the store has.
func TestFormats(t *testing.T) {
	t.Parallel()
	tr, err := oracle.ReadTruth(plainTruth)
	if err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(t.TempDir(), "store")
	if code, out, errs := skein(t, "replay", "--store", store, "--frames", plainPDS); code != 0 {
		t.Fatal(out, errs)
	}
	d := serveDaemon(t, nil, "--store", store, "--consume=false")
	likes := tr.RecordCounts()["like"]
	ask := func(args ...string) string {
		t.Helper()
		code, out, errs := skein(t, append([]string{"query", "--server", d.api}, args...)...)
		if code != 0 {
			t.Fatal(args, out, errs)
		}
		return out
	}
	did, want := "", []string(nil)
	for of, followers := range tr.Views.Active["followers"] {
		if len(followers) > len(want) || len(followers) == len(want) && of < did {
			did, want = of, followers
		}
	}
	set := "followers(" + did + ")"
	members := strings.Fields(ask(set))
	if slices.Sort(want); len(members) < 3 || !slices.Equal(slices.Sorted(slices.Values(members)), want) {
		t.Fatal(members, want)
	}
	for _, way := range [][]string{{"--admin", d.admin}, {"--admin", "off"}, {}} {
		got := func(format, set string) string { return ask(append(slices.Clone(way), "--format", format, set)...) }
		if csv := strings.Fields(got("csv", set)); !slices.Equal(csv[1:], members) || csv[0] != "member" {
			t.Fatal(way, csv)
		}
		var lines []string
		for line := range strings.Lines(got("jsonl", set)) {
			var m struct{ Member string }
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(err)
			}
			lines = append(lines, m.Member)
		}
		if !slices.Equal(lines, members) {
			t.Fatal(way, lines)
		}
		if p := parquetColumn(t, got("parquet", set)); !slices.Equal(p, members) {
			t.Fatal(way, p)
		}
		const empty = "followers(did:web:nobody.example)"
		if csv, lines, p := got("csv", empty), got("jsonl", empty), parquetColumn(t, got("parquet", empty)); csv != "member\n" || lines != "" || len(p) != 0 {
			t.Fatalf("%v: %q %q %q", way, csv, lines, p)
		}
		ranked := strings.Fields(got("csv", "rank(of="+set+", via=follows, limit=3)"))
		if len(ranked) != 4 || ranked[0] != "member,count" {
			t.Fatal(way, ranked)
		}
	}
	for _, args := range [][]string{{"--format", "xml", set}, {"--format", "csv", "--count", set}} {
		if code, _, errs := skein(t, append([]string{"query", "--server", d.api}, args...)...); code != 64 || !strings.Contains(errs, "--format") {
			t.Errorf("%q: %d %s", args, code, errs)
		}
	}
	if code, _, errs := skein(t, "query", "--server", d.api, "--admin", "http://127.0.0.1:1", "--format", "csv", set); code != 1 || !strings.Contains(errs, "no answer from a daemon") {
		t.Errorf("an admin address that was given: %d %s", code, errs)
	}
	// The whole graph, from the running daemon.
	dir := filepath.Join(t.TempDir(), "tables")
	if code, out, errs := skein(t, "export", "--format", "parquet", "--admin", d.admin, dir); code != 0 || !strings.Contains(out, " edges and ") {
		t.Fatal(out, errs)
	}
	var m struct {
		Tables map[string]struct{ Rows int64 }
	}
	b, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &m); err != nil || m.Tables["edges/like"].Rows < likes*8/10 || m.Tables["edges/like"].Rows > likes {
		t.Fatalf("%s: %d likes: %v", b, likes, err)
	}
	for _, args := range [][]string{{"--format", "parquet"}, {"--format", "xml"}, {"--kinds", "like"}, {"--format", "parquet", "--kinds", "hug", "--admin", d.admin, filepath.Join(t.TempDir(), "x")}, {"--format", "parquet", "--admin", d.admin, dir}} {
		if code, _, errs := skein(t, append([]string{"export"}, args...)...); code != 64 {
			t.Errorf("%q: %d %s", args, code, errs)
		}
	}
	d.stop()
}

// parquetColumn returns the column member of a Parquet file.
func parquetColumn(t *testing.T, b string) (values []string) {
	t.Helper()
	rows, err := parquet.Read[memberRow](strings.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		values = append(values, r.Member)
	}
	return values
}
