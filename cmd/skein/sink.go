package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"syscall"

	"skein.blue/graph/export"
	"skein.blue/internal/command"
	"skein.blue/internal/say"
	"skein.blue/query"
)

// A sink prints the members of a set, or the results of a ranking, in one of the formats.
type sink interface {
	member(m string) error
	ranked(m string, count int) error
	count(n uint64) error
	close() error
}

// newSink returns the sink of a format. Text written by strangers cannot control a terminal, or begin a
// line of its own there.
func newSink(format string, e *command.Environment) (sink, error) {
	out := bufio.NewWriterSize(e.Data, 256<<10)
	switch {
	case format == "text":
		return lineSink{&textSink{out}}, nil
	case format == "csv" && e.OnTerminal():
		return lineSink{&csvSink{w: csv.NewWriter(out), out: out}}, nil
	case format == "csv":
		return &csvSink{w: csv.NewWriter(out), out: out}, nil
	case format == "jsonl":
		return &jsonSink{out}, nil
	case format == "parquet" && e.OnTerminal():
		return nil, command.UsageError("--format parquet writes bytes that a terminal cannot show; write them to a file: skein query … >members.parquet")
	case format == "parquet":
		return &parquetSink{out: out}, nil
	}
	return nil, command.UsageError("--format %q: expected text, csv, jsonl or parquet", format)
}

// lineSink prints each member as one line that is safe for a terminal.
type lineSink struct{ sink }

func (s lineSink) member(m string) error { return s.sink.member(say.Line(m)) }

func (s lineSink) ranked(m string, count int) error { return s.sink.ranked(say.Line(m), count) }

type textSink struct{ *bufio.Writer }

func (s *textSink) member(m string) error { _, err := fmt.Fprintln(s, m); return err }

func (s *textSink) ranked(m string, count int) error {
	_, err := fmt.Fprintf(s, "%s\t%d\n", m, count)
	return err
}

func (s *textSink) count(n uint64) error { _, err := fmt.Fprintln(s, n); return err }

func (s *textSink) close() error { return s.Flush() }

type csvSink struct {
	w     *csv.Writer
	out   *bufio.Writer
	begun bool
}

func (s *csvSink) row(header []string, row ...string) error {
	if !s.begun {
		s.begun = true
		if err := s.w.Write(header); err != nil {
			return err
		}
	}
	return s.w.Write(row)
}

func (s *csvSink) member(m string) error { return s.row([]string{"member"}, m) }

func (s *csvSink) ranked(m string, count int) error {
	return s.row([]string{"member", "count"}, m, strconv.Itoa(count))
}

func (s *csvSink) count(uint64) error { return nil }

func (s *csvSink) close() error {
	if !s.begun { // an empty set
		if err := s.w.Write([]string{"member"}); err != nil {
			return err
		}
	}
	s.w.Flush()
	return errors.Join(s.w.Error(), s.out.Flush())
}

type jsonSink struct{ *bufio.Writer }

func (s *jsonSink) line(v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = s.Write(append(say.EscapeJSON(b), '\n'))
	}
	return err
}

func (s *jsonSink) member(m string) error {
	return s.line(struct {
		Member string `json:"member"`
	}{m})
}

func (s *jsonSink) ranked(m string, count int) error {
	return s.line(struct {
		Member string `json:"member"`
		Count  int    `json:"count"`
	}{m, count})
}

func (s *jsonSink) count(uint64) error { return nil }

func (s *jsonSink) close() error { return s.Flush() }

// memberRow and rankedRow are rows of Parquet files.
type (
	memberRow struct {
		Member string `parquet:"member"`
	}
	rankedRow struct {
		Member string `parquet:"member"`
		Count  uint32 `parquet:"count"`
	}
)

// parquetSink begins its file at the first row, which says what columns there are.
type parquetSink struct {
	out     *bufio.Writer
	members *export.Parquet[memberRow]
	ranking *export.Parquet[rankedRow]
}

func (s *parquetSink) member(m string) error {
	if s.members == nil {
		s.members = export.NewParquet[memberRow](s.out, "skein "+command.Version(), "")
	}
	return s.members.Add(memberRow{m})
}

func (s *parquetSink) ranked(m string, count int) error {
	if s.ranking == nil {
		s.ranking = export.NewParquet[rankedRow](s.out, "skein "+command.Version(), "")
	}
	return s.ranking.Add(rankedRow{m, uint32(count)}) // it came as a uint32
}

func (s *parquetSink) count(uint64) error { return nil }

func (s *parquetSink) close() error {
	if s.ranking != nil {
		return errors.Join(s.ranking.Close(), s.out.Flush())
	}
	if s.members == nil { // an empty set
		s.members = export.NewParquet[memberRow](s.out, "skein "+command.Version(), "")
	}
	return errors.Join(s.members.Close(), s.out.Flush())
}

// stream prints all members of a set, from the admin listener of a daemon. It does nothing and
// returns false if no daemon answers there, or not to us, unless the user named the daemon.
func stream(ctx context.Context, a *admin, set string, out sink, notes io.Writer) (done bool, err error) {
	resp, err := a.send(ctx, patient, http.MethodGet, "/members?"+url.Values{"set": {set}}.Encode(), "", nil)
	if err != nil {
		if no, ok := errors.AsType[*refusal](err); !a.named && (errors.Is(err, syscall.ECONNREFUSED) || ok && no.status != http.StatusBadRequest) {
			return false, nil
		}
		return false, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if reason := resp.Header.Get("Skein-Incomplete"); reason != "" {
		fmt.Fprintln(notes, "the answer may be incomplete:", say.Line(reason))
	}
	lines, n := bufio.NewReaderSize(resp.Body, 1<<20), uint64(0)
	for ; ; n++ {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		} else if err != nil {
			return true, fmt.Errorf("the answer was cut off after %d members: %w", n, err)
		}
		m, err := query.ParseMember(line)
		if err == nil {
			err = out.member(m)
		}
		if err != nil {
			return true, err
		}
	}
	if total, err := strconv.ParseUint(resp.Header.Get("Skein-Total"), 10, 64); err != nil || total != n {
		return true, fmt.Errorf("the answer has %d members, and announced %s", n, resp.Header.Get("Skein-Total"))
	}
	return true, nil
}
