package query

import (
	"cmp"
	_ "embed" // of openAPI
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io/fs"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzhttp"

	"skein.blue/internal/clients"
	"skein.blue/query/language"
	"skein.blue/query/xrpc"
)

// minCompressed is the size of the smallest answer that is compressed, in bytes.
const minCompressed = 1024

// largeAnswer is the size in bytes above which an answer counts towards maxUnread, the bytes of large answers that clients
// have not read yet, which they share (clients.Pool). Smaller answers are always sent.
const (
	largeAnswer = 64 << 10
	maxUnread   = 64 << 20
)

// compressed wraps a handler to compress its answer with zstd or gzip, whichever the client
// prefers, and to set Vary.
var compressed = sync.OnceValue(func() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(minCompressed), gzhttp.ContentTypes([]string{"application/json", "application/x-ndjson", "text/csv"}))
	if err != nil {
		panic(err) // the options are wrong
	}
	return wrap
})

// write writes an answer, as JSON if it is not formatted. Answers carry an ETag, so that a client that repeats a query receives a few
// bytes while nothing has changed.
func (s *Server) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	whole := &clients.Whole{ResponseWriter: w}
	compressed()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.encode(w, r, status, v) })).ServeHTTP(whole, r)
	if n := int64(whole.Body.Len()); n > largeAnswer {
		hold, ok := s.unread.Take(clients.Of(r), n, func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Now()) }) // fails only on a test's recorder
		if !ok {
			w.Header().Del("ETag")
			w.Header().Del("Content-Encoding")
			s.fail(w, r, "any", xrpc.Errorf(http.StatusServiceUnavailable, "Busy", "too many bytes are waiting for slow clients, and this client has the most of them; try again, or with a smaller limit"))
			return
		}
		defer hold.Give()
	}
	whole.Send()
}

func (s *Server) encode(w http.ResponseWriter, r *http.Request, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	var b []byte
	var err error
	if f, ok := v.(formatted); ok {
		b, err = f.of(h, r)
	} else if b, err = json.Marshal(v); err == nil {
		b = append(b, '\n')
	}
	if err != nil {
		s.o.Logger.Error("encoding an answer failed; the client receives status 500", "error", err)
		h.Set("Content-Type", "application/json")
		status, b = http.StatusInternalServerError, []byte(`{"error":"InternalServerError","message":"the server cannot encode the answer"}`+"\n")
	}
	if status == http.StatusOK && r.Method != http.MethodPost { // caches do not keep answers to POST
		tag := etag(h, b)
		h.Set("ETag", tag)
		h.Set("Cache-Control", cmp.Or(h.Get("Cache-Control"), "no-cache")) // caches revalidate each time
		if known := strings.Join(r.Header.Values("If-None-Match"), ","); strings.Contains(known, tag[len("W/"):]) || known == "*" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(b))) // unless it is compressed
	w.WriteHeader(status)
	_, _ = w.Write(b) // it fails only if the compressor does
}

// etag returns a weak tag, the same for every encoding of the answer. It covers what a table says in headers.
func etag(h http.Header, b []byte) string {
	sum := fnv.New128a()
	_, _ = fmt.Fprintln(sum, h["Skein-Cursor"], h["Skein-Total"], h["Skein-Incomplete"], h["Skein-Sample"])
	_, _ = sum.Write(b) // never fails
	return `W/"` + base64.RawURLEncoding.EncodeToString(sum.Sum(nil)) + `"`
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, method string, e *xrpc.Error) {
	s.o.Metrics.Errors.WithLabelValues(method, e.Name).Inc()
	s.o.Metrics.answered(method, e.Status)
	switch {
	case e.Status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case e.Name == "Busy", e.Name == "TooManySubscriptions":
		w.Header().Set("Retry-After", "1")
	case e.Name == "StoreUnavailable":
		w.Header().Set("Retry-After", "5")
	}
	s.write(w, r, e.Status, map[string]string{"error": e.Name, "message": e.Message})
}

// openAPI describes all methods. It is made from the lexicons (.ci/generate).
//
//go:embed openapi.json
var openAPI json.RawMessage

// serveDescriptions serves /openapi.json, and the lexicons at /lexicons/NSID.json.
func (s *Server) serveDescriptions() {
	s.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, r *http.Request) { s.write(w, r, http.StatusOK, openAPI) })
	s.mux.HandleFunc("GET /lexicons/{file}", func(w http.ResponseWriter, r *http.Request) {
		b, err := fs.ReadFile(xrpc.Lexicons, r.PathValue("file"))
		if err != nil {
			s.fail(w, r, "unknown", xrpc.Errorf(http.StatusNotFound, "NotFound", "unknown lexicon %q; /openapi.json lists the methods", language.Brief(r.PathValue("file"))))
			return
		}
		s.write(w, r, http.StatusOK, json.RawMessage(b))
	})
}
