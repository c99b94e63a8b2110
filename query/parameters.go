package query

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"skein.blue/graph/ask"
	"skein.blue/intern/dict"
	"skein.blue/internal/lexicon"
	"skein.blue/query/algebra"
)

// params are the parameters of a call.
type params struct {
	words   *algebra.Vocabulary
	nsid    string // of the method
	values  url.Values
	maxExpr int // the largest expression, in bytes
	header  http.Header
	asker   *asker
	work    *work
	resolve func(list []algebra.Literal, where func(i int) string) error // Server.resolve
}

// subscribeMethod has the parameters of subscribe, which is a subscription and not a query.
var subscribeMethod = withLexicon(method{nsid: subscribeNSID})

// withLexicon returns a method with the parameters of its lexicon. A method outside of XRPC
// (/links) has no lexicon and lists its own parameters.
func withLexicon(m method) method {
	b, err := fs.ReadFile(Lexicons, "lexicons/"+m.nsid+".json")
	if err != nil {
		return m
	}
	var l lexicon.File
	if err := json.Unmarshal(b, &l); err != nil {
		panic("query: lexicon " + m.nsid + ": " + err.Error()) // lexicons are built in
	}
	m.takes, m.many = nil, nil
	p := l.Defs["main"].Parameters
	if p == nil {
		return m
	}
	for name, d := range p.Properties {
		m.takes = append(m.takes, name)
		if d.Type == "array" {
			m.many = append(m.many, name)
		}
	}
	slices.SortFunc(m.takes, func(x, y string) int { // the required ones first, in their order
		return cmp.Or(cmp.Compare(place(p.Required, x), place(p.Required, y)), cmp.Compare(x, y))
	})
	return m
}

// rankTakes are the parameters of rank.
var rankTakes = withLexicon(method{nsid: "blue.skein.graph.rank"}).takes

// place returns the index of a name in a list, and the list's length if it is not there.
func place(list []string, name string) int {
	if i := slices.Index(list, name); i >= 0 {
		return i
	}
	return len(list)
}

// allows reports whether a method can be called by an HTTP method.
func (m *method) allows(httpMethod string) bool {
	return httpMethod == http.MethodGet || httpMethod == http.MethodHead || m.form && httpMethod == http.MethodPost
}

// allowed returns the Allow header of a method.
func (m *method) allowed() string {
	if m.form {
		return "GET, HEAD, POST, OPTIONS"
	}
	return "GET, HEAD, OPTIONS"
}

// parseParams reads the query string and the form of a call. An unknown parameter is an error,
// and so is one that occurs twice but may not be repeated: a misspelled parameter must not
// change the meaning of the answer.
func parseParams(raw string, form *string, m *method) (params, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return params{}, invalid("the query string cannot be read: %v", err)
	}
	q := params{values: values, maxExpr: algebra.MaxExpr}
	if form != nil {
		q.maxExpr = algebra.MaxForm
		inForm, err := url.ParseQuery(*form)
		if err != nil {
			return params{}, invalid("the form cannot be read: %v", err)
		}
		for name, v := range inForm {
			values[name] = append(values[name], v...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch n := len(values[name]); {
		case !slices.Contains(m.takes, name):
			return params{}, unknownParameter(m, name)
		case n > 1 && !slices.Contains(m.many, name):
			return params{}, invalid("parameter %s occurs %d times; it may occur once", name, n)
		}
	}
	return q, nil
}

// unknownParameter returns the error for an unknown parameter, with the nearest known name.
func unknownParameter(m *method, name string) error {
	if m.nsid == getFeedSkeleton && name == previewParameter {
		return invalid("%s previews a feed, and previews are off here (skein serve --feed-preview): send a service auth token", name)
	}
	if near := algebra.Nearest(name, slices.Values(m.takes)); near != "" {
		return invalid("unknown parameter %q; did you mean %s?", algebra.Brief(name), near)
	}
	if len(m.takes) == 0 {
		return invalid("unknown parameter %q; %s takes no parameters", algebra.Brief(name), m.nsid)
	}
	return invalid("unknown parameter %q; %s takes %s", algebra.Brief(name), m.nsid, strings.Join(m.takes, ", "))
}

// set parses the parameter set.
func (q params) set() (*algebra.Expr, error) { return q.exprAt("set", time.Now()) }

// exprAt parses the set expression in a parameter, with ages counted back from now.
func (q params) exprAt(name string, now time.Time) (*algebra.Expr, error) {
	if !q.values.Has(name) {
		return nil, invalid("parameter %s is missing", name)
	}
	e, err := q.words.Parse(q.values.Get(name), q.maxExpr, now)
	if err != nil {
		return nil, invalid("%s: %v", name, err)
	}
	return e, q.resolve(e.Strings, func(i int) string { return fmt.Sprintf("%s: at position %d: ", name, e.Offsets[i]) })
}

// list parses a parameter that occurs 1 to hi times, with literals of the namespace ns.
func (q params) list(name string, hi int, ns dict.Namespace) ([]algebra.Literal, error) {
	given := q.values[name]
	switch {
	case len(given) < 1:
		return nil, invalid("parameter %s is missing", name)
	case len(given) > hi:
		return nil, invalid("parameter %s occurs %d times; at most %d are allowed", name, len(given), hi)
	}
	list := make([]algebra.Literal, len(given))
	for i, v := range given {
		l, ok := algebra.LiteralOf(v)
		if !ok && algebra.NamesSpace(v) {
			return nil, invalid("%s %q (number %d) names a space; spaces are not indexed", name, algebra.Brief(v), i+1)
		}
		if !ok || l.Is != ns {
			return nil, invalid("%s %q (number %d) is not %s%s", name, algebra.Brief(v), i+1, algebra.Singular(ns), algebra.Hint(v))
		}
		list[i] = l
		if why := list[i].Unusable(); why != "" {
			return nil, invalid("%s %q (number %d): %s", name, algebra.Brief(v), i+1, why)
		}
	}
	return list, q.resolve(list, func(i int) string { return fmt.Sprintf("%s (number %d): ", name, i+1) })
}

func (q params) integer(name string, lo, hi, otherwise int) (int, error) {
	if !q.values.Has(name) {
		return otherwise, nil
	}
	n, err := strconv.Atoi(q.values.Get(name))
	if err != nil || n < lo || n > hi {
		return 0, invalid("parameter %s is %q; it must be a number from %d to %d", name, algebra.Brief(q.values.Get(name)), lo, hi)
	}
	return n, nil
}

func (q params) boolean(name string) (bool, error) {
	switch v := q.values.Get(name); {
	case !q.values.Has(name) || v == "false":
		return false, nil
	case v == "true":
		return true, nil
	}
	return false, invalid("parameter %s is %q; it must be true or false", name, algebra.Brief(q.values.Get(name)))
}

// window reads the parameters since and until.
func (q params) window(now time.Time) (ask.Window, error) {
	for _, name := range []string{"since", "until"} {
		if q.values.Has(name) && q.values.Get(name) == "" {
			return ask.Window{}, invalid("parameter %s is empty: give a time, or leave it out", name)
		}
	}
	w, _, err := algebra.ParseWindow(q.values.Get("since"), q.values.Get("until"), now)
	if err != nil {
		return w, invalid("parameter %v", err)
	}
	return w, nil
}
