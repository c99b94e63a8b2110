package query_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"skein.blue/graph/kinds"
	"skein.blue/query"
)

var update = flag.Bool("update", false, "write the names of sets into the lexicons anew")

// The names of sets in the lexicons are those of the table of kinds. After a row was
// added, go test ./query -run TestLexiconNames -update writes them anew.
func TestLexiconNames(t *testing.T) {
	enum := func(parameter, values string, names []string) (list *regexp.Regexp, want string) {
		const indent = "\n              "
		return regexp.MustCompile(`("` + parameter + `": \{\s*"type": "string",[^]]*"` + values + `": \[)[^]]*\]`),
			`${1}` + indent + `"` + strings.Join(names, `",`+indent+`"`) + `"` + "\n            ]"
	}
	records := func() (list *regexp.Regexp, want string) {
		var required, properties []string
		for _, k := range kinds.All {
			required = append(required, "        \""+k.Name+"\"")
			properties = append(properties, "        \""+k.Name+"\": {\n          \"type\": \"integer\"\n        }")
		}
		return regexp.MustCompile(`(?s)("records": \{\n      "type": "object",\n      "required": \[).*?\n      \}`),
			"${1}\n" + strings.Join(required, ",\n") + "\n      ],\n      \"properties\": {\n" + strings.Join(properties, ",\n") + "\n      }"
	}
	for name, list := range map[string]func() (*regexp.Regexp, string){
		"lexicons/blue.skein.graph.known.json":    func() (*regexp.Regexp, string) { return enum("edge", "enum", query.KnownEdges()) },
		"lexicons/blue.skein.graph.rank.json":     func() (*regexp.Regexp, string) { return enum("via", "knownValues", query.Vias()) },
		"lexicons/blue.skein.graph.getStats.json": records,
	} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		found, by := list()
		want := found.ReplaceAll(b, []byte(by))
		switch {
		case !found.Match(b):
			t.Errorf("%s has not the list that is looked for", name)
		case bytes.Equal(b, want):
		case *update:
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s is not that of the table of kinds: run go test ./query -run TestLexiconNames -update", name)
		}
	}
}

// The lexicons and the handlers agree: every method has one, every parameter
// and every field of every answer is in it, and what is required is there.
func TestLexicons(t *testing.T) {
	w := newWorld(t, 6, 1000)
	a := w.history.Accounts()
	calls := map[string][]string{
		"blue.skein.graph.query":      {"set=members(" + a[0] + "," + a[1] + ")&limit=1", "set=members(" + a[0] + ")&count=true", "set=follows(" + a[0] + ")&records=true"},
		"blue.skein.graph.list":       {"set=follows(" + a[0] + ")&limit=1"},
		"blue.skein.graph.contains":   {"set=members(" + a[0] + ")&member=" + a[1]},
		"blue.skein.graph.known":      {"actor=" + a[0] + "&edge=followers&subject=" + a[1] + "&subject=" + a[2]},
		"blue.skein.graph.rank":       {"of=follows(" + a[0] + ")&via=likes", "of=followers(" + a[0] + ")&via=followers&except=follows(" + a[0] + ")", "of=follows(" + a[0] + ")&via=follows&by=lift&min=1&since=2000-01-01"},
		"blue.skein.graph.getStats":   {""},
		"blue.skein.graph.getAccount": {"did=" + a[0], "did=" + a[1], "did=did:plc:neverseenaaaaaaaaaaaaaaa"},
	}
	files, err := query.Lexicons.ReadDir("lexicons")
	if err != nil {
		t.Fatal(err)
	}
	_, about, _ := w.get("/")
	if served := strings.Count(about, "/xrpc/blue.skein."); served != len(files)+1 { // one in the example
		t.Errorf("%d methods are served, %d have lexicons", served-1, len(files))
	}
	for _, f := range files {
		b, err := query.Lexicons.ReadFile("lexicons/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		var lex struct {
			ID   string
			Defs map[string]struct {
				Parameters struct {
					Properties map[string]any
					Required   []string
				}
				Output     struct{ Schema schema }
				Properties map[string]schema
				Required   []string
			}
		}
		if err := json.Unmarshal(b, &lex); err != nil || lex.ID+".json" != f.Name() {
			t.Fatalf("%s: %v", f.Name(), err)
		}
		defs := map[string]schema{}
		for name, d := range lex.Defs {
			defs["#"+name] = schema{Properties: d.Properties, Required: d.Required}
		}
		main := lex.Defs["main"]
		_, line, _ := strings.Cut(about, "/xrpc/"+lex.ID+"  ")
		line, _, _ = strings.Cut(line, "\n")
		takes := strings.Split(line, ", ")
		for p := range main.Parameters.Properties {
			if !slices.Contains(takes, p) {
				t.Errorf("%s: parameter %s is not in the list at /: %q", lex.ID, p, takes)
			}
		}
		if line != "" && len(takes) != len(main.Parameters.Properties) {
			t.Errorf("%s: takes %q, the lexicon has %d", lex.ID, takes, len(main.Parameters.Properties))
		}
		for _, call := range calls[lex.ID] {
			status, body, _ := w.get("/xrpc/" + lex.ID + "?" + call)
			var v map[string]any
			if err := json.Unmarshal([]byte(body), &v); err != nil || status != 200 {
				t.Fatalf("%s: %d %s", lex.ID, status, body)
			}
			main.Output.Schema.check(t, lex.ID, v, defs)
		}
		if len(calls[lex.ID]) == 0 && lex.ID != "blue.skein.graph.subscribe" { // TestSubscribe does
			t.Errorf("%s is never called", lex.ID)
		}
	}
}

type schema struct {
	Type, Ref  string
	Properties map[string]schema
	Required   []string
	Items      *schema
}

func (s schema) check(t *testing.T, where string, v any, defs map[string]schema) {
	t.Helper()
	if s.Ref != "" {
		s = defs[s.Ref]
		s.Type = "object"
	}
	var ok bool
	switch s.Type {
	case "object":
		m, isMap := v.(map[string]any)
		ok = isMap
		for _, r := range s.Required {
			if _, has := m[r]; !has {
				t.Errorf("%s: %s is missing", where, r)
			}
		}
		for k, x := range m {
			p, known := s.Properties[k]
			if !known {
				t.Errorf("%s: %s is not in the lexicon", where, k)
				continue
			}
			p.check(t, where+"."+k, x, defs)
		}
	case "array":
		list, isList := v.([]any)
		ok = isList
		for _, x := range list {
			s.Items.check(t, where+"[]", x, defs)
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
		t.Errorf("%s is %T, the lexicon says %s", where, v, s.Type)
	}
}
