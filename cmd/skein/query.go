package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
	"skein.blue/query"
)

func queryCommand(e *command.Environment) *cli.Command {
	var server string
	var count bool
	var limit int64
	return &cli.Command{
		Name:      "query",
		Usage:     "ask a running server; prints the members of the set, one a line",
		ArgsUsage: "EXPR",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "server", Value: "http://127.0.0.1:3210", Usage: "the query API to ask", Destination: &server, Sources: command.Env("server")},
			&cli.BoolFlag{Name: "count", Usage: "print only how many there are", Destination: &count},
			&cli.Int64Flag{Name: "limit", DefaultText: "all", Usage: "print at most so many members", Destination: &limit},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return command.UsageError("skein query takes one set expression in quotes, such as 'followers(did:plc:…)'")
			}
			if limit < 0 {
				return command.UsageError("--limit %d is negative", limit)
			}
			if !strings.Contains(server, "://") {
				server = "http://" + server
			}
			out := bufio.NewWriter(e.Stdout)
			expr := c.Args().First()
			err := errors.Join(ask(ctx, out, e.Stderr, server, expr, count, limit), out.Flush())
			if no, ok := errors.AsType[*refused](err); ok && no.name == "InvalidRequest" {
				point(e.Stderr, expr, no.message)
			}
			return err
		},
	}
}

// refused is an error that the server answered with.
type refused struct{ name, message string }

// Error implements error.
func (r *refused) Error() string { return r.name + ": " + r.message }

var position = regexp.MustCompile(`at position (\d+)`)

// point shows where in an expression the server found it wrong.
func point(w io.Writer, expr, message string) {
	if at := position.FindStringSubmatch(message); at != nil {
		n, _ := strconv.Atoi(at[1]) // digits
		fmt.Fprintln(w, (&query.SyntaxError{Offset: n}).Point(expr))
	}
}

type queryAnswer struct {
	Total   uint64   `json:"total"`
	Members []string `json:"members"`
	Cursor  string   `json:"cursor"`
	Reason  string   `json:"reason"` // why it is incomplete
	Error   string   `json:"error"`
	Message string   `json:"message"`
}

// ask prints the answer, page after page.
func ask(ctx context.Context, out, notes io.Writer, server, expr string, count bool, limit int64) error {
	client := &http.Client{Timeout: time.Minute}
	left := limit
	for cursor := ""; ; {
		q := url.Values{"set": {expr}, "limit": {"1000"}}
		if count {
			q.Set("count", "true")
		}
		if limit > 0 && left < 1000 {
			q.Set("limit", fmt.Sprint(left))
		}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		a, err := get(ctx, client, server+"/xrpc/blue.skein.graph.query?"+q.Encode())
		if err != nil {
			return err
		}
		if cursor == "" && a.Reason != "" {
			fmt.Fprintln(notes, "the answer may be incomplete:", a.Reason)
		}
		if count {
			fmt.Fprintln(out, a.Total)
			return nil
		}
		for _, m := range a.Members {
			fmt.Fprintln(out, m)
		}
		if left -= int64(len(a.Members)); a.Cursor == "" || limit > 0 && left <= 0 {
			return nil
		}
		cursor = a.Cursor
	}
}

func get(ctx context.Context, client *http.Client, address string) (a queryAnswer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return a, command.UsageError("--server: %v", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return a, fmt.Errorf("no answer: is skein serve running there? %w", err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return a, fmt.Errorf("%s answered %s with something that is not skein's: is --server the address of the query API, and not of the admin one?", req.URL.Host, resp.Status)
	}
	if resp.StatusCode != http.StatusOK {
		return a, &refused{a.Error, a.Message}
	}
	return a, nil
}
