package xrpc

import (
	"context"
	"encoding/json"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

// A Method is an XRPC query or procedure, or a query at a path of its own.
type Method struct {
	// NSID is the method's name, or its path if that begins with a slash.
	NSID string
	// Serve answers one call. The answer is encoded as JSON.
	Serve func(context.Context, *Query) (any, error)
	// Takes has the names of the parameters, and Many those that may be repeated.
	Takes, Many []string
	// Form reports that the parameters may also be sent as a form (POST).
	Form bool
	// Procedure reports that it is called by POST with JSON (Query.Input) instead of parameters.
	Procedure bool
	// Slow reports that a call takes some milliseconds of a processor; others take less than
	// one. Slow methods have a queue with one slot per processor, so that sixteen of them do
	// not all finish late (docs/decisions/0018).
	Slow bool
}

// Described returns the method with the parameters of its lexicon, before its own. A method that has no lexicon,
// such as /links, lists its own parameters.
func (m Method) Described() Method {
	b, err := fs.ReadFile(Lexicons, m.NSID+".json")
	if err != nil {
		return m
	}
	var l Lexicon
	if err := json.Unmarshal(b, &l); err != nil {
		panic("xrpc: lexicon " + m.NSID + ": " + err.Error()) // lexicons are built in
	}
	p := l.Defs["main"].Parameters
	if p == nil {
		return m
	}
	takes := slices.Clone(p.Required) // first, in their order
	for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
		if !slices.Contains(p.Required, name) {
			takes = append(takes, name)
		}
		if p.Properties[name].Type == "array" {
			m.Many = append(m.Many, name)
		}
	}
	m.Takes = append(takes, m.Takes...)
	return m
}

// Path returns the method's URL path.
func (m *Method) Path() string {
	if strings.HasPrefix(m.NSID, "/") {
		return m.NSID
	}
	return "/xrpc/" + m.NSID
}

// Allowed returns the method's Allow header.
func (m *Method) Allowed() string {
	switch {
	case m.Procedure:
		return "POST, OPTIONS"
	case m.Form:
		return "GET, HEAD, POST, OPTIONS"
	}
	return "GET, HEAD, OPTIONS"
}
