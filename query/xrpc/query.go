package xrpc

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/query/language"
)

// A Query is one call of a method: its parameters, and what it works with.
type Query struct {
	NSID   string // of the method
	Values url.Values
	Input  string      // of a procedure: the body
	Header http.Header // of the request

	Words   *language.Vocabulary
	MaxExpr int // the largest expression, in bytes
	Store   *graph.Store
	Cursors *Cursors
	Work    *Work

	// Resolve replaces handles by DIDs. where names the place of a literal, for errors.
	Resolve func(list []language.Literal, where func(i int) string) error
	// Viewer returns the DID of the viewer who called the method.
	Viewer func() (string, error)

	err error // see Err
}

// Err returns what is wrong with the first bad parameter that Integer, Boolean or Window has read. View returns it, too: a
// method that only works on a View need not ask.
func (q *Query) Err() error { return q.err }

// wrong notes a bad parameter for Err.
func (q *Query) wrong(format string, args ...any) {
	if q.err == nil {
		q.err = Invalid(format, args...)
	}
}

// Parse reads the query string and the form of a call. An unknown parameter is an error,
// and so is one that occurs twice but may not be repeated: a misspelled parameter must not
// change the meaning of the answer. An empty cursor is none.
func Parse(raw string, form *string, m *Method) (*Query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, Invalid("the query string cannot be read: %v", err)
	}
	q := &Query{NSID: m.NSID, Values: values, MaxExpr: language.MaxExpr}
	if m.Procedure {
		q.Input, form = *form, nil
	}
	if form != nil {
		q.MaxExpr = language.MaxForm
		inForm, err := url.ParseQuery(*form)
		if err != nil {
			return nil, Invalid("the form cannot be read: %v", err)
		}
		for name, v := range inForm {
			values[name] = append(values[name], v...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch n := len(values[name]); {
		case !slices.Contains(m.Takes, name):
			return nil, unknownParameter(m, name)
		case n > 1 && !slices.Contains(m.Many, name):
			return nil, Invalid("parameter %s occurs %d times; it may occur once", name, n)
		}
	}
	if values.Get("cursor") == "" { // clients send it so for the first page
		values.Del("cursor")
	}
	return q, nil
}

// unknownParameter returns the error for an unknown parameter, with the nearest known name.
func unknownParameter(m *Method, name string) error {
	if near := language.Nearest(name, slices.Values(m.Takes)); near != "" {
		return Invalid("unknown parameter %q; did you mean %s?", language.Brief(name), near)
	}
	if len(m.Takes) == 0 {
		return Invalid("unknown parameter %q; %s takes no parameters", language.Brief(name), m.NSID)
	}
	return Invalid("unknown parameter %q; %s takes %s", language.Brief(name), m.NSID, strings.Join(m.Takes, ", "))
}

// Set parses the parameter set.
func (q *Query) Set() (*language.Expr, error) {
	if !q.Values.Has("set") {
		return nil, Invalid("parameter %q is missing", "set")
	}
	return q.Parsed("set", q.Values.Get("set"), time.Now(), q.Words.Parse)
}

// Parsed parses an expression with parse, a method of Words. what names it in errors.
func (q *Query) Parsed(what, text string, now time.Time, parse func(string, int, time.Time) (*language.Expr, error)) (*language.Expr, error) {
	e, err := parse(text, q.MaxExpr, now)
	if err != nil {
		return nil, Invalid("%s: %v", what, err)
	}
	return e, q.Resolve(e.Strings, func(i int) string { return fmt.Sprintf("%s: at position %d: ", what, e.Offsets[i]) })
}

// List parses a parameter that occurs 1 to hi times, with names of what has one of some forms (language.LiteralAs).
func (q *Query) List(name string, hi int, forms ...kinds.Form) ([]language.Literal, error) {
	given := q.Values[name]
	switch {
	case len(given) < 1:
		return nil, Invalid("parameter %q is missing", name)
	case len(given) > hi:
		return nil, Invalid("parameter %s occurs %d times; at most %d are allowed", name, len(given), hi)
	}
	list := make([]language.Literal, len(given))
	for i, v := range given {
		l, err := language.LiteralAs(v, forms...)
		if err != nil {
			return nil, Invalid("%s %q (number %d)%v", name, language.Brief(v), i+1, err)
		}
		list[i] = l
	}
	return list, q.Resolve(list, func(i int) string { return fmt.Sprintf("%s (number %d): ", name, i+1) })
}

// Integer reads a parameter that is a number from lo to hi.
func (q *Query) Integer(name string, lo, hi, otherwise int) int {
	if !q.Values.Has(name) {
		return otherwise
	}
	n, err := strconv.Atoi(q.Values.Get(name))
	if err != nil || n < lo || n > hi {
		q.wrong("parameter %s is %q; it must be a number from %d to %d", name, language.Brief(q.Values.Get(name)), lo, hi)
	}
	return n
}

// Boolean reads a parameter that is true or false.
func (q *Query) Boolean(name string) bool {
	v := q.Values.Get(name)
	if q.Values.Has(name) && v != "true" && v != "false" {
		q.wrong("parameter %s is %q; it must be true or false", name, language.Brief(v))
	}
	return v == "true"
}

// Window reads the parameters since and until.
func (q *Query) Window(now time.Time) language.Window {
	for _, name := range []string{"since", "until"} {
		if q.Values.Has(name) && q.Values.Get(name) == "" {
			q.wrong("parameter %s is empty: give a time, or leave it out", name)
		}
	}
	w, _, err := language.ParseWindow(q.Values.Get("since"), q.Values.Get("until"), now)
	if err != nil {
		q.wrong("parameter %v", err)
	}
	return w
}
