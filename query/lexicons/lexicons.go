// Package lexicons has the lexicons of the methods that the server answers.
package lexicons

import "embed"

// Files has the lexicons, as NSID.json.
//
//go:embed *.json
var Files embed.FS
