package query_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// The names of sets in the lexicons are those of the table of kinds.
func TestLexiconNames(t *testing.T) {
	var vias, ofAccounts, records []string
	words := language.NewVocabulary(kinds.BuiltIn)
	for _, v := range slices.Concat(words.Vias(dict.DID), words.Vias(dict.URI)) {
		vias = append(vias, v.Name)
		if v.Is == dict.DID && v.Name != "authors" {
			ofAccounts = append(ofAccounts, v.Name)
		}
	}
	for _, k := range kinds.All {
		records = append(records, k.Name)
	}
	got := map[string][]string{}
	for _, l := range readLexicons(t) {
		if main := l.Defs["main"]; main.Parameters != nil {
			for _, name := range []string{"edge", "via"} {
				p := main.Parameters.Properties[name]
				if p.Items != nil {
					p = *p.Items
				}
				got[l.ID+" "+name] = p.KnownValues
			}
		}
		got[l.ID+" records"] = l.Defs["records"].Required
		if r := l.Defs["records"]; !slices.Equal(slices.Sorted(maps.Keys(r.Properties)), slices.Sorted(slices.Values(r.Required))) {
			t.Errorf("%s: the records have %v, and require %q", l.ID, r.Properties, r.Required)
		}
	}
	for name, want := range map[string][]string{"known edge": ofAccounts, "counts edge": vias, "rank via": vias, "getStats records": records} {
		if got := got["blue.skein.graph."+name]; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func readLexicons(t *testing.T) []xrpc.Lexicon {
	t.Helper()
	files, err := fs.Glob(xrpc.Lexicons, "*.json")
	all := make([]xrpc.Lexicon, len(files))
	for i, name := range files {
		b, read := fs.ReadFile(xrpc.Lexicons, name)
		err = errors.Join(err, read, json.Unmarshal(b, &all[i]))
	}
	must(t, err)
	return all
}

// The lexicons and the handlers agree: every method has one, every parameter
// and every field of every answer is in it, and what is required is there.
func TestLexicons(t *testing.T) {
	w := newViewers(t, "popular = rank(of=members("+strings.Join(oracle.NewSpreadHistory(41, 30).Accounts()[:20], ",")+"), via=likes, since=1970-01-01), pin=at://did:web:a.example.com/app.bsky.feed.post/x\n")
	a := w.history.Accounts()
	read := format.Labeler{Name: labeler, DID: labeler, Seq: 1, Current: true, Seen: time.Now()}
	onVersion := spam("at://"+a[0]+"/app.bsky.feed.post/3kkkkkkkkkkkk", time.Now())
	onVersion.CID, onVersion.Expires = "bafyreiclp443lavogvhj3d2ob2cxbfuscni2k5jk7bebjzg7khl3esabwq", time.Now().Add(time.Hour).UnixMicro()
	must(t, w.store.ApplyLabels(t.Context(), time.Now(), []batch.Label{spam(a[0], time.Now()), onVersion}, format.Labeler{}, read))
	late := format.Labeler{Name: other, DID: other, Seq: 1}
	must(t, w.store.ApplyLabels(t.Context(), time.Now(), nil, format.Labeler{}, late))
	calls := map[string][]string{
		"blue.skein.graph.query":      {"set=members(" + a[0] + "," + a[1] + ")&limit=1", "set=members(" + a[0] + ")&count=true", "set=follows(" + a[0] + ")&records=true"},
		"blue.skein.graph.list":       {"set=follows(" + a[0] + ")&limit=1"},
		"blue.skein.graph.contains":   {"set=members(" + a[0] + ")&member=" + a[1]},
		"blue.skein.graph.counts":     {"edge=followers&edge=blocks&subject=" + a[1] + "&subject=" + a[2]},
		"blue.skein.graph.histogram":  {"set=follows(" + a[0] + ")", "set=followers(" + a[0] + ")&bucket=1m"},
		"blue.skein.graph.known":      {"actor=" + a[0] + "&edge=followers&subject=" + a[1] + "&subject=" + a[2]},
		"blue.skein.graph.rank":       {"of=follows(" + a[0] + ")&via=likes", "of=followers(" + a[0] + ")&via=followers&except=follows(" + a[0] + ")", "of=follows(" + a[0] + ")&via=follows&by=lift&min=1&since=2000-01-01"},
		"blue.skein.graph.overlap":    {"set=follows(" + a[0] + ")&set=followers(" + a[0] + ")&with=members(" + a[1] + ")"},
		"blue.skein.graph.labels":     {"subject=" + a[0]},
		"blue.skein.graph.path":       {"from=" + a[0] + "&to=" + a[1], "from=" + a[0] + "&to=" + a[0] + "&max=1"},
		"blue.skein.graph.getStats":   {""},
		"blue.skein.graph.getAccount": {"did=" + a[0], "did=" + a[1], "did=did:plc:neverseenaaaaaaaaaaaaaaa"},

		"com.atproto.label.queryLabels": {"uriPatterns=*&limit=1", "uriPatterns=at://*"},

		"app.bsky.feed.describeFeedGenerator": {""},
		"app.bsky.feed.getFeedSkeleton":       {strings.TrimPrefix(feedCall("popular", "&limit=2"), feedSkeleton+"?")},
		"app.bsky.feed.sendInteractions":      {`{"interactions":[{"item":"at://did:web:a.example.com/app.bsky.feed.post/x","event":"app.bsky.feed.defs#interactionSeen"}]}`},
	}
	for _, did := range a {
		of := "subject=" + did + "&source=app.bsky.graph."
		add := func(nsid, call string) { calls[nsid] = append(calls[nsid], call) }
		add("blue.skein.graph.getBlocks", "actor="+did+"&direction=blocking&limit=3")
		add("blue.skein.graph.getBlocks", "actor="+did+"&direction=blockedBy&others="+strings.Join(a[:25], "&others="))
		add("app.bsky.graph.getRelationships", "actor="+did+"&others=nobody.example.com&others="+strings.Join(a[:25], "&others="))
		add("blue.microcosm.links.getBacklinks", of+"follow:subject&limit=1")
		add("blue.microcosm.links.getBacklinkDids", of+"follow:subject&limit=1")
		add("blue.microcosm.links.getBacklinksCount", of+"follow:subject")
	}
	files := readLexicons(t)
	defs := map[string]xrpc.Def{}
	served := 0
	for _, lex := range files {
		for name, d := range lex.Defs {
			defs[lex.ID+"#"+name] = d
		}
		if _, isMethod := lex.Defs["main"]; isMethod {
			served++
		}
	}
	if names := query.MethodNames(); len(names) != served {
		t.Errorf("%q are served, %d methods have lexicons", names, served)
	}
	for _, lex := range files {
		main, isMethod := lex.Defs["main"]
		if !isMethod {
			continue
		}
		c := checker{t, lex.ID, defs, map[string]bool{}}
		for _, call := range calls[lex.ID] {
			status, body, _ := w.get(lex.ID + "?" + call)
			if main.Input != nil {
				status, body = w.interact(w.tokenOf(a[0], lex.ID), call)
			}
			var v map[string]any
			if err := json.Unmarshal([]byte(body), &v); err != nil || status != 200 {
				t.Fatalf("%s: %d %s", lex.ID, status, body)
			}
			c.check(main.Output.Schema, lex.ID, v)
		}
		if len(calls[lex.ID]) == 0 && lex.ID != "blue.skein.graph.subscribe" { // TestSubscribe does
			t.Errorf("%s is never called", lex.ID)
		}
		if !strings.HasPrefix(lex.ID, "blue.skein.") { // others' methods: the lexicon has no field that is never answered
			c.allSeen(main.Output.Schema, lex.ID)
		}
	}
}

// checker compares the answers of a method with its lexicon.
type checker struct {
	t    *testing.T
	of   string              // the lexicon's NSID
	defs map[string]xrpc.Def // by NSID#name
	seen map[string]bool     // fields that had a value in an answer
}

// resolved returns the definition that a ref names.
func (c *checker) resolved(ref string) xrpc.Def {
	if strings.HasPrefix(ref, "#") {
		ref = c.of + ref
	}
	return c.defs[ref]
}

func (c *checker) check(s xrpc.Def, where string, v any) {
	c.t.Helper()
	c.seen[where] = true
	if s.Ref != "" {
		s = c.resolved(s.Ref)
	}
	var ok bool
	switch s.Type {
	case "union":
		m, _ := v.(map[string]any)
		is, _ := m["$type"].(string)
		if ok = slices.Contains(s.Refs, is); ok {
			m = maps.Clone(m)
			delete(m, "$type")
			c.check(c.resolved(is), where+"<"+is+">", m)
		}
	case "object":
		m, isMap := v.(map[string]any)
		ok = isMap
		c.checkFields(s, where, m)
	case "array":
		list, isList := v.([]any)
		ok = isList
		for _, x := range list {
			c.check(*s.Items, where+"[]", x)
		}
	case "string":
		_, ok = v.(string)
	case "boolean":
		_, ok = v.(bool)
	case "integer":
		n, isNumber := v.(float64)
		ok = isNumber && n == float64(int64(n))
	case "unknown":
		_, ok = v.(map[string]any)
	default:
		ok = false // there is nothing else in our answers
	}
	if !ok {
		c.t.Errorf("%s is %T, the lexicon says %s", where, v, s.Type)
	}
}

func (c *checker) checkFields(s xrpc.Def, where string, m map[string]any) {
	c.t.Helper()
	for _, r := range s.Required {
		if _, has := m[r]; !has {
			c.t.Errorf("%s: %s is missing", where, r)
		}
	}
	for k, x := range m {
		p, known := s.Properties[k]
		switch {
		case !known:
			c.t.Errorf("%s: %s is not in the lexicon", where, k)
		case x == nil && slices.Contains(s.Nullable, k):
		default:
			c.check(p, where+"."+k, x)
		}
	}
}

// allSeen checks that the answers had a value at every place of a schema.
func (c *checker) allSeen(s xrpc.Def, where string) {
	c.t.Helper()
	if !c.seen[where] && !strings.HasSuffix(where, "ByList") { // blocks by lists are rare in this world
		c.t.Errorf("no answer has %s", where)
	}
	if s.Ref != "" {
		s = c.resolved(s.Ref)
	}
	if s.Items != nil {
		c.allSeen(*s.Items, where+"[]")
	}
	for _, r := range s.Refs {
		c.allSeen(c.resolved(r), where+"<"+r+">")
	}
	for name, p := range s.Properties {
		c.allSeen(p, where+"."+name)
	}
}

// /openapi.json has the methods that have a lexicon, those that take a form with its bounds, and schemas that name each
// other as they should.
func TestDescriptions(t *testing.T) {
	w := newWorld(t, 93, 0)
	_, body, _ := w.get("/openapi.json")
	var api struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Parameters  []any
			RequestBody struct {
				Content map[string]struct {
					Schema struct {
						Required   []string
						Properties map[string]struct {
							MaxLength int
							Items     struct{ MaxLength int }
						}
					}
				}
			}
			Responses map[string]any
		}
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal([]byte(body), &api); err != nil || api.OpenAPI != "3.1.0" {
		t.Fatalf("%.80s %v", body, err)
	}
	for _, part := range strings.Split(body, `"$ref": "#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if api.Components.Schemas[name] == nil {
			t.Errorf("there is no schema %s", name)
		}
	}
	var forms []string
	for path, calls := range api.Paths {
		nsid := strings.TrimPrefix(path, "/xrpc/")
		w.says("/lexicons/"+nsid+".json", 200, `"id":"`+nsid+`"`)
		c, ok := calls["post"]
		if !ok || nsid == "app.bsky.feed.sendInteractions" {
			continue
		}
		forms = append(forms, strings.TrimPrefix(nsid, "blue.skein.graph."))
		s := c.RequestBody.Content[formType].Schema
		if len(c.Parameters) > 0 || len(s.Properties) == 0 || c.Responses["413"] == nil || c.Responses["415"] == nil || c.OperationID == calls["get"].OperationID {
			t.Errorf("%s: %+v", path, c)
		}
		if set, ok := s.Properties["set"]; ok && max(set.MaxLength, set.Items.MaxLength) != language.MaxForm {
			t.Errorf("%s: set may have %d bytes", path, max(set.MaxLength, set.Items.MaxLength))
		}
	}
	if slices.Sort(forms); len(api.Paths) < 18 || !slices.Equal(forms, []string{"contains", "counts", "getBlocks", "histogram", "known", "list", "overlap", "query", "rank"}) {
		t.Errorf("%d methods; those with forms: %q", len(api.Paths), forms)
	}
	w.says("/lexicons/none.json", 404, "unknown lexicon")
}
