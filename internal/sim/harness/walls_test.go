package harness_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// What a package links, through whatever it imports, stays behind the walls of docs/architecture.md.
// The linter depguard holds the imports themselves (.golangci.yml).
func TestWalls(t *testing.T) {
	t.Parallel()
	const pure = `^(context|log/slog|net|net/http|os/exec)$|^skein\.blue/(internal/kv|consumer|query|intern)$`
	for _, wall := range []struct{ room, never string }{
		{"./graph/...", `^skein\.blue/(query|consumer|cmd)|^skein\.blue/internal/(sim|app|command)|prometheus/client_golang/prometheus/promhttp|gorilla/websocket`},
		{"./query/...", `^skein\.blue/(consumer|cmd)|^skein\.blue/internal/(sim|app|command)|cockroachdb/pebble|apple/foundationdb`},
		{"./consumer/...", `^skein\.blue/(query|cmd)|^skein\.blue/internal/(sim|app|command)|cockroachdb/pebble|apple/foundationdb`},
		{"./graph/format", pure},
		{"./graph/kinds", pure},
		{"./graph/batch", pure},
		{"./intern/dict", pure},
		{"./query/language", strings.Replace(pure, "|query|", "|query|graph|", 1)},
		{"./cmd/skein", `^skein\.blue/internal/sim/(oracle|harness|load|memkv|kvtest)`},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../../../"+wall.room[2:]).Output()
		if err != nil {
			t.Fatalf("%s: %v", wall.room, err)
		}
		never := regexp.MustCompile(wall.never)
		n := 0
		for dep := range strings.Lines(string(out)) {
			n++
			if dep = strings.TrimSpace(dep); never.MatchString(dep) {
				t.Errorf("%s links %s", wall.room, dep)
			}
		}
		if n < 10 {
			t.Errorf("%s links only %d packages", wall.room, n)
		}
	}
}
