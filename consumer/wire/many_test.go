package wire_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"skein.blue/consumer/wire"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/internal/say"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/synth"
)

// item is a value of DAG-CBOR: a string, nil, an int, a []item or a map of items.
type item = any

func appendItem(b []byte, v item) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 0xf6)
	case int:
		return wire.AppendHead(b, 0, uint64(v))
	case string:
		return append(wire.AppendHead(b, wire.Text, uint64(len(v))), v...)
	case []item:
		b = wire.AppendHead(b, wire.Array, uint64(len(v)))
		for _, e := range v {
			b = appendItem(b, e)
		}
	case map[string]item:
		b = wire.AppendHead(b, wire.Map, uint64(len(v)))
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, func(x, y string) int {
			if len(x) != len(y) {
				return len(x) - len(y)
			}
			return strings.Compare(x, y)
		})
		for _, k := range keys {
			b = appendItem(appendItem(b, k), v[k])
		}
	}
	return b
}

// pathsOf calls each with every string of a value and its path, as Constellation's walk_record does.
func pathsOf(path string, v item, each func(path, s string)) {
	switch v := v.(type) {
	case string:
		each(path, v)
	case []item:
		for _, e := range v {
			element := path + "[]"
			if m, ok := e.(map[string]item); ok {
				if of, ok := m["$type"].(string); ok {
					element = path + "[" + of + "]"
				}
			}
			pathsOf(element, e, each)
		}
	case map[string]item:
		for k, e := range v {
			pathsOf(path+"."+k, e, each)
		}
	}
}

func tableWith(t *testing.T, file string) *kinds.Table {
	t.Helper()
	more, err := kinds.Parse(file)
	must(t, err)
	table, err := kinds.Configure(kinds.BuiltIn, more)
	must(t, err)
	return table
}

// The subjects in arrays of random records are those that a walk over all paths finds.
func TestSubjectsInArrays(t *testing.T) {
	table := tableWith(t, `a.b.c as[] text a1 a2
a.b.c as[].b text b1 b2
a.b.c as[t.u.v].b text c1 c2
a.b.c as[t.u.v].as[].b text d1 d2
a.b.c b.as[t.u.v#w].b text e1 e2
a.b.c as[].as[t.u.v].as[] text f1 f2`)
	some := 0
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 9))
		var random func(depth int) item
		random = func(depth int) item {
			switch n := rng.IntN(8); {
			case depth > 5 || n < 2:
				return fmt.Sprint("s", rng.IntN(6))
			case n == 2:
				return []item{nil, 7}[rng.IntN(2)]
			case n < 5:
				list := make([]item, rng.IntN(4))
				for i := range list {
					list[i] = random(depth + 1)
				}
				return list
			}
			m := map[string]item{}
			for _, key := range []string{"as", "b", "c"} {
				if rng.IntN(3) > 0 {
					m[key] = random(depth + 1)
				}
			}
			if of := []item{nil, "t.u.v", "t.u.v#w", 5}[rng.IntN(4)]; of != nil {
				m["$type"] = of
			}
			return m
		}
		m := map[string]item{"as": random(1), "b": random(1), "$type": "a.b.c"}
		record := appendItem(nil, m)
		for _, k := range table.Collection("a.b.c").Kinds {
			want := map[string]bool{}
			pathsOf("", m, func(path, s string) {
				if path == "."+k.To.Path() {
					want[s] = true
				}
			})
			got, reason := wire.AppendSubjects(nil, k, record)
			if len(got) != len(want) || reason.IsAbsent() != (len(want) == 0) && reason != wire.BadSubject {
				t.Fatalf("seed %d: %s of %v: %q, %s; want %v", seed, k.Source(), m, got, reason, want)
			}
			for _, s := range got {
				if some++; !want[string(s)] {
					t.Fatalf("seed %d: %s of %v: %q; want %v", seed, k.Source(), m, got, want)
				}
			}
			for n := range len(record) {
				if got, reason := wire.AppendSubjects(nil, k, record[:n]); len(got) > 0 || reason != wire.BadRecord {
					t.Fatalf("%x is a record with %q, %s", record[:n], got, reason)
				}
			}
		}
	}
	if some < 300 {
		t.Errorf("only %d subjects", some)
	}
}

// A step with a question mark may be missing. Of two subjects the first counts.
func TestOptionalStep(t *testing.T) {
	const first, other = "at://did:web:a.example.com/a.b.c/1", "at://did:web:b.example.com/a.b.c/2"
	k := tableWith(t, kinds.Posts).Configured()[2]
	link := func(uri item) map[string]item { return map[string]item{"cid": "x", "uri": uri} }
	for _, c := range []struct {
		embed  item
		want   []string
		reason wire.Reason
	}{
		{map[string]item{"record": link(first)}, []string{first}, ""},
		{map[string]item{"record": map[string]item{"record": link(first)}, "media": 1}, []string{first}, ""},
		{map[string]item{"record": map[string]item{"record": link(other), "uri": first}}, []string{first}, ""},
		{map[string]item{"record": map[string]item{"record": map[string]item{"record": link(first)}}}, nil, "absent"},
		{map[string]item{"uri": first}, nil, "absent"},
		{map[string]item{"record": link(7)}, []string{""}, wire.BadSubject},
		{map[string]item{"record": map[string]item{"record": link("x")}}, []string{""}, wire.BadSubject},
		{nil, nil, "absent"},
	} {
		found, reason := wire.AppendSubjects(nil, &k, appendItem(nil, map[string]item{"text": "x", "embed": c.embed}))
		var got []string
		for _, s := range found {
			got = append(got, string(s))
		}
		if !slices.Equal(got, c.want) || reason != c.reason {
			t.Errorf("%v: %q, %q; want %q, %q", c.embed, got, reason, c.want, c.reason)
		}
	}
}

// A record with several subjects replaces what its path had. A value that is not a subject is dropped
// alone. One record has at most 128 subjects, and the records of one commit have at most 20,000.
func TestManySubjectsOfACommit(t *testing.T) {
	table := tableWith(t, "a.b.c to[] did ms msBy\na.b.c one text ones onesBy")
	record := func(subjects ...item) synth.Block {
		return synth.NewBlock(appendItem(nil, map[string]item{"to": subjects, "one": "x"}))
	}
	many := func(from, n int) (all []item) {
		for i := range n {
			all = append(all, fmt.Sprintf("did:web:u%d.example.com", from+i))
		}
		return all
	}
	good, empty, bad, large := record(bob, "did:web:x.example", bob), record(), record(bob, "nobody", nil, 7), record(many(0, 200)...)
	d := wire.Decoder{Kinds: table}
	add := func(ops []any, blocks ...synth.Block) []string {
		t.Helper()
		var m wire.Message
		must(t, wire.Parse(commit(ops, blocks, nil), &m))
		var b batch.Batch
		d.Add(&m, &b)
		return describe(&b)[1:]
	}
	got := add([]any{op("create", "a.b.c/1", good.CID), op("update", "a.b.c/2", empty.CID), op("create", "a.b.c/3", bad.CID), op("delete", "a.b.c/4", nil), op("create", "a.b.c/5", good.CID)}, good, empty, bad)
	want := []string{
		"  delete kind(128) 1", "  put kind(128) 1 " + bob, "  put kind(128) 1 did:web:x.example", "  put kind(64) 1 x",
		"  delete kind(128) 2", "  put kind(64) 2 x",
		"  delete kind(128) 3", "  put kind(128) 3 " + bob, "  put kind(64) 3 x",
		"  delete kind(128) 4", "  delete kind(64) 4",
		"  delete kind(128) 5", "  put kind(128) 5 " + bob, "  put kind(128) 5 did:web:x.example", "  put kind(64) 5 x",
	}
	if !slices.Equal(got, want) || len(d.Drops) != 1 || d.Drops[0].Reason != wire.BadSubject {
		t.Errorf("got  %q\nwant %q, %v", got, want, d.Drops)
	}
	if got := add([]any{op("create", "a.b.c/1", large.CID)}, large); len(got) != 1+kinds.MaxSubjects+1 || len(d.Drops) != 1 || d.Drops[0].Reason != wire.MoreSubjects {
		t.Errorf("%d changes, %v", len(got), d.Drops)
	}
	var ops []any
	for i := range 200 {
		ops = append(ops, op("create", fmt.Sprint("a.b.c/", i), large.CID))
	}
	if got := add(ops, large); len(got) != 0 || len(d.Drops) != 1 || d.Drops[0].Reason != wire.BadOps {
		t.Errorf("%d changes, %v", len(got), d.Drops)
	}
	ops = nil
	for i := range 301 {
		ops = append(ops, op([]string{"update", "delete"}[i%2], fmt.Sprint("a.b.c/", i), []any{empty.CID, nil}[i%2]))
	}
	if got := add(ops, empty); len(got) != 0 || len(d.Drops) != 1 || d.Drops[0].Reason != wire.BadOps {
		t.Errorf("%d changes, %v", len(got), d.Drops)
	}
	if got := add(ops[1:], empty); len(got) == 0 || len(d.Drops) != 0 {
		t.Errorf("%d changes, %v", len(got), d.Drops)
	}
}

// A small commit that names one record of many subjects many times makes few edges: it is damaged above a number of edges that
// its bytes pay for, whether the subjects are those of one kind or of many.
func TestAbuseEdges(t *testing.T) {
	fields, file := map[string]item{}, "a.b.c to[] text ms msBy"
	for i := range 40 {
		fields[fmt.Sprint("f", i)] = "x"
		file += fmt.Sprintf("\nd.e.f f%d text f%ds f%dsBy", i, i, i)
	}
	var tags []item
	for i := range kinds.MaxSubjects {
		tags = append(tags, fmt.Sprint(i))
	}
	d := wire.Decoder{Kinds: tableWith(t, file)}
	for collection, record := range map[string]map[string]item{"a.b.c": {"to": tags}, "d.e.f": fields} {
		block := synth.NewBlock(appendItem(nil, record))
		edges := func(names int) (size, n int) {
			var ops []any
			for i := range names {
				ops = append(ops, op("create", fmt.Sprint(collection, "/", i), block.CID))
			}
			frame := commit(ops, []synth.Block{block}, nil)
			var m wire.Message
			must(t, wire.Parse(frame, &m))
			var b batch.Batch
			d.Add(&m, &b)
			for _, line := range describe(&b)[1:] {
				if strings.HasPrefix(line, "  put") {
					n++
				}
			}
			if (n == 0) != (len(d.Drops) == 1 && d.Drops[0].Reason == wire.BadOps) {
				t.Errorf("%d edges, %v", n, d.Drops)
			}
			return len(frame), n
		}
		if _, n := edges(1); n < 40 {
			t.Errorf("one record of %s makes %d edges", collection, n)
		}
		most, at := 0, 0
		for names := 1; names <= harness.Size(200, 1000); names++ {
			if size, n := edges(names); n > kinds.MostEdges(size) {
				t.Fatalf("%d names of a record in %s: a commit of %d bytes makes %d edges", names, collection, size, n)
			} else if n > most {
				most, at = n, size
			}
		}
		size, n := edges(156)
		harness.Figure(t, collection, "a commit of %s that names one record 156 times makes %d edges; the most are %d, in %s", say.Bytes(size), n, most, say.Bytes(at))
	}
}

// The longest subject is a record of a did:web of a host with the longest name, with the longest collection and key.
func TestLongSubjects(t *testing.T) {
	label := strings.Repeat("a", 61) + "."
	did := "did:web:" + strings.Repeat(label, 4) + "aaaaa"
	uri := "at://" + did + "/" + strings.Repeat(label, 4) + strings.Repeat("a", 63) + ".bbbbb/" + strings.Repeat("k", 512)
	for _, test := range []struct {
		k       string
		field   map[string]item
		subject string
		reason  wire.Reason
	}{
		{"follow", map[string]item{"subject": did}, did, ""},
		{"follow", map[string]item{"subject": did + "a"}, "", wire.BadSubject},
		{"like", map[string]item{"subject": map[string]item{"uri": uri}}, uri, ""},
		{"like", map[string]item{"subject": map[string]item{"uri": "at://did:web:" + strings.Repeat("a", 1100) + "/app.bsky.feed.post/x"}}, "", wire.BadSubject},
	} {
		got, reason := wire.AppendSubjects(nil, kinds.BuiltIn.ByName(test.k), appendItem(nil, test.field))
		if len(got) != 1 || string(got[0]) != test.subject || reason != test.reason {
			t.Errorf("the subject of %d bytes: %q, %q", len(test.subject), got, reason)
		}
	}
}
