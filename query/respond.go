package query

import (
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzhttp"
)

// minCompressed is the size of the smallest answer that is compressed, in bytes.
const minCompressed = 1024

// largeAnswer is the size in bytes above which an answer counts towards Options.InFlight.
// Smaller answers are always sent.
const largeAnswer = 64 << 10

// compressed wraps a handler to compress its answer with zstd or gzip, whichever the client
// prefers, and to set Vary.
var compressed = sync.OnceValue(func() func(http.Handler) http.HandlerFunc {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(minCompressed), gzhttp.ContentTypes([]string{"application/json"}))
	if err != nil {
		panic(err) // the options are wrong
	}
	return wrap
})

// write writes an answer as JSON. Answers carry an ETag, so that a client that repeats a
// query receives a few bytes while nothing has changed.
func (s *Server) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	compressed()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.writePlain(w, r, status, v)
	})).ServeHTTP(w, r)
}

func (s *Server) writePlain(w http.ResponseWriter, r *http.Request, status int, v any) {
	p, isPersonal := v.(personal)
	if isPersonal {
		v = p.answer
	}
	b, err := json.Marshal(v)
	if err != nil {
		s.o.Logger.Error("encoding an answer failed; the client receives status 500", "error", err)
		status, b = http.StatusInternalServerError, []byte(`{"error":"InternalServerError","message":"the server cannot encode the answer"}`)
	}
	b = append(b, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if status == http.StatusOK && r.Method != http.MethodPost { // caches do not keep answers to POST
		tag := etag(b)
		h.Set("ETag", tag)
		h.Set("Cache-Control", "no-cache") // caches revalidate each time
		if isPersonal {
			h.Set("Cache-Control", "private, no-cache")
			h.Add("Vary", "Authorization")
		}
		if matches(strings.Join(r.Header.Values("If-None-Match"), ","), tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	if len(b) > largeAnswer {
		defer s.inFlight.Add(-int64(len(b)))
		if s.inFlight.Add(int64(len(b))) > s.o.InFlight {
			status = http.StatusServiceUnavailable
			h.Del("ETag")
			h.Set("Retry-After", "1")
			if s.o.Metrics != nil {
				s.o.Metrics.Errors.WithLabelValues("any", "Busy").Inc()
			}
			b = []byte(`{"error":"Busy","message":"too many bytes are waiting for slow clients; try again, or with a smaller limit"}` + "\n")
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	if _, err := w.Write(b); err != nil {
		s.o.Logger.Debug("a client disconnected before it had its answer", "error", err)
	}
}

// etag returns a weak tag, the same for every encoding of the answer.
func etag(b []byte) string {
	h := fnv.New128a()
	_, _ = h.Write(b) // never fails
	return `W/"` + base64.RawURLEncoding.EncodeToString(h.Sum(nil)) + `"`
}

// matches reports whether an If-None-Match header names the tag
// (https://www.rfc-editor.org/rfc/rfc9110#name-if-none-match).
func matches(header, tag string) bool {
	for t := range strings.SplitSeq(header, ",") {
		if t = strings.TrimSpace(t); t == "*" || strings.TrimPrefix(t, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}
