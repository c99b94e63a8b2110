// Package page serves the web page of a skein: the state of the index, and a box for queries. It is HTML, scripts and a style
// sheet, embedded in the program, without a framework or a build step. It uses the query API of the same server (package
// query), and the samples that Live takes once a second.
//
// The page's only other server is public.api.bsky.app, for names of accounts, a search for them, and texts of posts: on the
// public network only, unless the viewer turns that off. Elsewhere this server gives the handles. Its policy allows no others.
package page

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"time"

	"github.com/klauspost/compress/gzhttp"

	"skein.blue/graph/kinds"
	"skein.blue/internal/clients"
)

//go:embed static
var static embed.FS

// policy is the Content-Security-Policy of the page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' https://cdn.bsky.app; " +
	"connect-src 'self' https://public.api.bsky.app; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// file is a file of the page.
type file struct {
	contentType string
	plain       []byte
	tag         string // a weak ETag, the same for the compressed file
}

var types = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png"}

// spare is what browsers do not receive of scripts, the style sheet and HTML: indentation and comments. No text that spans
// lines, or has " // " or " /*", may depend on it. Of the style sheet, they do not receive the spaces around marks either.
var spare, apart = regexp.MustCompile(`(?m)^\s*(//.*\n)?| // .*$| /\*.*?\*/`), regexp.MustCompile(`;?\s*([{}])\s*|([:;,])\s+`)

// files are all files of the page, by name.
var files = func() map[string]*file {
	entries, err := static.ReadDir("static")
	if err != nil {
		panic(err)
	}
	all := map[string]*file{}
	for _, e := range entries {
		b, err := static.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		if path.Ext(e.Name()) != ".png" {
			b = spare.ReplaceAll(b, nil)
		}
		if path.Ext(e.Name()) == ".css" {
			b = apart.ReplaceAll(b, []byte("$1$2"))
		}
		all[e.Name()] = &file{types[path.Ext(e.Name())], b, fmt.Sprintf(`W/"%x"`, sha256.Sum256(b))[:24] + `"`}
	}
	return all
}()

// An Example is a query that the page proposes, in words and as an expression.
type Example struct {
	Title string `json:"title"`
	Q     string `json:"q"`
}

// Options configure the page of a server.
type Options struct {
	// Handles says that the server resolves handles.
	Handles bool
	// People, if set, replaces Bluesky's own service for a made-up network: it serves
	// app.bsky.actor.getProfiles and searchActorsTypeahead, app.bsky.feed.getPosts, and pictures below /page/faces/.
	People http.Handler
	// Public says that Bluesky's own service knows the accounts. The page then shows names from it unless the viewer turns them off.
	Public bool
	// Kinds are the kinds that the index has. nil means kinds.BuiltIn.
	Kinds *kinds.Table
	// Examples returns queries to propose. nil: the page proposes queries about accounts that Accounts returns.
	Examples func() []Example
	Accounts func(ctx context.Context) (dids []string)
	// Service is the DID that records of feeds name, "" if the server serves none.
	Service string
}

// Handler serves the page at /, its files below /page/, and live at /live. It passes everything else to api.
func Handler(api http.Handler, live *Live, o Options) http.Handler {
	sets := setsOf(cmp.Or(o.Kinds, kinds.BuiltIn))
	mux := http.NewServeMux()
	mux.Handle("/", api)
	mux.Handle("GET /{$}", files["index.html"])
	mux.HandleFunc("GET /page/config.json", func(w http.ResponseWriter, r *http.Request) {
		config := struct {
			Handles  bool      `json:"handles"`
			People   bool      `json:"people"`
			Public   bool      `json:"public"`
			Sets     []Set     `json:"sets"`
			Examples []Example `json:"examples"`
			Accounts []string  `json:"accounts,omitempty"`
			Service  string    `json:"service,omitempty"`
		}{o.Handles, o.People != nil, o.Public, sets, []Example{}, nil, o.Service}
		if o.Examples != nil {
			config.Examples = append(config.Examples, o.Examples()...)
		} else if o.Accounts != nil {
			config.Accounts = o.Accounts(r.Context())
		}
		answerJSON(w, config)
	})
	for name, f := range files {
		mux.Handle("GET /page/"+name, f)
	}
	if o.People != nil {
		for _, pattern := range []string{"GET /xrpc/app.bsky.actor.getProfiles", "GET /xrpc/app.bsky.actor.searchActorsTypeahead", "GET /xrpc/app.bsky.feed.getPosts", "GET /page/faces/"} {
			mux.Handle(pattern, o.People)
		}
	}
	mux.Handle("GET /live", live)
	mux.HandleFunc("GET /robots.txt", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		// Answers link to more answers without end.
		_, _ = w.Write([]byte("User-agent: *\nAllow: /$\nDisallow: /\n"))
	})
	return mux
}

func answerJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v)
}

// ServeHTTP implements http.Handler.
func (f *file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Type", f.contentType)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.tag)
	whole := &clients.Whole{ResponseWriter: w}
	gzhttp.GzipHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.plain))
	}))(whole, r)
	whole.Send()
}
