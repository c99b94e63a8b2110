// Command generate makes the typed parts of the clients from the lexicons:
//
//	go run ./clients/generate
//
// writes typescript/src/methods.ts and python/skein_blue/methods.py. The rest of the clients,
// how they ask a server, is written by hand beside these files.
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"skein.blue/internal/lexicon"
	"skein.blue/query"
)

// errNames is returned where two lexicons would make one name in the clients.
var errNames = errors.New("generate: two definitions have one name in the clients")

// forms are the methods that a server also takes by POST, as a form: their parameters may be
// longer than a URL should be.
var forms = []string{
	"blue.skein.graph.contains", "blue.skein.graph.known", "blue.skein.graph.list",
	"blue.skein.graph.query", "blue.skein.graph.rank",
}

// file is a lexicon: a method, or definitions that methods refer to.
type file struct {
	lexicon.File

	tagged map[string]bool // full names of the definitions that answers tag with $type
}

func main() {
	all, err := read()
	if err == nil {
		for path, text := range made(all) {
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

// read returns the lexicons, in order.
func read() (all []file, err error) {
	files, err := lexicon.Read(query.Lexicons, "lexicons")
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what it did
	}
	tagged, names := map[string]bool{}, map[string]string{}
	for _, f := range files {
		l := file{f, tagged}
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
				return nil, fmt.Errorf("%w: %s, in %s and in %s", errNames, name, other, l.ID)
			}
			names[name] = l.ID
		}
		all = append(all, l)
	}
	return all, nil
}

// made returns what is made from the lexicons, by path.
func made(all []file) map[string]string {
	return map[string]string{"typescript/src/methods.ts": typescript(all), "python/skein_blue/methods.py": python(all)}
}

// tag notes the definitions that stand in a union: an answer says by $type which of them it is.
func (l *file) tag(d *lexicon.Def) {
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

// name is the last part of the NSID.
func (l *file) name() string { return l.ID[strings.LastIndexByte(l.ID, '.')+1:] }

// method returns the definition of the method, nil if the lexicon has none that answers once.
func (l *file) method() *lexicon.Def {
	if main, ok := l.Defs["main"]; ok && main.Output != nil {
		return &main
	}
	return nil
}

// full is a reference with the NSID of the lexicon that it goes to.
func (l *file) full(ref string) string {
	if strings.HasPrefix(ref, "#") {
		return l.ID + ref
	}
	return ref
}

// typeName is the name of a definition's type: QueryOutput, RankRanked. A file that only has
// definitions adds nothing to their names: Relationship.
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
func optional(d *lexicon.Def) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(d.Properties)) {
		if !slices.Contains(d.Required, name) {
			names = append(names, name)
		}
	}
	return names
}
