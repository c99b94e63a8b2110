package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Without a network, serve reports it, keeps trying, and answers queries meanwhile.
func TestServeWithoutRelay(t *testing.T) {
	t.Parallel()
	store := replayed(t)
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1", "SKEIN_TYPO=1"}, "--store", store)
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if code, body := askAt(t, d.admin+path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	run(t, 0, "ready", "health", "--admin", d.admin)
	run(t, 1, "behind, which is more than 1m0s", "health", "--admin", d.admin, "--max-lag", "1m") // it falls ever further behind
	run(t, 0, "ready", "health", "--admin", d.admin, "--max-lag", "1000000h")
	if out := run(t, 0, "", "query", "--server", d.api, "--count", "followers("+known+")"); out != "9\n" {
		t.Error(out)
	}
	if out := run(t, 0, "", "query", "--server", d.api, "followers("+known+")"); strings.Count(out, "did:plc:") != 9 {
		t.Error(out)
	}
	if out := run(t, 0, "", "query", "--server", d.api, "--limit", "4", "followers("+known+")"); strings.Count(out, "\n") != 4 {
		t.Error(out)
	}
	if _, config := askAt(t, d.api+"/page/config.json"); strings.Count(config[max(0, strings.Index(config, `"accounts"`)):], "did:plc:") < 20 {
		t.Errorf("the page has no accounts to ask about: %s", config)
	}
	run(t, 1, "position 10", "query", "--server", d.api, "followers(x)")
	run(t, 1, "in use by another skein", "check", "--store", store)
	took, log := d.stop()
	if took > 10*time.Second {
		t.Errorf("shutdown took %v", took)
	}
	for _, want := range []string{"no connection to the relay", "queries are still answered", "retry_in", "SKEIN_TYPO"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log has no %q:\n%s", want, log)
		}
	}
}

// The commands send the daemon's token. Without it, their error names the variable to set.
func TestAdminToken(t *testing.T) {
	dir := t.TempDir()
	file, wrong := filepath.Join(dir, "token"), filepath.Join(dir, "wrong")
	for name, token := range map[string]string{file: "0123456789abcdef\n", wrong: "wrong"} {
		write(t, name, token)
	}
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1"}, "--store", filepath.Join(dir, "store"), "--admin-token-file", file)
	const did = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	run(t, 1, "SKEIN_ADMIN_TOKEN", "resync", "--admin", d.admin, did)
	run(t, 1, "SKEIN_ADMIN_TOKEN", "backfill", "--admin", d.admin)
	run(t, 1, "SKEIN_ADMIN_TOKEN", "resync", "--admin", d.admin, "--admin-token-file", wrong, did)
	run(t, 0, "1 queued", "resync", "--admin", d.admin, "--admin-token-file", file, did)
	run(t, 0, "ready", "health", "--admin", d.admin)
	run(t, 0, "ready", "health", "--admin", strings.TrimPrefix(d.admin, "http://"), "--admin-token-file", file)
	t.Setenv("SKEIN_ADMIN_TOKEN", "0123456789abcdef")
	run(t, 0, "1 queued", "resync", "--admin", d.admin, did)
	run(t, 64, "use one", "resync", "--admin", d.admin, "--admin-token-file", file, did)
	d.stop()
}
