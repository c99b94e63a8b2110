package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unsafe"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"skein.blue/internal/command"
)

// texts are members that a line, a field of CSV or a terminal may take for something else.
var texts = []string{"good\ndid:plc:x", "evil\r", "a\r\nb", "\"", "a,b", "=1+1", " ", "\u2028", hostile}

// textsServer answers every set with texts, as the API and as the admin listener.
func textsServer(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/xrpc/blue.skein.graph.query", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"total": len(texts), "members": texts})
	})
	mux.HandleFunc("/xrpc/blue.skein.graph.rank", func(w http.ResponseWriter, _ *http.Request) {
		items := []map[string]any{}
		for _, m := range texts {
			items = append(items, map[string]any{"member": m, "count": 7})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
	})
	mux.HandleFunc("/members", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Skein-Total", fmt.Sprint(len(texts)))
		for _, m := range texts {
			_ = json.NewEncoder(w).Encode(map[string]string{"member": m})
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

const (
	tagSet  = "tags(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)"
	tagRank = "rank(of=follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa), via=tags)"
)

// A text is one member in every format for programs, unchanged, in one stream and page by page.
func TestTextsInEveryFormat(t *testing.T) {
	server := textsServer(t)
	for _, admin := range []string{server, "off"} {
		ask := func(format string) string {
			out, errs := new(lockedBuffer), new(lockedBuffer)
			if code := command.Run(t.Context(), &command.Environment{Stdout: out, Stderr: errs}, commandLine, []string{"skein", "query", "--server", server, "--admin", admin, "--format", format, tagSet}); code != 0 {
				t.Fatal(code, errs)
			}
			return out.String()
		}
		var lines []string
		for line := range strings.Lines(ask("jsonl")) {
			var m struct{ Member string }
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatal(line, err)
			}
			lines = append(lines, m.Member)
		}
		if !slices.Equal(lines, texts) {
			t.Errorf("--admin %s: JSON lines: %q", admin, lines)
		}
		if got := parquetColumn(t, ask("parquet")); !slices.Equal(got, texts) {
			t.Errorf("--admin %s: Parquet: %q", admin, got)
		}
		text := ask("csv")
		rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil || len(rows) != len(texts)+1 || !strings.Contains(text, "\n\"a\r\nb\"\n") {
			t.Fatalf("--admin %s: CSV: %q, %v", admin, text, err)
		}
		for i, m := range texts {
			if m = strings.ReplaceAll(m, "\r\n", "\n"); rows[i+1][0] != m { // as encoding/csv reads it
				t.Errorf("--admin %s: CSV: %q, want %q", admin, rows[i+1][0], m)
			}
		}
	}
}

// A terminal shows what strangers wrote in every format, and each member on a line of its own.
func TestTextsOnTerminal(t *testing.T) {
	server := textsServer(t)
	for _, expr := range []string{tagSet, tagRank} {
		for format, want := range map[string]int{"text": len(texts), "csv": len(texts) + 1, "jsonl": len(texts), "parquet": 0} {
			read, screen := terminal(t)
			var errs lockedBuffer
			code := command.Run(t.Context(), &command.Environment{Stdout: screen, Stderr: &errs}, commandLine, []string{"skein", "query", "--server", server, "--admin", server, "--format", format, expr})
			out := read()
			if refused := code == command.ExitUsage; refused != (format == "parquet") || refused && !strings.Contains(errs.String(), "write them to a file") {
				t.Errorf("%s: %d %s", format, code, errs.String())
			}
			for _, r := range out {
				if r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028') {
					t.Errorf("%s: a terminal would obey %q in %q", format, r, out)
				}
			}
			for i, line := range strings.Split(strings.TrimSuffix(out, "\n"), "\n") {
				var m struct{ Member string }
				if format == "jsonl" && (json.Unmarshal([]byte(line), &m) != nil || m.Member != texts[i]) {
					t.Errorf("%s: %q, want %q", format, line, texts[i])
				}
			}
			if strings.Count(out, "\n") != want {
				t.Errorf("%s: %d lines, want %d: %q", format, strings.Count(out, "\n"), want, out)
			}
		}
	}
}

// So it does with what a command writes for programs, such as an export.
func TestDataOnTerminal(t *testing.T) {
	read, screen := terminal(t)
	program := command.Program{Name: "x", Commands: func(e *command.Environment) []*cli.Command {
		return []*cli.Command{{Name: "y", Action: func(context.Context, *cli.Command) error {
			_, err := fmt.Fprint(e.Data, hostile)
			return err
		}}}
	}}
	code := command.Run(t.Context(), &command.Environment{Stdout: screen, Stderr: new(lockedBuffer)}, program, []string{"x", "y"})
	if out := read(); code != 0 || strings.ContainsFunc(out, func(r rune) bool {
		return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
	}) {
		t.Errorf("%d: %q", code, out)
	}
}

// terminal returns a terminal, and a function that hangs up and returns what was written to it.
func terminal(t *testing.T) (read func() string, screen *os.File) {
	t.Helper()
	end, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("this machine has no terminals: ", err)
	}
	var locked, number int32
	for request, value := range map[uintptr]*int32{syscall.TIOCSPTLCK: &locked, syscall.TIOCGPTN: &number} {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, end.Fd(), request, uintptr(unsafe.Pointer(value))); e != 0 {
			t.Fatal(e)
		}
	}
	if screen, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := term.MakeRaw(int(screen.Fd())); err != nil { // else it makes line breaks CRLF
		t.Fatal(err)
	}
	written := make(chan string)
	go func() {
		b, _ := io.ReadAll(end) // ends with an error once the screen is closed
		written <- string(b)
	}()
	return func() string {
		_ = screen.Close()
		out := <-written
		_ = end.Close()
		return out
	}, screen
}
