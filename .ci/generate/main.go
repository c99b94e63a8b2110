// Command generate generates the typed parts of the clients, and the OpenAPI description, from the lexicons:
//
//	go run ./.ci/generate
//
// It writes clients/typescript/src/methods.ts, clients/python/skein_blue/methods.py, query/openapi.json, the table of
// methods in clients/README.md, and what skein mcp serves, cmd/skein/mcp/*. The rest of the clients, such as requests and errors, is
// written by hand.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"skein.blue/query/xrpc"
)

// errNames is returned if two lexicons would get the same name in the clients.
var errNames = errors.New("generate: two definitions have the same name in the clients")

// The table of methods in clients/README.md is between these lines.
const tableBegins, tableEnds = "<!-- methods, by go run ./.ci/generate -->\n", "<!-- end of methods -->\n"

// errTable is returned if the markers around the table are missing.
var errTable = errors.New("generate: clients/README.md lacks the lines around the table of methods")

// forms are the methods that a server also accepts as a form, by POST, since their parameters may
// be too long for a URL.
var forms = []string{
	"blue.skein.graph.contains", "blue.skein.graph.counts", "blue.skein.graph.getBlocks", "blue.skein.graph.histogram", "blue.skein.graph.known", "blue.skein.graph.list",
	"blue.skein.graph.overlap", "blue.skein.graph.query", "blue.skein.graph.rank",
}

// values are the parameters that a caller may also give as values of the language: a date, a length of
// time, a number. Lexicons have no types for them, so there they are strings.
var values = map[string]string{
	"since": "time", "until": "time", "subjectsSince": "time", "decay": "duration", "bucket": "duration", "damp": "number",
}

// file is a lexicon: a method, or only definitions that methods refer to.
type file struct {
	xrpc.Lexicon

	tagged map[string]bool // full names of the definitions that answers tag with $type
}

func main() {
	texts, err := generated("")
	for path, text := range texts {
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// read returns the lexicons, in order.
func read() (all []file, err error) {
	files, err := fs.ReadDir(xrpc.Lexicons, ".")
	if err != nil {
		return nil, fmt.Errorf("reading the lexicons: %w", err)
	}
	tagged, names := map[string]bool{}, map[string]string{}
	for _, f := range files {
		l := file{tagged: tagged}
		b, err := fs.ReadFile(xrpc.Lexicons, f.Name())
		if err == nil {
			err = json.Unmarshal(b, &l.Lexicon)
		}
		if err != nil {
			return nil, fmt.Errorf("lexicon %s: %w", f.Name(), err)
		}
		for _, def := range slices.Sorted(maps.Keys(l.Defs)) {
			d := l.Defs[def]
			l.tag(&d)
			if d.Output != nil {
				l.tag(&d.Output.Schema)
			}
			name := l.typeName(def)
			if def == "main" {
				name = l.name()
			}
			if other, taken := names[name]; taken {
				return nil, fmt.Errorf("%w: %s, in %s and %s", errNames, name, other, l.ID)
			}
			names[name] = l.ID
		}
		all = append(all, l)
	}
	return all, nil
}

// generated returns the generated texts, by path, of the repository in a folder.
func generated(root string) (map[string]string, error) {
	all, err := read()
	if err != nil {
		return nil, err
	}
	api, err := openAPI(all)
	for _, l := range all { // the clients read JSON
		if p := l.Defs["main"].Parameters; p != nil && p.Properties["format"].Default == "json" {
			delete(p.Properties, "format")
		}
	}
	// Apps call procedures, through their PDS.
	all = slices.DeleteFunc(all, func(l file) bool { return l.Defs["main"].Type == "procedure" })
	readme, cause := os.ReadFile(root + "clients/README.md")
	before, rest, _ := strings.Cut(string(readme), tableBegins)
	_, after, found := strings.Cut(rest, tableEnds)
	if !found && cause == nil {
		cause = errTable
	}
	offered, err2 := tools(all)
	asking, err3 := os.ReadFile(root + "docs/asking.md")
	return map[string]string{
		"clients/typescript/src/methods.ts": typescript(all), "clients/python/skein_blue/methods.py": python(all), "query/openapi.json": api,
		"cmd/skein/mcp/tools.json": offered, "cmd/skein/mcp/language.txt": expressions(string(asking)),
		"clients/README.md": before + tableBegins + table(all) + tableEnds + after,
	}, errors.Join(err, cause, err2, err3)
}

// table returns the rows of the methods.
func table(all []file) string {
	var b strings.Builder
	b.WriteString("|TypeScript|Python||\n|---|---|---|\n")
	for i := range all {
		main := all[i].method()
		if main == nil {
			continue
		}
		of := ""
		if p := main.Parameters; p != nil {
			params := slices.Clone(p.Required)
			if len(optional(p)) > 0 {
				params = append(params, "…")
			}
			of = "{" + strings.Join(params, ", ") + "}"
		}
		what := main.Description
		for _, end := range []string{". ", ": ", ", such as ", ", "} {
			if start, _, _ := strings.Cut(what, end); strings.Contains(start, " ") {
				what = start
			}
		}
		fmt.Fprintf(&b, "|`%s(%s)`|`%s`|%s|\n", all[i].name(), of, snake(all[i].name()), strings.TrimSuffix(what, "."))
	}
	return b.String()
}

// tag records the definitions that are members of a union. Answers tell them apart by $type.
func (l *file) tag(d *xrpc.Def) {
	for _, ref := range d.Refs {
		l.tagged[l.full(ref)] = true
	}
	for _, p := range d.Properties {
		l.tag(&p)
	}
	if d.Items != nil {
		l.tag(d.Items)
	}
}

// name returns the last part of the NSID.
func (l *file) name() string { return l.ID[strings.LastIndexByte(l.ID, '.')+1:] }

// method returns the definition of the method, nil if the lexicon has no method with one answer.
func (l *file) method() *xrpc.Def {
	if main, ok := l.Defs["main"]; ok && main.Output != nil {
		return &main
	}
	return nil
}

// paged returns the field of the items on the pages of a method, and the parameters of all of them. These are nil if
// the method returns no pages.
func (l *file) paged() (field string, p *xrpc.Def) {
	main := l.method()
	if main == nil || main.Parameters == nil || main.Parameters.Properties["cursor"].Type == "" {
		return "", nil
	}
	for _, name := range slices.Sorted(maps.Keys(main.Output.Schema.Properties)) { // members before records
		if field == "" && main.Output.Schema.Properties[name].Type == "array" {
			field = name
		}
	}
	of := *main.Parameters
	of.Properties = maps.Clone(of.Properties)
	for _, name := range []string{"cursor", "limit", "count", "others"} { // the last two ask for no pages
		delete(of.Properties, name)
	}
	return field, &of
}

// full returns a reference with the NSID of its lexicon.
func (l *file) full(ref string) string {
	if strings.HasPrefix(ref, "#") {
		return l.ID + ref
	}
	return ref
}

// typeName returns the name of a definition's type: QueryOutput, RankRanked. A file without a
// method adds no prefix: Relationship.
func (l *file) typeName(def string) string { return typeName(l.ID + "#" + def) }

func (l *file) ref(ref string) string { return typeName(l.full(ref)) }

func typeName(full string) string {
	nsid, def, _ := strings.Cut(full, "#")
	of := nsid[strings.LastIndexByte(nsid, '.')+1:]
	if of == "defs" {
		return title(def)
	}
	return title(of) + title(def)
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// optional returns the names of the properties that are not required, sorted.
func optional(d *xrpc.Def) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(d.Properties)) {
		if !slices.Contains(d.Required, name) {
			names = append(names, name)
		}
	}
	return names
}
