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

	"skein.blue/graph/tables"
	"skein.blue/internal/command"
	"skein.blue/internal/human"
)

// A sink prints the members of a set, or the results of a ranking, in one of the formats.
type sink interface {
	member(m string) error
	ranked(m string, count int) error
	count(n uint64) error
	close() error
}

// newSink returns the sink of a format.
func newSink(format string, w io.Writer) (sink, error) {
	out := bufio.NewWriterSize(w, 256<<10)
	switch format {
	case "text":
		return &textSink{out}, nil
	case "csv":
		return &csvSink{w: csv.NewWriter(out), out: out}, nil
	case "jsonl":
		return &jsonSink{out}, nil
	case "parquet":
		return &parquetSink{out: out}, nil
	}
	return nil, command.UsageError("--format %q: expected text, csv, jsonl or parquet", format)
}

// textSink prints for people: what strangers wrote cannot control the terminal.
type textSink struct{ *bufio.Writer }

func (s *textSink) member(m string) error { _, err := fmt.Fprintln(s, human.Line(m)); return err }

func (s *textSink) ranked(m string, count int) error {
	_, err := fmt.Fprintf(s, "%s\t%d\n", human.Line(m), count)
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
		_, err = s.Write(append(b, '\n'))
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

// parquetSink begins its file at the first row, which says what columns there are.
type parquetSink struct {
	out *bufio.Writer
	w   *tables.Members
}

func (s *parquetSink) begin(counts bool) (err error) {
	if s.w == nil {
		s.w, err = tables.NewMembers(s.out, "skein "+command.Version(), counts)
	}
	return err
}

func (s *parquetSink) member(m string) error {
	if err := s.begin(false); err != nil {
		return err
	}
	return s.w.Add(m, 0)
}

func (s *parquetSink) ranked(m string, count int) error {
	if err := s.begin(true); err != nil {
		return err
	}
	return s.w.Add(m, uint32(count)) //nolint:gosec // it came as a uint32
}

func (s *parquetSink) count(uint64) error { return nil }

func (s *parquetSink) close() error {
	if err := s.begin(false); err != nil {
		return err
	}
	return errors.Join(s.w.Close(), s.out.Flush())
}

// stream prints all members of a set, from the admin listener of a daemon. It does nothing and
// returns false if no daemon answers there, or not to us, unless the user named the daemon.
func stream(ctx context.Context, s *command.Settings, admin string, named bool, set string, out sink, notes io.Writer) (done bool, err error) {
	token, err := s.AdminToken()
	if err != nil {
		return false, err
	}
	resp, err := (adminOf{admin, token}).send(ctx, http.MethodGet, "/members?"+url.Values{"set": {set}}.Encode(), "", nil)
	if err != nil {
		if no, ok := errors.AsType[*refusal](err); !named && (errors.Is(err, syscall.ECONNREFUSED) || ok && no.status != http.StatusBadRequest) {
			return false, nil
		}
		return false, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if reason := resp.Header.Get("Skein-Incomplete"); reason != "" {
		fmt.Fprintln(notes, "the answer may be incomplete:", human.Line(reason))
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 256<<10), 1<<20)
	n := uint64(0)
	for lines.Scan() {
		if err := out.member(lines.Text()); err != nil {
			return true, err
		}
		n++
	}
	if err := lines.Err(); err != nil {
		return true, fmt.Errorf("the answer was cut off after %d members: %w", n, err)
	}
	if total, err := strconv.ParseUint(resp.Header.Get("Skein-Total"), 10, 64); err != nil || total != n {
		return true, fmt.Errorf("the answer has %d members, and announced %s", n, resp.Header.Get("Skein-Total"))
	}
	return true, nil
}
