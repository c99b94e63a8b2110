package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/say"
	"skein.blue/query/rank"
)

func queryCommand(e *command.Environment) *cli.Command {
	var asker app.Asker
	var format string
	var count, names bool
	var limit int64
	return &cli.Command{
		Name:      "query",
		Usage:     "query a running server; print each member of the set, or each ranked result, on its own line",
		ArgsUsage: "EXPR",
		Description: "EXPR is a set in quotes, such as\n\n" +
			"    skein query 'followers(@alice.example.com)'\n" +
			"    skein query 'intersect(followers(@alice.example.com), likers(https://bsky.app/profile/…/post/…))'\n\n" +
			"or a ranking, such as\n\n" +
			"    skein query 'rank(of=follows(@alice.example.com), via=likes, since=24h)'",
		Flags: append(askFlags(&asker),
			&cli.BoolFlag{Name: "count", Usage: "print only the number of members", Destination: &count},
			&cli.Int64Flag{Name: "limit", DefaultText: "all; 100 for rank(…)", Usage: "maximum number of members or results to print", Destination: &limit},
			&cli.BoolFlag{Name: "names", Usage: "add a column with the handles of accounts, and of the authors of records", Destination: &names},
			&cli.StringFlag{Name: "format", Value: "text", Usage: "text, csv or jsonl; the last two for programs: text escapes control characters", Destination: &format},
		),
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Args().Len() != 1 {
				return command.UsageError("skein query needs one set expression in quotes, such as 'followers(did:plc:…)'")
			}
			if limit < 0 {
				return command.UsageError("--limit %d is negative", limit)
			}
			prepareAsker(&asker)
			expr := c.Args().First()
			q := questionOf(expr, limit)
			if q.count = count; count && q.method == "rank" {
				return command.UsageError("--count does not work with rank(…): the number of results is unknown until all are ranked")
			}
			if count && (names || limit > 0 || format != "text") {
				return command.UsageError("--count prints a number; remove --format, --limit and --names")
			}
			columns := []string{"member"}
			if names {
				q.params.Set("names", "true")
				columns = append(columns, "handle")
			}
			if q.method == "rank" {
				columns = append(columns, "count")
			}
			out, err := newPrinter(e, format, columns)
			if err != nil {
				return err
			}
			return errors.Join(q.ask(ctx, out, e.Stderr, &asker), out.close())
		},
	}
}

// question is a query that is sent page by page.
type question struct {
	method string
	params url.Values
	count  bool
	limit  int64 // 0: all
}

type queryAnswer struct {
	Total   uint64
	Members []string
	Items   []result // of a ranking
	Handles map[string]string
	Cursor  string
	Reason  string // why the answer may be incomplete
	Sample  string // what was sampled
}

// result is a member of a set, or a result of a ranking, which has a count.
type result struct {
	Member string `json:"member"`
	Handle string `json:"handle,omitempty"`
	Count  int    `json:"count,omitempty"`
}

// printer prints results in a format. Text written by strangers cannot control a terminal, or begin a line of its own there.
type printer struct {
	format   string
	terminal bool
	columns  []string
	out      *bufio.Writer
	csv      *csv.Writer
}

// newPrinter returns the printer of some columns: member, handle, count.
func newPrinter(e *command.Environment, format string, columns []string) (*printer, error) {
	p := &printer{format: format, terminal: e.OnTerminal, columns: columns, out: bufio.NewWriterSize(e.Data, 256<<10)}
	p.csv = csv.NewWriter(p.out)
	switch format {
	case "text", "jsonl":
		return p, nil
	case "csv":
		return p, p.csv.Write(columns)
	}
	return nil, command.UsageError("--format %q: expected text, csv or jsonl", format)
}

func (p *printer) print(r result) error {
	if p.format == "text" || p.format == "csv" && p.terminal {
		r.Member, r.Handle = say.Line(r.Member), say.Line(r.Handle)
	}
	cells, row := map[string]string{"member": r.Member, "handle": r.Handle, "count": strconv.Itoa(r.Count)}, make([]string, len(p.columns))
	for i, c := range p.columns {
		row[i] = cells[c]
	}
	switch p.format {
	case "csv":
		return p.csv.Write(row)
	case "jsonl":
		return app.WriteJSONLine(p.out, r)
	}
	_, err := fmt.Fprintln(p.out, strings.Join(row, "\t"))
	return err
}

func (p *printer) close() error {
	p.csv.Flush()
	return errors.Join(p.csv.Error(), p.out.Flush())
}

// questionOf returns the question about an expression. limit is how many members or results to print, 0: all of a set, and 100 of a ranking.
func questionOf(expr string, limit int64) *question {
	q := &question{method: "query", params: url.Values{"set": {expr}}, limit: limit}
	if rank.IsRanking(expr) {
		q.method, q.limit = "rank", cmp.Or(limit, 100)
	}
	return q
}

// ask prints the answer, page by page.
func (q *question) ask(ctx context.Context, out *printer, notes io.Writer, asker *app.Asker) error {
	limit, printed, said := q.limit, int64(0), ""
	for {
		page := int64(1000)
		if limit > 0 {
			page = min(page, limit-printed)
		}
		q.params.Set("limit", fmt.Sprint(page))
		if q.count {
			q.params.Set("count", "true")
		}
		var a queryAnswer
		waits := func(err error, wait time.Duration) { fmt.Fprintf(notes, "%v; continuing in %v\n", err, wait) }
		if err := asker.Insist(ctx, q.method, q.params, &a, waits); err != nil {
			return err
		}
		if a.Reason != "" && a.Reason != said {
			said = a.Reason
			fmt.Fprintln(notes, "the answer may be incomplete:", say.Line(a.Reason))
		}
		if printed == 0 && a.Sample != "" {
			fmt.Fprintln(notes, "the answer is an estimate from a sample:", say.Line(a.Sample))
		}
		if q.count {
			_, err := fmt.Fprintln(out.out, a.Total)
			return err
		}
		for _, m := range a.Members {
			a.Items = append(a.Items, result{Member: m})
		}
		for _, r := range a.Items {
			owner, _, _ := strings.Cut(strings.TrimPrefix(r.Member, "at://"), "/")
			r.Handle = a.Handles[owner]
			if err := out.print(r); err != nil {
				return err
			}
		}
		printed += int64(len(a.Items))
		if a.Cursor != "" && (limit == 0 || printed < limit) {
			q.params.Set("cursor", a.Cursor)
			continue
		}
		switch {
		case printed == 0:
			fmt.Fprintln(notes, "no members found")
		case a.Cursor != "" && q.method == "rank":
			fmt.Fprintf(notes, "only the first %d; --limit N prints more\n", printed)
		}
		return nil
	}
}
