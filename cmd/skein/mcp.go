package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed" // of the tools and the language
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/clients"
	"skein.blue/internal/command"
)

// The Model Context Protocol (https://modelcontextprotocol.io/specification/2025-11-25), as far as a server of tools and one
// resource needs it: requests and their answers, without a session. The official SDK would link 22 packages of six modules.

// mcpTools are the methods as tools, and mcpLanguage is the part of docs/asking.md about expressions and answers (.ci/generate).
var (
	//go:embed mcp/tools.json
	mcpTools json.RawMessage
	//go:embed mcp/language.txt
	mcpLanguage string
)

const (
	mcpResource   = "skein://language"
	maxMessage    = 1 << 20 // bytes
	maxAtOnce     = 64      // requests over HTTP
	mcpExplaining = "skein indexes the follows, likes, reposts, blocks and lists of Bluesky and other apps of the AT Protocol. " +
		"Most tools take sets as expressions, which the tool query and the resource " + mcpResource + " describe. In examples, A, B and ME stand for accounts. " +
		"Ask with names=true if a person reads the answer. If an answer has incomplete=true, say so, and give its reason; without it, skein knows of nothing that the answer lacks."
)

// mcpVersions are the versions of the protocol, the newest first.
var mcpVersions = []string{"2025-11-25", "2025-06-18"}

func mcpCommand(e *command.Environment) *cli.Command {
	var asker app.Asker
	var listen string
	return &cli.Command{
		Name:  "mcp",
		Usage: "let language models query a running server, by the Model Context Protocol",
		Description: "Without --listen, it serves the one program that starts it, over standard input and output. Most programs are configured so:\n\n" +
			"    {\"mcpServers\": {\"skein\": {\"command\": \"skein\", \"args\": [\"mcp\", \"--server\", \"https://graph.example.com\"]}}}",
		Flags: append(askFlags(&asker),
			&cli.StringFlag{Name: "listen", Usage: "serve http://ADDRESS/mcp instead, such as 127.0.0.1:3214 (streamable HTTP). Clients send tokens of their own", Destination: &listen}),
		Action: func(ctx context.Context, _ *cli.Command) error {
			prepareAsker(&asker)
			ended := make(chan error, 1)
			if listen == "" {
				go func() { ended <- mcpStream(ctx, asker, os.Stdin, e.Data) }()
			} else {
				if asker.Token != "" {
					return command.UsageError("--token (SKEIN_TOKEN) does not work with --listen: each client sends a token of its own")
				}
				l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
				if err != nil {
					return command.UsageError("--listen: %v", err)
				}
				fmt.Fprintf(e.Stderr, "serving http://%s/mcp\n", l.Addr())
				s := &http.Server{Handler: mcpHandler(asker), ReadTimeout: 30 * time.Second, WriteTimeout: 2 * time.Minute}
				defer func() { _ = s.Close() }()
				l = app.Limit(s, l, 2*maxAtOnce, clients.Proxies{}, func() {})
				go func() { ended <- s.Serve(l) }()
			}
			select {
			case err := <-ended:
				return err
			case <-ctx.Done():
				return nil
			}
		},
	}
}

// mcpStream answers messages, one a line, until the input ends.
func mcpStream(ctx context.Context, asker app.Asker, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxMessage)
	for lines.Scan() {
		if a := mcpAnswer(ctx, asker, lines.Bytes()); a != nil {
			if _, err := out.Write(append(a, '\n')); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// mcpHandler answers messages, each the body of a POST, with the tokens of those who send them. Web pages must not reach a server
// on this machine, not even under a name that leads to it (DNS rebinding): requests from pages that are not on it are refused.
func mcpHandler(asker app.Asker) http.Handler {
	atOnce := make(chan struct{}, maxAtOnce)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mcp", func(w http.ResponseWriter, r *http.Request) {
		if origin := r.Header.Get("Origin"); origin != "" {
			if u, err := url.Parse(origin); err != nil || !slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, u.Hostname()) {
				http.Error(w, "web pages of other machines are refused", http.StatusForbidden)
				return
			}
		}
		if v := r.Header.Get("MCP-Protocol-Version"); v != "" && !slices.Contains(mcpVersions, v) {
			http.Error(w, "unknown version of the protocol; known are "+strings.Join(mcpVersions, ", "), http.StatusBadRequest)
			return
		}
		message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		select {
		case atOnce <- struct{}{}:
			defer func() { <-atOnce }()
		default:
			http.Error(w, "too many requests at once", http.StatusServiceUnavailable)
			return
		}
		theirs := asker
		theirs.Token = cmp.Or(r.Header.Get(clients.TokenHeader), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		a := mcpAnswer(r.Context(), theirs, message)
		if a == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(a) // it fails if the client is gone
	})
	return mux
}

// An mcpError is an error of JSON-RPC.
type mcpError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// An mcpRequest is a request of the protocol. Notifications have no ID.
type mcpRequest struct {
	ID     json.RawMessage
	Method string
	Params struct {
		ProtocolVersion, URI, Name string
		Arguments                  map[string]any
	}
}

// mcpAnswer answers a message, with nil if it is not a request.
func mcpAnswer(ctx context.Context, asker app.Asker, message []byte) []byte {
	var q mcpRequest
	d := json.NewDecoder(bytes.NewReader(message))
	d.UseNumber() // to send a number as it was written
	err := d.Decode(&q)
	answer := struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"` // nil: null
		Result  any             `json:"result,omitempty"`
		Error   *mcpError       `json:"error,omitempty"`
	}{Version: "2.0", ID: q.ID}
	if mistyped, is := errors.AsType[*json.UnmarshalTypeError](err); is && (q.ID != nil || q.Method == "") { // the rest was read
		answer.Error = &mcpError{-32602, fmt.Sprintf("%s must not be of type %s", cmp.Or(strings.ToLower(mistyped.Field), "a message"), mistyped.Value)}
	} else if err != nil && !is {
		answer.Error = &mcpError{-32700, "not a request of JSON-RPC: " + err.Error()}
	} else if q.ID == nil || q.Method == "" {
		return nil
	} else {
		answer.Result, answer.Error = q.result(ctx, asker)
	}
	b, err := json.Marshal(answer)
	if err != nil {
		panic(err) // it is made of text and of JSON that was read
	}
	return b
}

// result returns the result of a request.
func (q *mcpRequest) result(ctx context.Context, asker app.Asker) (any, *mcpError) {
	resource := map[string]string{"uri": mcpResource, "name": "language", "title": "Sets as expressions, and answers", "mimeType": "text/markdown"}
	switch p := &q.Params; q.Method {
	case "initialize":
		return map[string]any{
			"protocolVersion": mcpVersions[max(slices.Index(mcpVersions, p.ProtocolVersion), 0)], "instructions": mcpExplaining,
			"serverInfo":   map[string]string{"name": "skein", "version": command.Version()},
			"capabilities": map[string]any{"tools": struct{}{}, "resources": struct{}{}},
		}, nil
	case "ping":
		return struct{}{}, nil
	case "tools/list":
		return map[string]any{"tools": mcpTools}, nil
	case "tools/call":
		return mcpCall(ctx, asker, p.Name, p.Arguments)
	case "resources/list":
		return map[string]any{"resources": []any{resource}}, nil
	case "resources/templates/list":
		return map[string]any{"resourceTemplates": []any{}}, nil
	case "resources/read":
		if p.URI != mcpResource {
			return nil, &mcpError{-32002, "unknown resource " + p.URI + "; there is " + mcpResource}
		}
		resource["text"] = mcpLanguage
		return map[string]any{"contents": []any{resource}}, nil
	}
	return nil, &mcpError{-32601, "unknown method " + q.Method}
}

// mcpCall calls a tool. An error of the server is a result, so that the model reads it and corrects its call.
func mcpCall(ctx context.Context, asker app.Asker, name string, arguments map[string]any) (any, *mcpError) {
	var tools []struct{ Name string }
	if err := json.Unmarshal(mcpTools, &tools); err != nil || !slices.Contains(tools, struct{ Name string }{name}) {
		return nil, &mcpError{-32602, "unknown tool " + name}
	}
	values := url.Values{}
	for parameter, v := range arguments {
		list, isList := v.([]any)
		if !isList && v != nil {
			list = []any{v}
		}
		for _, v := range list {
			values.Add(parameter, fmt.Sprint(v))
		}
	}
	var answer json.RawMessage
	err := asker.Ask(ctx, name, values, &answer)
	result, text := map[string]any{"isError": err != nil}, string(answer)
	if err == nil {
		result["structuredContent"] = answer
	} else if text = err.Error(); strings.Contains(text, "at position ") { // of an expression
		text += "; the resource " + mcpResource + " describes expressions"
	}
	result["content"] = []any{map[string]string{"type": "text", "text": text}}
	return result, nil
}
