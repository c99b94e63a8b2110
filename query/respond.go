package query

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"hash/fnv"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// minCompressed is from how many bytes on an answer is compressed for those
// who take it so.
const minCompressed = 1024

// largeAnswer is from how many bytes on an answer counts among those in flight.
// Smaller ones are never refused.
const largeAnswer = 64 << 10

// write writes an answer as JSON. Answers carry an ETag, so that who asks the
// same again and again is told in a few bytes that nothing has changed.
func (s *Server) write(w http.ResponseWriter, r *http.Request, status int, v any) {
	p, isPersonal := v.(personal)
	if isPersonal {
		v = p.answer
	}
	b, err := json.Marshal(v)
	if err != nil {
		s.o.Logger.Error("an answer cannot be written", "error", err)
		status, b = http.StatusInternalServerError, []byte(`{"error":"InternalServerError","message":"the answer cannot be written"}`)
	}
	b = append(b, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if status == http.StatusOK && r.Method != http.MethodPost { // what was asked by POST is not kept
		tag := etag(b)
		h.Set("ETag", tag)
		h.Set("Cache-Control", "no-cache") // keep it, and ask whether it is still so
		h.Set("Vary", "Accept-Encoding")
		if isPersonal {
			h.Set("Cache-Control", "private, no-cache")
			h.Set("Vary", "Accept-Encoding, Authorization")
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
			b = []byte(`{"error":"Busy","message":"too many bytes of answers wait for clients that read slowly; ask again, or for smaller pages"}` + "\n")
		}
	}
	if len(b) >= minCompressed {
		if name, packed := compress(strings.Join(r.Header.Values("Accept-Encoding"), ","), b); name != "" {
			h.Set("Content-Encoding", name)
			b = packed
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	if _, err := w.Write(b); err != nil {
		s.o.Logger.Debug("a client left before its answer", "error", err)
	}
}

// etag is weak: the same answer has the same, whatever its encoding.
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

var (
	zstdEncoders = sync.Pool{New: func() any {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(128<<10))
		if err != nil {
			panic(err) // the options are wrong
		}
		return e
	}}
	gzipWriters = sync.Pool{New: func() any {
		w, err := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed)
		if err != nil {
			panic(err) // the level is wrong
		}
		return w
	}}
)

// compress packs b by the encoding that a client likes best
// (https://www.rfc-editor.org/rfc/rfc9110#name-accept-encoding), zstd before
// gzip, if it takes either.
func compress(accept string, b []byte) (name string, packed []byte) {
	takes := map[string]float64{}
	for part := range strings.SplitSeq(strings.ToLower(accept), ",") {
		coding, weight, _ := strings.Cut(part, ";")
		q := 1.0
		if w, ok := strings.CutPrefix(strings.TrimSpace(weight), "q="); ok {
			var err error
			if q, err = strconv.ParseFloat(strings.TrimSpace(w), 64); err != nil {
				q = 0
			}
		}
		takes[strings.TrimSpace(coding)] = q
	}
	switch {
	case takes["zstd"] > 0 && takes["zstd"] >= takes["gzip"]:
		e, ok := zstdEncoders.Get().(*zstd.Encoder)
		if !ok {
			return "", nil
		}
		defer zstdEncoders.Put(e)
		return "zstd", e.EncodeAll(b, nil)
	case takes["gzip"] > 0:
		z, ok := gzipWriters.Get().(*gzip.Writer)
		if !ok {
			return "", nil
		}
		defer gzipWriters.Put(z)
		var out bytes.Buffer
		z.Reset(&out)
		if _, err := z.Write(b); err != nil || z.Close() != nil {
			return "", nil
		}
		return "gzip", out.Bytes()
	}
	return "", nil
}
