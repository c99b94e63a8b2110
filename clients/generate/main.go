// Command generate makes the typed parts of the clients from the lexicons:
//
//	go run ./clients/generate
//
// writes typescript/src/methods.ts and python/skein/methods.py. What is not made from the
// lexicons, how a server is asked, is written by hand beside them.
package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"skein.blue/internal/lexicon"
	"skein.blue/query"
)

// method is a method by its lexicon.
type method struct{ lexicon.File }

// name is the last part of the NSID.
func (l *method) name() string { return l.ID[strings.LastIndexByte(l.ID, '.')+1:] }

// typeName is the name of a definition's type: QueryOutput, RankItem.
func (l *method) typeName(def string) string { return title(l.name()) + title(def) }

func (l *method) ref(ref string) string { return l.typeName(strings.TrimPrefix(ref, "#")) }

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func main() {
	all, err := read()
	if err == nil {
		for path, text := range files(all) {
			if err = os.WriteFile("clients/"+path, []byte(text), 0o644); err != nil {
				break
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// read returns the methods, in order.
func read() (all []method, err error) {
	files, err := lexicon.Read(query.Lexicons, "lexicons")
	for _, f := range files {
		all = append(all, method{f})
	}
	return all, err
}

// files returns what is made, by path.
func files(all []method) map[string]string {
	return map[string]string{"typescript/src/methods.ts": typescript(all), "python/skein/methods.py": python(all)}
}

// ---- TypeScript ----

func typescript(all []method) string {
	var b strings.Builder
	b.WriteString("// Made from the lexicons by go run ./clients/generate. Do not edit.\n\n")
	for i := range all {
		l := &all[i]
		for _, def := range slices.Sorted(maps.Keys(l.Defs)) {
			d := l.Defs[def]
			switch {
			case def != "main":
				l.tsInterface(&b, l.typeName(def), &d, d.Properties, d.Required)
			default:
				if p := d.Parameters; p != nil {
					l.tsInterface(&b, l.typeName("params"), p, p.Properties, p.Required)
				}
				if d.Output != nil {
					o := &d.Output.Schema
					l.tsInterface(&b, l.typeName("output"), o, o.Properties, o.Required)
				}
			}
		}
	}
	b.WriteString("/** What is asked of a server: a method by its NSID, with parameters. */\nexport type Call = (nsid: string, params: object) => Promise<unknown>;\n\n/** The methods. */\nexport class Methods {\n  protected readonly call: Call;\n\n  constructor(call: Call) {\n    this.call = call;\n  }\n")
	for i := range all {
		l := &all[i]
		main := l.Defs["main"]
		if main.Output == nil {
			continue
		}
		params := ""
		given := "{}"
		if main.Parameters != nil {
			params, given = "params: "+l.typeName("params"), "params"
		}
		fmt.Fprintf(&b, "\n  /** %s */\n  %s(%s): Promise<%s> {\n    return this.call('%s', %s) as Promise<%s>;\n  }\n", main.Description, l.name(), params, l.typeName("output"), l.ID, given, l.typeName("output"))
	}
	b.WriteString("}\n")
	return b.String()
}

func (l *method) tsInterface(b *strings.Builder, name string, d *lexicon.Def, properties map[string]lexicon.Def, required []string) {
	if d.Description != "" {
		fmt.Fprintf(b, "/** %s */\n", d.Description)
	}
	fmt.Fprintf(b, "export interface %s {\n", name)
	for _, p := range slices.Sorted(maps.Keys(properties)) {
		q := properties[p]
		if q.Description != "" {
			fmt.Fprintf(b, "  /** %s */\n", q.Description)
		}
		optional := "?"
		if slices.Contains(required, p) {
			optional = ""
		}
		fmt.Fprintf(b, "  %s%s: %s;\n", p, optional, l.tsType(&q))
	}
	b.WriteString("}\n\n")
}

func (l *method) tsType(d *lexicon.Def) string {
	switch d.Type {
	case "integer":
		return "number"
	case "boolean":
		return "boolean"
	case "array":
		return l.tsType(d.Items) + "[]"
	case "ref":
		return l.ref(d.Ref)
	case "unknown":
		return "Record<string, unknown>"
	}
	values := func(list []string) string { return "'" + strings.Join(list, "' | '") + "'" }
	switch {
	case len(d.Enum) > 0:
		return values(d.Enum)
	case len(d.KnownValues) > 0:
		return values(d.KnownValues) + " | (string & {})"
	}
	return "string"
}

// ---- Python ----

func python(all []method) string {
	var b strings.Builder
	b.WriteString("\"\"\"Made from the lexicons by go run ./clients/generate. Do not edit.\"\"\"\n\nfrom __future__ import annotations\n\nfrom typing import Any, Dict, List, Literal, Sequence, TypedDict, Union\n\n\n")
	for i := range all {
		l := &all[i]
		for _, def := range slices.Sorted(maps.Keys(l.Defs)) {
			d := l.Defs[def]
			if def != "main" {
				l.pyTyped(&b, l.typeName(def), d.Description, d.Properties, d.Required)
			} else if d.Output != nil {
				o := &d.Output.Schema
				l.pyTyped(&b, l.typeName("output"), d.Description, o.Properties, o.Required)
			}
		}
	}
	b.WriteString("class Methods:\n    \"\"\"The methods.\"\"\"\n\n    def _call(self, nsid: str, params: Dict[str, Any]) -> Any:\n        raise NotImplementedError\n")
	for i := range all {
		l := &all[i]
		main := l.Defs["main"]
		if main.Output == nil {
			continue
		}
		fmt.Fprintf(&b, "\n    def %s(self", snake(l.name()))
		var given []string
		if p := main.Parameters; p != nil {
			var optional []string
			for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
				q := p.Properties[name]
				given = append(given, fmt.Sprintf("%q: %s", name, pyName(name)))
				if slices.Contains(p.Required, name) {
					fmt.Fprintf(&b, ", %s: %s", pyName(name), l.pyParam(&q))
				} else {
					optional = append(optional, fmt.Sprintf("%s: %s | None = None", pyName(name), l.pyParam(&q)))
				}
			}
			if len(optional) > 0 {
				b.WriteString(", *, " + strings.Join(optional, ", "))
			}
		}
		fmt.Fprintf(&b, ") -> %s:\n        \"\"\"%s\"\"\"\n        answer: %s = self._call(%q, {%s})\n        return answer\n", l.typeName("output"), main.Description, l.typeName("output"), l.ID, strings.Join(given, ", "))
	}
	return b.String()
}

func (l *method) pyTyped(b *strings.Builder, name, description string, properties map[string]lexicon.Def, required []string) {
	// A TypedDict is total or not: what is required stands in a class of its own.
	part := func(name, base, total string, want bool) {
		fmt.Fprintf(b, "class %s(%s%s):\n", name, base, total)
		some := false
		if description != "" && want == (len(required) == len(properties)) {
			fmt.Fprintf(b, "    \"\"\"%s\"\"\"\n\n", description)
			some = true
		}
		for _, p := range slices.Sorted(maps.Keys(properties)) {
			q := properties[p]
			if slices.Contains(required, p) == want {
				fmt.Fprintf(b, "    %s: %s\n", p, l.pyType(&q))
				some = true
			}
		}
		if !some {
			b.WriteString("    pass\n")
		}
		b.WriteString("\n\n")
	}
	if len(required) == len(properties) {
		part(name, "TypedDict", "", true)
		return
	}
	part("_"+name, "TypedDict", "", true)
	part(name, "_"+name, ", total=False", false)
}

func (l *method) pyType(d *lexicon.Def) string {
	switch d.Type {
	case "integer":
		return "int"
	case "boolean":
		return "bool"
	case "array":
		return "List[" + l.pyType(d.Items) + "]"
	case "ref":
		return l.ref(d.Ref)
	case "unknown":
		return "Dict[str, Any]"
	}
	values := func(list []string) string { return `Literal["` + strings.Join(list, `", "`) + `"]` }
	switch {
	case len(d.Enum) > 0:
		return values(d.Enum)
	case len(d.KnownValues) > 0:
		return "Union[" + values(d.KnownValues) + ", str]"
	}
	return "str"
}

func (l *method) pyParam(d *lexicon.Def) string {
	if d.Type == "array" {
		return "Sequence[" + l.pyType(d.Items) + "]"
	}
	return l.pyType(d)
}

// pyName is the name of a parameter in Python: except and others are words of the language.
func pyName(name string) string {
	if slices.Contains([]string{"except", "from", "in", "is", "class", "set"}, name) {
		return name + "_"
	}
	return snake(name)
}

// snake writes a name as Python does: get_stats.
func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
