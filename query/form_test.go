package query_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
	"skein.blue/query/language"
)

const formType = "application/x-www-form-urlencoded"

// post sends a body to a method.
func (w *world) post(method, contentType, body string) (status int, answer string, header http.Header) {
	w.t.Helper()
	resp, err := http.Post(w.base+"/xrpc/"+method, contentType, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// A form has the answer that the same parameters have in a URL.
func TestForms(t *testing.T) {
	w := newWorld(t, 82, 2000)
	a := w.history.Accounts()
	set := "union(followers(" + a[0] + "),members(" + strings.Join(a, ",") + "))"
	for method, p := range map[string]url.Values{
		"query":     {"set": {set}, "limit": {"5"}},
		"contains":  {"set": {set}, "member": a[:9]},
		"counts":    {"edge": {"followers", "lists"}, "subject": a[:9]},
		"getBlocks": {"actor": {a[0]}, "direction": {"blockedBy"}, "others": a[:9]},
		"known":     {"actor": {a[0]}, "edge": {"followers"}, "subject": a[:9]},
		"rank":      {"of": {set}, "via": {"follows"}, "except": {"followers(" + a[1] + ")"}},
		"histogram": {"set": {"follows(" + a[0] + ")"}, "bucket": {"7d"}},
		"list":      {"set": {"follows(" + a[0] + ")"}},
	} {
		name := "blue.skein.graph." + method
		_, want, _ := w.get("/xrpc/" + name + "?" + p.Encode())
		status, got, header := w.post(name, formType+"; charset=utf-8", p.Encode())
		if status != 200 || got != want || header.Get("ETag") != "" {
			t.Errorf("%s: %d %s %v, want %s", method, status, got, header, want)
		}
		p.Set("sicne", "1d") //nolint:misspell // that is the test
		if status, got, _ = w.post(name, formType, p.Encode()); status != 400 || !strings.Contains(got, "unknown parameter") {
			t.Errorf("%s with an unknown parameter: %d %s", method, status, got)
		}
	}
	for call, want := range map[[3]string]string{
		{"query", "application/json", `{"set":"x"}`}:                              `415 {"error":"UnsupportedMediaType"`,
		{"query", "", "set=x"}:                                                    `415 {"error":"UnsupportedMediaType"`,
		{"query", formType, "set=" + strings.Repeat("x", language.MaxForm-3)}:     `413 {"error":"PayloadTooLarge"`,
		{"query", formType, "set=" + strings.Repeat("%20", language.MaxForm/3-2)}: `400 {"error":"InvalidRequest","message":"set: at position`,
		{"query", formType, "set=%zz"}:                                            `400 {"error":"InvalidRequest","message":"the form cannot be read`,
		{"query?limit=1", formType, "limit=2&set=" + set}:                         `400 {"error":"InvalidRequest","message":"parameter limit occurs 2 times`,
		{"getAccount", formType, "did=" + a[0]}:                                   `405 {"error":"InvalidRequest"`,
		{"subscribe", formType, "set=" + set}:                                     `405 {"error":"InvalidRequest"`,
	} {
		status, got, _ := w.post("blue.skein.graph."+call[0], call[1], call[2])
		if got = fmt.Sprintf("%d %s", status, got); !strings.HasPrefix(got, want) {
			t.Errorf("%s, %s, %.20s: %.200s, want %s", call[0], call[1], call[2], got, want)
		}
	}
}

// A body whose length is not said, and one that is packed, are bounded like the others.
func TestFormBodies(t *testing.T) {
	w := newWorld(t, 83, 10)
	do := func(body io.Reader, encoding string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.base+"/xrpc/blue.skein.graph.query", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", formType)
		if encoding != "" {
			req.Header.Set("Content-Encoding", encoding)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	unsized := func(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) }
	if status, body := do(unsized("set=members(did:web:a.example)"), ""); status != 200 {
		t.Errorf("a body without a length: %d %s", status, body)
	}
	if status, body := do(unsized("set="+strings.Repeat("x", language.MaxForm)), ""); status != 413 {
		t.Errorf("too long a body without a length: %d %s", status, body)
	}
	if status, body := do(strings.NewReader("x"), "gzip"); status != 415 {
		t.Errorf("a packed body: %d %s", status, body)
	}
}

// A form that is late has its answer, and then its connection ends, whatever was sent of it. A body that nobody waits
// for ends with its time, too.
func TestLateForms(t *testing.T) {
	w := newWorld(t, 87, 10)
	s, err := query.New(w.store, query.Options{Timeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(s)
	srv.Config.ReadTimeout = 200 * time.Millisecond
	srv.Start()
	defer srv.Close()
	ask := func(request string) string {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Errorf("%q: the connection did not end: %v", request, err)
		}
		return string(answer)
	}
	const post = "POST /xrpc/blue.skein.graph.query HTTP/1.1\r\nHost: x\r\nContent-Type: " + formType + "\r\n"
	for _, request := range []string{
		"Content-Length: 100\r\n\r\n", "Content-Length: 100\r\n\r\nset=a", "Content-Length: 900000\r\n\r\nset=a",
		"Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n5\r\nset=a\r\n", "Content-Length: 100\r\nExpect: 100-continue\r\n\r\n",
	} {
		if answer := ask(post + request); !strings.Contains(answer, "HTTP/1.1 408 ") || !strings.Contains(answer, `{"error":"RequestTimeout","message":"the complete body did not arrive within 1ms"}`) {
			t.Errorf("%q: %q", request, answer)
		}
	}
	if answer := ask(post + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\nzz\r\n"); !strings.Contains(answer, "HTTP/1.1 400 ") || !strings.Contains(answer, "the body cannot be read") {
		t.Errorf("a malformed body: %q", answer)
	}
	ask("GET /xrpc/blue.skein.graph.subscribe?set=members(did:web:a.example) HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nContent-Length: 100\r\n\r\n")
	srv2 := httptest.NewUnstartedServer(s)
	srv2.EnableHTTP2 = true
	srv2.StartTLS()
	defer srv2.Close()
	never, end := io.Pipe()
	defer func() { _ = end.Close() }()
	resp, err := srv2.Client().Post(srv2.URL+"/xrpc/blue.skein.graph.query", formType, never)
	if err != nil || resp.StatusCode != 408 || resp.ProtoMajor != 2 {
		t.Fatalf("over HTTP/2: %+v, %v", resp, err)
	}
	_ = resp.Body.Close()
}

// /openapi.json has the methods that take a form, with the bounds of a form.
func TestFormsInOpenAPI(t *testing.T) {
	w := newWorld(t, 84, 1)
	_, body, _ := w.get("/openapi.json")
	var api struct {
		Paths map[string]map[string]struct {
			OperationID string
			Parameters  []any
			RequestBody struct {
				Content map[string]struct {
					Schema struct {
						Required   []string
						Properties map[string]struct{ MaxLength int }
					}
				}
			}
			Responses map[string]any
		}
	}
	if err := json.Unmarshal([]byte(body), &api); err != nil {
		t.Fatal(err)
	}
	var forms []string
	for path, calls := range api.Paths {
		if c, ok := calls["post"]; ok {
			forms = append(forms, strings.TrimPrefix(path, "/xrpc/blue.skein.graph."))
			s := c.RequestBody.Content[formType].Schema
			if len(c.Parameters) > 0 || len(s.Required) == 0 || c.Responses["413"] == nil || c.Responses["415"] == nil || c.OperationID == calls["get"].OperationID {
				t.Errorf("%s: %+v", path, c)
			}
			if set, ok := s.Properties["set"]; ok && set.MaxLength != language.MaxForm {
				t.Errorf("%s: set may have %d bytes", path, set.MaxLength)
			}
		}
	}
	if slices.Sort(forms); !slices.Equal(forms, []string{"contains", "counts", "getBlocks", "histogram", "known", "list", "query", "rank"}) {
		t.Errorf("methods with forms: %q", forms)
	}
}

// Twenty thousand members are one leaf, known and unknown ones alike: their set is what was
// given, and nothing that is done with them grows with the square of their number.
func TestAbuseTwentyThousandMembers(t *testing.T) {
	const n = language.MaxGiven
	w := newWorld(t, 85, 0)
	star, seq := "did:plc:starstarstarstarstarstar"[:32], int64(0)
	given := make([]string, n)
	for i := range given {
		given[i] = numbered(i)
	}
	var events []*oracle.Event
	for i := 0; i < n; i += 2 { // every other one is known
		seq++
		events = append(events, &oracle.Event{Type: oracle.CommitEvent, Seq: seq, DID: given[i], Rev: oracle.TID(uint64(seq) << 20), Ops: []oracle.Op{{Kind: "follow", Rkey: oracle.TID(uint64(seq) << 20), Subject: star}}})
	}
	w.apply(events)
	set := "members(" + strings.Join(given, ",") + ")"
	timed := func(what string, method string, p url.Values, v any) {
		start := time.Now()
		status, body, _ := w.post("blue.skein.graph."+method, formType, p.Encode())
		harness.Figure(t, what, "%v, %d bytes sent", time.Since(start).Round(time.Millisecond), len(p.Encode()))
		if err := json.Unmarshal([]byte(body), v); err != nil || status != 200 {
			t.Fatalf("%s: %d %.200s", what, status, body)
		}
	}
	var a answer
	timed("the first page of 20,000 members", "query", url.Values{"set": {set}, "limit": {"1000"}}, &a)
	if a.Total != n || len(a.Members) != 1000 || a.Cursor == "" {
		t.Fatalf("%d of %d, cursor %q", len(a.Members), a.Total, a.Cursor)
	}
	seen := map[string]bool{}
	for pages := 1; ; pages++ {
		for _, m := range a.Members {
			seen[m] = true
		}
		if a.Cursor == "" {
			break
		}
		p := url.Values{"set": {set}, "limit": {"1000"}, "cursor": {a.Cursor}}
		a = answer{}
		timed(fmt.Sprintf("page %d", pages+1), "query", p, &a)
	}
	if len(seen) != n {
		t.Errorf("%d of %d members came", len(seen), n)
	}
	a = answer{}
	timed("who of 20,000 follows one", "query", url.Values{"set": {"intersect(" + set + ",followers(" + star + "))"}, "count": {"true"}}, &a)
	if a.Total != n/2 {
		t.Errorf("%d of them follow it, want %d", a.Total, n/2)
	}
	var ranked ranked
	timed("what 20,000 follow", "rank", url.Values{"of": {set}, "via": {"follows"}}, &ranked)
	if len(ranked.Items) != 1 || ranked.Items[0].Count != n/2 {
		t.Errorf("%+v", ranked)
	}
	status, body, _ := w.post("blue.skein.graph.query", formType, url.Values{"set": {set[:len(set)-1] + ",did:web:one.more.example)"}}.Encode())
	if status != 400 || !strings.Contains(body, "more than 20000 arguments of members") {
		t.Errorf("one more: %d %.200s", status, body)
	}
}

// Clients that announce forms and send them slowly hold no slot, and a few bytes of memory: others are served meanwhile, and
// so is the client itself.
func TestAbuseSlowForms(t *testing.T) {
	w := newWorld(t, 86, 100)
	host := strings.TrimPrefix(w.base, "http://")
	var slow []net.Conn
	for range harness.Size(40, 400) {
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if _, err := fmt.Fprintf(conn, "POST /xrpc/blue.skein.graph.query HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\nset=", formType, language.MaxForm); err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
	}
	if status, body, _ := w.get("/xrpc/blue.skein.graph.getStats"); status != 200 {
		t.Errorf("a question meanwhile: %d %s", status, body)
	}
	answered := 0
	for range 20 {
		if status, _, _ := w.post("blue.skein.graph.query", formType, "set=members(did:web:a.example)"); status == 200 {
			answered++
		}
	}
	harness.Figure(t, "forms of a client that has announced others", "%d of 20 answered beside %d", answered, len(slow))
	if answered != 20 {
		t.Errorf("%d of 20 forms were answered meanwhile", answered)
	}
	for _, conn := range slow {
		_ = conn.Close()
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		status, body, _ := w.post("blue.skein.graph.query", formType, "set=members(did:web:a.example)")
		if status == 200 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("after they have left: %d %s", status, body)
		}
	}
}
