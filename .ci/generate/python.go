package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"skein.blue/query/xrpc"
)

// python returns the text of methods.py.
func python(all []file) string {
	var types, methods, asyncMethods, paged, asyncPaged strings.Builder
	var names []string
	for i := range all {
		l := &all[i]
		for _, def := range slices.Sorted(maps.Keys(l.Defs)) {
			d := l.Defs[def]
			switch {
			case d.Type == "array":
				fmt.Fprintf(&types, "#: %s\n%s = %s\n\n\n", d.Description, l.typeName(def), l.pyType(&d))
				names = append(names, l.typeName(def))
			case def != "main":
				l.pyTyped(&types, def, d.Description, &d)
				names = append(names, l.typeName(def))
			case d.Output != nil:
				l.pyTyped(&types, "output", d.Description, &d.Output.Schema)
				names = append(names, l.typeName("output"))
			}
		}
		l.pyMethod(&methods, "", "")
		l.pyMethod(&asyncMethods, "async ", "await ")
		l.pyPages(&paged, "")
		l.pyPages(&asyncPaged, "Async")
	}
	var b strings.Builder
	b.WriteString("\"\"\"Generated from the lexicons by go run ./.ci/generate. Do not edit.\"\"\"\n\nfrom __future__ import annotations\n\nfrom datetime import date, timedelta\nfrom typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Literal, Optional, Sequence, TypedDict, Union\n\nif TYPE_CHECKING:\n    from .aio import AsyncPages\n    from .sync import Pages\n\n")
	fmt.Fprintf(&b, "__all__ = [\n    \"%s\",\n]\n\n", strings.Join(names, "\",\n    \""))
	b.WriteString("#: A time. A datetime without a time zone is in the local one; a timedelta is an age.\nTime = Union[str, date, timedelta]\n#: A length of time.\nDuration = Union[str, timedelta]\n#: A number, not only a whole one.\nNumber = Union[str, float]\n\n")
	fmt.Fprintf(&b, "#: The methods that a server also accepts as a form, by POST.\nFORMS: FrozenSet[str] = frozenset({\"%s\"})\n\n\n", strings.Join(forms, `", "`))
	b.WriteString(types.String())
	b.WriteString("class Methods:\n    \"\"\"The methods of a server.\"\"\"\n\n    def _call(self, nsid: str, params: Dict[str, Any]) -> Any:\n        raise NotImplementedError\n")
	b.WriteString(methods.String())
	b.WriteString("\n\nclass AsyncMethods:\n    \"\"\"The methods of a server, for asyncio.\"\"\"\n\n    async def _call(self, nsid: str, params: Dict[str, Any]) -> Any:\n        raise NotImplementedError\n")
	b.WriteString(asyncMethods.String())
	for _, c := range []struct{ async, methods string }{{"", paged.String()}, {"Async", asyncPaged.String()}} {
		fmt.Fprintf(&b, "\n\nclass %sPagedMethods:\n    \"\"\"The methods that return pages. Each iterates over the items of all of them.\"\"\"\n\n    def _pages(self, nsid: str, field: str, most: int, params: Dict[str, Any]) -> Any:\n        raise NotImplementedError\n%s", c.async, c.methods)
	}
	return b.String()
}

// pyMethod writes a method. For the async client, before and await are the keywords.
func (l *file) pyMethod(b *strings.Builder, before, await string) {
	main := l.method()
	if main == nil {
		return
	}
	signature, params, described := l.pyParams(main.Parameters)
	if described != "" {
		described = "\n" + described + "\n        "
	}
	output := l.typeName("output")
	fmt.Fprintf(b, "\n    %sdef %s(%s) -> %s:\n        \"\"\"%s%s\"\"\"\n        answer: %s = %sself._call(%q, {%s})\n        return answer\n",
		before, snake(l.name()), signature, output, main.Description, described, output, await, l.ID, params)
}

// pyPages writes a method that iterates over pages, if the method returns some.
func (l *file) pyPages(b *strings.Builder, async string) {
	field, parameters := l.paged()
	if parameters == nil {
		return
	}
	signature, params, _ := l.pyParams(parameters)
	main := l.method()
	pages := fmt.Sprintf("%sPages[%s]", async, l.pyType(main.Output.Schema.Properties[field].Items))
	fmt.Fprintf(b, "\n    def %s(%s) -> %s:\n        \"\"\"%s\"\"\"\n        pages: %s = self._pages(%q, %q, %d, {%s})\n        return pages\n",
		snake(l.name()), signature, pages, main.Description, pages, l.ID, field, *main.Parameters.Properties["limit"].Maximum, params)
}

// pyParams returns the signature of a method with these parameters, the items of the dict that has them, and
// their descriptions.
func (l *file) pyParams(p *xrpc.Def) (signature, items, described string) {
	signature = "self"
	if p == nil {
		return signature, "", ""
	}
	var params []string
	add := func(name string) {
		q := p.Properties[name]
		params = append(params, fmt.Sprintf("%q: %s", name, pyName(name)))
		signature += ", " + pyName(name) + ": " + l.pyParam(name, &q)
		if q.Description != "" {
			described += "\n        " + pyName(name) + ": " + q.Description
		}
	}
	for _, name := range p.Required {
		add(name)
	}
	others := optional(p)
	if len(others) > 0 {
		signature += ", *"
	}
	for _, name := range others {
		add(name)
		signature += " | None = None"
	}
	return signature, strings.Join(params, ", "), described
}

// pyTyped writes the type of a definition. A TypedDict is either total or not, so the required
// fields get a class of their own. So does $type, which is not a valid name in Python.
func (l *file) pyTyped(b *strings.Builder, def, description string, d *xrpc.Def) {
	name, base := l.typeName(def), "TypedDict"
	if full := l.full("#" + def); l.tagged[full] {
		base = "_" + name + "Type"
		fmt.Fprintf(b, "%s = TypedDict(%q, {\"$type\": Literal[%q]})\n\n\n", base, base, full)
	}
	required := slices.Sorted(slices.Values(d.Required))
	others := optional(d)
	if len(others) == 0 {
		l.pyClass(b, name+"("+base+")", description, d, required)
		return
	}
	l.pyClass(b, "_"+name+"("+base+")", "", d, required)
	l.pyClass(b, name+"(_"+name+", total=False)", description, d, others)
}

func (l *file) pyClass(b *strings.Builder, head, description string, d *xrpc.Def, fields []string) {
	fmt.Fprintf(b, "class %s:\n", head)
	if description != "" {
		fmt.Fprintf(b, "    \"\"\"%s\"\"\"\n\n", description)
	}
	for _, p := range fields {
		q := d.Properties[p]
		if q.Description != "" {
			fmt.Fprintf(b, "    #: %s\n", q.Description)
		}
		is := l.pyType(&q)
		if slices.Contains(d.Nullable, p) {
			is = "Optional[" + is + "]"
		}
		fmt.Fprintf(b, "    %s: %s\n", p, is)
	}
	if description == "" && len(fields) == 0 {
		b.WriteString("    pass\n")
	}
	b.WriteString("\n\n")
}

func (l *file) pyType(d *xrpc.Def) string {
	switch d.Type {
	case "integer":
		return "int"
	case "boolean":
		return "bool"
	case "array":
		return "List[" + l.pyType(d.Items) + "]"
	case "ref":
		return l.ref(d.Ref)
	case "union":
		var refs []string
		for _, r := range d.Refs {
			refs = append(refs, l.ref(r))
		}
		return "Union[" + strings.Join(refs, ", ") + "]"
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

func (l *file) pyParam(name string, d *xrpc.Def) string {
	switch {
	case d.Type == "array":
		return "Sequence[" + l.pyType(d.Items) + "]"
	case values[name] != "":
		return title(values[name])
	}
	return l.pyType(d)
}

// pyName returns the name of a parameter in Python. It adds _ to keywords such as except.
func pyName(name string) string {
	if slices.Contains([]string{"except", "from", "in", "is", "class", "set", "with"}, name) {
		return name + "_"
	}
	return snake(name)
}

// snake returns a name in Python's style: get_stats.
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
