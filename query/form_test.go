package query_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/oracle"
	"skein.blue/query"
	"skein.blue/query/language"
)

const formType = "application/x-www-form-urlencoded"

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
		_, want, _ := w.get(name + "?" + p.Encode())
		status, got, header := w.do(http.MethodPost, pathOf(name), p.Encode(), "Content-Type", formType+"; charset=utf-8")
		if status != 200 || got != want || header.Get("ETag") != "" {
			t.Errorf("%s: %d %s %v, want %s", method, status, got, header, want)
		}
		p.Set("sicne", "1d") //nolint:misspell // that is the test
		if status, got, _ = w.do(http.MethodPost, pathOf(name), p.Encode(), "Content-Type", formType); status != 400 || !strings.Contains(got, "unknown parameter") {
			t.Errorf("%s with an unknown parameter: %d %s", method, status, got)
		}
	}
	for call, want := range map[[3]string]string{
		{"query", "application/json", `{"set":"x"}`}:                              `415 {"error":"UnsupportedMediaType"`,
		{"query", formType, "set=" + strings.Repeat("%20", language.MaxForm/3-2)}: `400 {"error":"InvalidRequest","message":"set: at position`,
	} {
		status, got, _ := w.do(http.MethodPost, pathOf(call[0]), call[2], "Content-Type", call[1])
		if got = fmt.Sprintf("%d %s", status, got); !strings.HasPrefix(got, want) {
			t.Errorf("%s, %s, %.20s: %.200s, want %s", call[0], call[1], call[2], got, want)
		}
	}
}

// A form that is late has its answer, and then its connection ends, whatever was sent of it. A body that nobody waits
// for ends with its time, too.
func TestLateForms(t *testing.T) {
	w := newWorld(t, 87, 10)
	s := query.New(w.store, query.Options{Timeout: time.Millisecond})
	srv := httptest.NewUnstartedServer(s)
	srv.Config.ReadTimeout = 200 * time.Millisecond
	srv.Start()
	defer srv.Close()
	ask := func(request string) string {
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		must(t, err)
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

// A client whose form is taken for another client learns it.
func TestTakenForms(t *testing.T) {
	srv := httptest.NewServer(query.New(newWorld(t, 88, 10).store, query.Options{}))
	t.Cleanup(srv.Close)
	answers := make(chan string, 17)
	send := func(client string) { // a form without its end
		conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}).Dial("tcp", srv.Listener.Addr().String())
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /xrpc/blue.skein.graph.query HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", formType, language.MaxForm, strings.Repeat("a", language.MaxForm-1))
		must(t, err)
		go func() {
			answer, _ := io.ReadAll(conn)
			answers <- string(answer)
		}()
	}
	for range 15 {
		send("127.0.0.1")
	}
	time.Sleep(100 * time.Millisecond) // they are read
	send("127.0.0.2")
	send("127.0.0.2")
	if answer := <-answers; !strings.Contains(answer, "HTTP/1.1 503 ") || !strings.Contains(answer, `{"error":"Busy","message":"the server's memory for forms is full`) {
		t.Errorf("%q", answer)
	}
}

// Twenty thousand members are one leaf, known and unknown ones alike: their set is what was
// given, and nothing that is done with them grows with the square of their number.
func TestAbuseTwentyThousandMembers(t *testing.T) {
	const n = language.MaxGiven
	w := newWorld(t, 85, 0)
	star, given := w.history.Accounts()[0], make([]string, n)
	var events []*oracle.Event
	for i := range given {
		if given[i] = numbered(i); i%2 == 0 { // every other one is known
			events = append(events, &oracle.Event{Type: oracle.CommitEvent, Seq: int64(i + 1), DID: given[i], Rev: oracle.TID(uint64(i+1) << 20), Ops: []oracle.Op{{Kind: "follow", Rkey: "x", Subject: star}}})
		}
	}
	w.happen(events...)
	set := "members(" + strings.Join(given, ",") + ")"
	timed := func(what, method string, p url.Values) answer {
		t.Helper()
		start := time.Now()
		a := w.answer(method, p)
		harness.Figure(t, what, "%v, %d bytes sent", time.Since(start).Round(time.Millisecond), len(p.Encode()))
		return a
	}
	seen := map[string]bool{}
	for p := (url.Values{"set": {set}, "limit": {"1000"}}); len(seen) == 0 || p.Get("cursor") != ""; {
		a := timed("a page of 20,000 members", "query", p)
		for _, m := range a.Members {
			seen[m] = true
		}
		if p.Set("cursor", a.Cursor); a.Total != n {
			t.Errorf("%d members", a.Total)
		}
	}
	if len(seen) != n {
		t.Errorf("%d of %d members came", len(seen), n)
	}
	if a := timed("who of 20,000 follows one", "query", url.Values{"set": {"intersect(" + set + ",followers(" + star + "))"}, "count": {"true"}}); a.Total != n/2 {
		t.Errorf("%d of them follow it, want %d", a.Total, n/2)
	}
	if a := timed("what 20,000 follow", "rank", url.Values{"of": {set}, "via": {"follows"}}); len(a.Items) != 1 || a.Items[0].Count != n/2 {
		t.Errorf("%+v", a.Items)
	}
	if status, body, _ := w.do(http.MethodPost, pathOf("query"), url.Values{"set": {set[:len(set)-1] + ",did:web:one.more.example)"}}.Encode(), "Content-Type", formType); status != 400 || !strings.Contains(body, "more than 20000 arguments of members") {
		t.Errorf("one more: %d %.200s", status, body)
	}
}
