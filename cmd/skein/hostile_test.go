package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"skein.blue/internal/sim/synth"
)

// hostile is text that a server, host or relay may send and that a terminal would obey: a title,
// a cleared line, an 8-bit CSI, reversed text, and a line that looks like the program's own.
const hostile = "a\x1b]0;owned\x07\x1b[2Kb\x7f\u009b31mc\u202ed\u2066e\r\nskein: all is well\u2028f"

// isHarmless checks that a terminal would obey nothing in a command's output, that the stranger's
// text begins no line of its own, and that the text is there at all.
func isHarmless(t *testing.T, what, printed string) {
	t.Helper()
	if i := strings.IndexFunc(printed, isObeyed); i >= 0 {
		t.Errorf("%s: a terminal would obey %q", what, printed[max(0, i-20):min(len(printed), i+20)])
	}
	if strings.Contains(printed, "\nskein: all is well") {
		t.Errorf("%s: a stranger began a line: %q", what, printed)
	}
	if !strings.Contains(printed, "owned") || !strings.Contains(printed, "all is well") {
		t.Errorf("%s: the text is missing: %q", what, printed)
	}
}

// isObeyed reports whether a terminal would obey a character, beyond beginning a line or a column.
func isObeyed(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028')
}

// answers serves one JSON value to every request.
func answers(t *testing.T, status int, v any) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// A terminal shows strangers' texts in an operator's commands and does not obey them: a daemon's
// progress, results and errors, a server's members and messages, a relay's error, a health check.
func TestAbuseTerminal(t *testing.T) {
	type object = map[string]any
	const did = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	refusal := filepath.Join(t.TempDir(), "refusal.frames")
	errorFrame := synth.CBOR(synth.CBOR(nil, synth.Map{{Key: "op", Value: -1}}), synth.Map{{Key: "error", Value: "Refused" + hostile}, {Key: "message", Value: hostile}})
	must(t, os.WriteFile(refusal, synth.AppendFrame(nil, errorFrame), 0o600))
	status := object{"trouble": hostile, "failed": object{hostile: 3}}
	ended := object{"trouble": hostile, "ended": object{"repos": hostile}}
	health := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not ready: "+hostile, http.StatusServiceUnavailable)
	}))
	defer health.Close()
	store := filepath.Join(t.TempDir(), "store")
	for what, args := range map[string][]string{
		"progress":  {"backfill", "--admin", answers(t, 200, status)},
		"an end":    {"backfill", "--admin", answers(t, 200, ended)},
		"a refusal": {"backfill", "--admin", answers(t, 400, object{"error": hostile})},
		"resync":    {"resync", "--admin", answers(t, 400, object{"error": hostile}), did},
		"members":   {"query", "--server", answers(t, 200, object{"total": 1, "members": []string{hostile}}), "followers(" + did + ")"},
		"a reason":  {"query", "--server", answers(t, 200, object{"total": 1, "members": []string{did}, "reason": hostile}), "followers(" + did + ")"},
		"a ranking": {"query", "--server", answers(t, 200, object{"items": []object{{"member": hostile, "count": 1}}}), "rank(of=follows(" + did + "), via=likes)"},
		"a handle":  {"query", "--names", "--server", answers(t, 200, object{"total": 1, "members": []string{did}, "handles": object{did: hostile}}), "followers(" + did + ")"},
		"a message": {"query", "--server", answers(t, 400, object{"error": hostile, "message": hostile}), "followers(" + did + ")"},
		"health":    {"health", "--admin", health.URL},
		"a relay":   {"replay", "--store", store + "-replayed", "--frames", refusal, "--log-format", "text", "--log-level", "debug"},
	} {
		t.Run(what, func(t *testing.T) {
			_, out, errs := skein(t, args...)
			isHarmless(t, what, out+errs)
		})
	}
}
