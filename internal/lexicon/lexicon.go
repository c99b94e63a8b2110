// Package lexicon reads lexicons, the descriptions of the methods that are served
// (https://atproto.com/specs/lexicon), as far as what is made from them needs it: the
// description in OpenAPI (package query) and the typed clients (clients/generate).
package lexicon

import (
	"encoding/json"
	"fmt"
	"io/fs"
)

// File is the file of a lexicon.
type File struct {
	// ID is the NSID of the method.
	ID string `json:"id"`
	// Defs are the definitions by their names; the method itself is "main". A file without
	// "main" only has definitions that methods refer to.
	Defs map[string]Def `json:"defs"`
}

// Def is a definition in a lexicon, or a part of one. Its fields are the specification's.
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

// Body is what a method answers, or what each of its messages is.
type Body struct {
	Schema Def `json:"schema"`
}

// Error is one of the errors that a method answers.
type Error struct {
	Name string `json:"name"`
}

// Read returns the lexicons that are the files of a folder, in the order of the files' names.
func Read(files fs.FS, folder string) ([]File, error) {
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return nil, fmt.Errorf("reading the lexicons: %w", err)
	}
	all := make([]File, len(entries))
	for i, e := range entries {
		b, err := fs.ReadFile(files, folder+"/"+e.Name())
		if err != nil {
			return nil, fmt.Errorf("reading the lexicons: %w", err)
		}
		if err := json.Unmarshal(b, &all[i]); err != nil {
			return nil, fmt.Errorf("lexicon %s: %w", e.Name(), err)
		}
	}
	return all, nil
}
