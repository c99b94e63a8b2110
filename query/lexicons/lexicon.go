// Package lexicons has the lexicons (https://atproto.com/specs/lexicon) of the methods that the server answers. It reads only
// the parts that the OpenAPI description (package query) and the typed clients (.ci/generate) need.
package lexicons

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
)

// Files has the lexicons, as NSID.json.
//
//go:embed *.json
var Files embed.FS

// File is a lexicon file.
type File struct {
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
	Output      *Body          `json:"output"`
	Message     *Body          `json:"message"`
	Errors      []Error        `json:"errors"`
}

// Body is the body of a method's answer, or of each of its messages.
type Body struct {
	Schema Def `json:"schema"`
}

// Error is an error that a method may answer.
type Error struct {
	Name string `json:"name"`
}

// Read reads the lexicons in a folder, in the order of their file names.
func Read(files fs.FS, folder string) ([]File, error) {
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return nil, fmt.Errorf("reading the lexicons: %w", err)
	}
	all := make([]File, len(entries))
	for i, e := range entries {
		b, err := fs.ReadFile(files, path.Join(folder, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading the lexicons: %w", err)
		}
		if err := json.Unmarshal(b, &all[i]); err != nil {
			return nil, fmt.Errorf("lexicon %s: %w", e.Name(), err)
		}
	}
	return all, nil
}
