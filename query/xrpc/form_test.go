package xrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"skein.blue/query/algebra"
)

func post(from, kind, coding string, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/xrpc/x", body)
	r.RemoteAddr = from + ":1234"
	r.Header.Set("Content-Type", kind)
	if coding != "" {
		r.Header.Set("Content-Encoding", coding)
	}
	return r
}

// unknown hides the length of a body, as a chunked request does.
type unknown struct{ io.Reader }

// broken ends with an error.
type broken struct{ after io.Reader }

func (b broken) Read(p []byte) (int, error) {
	n, err := b.after.Read(p)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err //nolint:wrapcheck // a test
}

func (f *Forms) empty(t *testing.T, what string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held != 0 || len(f.clients) != 0 {
		t.Errorf("%s: %d bytes are held, by %v", what, f.held, f.clients)
	}
}

// Each form is read whole or is an error, and holds no memory after its release.
func TestFormsAreReadWhole(t *testing.T) {
	long := strings.Repeat("x", algebra.MaxForm)
	for name, c := range map[string]struct {
		kind, coding string
		body         io.Reader
		text         string
		status       int
		says         string
	}{
		"a form":                {FormMediaType, "", strings.NewReader("set=a"), "set=a", 0, ""},
		"with a charset":        {FormMediaType + "; charset=utf-8", "", strings.NewReader("set=a"), "set=a", 0, ""},
		"in capitals":           {strings.ToUpper(FormMediaType), "", strings.NewReader("set=a"), "set=a", 0, ""},
		"encoded as identity":   {FormMediaType, "identity", strings.NewReader("set=a"), "set=a", 0, ""},
		"empty":                 {FormMediaType, "", strings.NewReader(""), "", 0, ""},
		"without length":        {FormMediaType, "", unknown{strings.NewReader("set=a")}, "set=a", 0, ""},
		"of the largest size":   {FormMediaType, "", strings.NewReader(long), long, 0, ""},
		"largest, no length":    {FormMediaType, "", unknown{strings.NewReader(long)}, long, 0, ""},
		"too large":             {FormMediaType, "", strings.NewReader(long + "x"), "", 413, "more than 1048576 bytes"},
		"too large, no length":  {FormMediaType, "", unknown{strings.NewReader(long + "x")}, "", 413, "more than 1048576 bytes"},
		"no media type":         {"", "", strings.NewReader("set=a"), "", 415, `the body is ""; send the parameters as application/x-www-form-urlencoded`},
		"JSON":                  {"application/json", "", strings.NewReader("{}"), "", 415, `the body is "application/json"`},
		"a multipart form":      {"multipart/form-data; boundary=x", "", strings.NewReader("x"), "", 415, "multipart/form-data"},
		"a broken media type":   {FormMediaType + "; charset", "", strings.NewReader("set=a"), "", 415, "the body is"},
		"a long media type":     {strings.Repeat("x/y", 5000), "", strings.NewReader("set=a"), "", 415, "…"},
		"compressed":            {FormMediaType, "gzip", strings.NewReader("set=a"), "", 415, `encoded as "gzip"; send it without an encoding`},
		"a body that breaks":    {FormMediaType, "", broken{strings.NewReader("set=")}, "", 400, "the body cannot be read: unexpected EOF"},
		"a body that ends soon": {FormMediaType, "", broken{strings.NewReader("")}, "", 400, "cannot be read"},
	} {
		f := NewForms()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		text, release, err := f.Read(ctx, httptest.NewRecorder(), post("192.0.2.1", c.kind, c.coding, c.body), 3*time.Second)
		cancel()
		if c.status != 0 {
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Status != c.status || !strings.Contains(e.Message, c.says) || len(e.Message) > 400 || text != nil {
				t.Errorf("%s: %v, want %d %s", name, err, c.status, c.says)
			}
			f.empty(t, name)
			continue
		}
		if err != nil || *text != c.text {
			t.Fatalf("%s: %v", name, err)
		}
		release()
		f.empty(t, name)
	}
	for _, by := range []string{http.MethodGet, http.MethodHead, http.MethodPut} {
		f := NewForms()
		text, release, err := f.Read(t.Context(), httptest.NewRecorder(), httptest.NewRequest(by, "/", strings.NewReader("set=a")), time.Second)
		if text != nil || err != nil {
			t.Errorf("%s: %v, %v", by, text, err)
		}
		release()
		f.empty(t, by)
	}
}

// A client may have four forms of the largest size at a time, and all clients together sixteen.
func TestFormsAreBounded(t *testing.T) {
	f := NewForms()
	releases := map[string][]func(){}
	read := func(client string, size int) error {
		w := httptest.NewRecorder()
		_, release, err := f.Read(t.Context(), w, post(client, FormMediaType, "", bytes.NewReader(make([]byte, size))), time.Second)
		if err == nil {
			releases[client] = append(releases[client], release)
		} else if e, ok := errors.AsType[*Error](err); !ok || e.Status != 503 || e.Name != "Busy" || w.Header().Get("Retry-After") != "1" || !strings.Contains(e.Message, "one client may have 4194304 bytes, all clients 16777216") {
			t.Errorf("%s: %v, %v", client, err, w.Header())
		}
		return err
	}
	for c := range 4 {
		client := fmt.Sprintf("192.0.2.%d", c)
		for n := range 4 {
			if err := read(client, algebra.MaxForm); err != nil {
				t.Errorf("form %d of %s: %v", n, client, err)
			}
		}
		if err := read(client, 1); err == nil {
			t.Errorf("%s has a byte too many", client)
		}
	}
	const late = "192.0.2.99"
	if err := read(late, 1); err == nil {
		t.Error("all clients together have a byte too many")
	}
	if err := read(late, 0); err != nil {
		t.Errorf("an empty form: %v", err)
	}
	releases["192.0.2.0"][0]()
	releases["192.0.2.0"] = releases["192.0.2.0"][1:]
	if err := read(late, algebra.MaxForm); err != nil {
		t.Errorf("after a release: %v", err)
	}
	for _, all := range releases {
		for _, release := range all {
			release()
		}
	}
	f.empty(t, "after all releases")
}

// Whatever forms are read and released, by however many clients at a time, the sums are right.
func TestFormsAreCounted(t *testing.T) {
	f := NewForms()
	var all sync.WaitGroup
	for c := range 8 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 1))
			for range 60 {
				var body io.Reader = bytes.NewReader(make([]byte, rng.IntN(algebra.MaxForm+algebra.MaxForm/8)))
				if rng.IntN(3) == 0 {
					body = unknown{body}
				}
				if rng.IntN(4) == 0 {
					body = broken{body}
				}
				_, release, err := f.Read(t.Context(), httptest.NewRecorder(), post(fmt.Sprintf("192.0.2.%d", c%3), FormMediaType, "", body), time.Second)
				f.mu.Lock()
				sum := int64(0)
				for client, n := range f.clients {
					if sum += n; n > formsOfAClient || n < 0 {
						t.Errorf("%s has %d bytes", client, n)
					}
				}
				if sum != f.held || f.held > formsInFlight {
					t.Errorf("%d bytes are held, and the clients have %d", f.held, sum)
				}
				f.mu.Unlock()
				if err == nil {
					release()
				}
			}
		})
	}
	all.Wait()
	f.empty(t, "at the end")
}
