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
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/urfave/cli/v3"
	"golang.org/x/term"

	"skein.blue/internal/command"
)

// texts are members that a line, a field of CSV or a terminal may take for something else.
var texts = []string{"good\ndid:plc:x", "evil\r", "a\r\nb", "\"", "a,b", "=1+1", " ", "\u2028", hostile}

// textsServer answers every set with texts.
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
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// isTexts reports whether lines are the texts as JSON objects.
func isTexts(lines string) bool {
	i := 0
	for line := range strings.Lines(lines) {
		var m struct{ Member string }
		if json.Unmarshal([]byte(line), &m) != nil || i == len(texts) || m.Member != texts[i] {
			return false
		}
		i++
	}
	return i == len(texts)
}

// A text is one member for programs, unchanged. A terminal shows what strangers wrote, and each member on a line of its own.
func TestTextsOnTerminal(t *testing.T) {
	server := textsServer(t)
	for _, expr := range []string{"tags(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa)", "rank(of=follows(did:plc:aaaaaaaaaaaaaaaaaaaaaaaa), via=tags)"} {
		for _, format := range []string{"jsonl", "csv", "text"} {
			args := []string{"query", "--server", server, "--format", format, expr}
			out := run(t, 0, "", args...)
			rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
			if format == "jsonl" && !isTexts(out) || format == "csv" && (err != nil || len(rows) != len(texts)+1 || rows[1][0] != texts[0]) {
				t.Errorf("%q", out)
			}
			read, screen := terminal(t)
			code := command.Run(t.Context(), &command.Environment{Stdout: screen, Stderr: new(lockedBuffer)}, commandLine, append([]string{"skein"}, args...))
			out, lines := read(), len(texts)
			if format == "csv" {
				lines++
			}
			if code != 0 || strings.Count(out, "\n") != lines || format == "jsonl" && !isTexts(out) || strings.ContainsFunc(out, isObeyed) {
				t.Errorf("%s: %d %q", format, code, out)
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
	if out := read(); code != 0 || strings.ContainsFunc(out, isObeyed) {
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
	screen, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	_, err = term.MakeRaw(int(screen.Fd())) // else it makes line breaks CRLF
	must(t, err)
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
