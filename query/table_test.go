package query_test

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"skein.blue/query"
)

// A table has the same cells in CSV, JSON lines and Parquet, as objects of text.
func (w *world) rows(method string, p url.Values, format string) (rows []map[string]string, h http.Header) {
	w.t.Helper()
	p = maps.Clone(p)
	p.Set("format", format)
	status, body, h := w.do(http.MethodGet, pathOf(method+"?"+p.Encode()), "")
	if status != http.StatusOK {
		w.t.Fatalf("%s %v: %d %s", method, p, status, body)
	}
	row := func(names []string, cell func(i int) (string, bool)) {
		object := map[string]string{}
		for i, name := range names {
			if text, ok := cell(i); ok {
				object[name] = text
			}
		}
		rows = append(rows, object)
	}
	var err error
	switch format {
	case "csv":
		var lines [][]string
		lines, err = csv.NewReader(strings.NewReader(body)).ReadAll()
		for _, line := range lines[1:] {
			row(lines[0], func(i int) (string, bool) { return line[i], line[i] != "" })
		}
	case "jsonl":
		for line := range strings.Lines(body) {
			d, object := json.NewDecoder(strings.NewReader(line)), map[string]any{}
			d.UseNumber()
			err = d.Decode(&object)
			names := slices.Collect(maps.Keys(object))
			row(names, func(i int) (string, bool) { return fmt.Sprint(object[names[i]]), true })
		}
	case "parquet":
		var f *parquet.File
		f, err = parquet.OpenFile(strings.NewReader(body), int64(len(body)))
		must(w.t, err)
		in, read := parquet.NewReader(f), map[string]any{}
		for err = in.Read(&read); err == nil; err = in.Read(&read) {
			names := slices.Collect(maps.Keys(read))
			row(names, func(i int) (string, bool) { return fmt.Sprint(read[names[i]]), read[names[i]] != nil })
			clear(read)
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	must(w.t, err)
	return rows, h
}

// Each method that answers with a table writes the cells of its JSON in each format, with the handles of accounts and authors
// that are known.
func TestFormats(t *testing.T) {
	w := newWorld(t, 51, 4000)
	w.blockLists(rand.New(rand.NewPCG(51, 1)), 1500)
	names := &handles{kept: map[string]string{}, remote: map[string]string{}}
	var liker, post, blocker string
	v := w.model.Views()
	for i, did := range w.history.Accounts() {
		if names.remote[fmt.Sprintf("a%d.example.com", i)] = did; len(v.Forward["like"][did]) > 3 {
			liker = did
		}
		if len(v.Forward["listblock"][did]) > len(v.Forward["listblock"][blocker]) {
			blocker = did
		}
	}
	post = v.Forward["like"][liker][0]
	delete(names.remote, "a0.example.com")
	w.serve(query.Options{Version: "1", Handles: names})
	likes, likers := "likes("+liker+")", "likers("+post+")"
	for _, c := range []struct {
		method, items string
		p             url.Values
	}{
		{"query", "members", url.Values{"set": {likes}, "limit": {"2"}}},
		{"query", "members", url.Values{"set": {likers}, "records": {"true"}}},
		{"list", "items", url.Values{"set": {likes}, "limit": {"2"}}},
		{"list", "items", url.Values{"set": {likers}, "order": {"size(likes)"}}},
		{"rank", "items", url.Values{"of": {likes}, "via": {"likers"}, "by": {"lift"}, "min": {"1"}, "limit": {"3"}}},
		{"rank", "items", url.Values{"of": {likes}, "via": {"likers"}, "decay": {"1m"}}},
		{"counts", "subjects", url.Values{"subject": {post}, "edge": {"likers", "reposters"}}},
		{"histogram", "buckets", url.Values{"set": {likes}}},
		{"overlap", "", url.Values{"set": {likes, "likes(" + w.history.Accounts()[1] + ")"}, "with": {likes}}},
		{"query", "", url.Values{"set": {likes}, "count": {"true"}}},
		{"getBlocks", "", url.Values{"actor": {blocker}, "direction": {"blocking"}, "limit": {"2"}}},
	} {
		c.p.Set("names", "true")
		want, h := w.rows(c.method, c.p, "csv")
		for _, format := range []string{"jsonl", "parquet"} {
			got, other := w.rows(c.method, c.p, format)
			if fmt.Sprint(got) != fmt.Sprint(want) || other.Get("Skein-Total") != h.Get("Skein-Total") {
				t.Fatalf("%s %v: %s has %v, CSV %v", c.method, c.p, format, got, want)
			}
		}
		_, body, _ := w.do(http.MethodGet, pathOf(c.method+"?"+c.p.Encode()), "")
		var answer map[string]any
		d := json.NewDecoder(bytes.NewReader([]byte(body)))
		d.UseNumber()
		must(w.t, d.Decode(&answer))
		if total, ok := answer["total"]; ok && fmt.Sprint(total) != h.Get("Skein-Total") || (h.Get("Skein-Cursor") == "") != (answer["cursor"] == nil) {
			t.Fatalf("%s %v: %v, but %s", c.method, c.p, h, body)
		}
		if next := h.Get("Skein-Cursor"); next != "" { // pages may follow in another format
			c.p.Set("cursor", next)
			w.rows(c.method, c.p, "parquet")
		}
		items, _ := answer[c.items].([]any)
		for i, item := range items {
			object, ok := item.(map[string]any)
			if !ok {
				object = map[string]any{"member": item}
			}
			for name, cell := range object {
				if totals, ok := cell.([]any); ok {
					name, cell = "reposters", totals[1]
				}
				if want[i][name] != fmt.Sprint(cell) {
					t.Fatalf("%s %v: %v, JSON has %v", c.method, c.p, want[i], object)
				}
			}
			about := cmp.Or(want[i]["member"], want[i]["subject"])
			did, _, _ := strings.Cut(strings.TrimPrefix(about, "at://"), "/")
			known, _ := answer["handles"].(map[string]any)
			if handle := want[i]["handle"]; handle != "" && names.remote[handle] != did || handle == "" && did != w.history.Accounts()[0] && about != "" || known[did] != nil && known[did] != handle {
				t.Fatalf("%s %v: %v has the handle %q, JSON %v", c.method, c.p, want[i], handle, known[did])
			}
		}
		if c.items != "" && len(items) == 0 || len(want) == 0 {
			t.Errorf("%s %v is empty", c.method, c.p)
		}
	}
	p := url.Values{"actor": {blocker}, "direction": {"blocking"}, "limit": {"100"}}
	rows, _ := w.rows("getBlocks", p, "csv")
	if !slices.ContainsFunc(rows, func(row map[string]string) bool { return row["list"] != "" }) {
		t.Error("nobody blocks through a list")
	}
	for _, b := range w.answer("getBlocks", p).Blocks {
		if b.Record != "" {
			if rows[0]["did"] != b.DID || rows[0]["record"] != b.Record || rows[0]["list"] != "" {
				t.Fatalf("%v, JSON has %+v", rows[0], b)
			}
			rows = rows[1:]
		}
		for _, l := range b.Lists {
			if rows[0]["did"] != b.DID || rows[0]["list"] != l.List || rows[0]["listItem"] != l.ListItem || rows[0]["record"] != "" {
				t.Fatalf("%v, JSON has %+v", rows[0], l)
			}
			rows = rows[1:]
		}
	}
	if len(rows) > 0 {
		t.Errorf("%d rows too many", len(rows))
	}
	if rows, _ := w.rows("overlap", url.Values{"set": {likes, likes}}, "csv"); len(rows) != 3 || rows[0]["members"] == "" || rows[0]["members"] != rows[1]["members"] {
		t.Errorf("overlap of a set with itself: %v", rows)
	}
	names.hung = map[string]chan struct{}{liker: make(chan struct{})} // it is not waited for
	defer close(names.hung[liker])
	rows, _ = w.rows("query", url.Values{"set": {likers}, "names": {"true"}}, "csv")
	for _, row := range rows {
		if (row["handle"] == "") != (row["member"] == liker || row["member"] == w.history.Accounts()[0]) {
			t.Errorf("beside a look-up that hangs: %v", row)
		}
	}
}
