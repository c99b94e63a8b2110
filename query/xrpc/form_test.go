package xrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"skein.blue/internal/sim/harness"
	"skein.blue/query/language"
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
	return n, err
}

func (f *Forms) empty(t *testing.T, what string) {
	t.Helper()
	if n := f.pool.Held(); n != 0 {
		t.Errorf("%s: %d bytes are held", what, n)
	}
}

// Each form is read whole or is an error, and holds no memory after its release.
func TestFormsAreReadWhole(t *testing.T) {
	long := strings.Repeat("x", language.MaxForm)
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
		"no media type":         {"", "", strings.NewReader("set=a"), "", 415, `the body is ""; send it as application/x-www-form-urlencoded`},
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
		text, release, err := f.Read(ctx, func(error) {}, httptest.NewRecorder(), post("192.0.2.1", c.kind, c.coding, c.body), new(Method), 3*time.Second)
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
		text, release, err := f.Read(t.Context(), func(error) {}, httptest.NewRecorder(), httptest.NewRequest(by, "/", strings.NewReader("set=a")), new(Method), time.Second)
		if text != nil || err != nil {
			t.Errorf("%s: %v, %v", by, text, err)
		}
		release()
		f.empty(t, by)
	}
}

// Clients share the memory of forms: one may have all of it while nobody else wants any, and then loses forms to others.
func TestFormsAreShared(t *testing.T) {
	f := NewForms()
	var mu sync.Mutex
	ended := map[string]int{}
	read := func(client string, size int) error {
		w := httptest.NewRecorder()
		_, _, err := f.Read(t.Context(), func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if ended[client]++; !errors.Is(err, errTaken) {
				t.Errorf("%s ends with %v", client, err)
			}
		}, w, post(client, FormMediaType, "", bytes.NewReader(make([]byte, size))), new(Method), time.Second)
		if e, ok := errors.AsType[*Error](err); err != nil && (!ok || e.Status != 503 || e.Name != "Busy") {
			t.Errorf("%s: %v", client, err)
		}
		return err
	}
	greedy := 0
	for read("192.0.2.1", language.MaxForm) == nil {
		greedy++
	}
	if greedy != formsInFlight/language.MaxForm-1 {
		t.Errorf("one client has %d forms of the largest size", greedy)
	}
	for n := range 7 {
		if err := read(fmt.Sprintf("198.51.%d.1", n), language.MaxForm); err != nil {
			t.Errorf("newcomer %d: %v", n, err)
		}
	}
	if n := f.pool.Held(); n > formsInFlight {
		t.Errorf("%d bytes are held", n)
	}
	time.Sleep(10 * time.Millisecond) // ends are called on other goroutines
	mu.Lock()
	defer mu.Unlock()
	if len(ended) != 1 || ended["192.0.2.1"] < 5 {
		t.Errorf("ended: %v", ended)
	}
}

// A form that is announced and does not come takes a byte, from whatever number of clients.
func TestAbuseAnnouncedForms(t *testing.T) {
	f := NewForms()
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for c := range harness.Size(16, 400) {
		body, never := io.Pipe()
		defer func() { _ = never.Close() }()
		all.Go(func() {
			r := post(fmt.Sprintf("192.0.%d.2", c%4), FormMediaType, "", body)
			r.ContentLength = language.MaxForm
			go func() { <-ctx.Done(); _ = never.Close() }()
			if _, release, err := f.Read(ctx, func(error) {}, httptest.NewRecorder(), r, new(Method), time.Minute); err == nil {
				release()
			}
		})
	}
	answered := 0
	for range 289 {
		_, release, err := f.Read(t.Context(), func(error) {}, httptest.NewRecorder(), post("203.0.113.9", FormMediaType, "", bytes.NewReader(make([]byte, 10_000))), new(Method), time.Second)
		if err == nil {
			answered++
			release()
		}
	}
	harness.Figure(t, "forms beside forms that are announced and do not come", "%d of 289 read", answered)
	if answered != 289 {
		t.Errorf("%d of 289 forms were read", answered)
	}
	stop()
	all.Wait()
	f.empty(t, "at the end")
}
