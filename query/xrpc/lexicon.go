package xrpc

import (
	"embed"
	"io/fs"
)

//go:embed lexicons/*.json
var embedded embed.FS

// Lexicons has the lexicons (https://atproto.com/specs/lexicon) of the methods that the server answers, as NSID.json.
var Lexicons, _ = fs.Sub(embedded, "lexicons")
