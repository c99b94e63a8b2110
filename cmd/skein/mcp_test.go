package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"skein.blue/internal/app"
	"skein.blue/internal/clients"
)

// Messages are answered over both transports. The official client lists and calls the tools in .ci/clients.
func TestMCP(t *testing.T) {
	called, release := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = map[string][]string{"got": {r.URL.Path, r.URL.Query().Encode(), r.Header.Get(clients.TokenHeader)}}
		if r.FormValue("set") == "" {
			w.WriteHeader(http.StatusBadRequest)
			answer = map[string]string{"error": "InvalidRequest", "message": "set: at position 0: there is no set"}
		}
		if r.FormValue("set") == "slow" {
			called <- struct{}{}
			<-release
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	defer server.Close()
	asker := app.Asker{Client: server.Client(), Server: server.URL, Token: "own"}
	handler := mcpHandler(asker)
	post := func(message string, headers ...string) (int, string) {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", strings.NewReader(message))
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		return w.Code, w.Body.String()
	}
	call := func(arguments string) string {
		return `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"overlap","arguments":` + arguments + `}}`
	}
	question := url.Values{"set": {"union(a,b)", `2 "x"`}, "limit": {"1000000"}, "names": {"true"}}.Encode()
	for message, want := range map[string]string{
		`{"jsonrpc":"2.0","id":"x","method":"initialize","params":{"protocolVersion":"2025-06-18"}}`: `{"jsonrpc":"2.0","id":"x","result":{"capabilities":{"resources":{},"tools":{}},"instructions":"skein indexes the follows`,
		`{"id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`:                   `"protocolVersion":"2025-06-18"`,
		`{"id":1,"method":"initialize","params":{"protocolVersion":"1999-01-01"}}`:                   `"protocolVersion":"2025-11-25"`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`:                                     "",
		`{"jsonrpc":"2.0","id":5,"result":{}}`:                                                       "",
		`{"id":2,"method":"ping"}`:                                                                   `{"jsonrpc":"2.0","id":2,"result":{}}`,
		`{"id":3,"method":"tools/list"}`:                                                             `"name":"query","description":"Lists the members of a set`,
		`{"id":4,"method":"resources/list"}`:                                                         `"uri":"skein://language"`,
		`{"id":5,"method":"resources/templates/list"}`:                                               `"resourceTemplates":[]`,
		`{"id":6,"method":"resources/read","params":{"uri":"skein://language"}}`:                     "`blockedBy(A)`: directly or through a list",
		`{"id":7,"method":"resources/read","params":{"uri":"file:///etc"}}`:                          `"code":-32002`,
		`{"id":8,"method":"prompts/list"}`:                                                           `"code":-32601`,
		`{"id":9,"method":`:                                                                          `"id":null,"error":{"code":-32700`,
		`{"method":"notifications/progress","params":[]}`:                                            "",
		`{"id":11,"method":"tools/call","params":{"arguments":[],"name":"getStats"}}`:                `"id":11,"error":{"code":-32602,"message":"params.arguments must not be of type array"}`,
		`[{"id":12,"method":"ping"}]`:                                                                `"id":null,"error":{"code":-32602,"message":"a message must not`,
		`{"id":10,"method":"tools/call","params":{"name":"subscribe"}}`:                              `"code":-32602`, // a stream
		call(`{}`): `"result":{"content":[{"text":"HTTP 400 InvalidRequest: set: at position 0: there is no set; the resource skein://language describes expressions","type":"text"}],"isError":true}`,
		call(`{"set":["union(a,b)","2 \"x\""],"limit":1000000,"names":true,"with":null}`): `"structuredContent":{"got":["/xrpc/blue.skein.graph.overlap","` + strings.ReplaceAll(question, "&", `\u0026`) + `","own"]}`,
	} {
		var out bytes.Buffer
		must(t, mcpStream(t.Context(), asker, strings.NewReader(message+"\n"), &out))
		over := strings.TrimSuffix(out.String(), "\n")
		status, body := post(message, clients.TokenHeader, "own", "Origin", "http://localhost:6274")
		if body != over || !strings.Contains(body, want) || (body == "") != (want == "") || (status == http.StatusAccepted) != (want == "") || status/100 != 2 {
			t.Errorf("%s: %s over a stream, %d %s over HTTP; want %s", message, over, status, body, want)
		}
	}
	for token, headers := range map[string][]string{`\"a\"`: {"Authorization", "Bearer a"}, `\"b\"`: {"Authorization", "Bearer a", clients.TokenHeader, "b"}, `\"\"`: nil} {
		if _, body := post(call(`{"set":"x"}`), headers...); !strings.Contains(body, token+"]}\"") {
			t.Errorf("%q: %s, want the token %s", headers, body, token)
		}
	}
	for want, headers := range map[int][]string{
		http.StatusForbidden:  {"Origin", "http://rebound.example.com:3212"},
		http.StatusBadRequest: {"MCP-Protocol-Version", "1999-01-01"},
		http.StatusOK:         {"MCP-Protocol-Version", "2025-11-25", "Origin", "http://[::1]:3212"},
	} {
		if status, body := post(`{"id":2,"method":"ping"}`, headers...); status != want {
			t.Errorf("%q: %d %s", headers, status, body)
		}
	}
	if status, _ := post(`{"id":2,"method":"ping"}`, "Origin", "null"); status != http.StatusForbidden {
		t.Errorf("a page without an address gets %d", status)
	}
	if status, _ := post(strings.Repeat(" ", maxMessage+1)); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a message too large gets %d", status)
	}
	for range maxAtOnce { // these are still being sent
		body, sends := io.Pipe()
		defer func() { _ = sends.Close() }()
		go handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", body))
		_, _ = io.WriteString(sends, " ")
	}
	if status, _ := post(`{"id":2,"method":"ping"}`); status != http.StatusOK {
		t.Fatalf("requests that are being sent keep out another: %d", status)
	}
	var slow sync.WaitGroup
	for range maxAtOnce {
		slow.Go(func() { post(call(`{"set":"slow"}`)) })
		<-called
	}
	if status, _ := post(`{"id":2,"method":"ping"}`); status != http.StatusServiceUnavailable {
		t.Errorf("one request more gets %d", status)
	}
	close(release)
	slow.Wait()
	server.Close()
	if _, body := post(call(`{"set":"x"}`)); !strings.Contains(body, "is skein serve running there?") {
		t.Errorf("without a server: %s", body)
	}
	run(t, 64, "each client sends a token of its own", "mcp", "--listen", "127.0.0.1:0", "--token", "x")
	run(t, 64, "--listen", "mcp", "--listen", "127.0.0.1")
}
