package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"skein.blue/internal/app"
	"skein.blue/internal/clients"
)

// Messages are answered over both transports: by the methods of the server's own description, on behalf of the client who asks. The
// official client lists and calls the tools in .ci/clients.
func TestMCP(t *testing.T) {
	api, err := os.ReadFile("../../query/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi.json" {
			_, _ = w.Write(api)
			return
		}
		if r.FormValue("set") == "" {
			w.WriteHeader(http.StatusBadRequest)
		}
		fmt.Fprintf(w, "%s?%s as %s%s", r.URL.Path, r.URL.RawQuery, r.Header.Get("Authorization"), r.Header.Get(clients.TokenHeader))
	}))
	defer server.Close()
	m := &mcpServer{asker: app.Asker{Client: server.Client(), Server: server.URL, Token: "skein_own"}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = m.listen(t.Context(), l) }()
	post := func(message, origin string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String()+"/mcp", strings.NewReader(message))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer theirs")
		req.Header.Set("Origin", origin)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	question := url.Values{"set": {"union(a,b)", `2 "x"`}, "limit": {"20"}, "names": {"true"}}.Encode()
	for message, want := range map[string]string{
		`{"jsonrpc":"2.0","id":"x","method":"initialize","params":{"protocolVersion":"2025-03-26"}}`: `"id":"x","result":{"capabilities":{"resources":{},"tools":{}},"instructions":"skein is an index of the follows`,
		`{"id":1,"method":"initialize","params":{"protocolVersion":"1999-01-01"}}`:                   `"protocolVersion":"2025-06-18"`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`:                                     "",
		`{"id":2,"method":"ping"}`:                                               `{"jsonrpc":"2.0","id":2,"result":{}}`,
		`{"id":3,"method":"tools/list"}`:                                         `"inputSchema":{"type":"object","properties":{"member":`,
		`{"id":4,"method":"resources/list"}`:                                     `"uri":"skein://language"`,
		`{"id":5,"method":"resources/templates/list"}`:                           `"resourceTemplates":[]`,
		`{"id":6,"method":"resources/read","params":{"uri":"skein://language"}}`: `# Querying skein`,
		`{"id":7,"method":"resources/read","params":{"uri":"file:///etc"}}`:      `"code":-32002`,
		`{"id":8,"method":"prompts/list"}`:                                       `"code":-32601`,
		`{"id":9,"method":`:                                                      `"id":null,"error":{"code":-32700`,
		`{"id":10,"method":"tools/call","params":{"name":"subscribe"}}`:          `"code":-32602`, // a stream
		`{"id":11,"method":"tools/call","params":{"name":"query"}}`:              `"isError":true`,
		`{"id":12,"method":"tools/call","params":{"name":"overlap","arguments":{"set":["union(a,b)","2 \"x\""],"limit":20,"names":true}}}`: `"text":"/xrpc/blue.skein.graph.overlap?` + strings.ReplaceAll(question, "&", `\u0026`) + ` as `,
	} {
		var out bytes.Buffer
		if err := m.stream(t.Context(), strings.NewReader(message+"\n"), &out); err != nil {
			t.Fatal(err)
		}
		status, body := post(message, "")
		if theirs := strings.ReplaceAll(strings.TrimSuffix(out.String(), "\n"), "as skein_own", "as Bearer theirs"); body != theirs || !strings.Contains(body, want) || (body == "") != (want == "") {
			t.Errorf("%s: %s over a stream, %s over HTTP; want %s", message, theirs, body, want)
		}
		if body != "" && !json.Valid([]byte(body)) || (status == http.StatusAccepted) != (body == "") {
			t.Errorf("%s: %d %s", message, status, body)
		}
	}
	if status, _ := post(`{"id":2,"method":"ping"}`, "https://elsewhere.example.com"); status != http.StatusForbidden {
		t.Errorf("a page of another host gets %d", status)
	}
	if status, _ := post(strings.Repeat(" ", maxMessage+1), ""); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a message too large gets %d", status)
	}
	server.Close()
	for _, method := range []string{`"tools/list"`, `"tools/call","params":{"name":"query"}`} {
		m.offers = m.offers[:len(m.offers)*strings.Count(method, "call")]
		if len(m.offers) == 0 {
			m.offers = nil
		}
		if _, body := post(`{"id":1,"method":`+method+`}`, ""); !strings.Contains(body, "is skein serve running there?") {
			t.Errorf("%s without a server: %s", method, body)
		}
	}
}
