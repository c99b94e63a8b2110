package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed" // of the language
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/clients"
	"skein.blue/internal/command"
)

// The Model Context Protocol (https://modelcontextprotocol.io/specification/2025-06-18), as far as a server of tools and one
// resource needs it: requests and their answers, without a session. The official SDK would link 22 packages of six modules more.

// language is docs/asking.md (.ci/generate).
//
//go:embed language.txt
var language string

// versions of the protocol that a client may ask for, the newest first.
var mcpVersions = []string{"2025-06-18", "2025-03-26", "2024-11-05"}

const mcpInstructions = `skein is an index of the follows, likes, reposts, blocks and lists on Bluesky and other apps of the AT Protocol.
Tools take sets as expressions. Sets of accounts: follows(A), followers(A), likers(POST), reposters(POST), blocks(A), blockers(A), listed(LIST), mutuals(A), blocking(A), blockedBy(A). Sets of records: likes(A), reposts(A), lists(A). A is @handle.example.com or a DID, POST and LIST are bsky.app URLs or AT URIs.
Combine them: intersect(E, E), union(E, E), except(E, E), atleast(N, E, E, E), authors(E), by(E, ACCOUNTS), rank(of=E, via=likes). Limit them in time: likes(A, since=7d).
Questions, and how to ask them:
Who follows both A and B? query, set=intersect(followers(A), followers(B))
Which of those I follow like a post? query, set=intersect(follows(ME), likers(POST))
What do my follows like this week that I have not liked? rank, of=follows(ME), via=likes, since=7d, except=likes(ME)
Who is like A? rank, of=followers(A), via=follows, by=lift
Whose posts do I like most? rank, of=likes(ME), via=authors
Who blocks A through a list? query, set=rank(of=lists(A), via=listblockers)
How many followers did A gain a day? histogram, set=followers(A), bucket=1d
How close are A and B? path
Which of these posts do most of my follows like? known, actor=ME, edge=likers, subject=each post
names=true adds handles. If an answer has incomplete=true, its reason says what is missing. The resource ` + mcpLanguage + ` describes the language.`

const mcpLanguage = "skein://language"

func mcpCommand(e *command.Environment) *cli.Command {
	m := new(mcpServer)
	var listen string
	return &cli.Command{
		Name:  "mcp",
		Usage: "let language models ask a running server, by the Model Context Protocol",
		Description: "Without --listen, the command serves one client over standard input and output, as most clients start it:\n\n" +
			"    {\"mcpServers\": {\"skein\": {\"command\": \"skein\", \"args\": [\"mcp\", \"--server\", \"https://graph.example.com\"]}}}\n\n" +
			"With --listen, it serves http://ADDRESS/mcp, and sends a client's Authorization header on to the server.",
		Flags: append(askFlags(&m.asker),
			&cli.StringFlag{Name: "listen", Usage: "address to serve HTTP at, such as 127.0.0.1:3212", Destination: &listen},
		),
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Present() {
				return command.UsageError("skein mcp takes no arguments, but got %q", c.Args().First())
			}
			prepareAsker(&m.asker, time.Minute)
			if listen == "" {
				return m.stream(ctx, os.Stdin, e.Stdout)
			}
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
			if err != nil {
				return command.UsageError("--listen: %v", err)
			}
			fmt.Fprintf(e.Stderr, "serving http://%s/mcp\n", l.Addr())
			return m.listen(ctx, l)
		},
	}
}

// An mcpServer answers requests of the protocol from the methods of a server.
type mcpServer struct {
	asker app.Asker

	mu     sync.Mutex
	offers []mcpTool // nil until the server has described them
}

// An mcpTool is a method of the server.
type mcpTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema mcpSchema       `json:"inputSchema"`
	Annotations map[string]bool `json:"annotations"`

	path string
}

type mcpSchema struct {
	Type       string                    `json:"type"`
	Properties map[string]map[string]any `json:"properties"`
	Required   []string                  `json:"required,omitempty"`
	More       bool                      `json:"additionalProperties"`
}

// mcpError is an error of JSON-RPC 2.0.
type mcpError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *mcpError) Error() string { return e.Message }

// answer answers one message, nil if it is a notification. header has the client's own token.
func (m *mcpServer) answer(ctx context.Context, header http.Header, message []byte) []byte {
	var q struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Version   string         `json:"protocolVersion"`
			URI       string         `json:"uri"`
			Name      string         `json:"name"`
			Arguments map[string]any `json:"arguments"`
		} `json:"params"`
	}
	type answer struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result,omitempty"`
		Error   *mcpError       `json:"error,omitempty"`
	}
	a := answer{Version: "2.0", ID: json.RawMessage("null")}
	d := json.NewDecoder(bytes.NewReader(message))
	d.UseNumber()
	err := d.Decode(&q)
	switch {
	case err != nil:
		err = &mcpError{-32700, "this is not a request of JSON-RPC: " + err.Error()}
	case q.ID == nil:
		return nil
	default:
		a.ID = q.ID
		switch q.Method {
		case "initialize":
			version := mcpVersions[max(slices.Index(mcpVersions, q.Params.Version), 0)]
			a.Result = map[string]any{
				"protocolVersion": version, "serverInfo": map[string]string{"name": "skein", "version": command.Version()},
				"capabilities": map[string]any{"tools": struct{}{}, "resources": struct{}{}}, "instructions": mcpInstructions,
			}
		case "ping":
			a.Result = struct{}{}
		case "tools/list":
			var tools []mcpTool
			tools, err = m.tools(ctx, header)
			a.Result = map[string]any{"tools": tools}
		case "tools/call":
			a.Result, err = m.call(ctx, header, q.Params.Name, q.Params.Arguments)
		case "resources/list":
			a.Result = map[string]any{"resources": []any{map[string]string{"uri": mcpLanguage, "name": "language", "title": "The language of sets", "mimeType": "text/markdown"}}}
		case "resources/templates/list":
			a.Result = map[string]any{"resourceTemplates": []any{}}
		case "resources/read":
			if a.Result = map[string]any{"contents": []any{map[string]string{"uri": mcpLanguage, "mimeType": "text/markdown", "text": language}}}; q.Params.URI != mcpLanguage {
				err = &mcpError{-32002, "unknown resource " + q.Params.URI + "; the only one is " + mcpLanguage}
			}
		default:
			err = &mcpError{-32601, "unknown method " + q.Method}
		}
	}
	if err != nil {
		failed, ok := errors.AsType[*mcpError](err)
		if !ok {
			failed = &mcpError{-32603, err.Error()}
		}
		a.Result, a.Error = nil, failed
	}
	b, err := json.Marshal(a)
	if err != nil {
		panic(err) // it is made of text
	}
	return b
}

// get reads from the server, on behalf of a client.
func (m *mcpServer) get(ctx context.Context, header http.Header, path string) (status int, body []byte, err error) {
	sent := http.Header{}
	for _, name := range []string{"Authorization", clients.TokenHeader} {
		if v := header.Get(name); v != "" {
			sent.Set(name, v)
		}
	}
	resp, err := m.asker.Get(ctx, path, sent)
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, errors.Join(err, resp.Body.Close())
}

// tools returns the server's methods that answer once, as its OpenAPI description has them.
func (m *mcpServer) tools(ctx context.Context, header http.Header) ([]mcpTool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.offers != nil {
		return m.offers, nil
	}
	var api struct {
		Paths map[string]struct {
			Get struct {
				Summary    string
				Parameters []struct {
					Name, Description string
					Required          bool
					Schema            map[string]any
				}
				Responses map[string]struct{ Content map[string]any }
			}
		}
	}
	status, body, err := m.get(ctx, header, "/openapi.json")
	if err == nil {
		err = json.Unmarshal(body, &api)
	}
	if err != nil || status != http.StatusOK {
		return nil, cmp.Or(err, fmt.Errorf("the server answered HTTP %d: %.200s", status, body))
	}
	for at, method := range api.Paths {
		name := path.Ext(at)[1:]
		if !strings.Contains(at, ".graph.") || method.Get.Responses["200"].Content["application/json"] == nil {
			continue // for other programs, or a stream
		}
		t := mcpTool{Name: name, Description: method.Get.Summary, InputSchema: mcpSchema{Type: "object", Properties: map[string]map[string]any{}}, Annotations: map[string]bool{"readOnlyHint": true}, path: at}
		for _, p := range method.Get.Parameters {
			if p.Name == "format" {
				continue // models read JSON
			}
			if p.Required {
				t.InputSchema.Required = append(t.InputSchema.Required, p.Name)
			}
			if p.Description != "" {
				p.Schema["description"] = p.Description
			}
			t.InputSchema.Properties[p.Name] = p.Schema
		}
		m.offers = append(m.offers, t)
	}
	slices.SortFunc(m.offers, func(x, y mcpTool) int { return strings.Compare(x.Name, y.Name) })
	return m.offers, nil
}

// call calls a tool. An error of the server is a result, so that the model reads it and mends its call.
func (m *mcpServer) call(ctx context.Context, header http.Header, name string, arguments map[string]any) (any, error) {
	tools, err := m.tools(ctx, header)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(tools, func(t mcpTool) bool { return t.Name == name })
	if i < 0 {
		return nil, &mcpError{-32602, "unknown tool " + name}
	}
	values := url.Values{}
	for name, v := range arguments {
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, v := range list {
			values.Add(name, fmt.Sprint(v))
		}
	}
	status, body, err := m.get(ctx, header, tools[i].path+"?"+values.Encode())
	if err != nil {
		body = []byte(err.Error())
	}
	return map[string]any{"content": []any{map[string]string{"type": "text", "text": string(body)}}, "isError": status != http.StatusOK}, nil
}

// stream answers messages, one a line, until the input ends.
func (m *mcpServer) stream(ctx context.Context, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxMessage)
	for lines.Scan() {
		if a := m.answer(ctx, nil, lines.Bytes()); a != nil {
			if _, err := out.Write(append(a, '\n')); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

// maxMessage is the largest message, in bytes.
const maxMessage = 1 << 20

// listen answers messages, each the body of a POST. A web page must not reach a server on this machine (DNS rebinding), so requests
// from pages of other hosts are refused.
func (m *mcpServer) listen(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /mcp", func(w http.ResponseWriter, r *http.Request) {
		if origin, err := url.Parse(r.Header.Get("Origin")); err != nil || origin.Host != "" && origin.Host != r.Host {
			http.Error(w, "requests from pages of other hosts are refused", http.StatusForbidden)
			return
		}
		message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessage))
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		a := m.answer(r.Context(), r.Header, message)
		if a == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(a) // it fails if the client is gone
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
