package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"skein.blue/query/xrpc"
)

// typescript returns the text of methods.ts.
func typescript(all []file) string {
	var b strings.Builder
	b.WriteString("// Generated from the lexicons by go run ./.ci/generate. Do not edit.\nimport type {Call, CallOptions} from './call.js';\nimport type {Pages} from './pages.js';\n\n")
	for i := range all {
		l := &all[i]
		for _, def := range slices.Sorted(maps.Keys(l.Defs)) {
			d := l.Defs[def]
			if d.Type == "array" {
				fmt.Fprintf(&b, "/** %s */\nexport type %s = %s;\n\n", d.Description, l.typeName(def), l.tsType(&d))
				continue
			}
			if def != "main" {
				l.tsInterface(&b, def, &d)
				continue
			}
			if d.Parameters != nil {
				l.tsInterface(&b, "params", d.Parameters)
			}
			if d.Output != nil {
				l.tsInterface(&b, "output", &d.Output.Schema)
			}
		}
	}
	fmt.Fprintf(&b, "/** The methods that a server also accepts as a form, by POST. */\nexport const forms: ReadonlySet<string> = new Set(['%s']);\n\n", strings.Join(forms, "', '"))
	b.WriteString("/** The methods of a server. */\nexport class Methods {\n  protected readonly call: Call;\n\n  constructor(call: Call) {\n    this.call = call;\n  }\n")
	for i := range all {
		all[i].tsMethod(&b)
	}
	b.WriteString("}\n\n/** Iterates over the items, in a field, of the pages of a method, of most items each. */\nexport type Walk = (nsid: string, field: string, most: number, params: object, options?: CallOptions) => unknown;\n\n")
	b.WriteString("/** The methods that return pages. Each iterates over the items of all of them. */\nexport class PagedMethods {\n  protected readonly walk: Walk;\n\n  constructor(walk: Walk) {\n    this.walk = walk;\n  }\n")
	for i := range all {
		all[i].tsPages(&b)
	}
	b.WriteString("}\n")
	return b.String()
}

func (l *file) tsPages(b *strings.Builder) {
	field, params := l.paged()
	if params == nil {
		return
	}
	main, left := l.method(), []string{}
	for _, name := range optional(main.Parameters) {
		if _, stays := params.Properties[name]; !stays {
			left = append(left, name)
		}
	}
	output := l.typeName("output")
	pages := fmt.Sprintf("Pages<%s, %s>", l.tsType(main.Output.Schema.Properties[field].Items), output)
	fmt.Fprintf(b, "\n  /** %s */\n  %s(params: Omit<%s, '%s'>, options?: CallOptions): %s {\n    return this.walk('%s', '%s', %d, params, options) as %s;\n  }\n",
		main.Description, l.name(), l.typeName("params"), strings.Join(left, "' | '"), pages, l.ID, field, *main.Parameters.Properties["limit"].Maximum, pages)
}

func (l *file) tsMethod(b *strings.Builder) {
	main := l.method()
	if main == nil {
		return
	}
	params := "params: Record<string, never> = {}"
	if main.Parameters != nil {
		params = "params: " + l.typeName("params")
	}
	output := l.typeName("output")
	fmt.Fprintf(b, "\n  /** %s */\n  %s(%s, options?: CallOptions): Promise<%s> {\n    return this.call('%s', params, options) as Promise<%s>;\n  }\n", main.Description, l.name(), params, output, l.ID, output)
}

func (l *file) tsInterface(b *strings.Builder, def string, d *xrpc.Def) {
	if d.Description != "" {
		fmt.Fprintf(b, "/** %s */\n", d.Description)
	}
	fmt.Fprintf(b, "export interface %s {\n", l.typeName(def))
	if full := l.full("#" + def); l.tagged[full] {
		fmt.Fprintf(b, "  $type: '%s';\n", full)
	}
	for _, p := range slices.Sorted(maps.Keys(d.Properties)) {
		q := d.Properties[p]
		if q.Description != "" {
			fmt.Fprintf(b, "  /** %s */\n", q.Description)
		}
		mark, null := "?", ""
		if slices.Contains(d.Required, p) {
			mark = ""
		}
		if slices.Contains(d.Nullable, p) {
			null = " | null"
		}
		is := l.tsType(&q)
		if def == "params" {
			is += map[string]string{"time": " | Date", "number": " | number"}[values[p]]
		}
		fmt.Fprintf(b, "  %s%s: %s%s;\n", p, mark, is, null)
	}
	b.WriteString("}\n\n")
}

func (l *file) tsType(d *xrpc.Def) string {
	switch d.Type {
	case "integer":
		return "number"
	case "boolean":
		return "boolean"
	case "array":
		if of := l.tsType(d.Items); !strings.Contains(of, " ") {
			return of + "[]"
		}
		return "(" + l.tsType(d.Items) + ")[]"
	case "ref":
		return l.ref(d.Ref)
	case "union":
		var refs []string
		for _, r := range d.Refs {
			refs = append(refs, l.ref(r))
		}
		return strings.Join(refs, " | ")
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
