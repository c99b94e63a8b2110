package xrpc

import (
	"embed"
	"io/fs"
)

//go:embed lexicons/*.json
var embedded embed.FS

// Lexicons has the lexicons (https://atproto.com/specs/lexicon) of the methods that the server answers, as NSID.json.
var Lexicons, _ = fs.Sub(embedded, "lexicons")

// Lexicon is a lexicon file. It has only the parts that the methods, the OpenAPI description and the typed clients
// (.ci/generate) need.
type Lexicon struct {
	// ID is the NSID of the method.
	ID string `json:"id"`
	// Defs are the definitions by name. The method itself is "main". A file without "main" has
	// only definitions that methods refer to.
	Defs map[string]Def `json:"defs"`
}

// Def is a definition in a lexicon, or a part of one. The specification defines its fields.
type Def struct {
	Type        string         `json:"type"`
	Description string         `json:"description"`
	Parameters  *Def           `json:"parameters"`
	Properties  map[string]Def `json:"properties"`
	Required    []string       `json:"required"`
	Nullable    []string       `json:"nullable"`
	Items       *Def           `json:"items"`
	Ref         string         `json:"ref"`
	Refs        []string       `json:"refs"`
	Format      string         `json:"format"`
	Enum        []string       `json:"enum"`
	KnownValues []string       `json:"knownValues"`
	Minimum     *int           `json:"minimum"`
	Maximum     *int           `json:"maximum"`
	MaxLength   *int           `json:"maxLength"`
	Default     any            `json:"default"`
	Input       *Body          `json:"input"`
	Output      *Body          `json:"output"`
	Message     *Body          `json:"message"`
	// Errors are those that a method may answer.
	Errors []struct {
		Name string `json:"name"`
	} `json:"errors"`
}

// Body is the body of a procedure's input, of a method's answer, or of each of its messages.
type Body struct {
	Schema Def `json:"schema"`
}
