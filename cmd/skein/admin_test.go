package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The commands send the daemon's token. Without it, their error names the variable to set.
func TestAdminToken(t *testing.T) {
	dir := t.TempDir()
	file, wrong, store := filepath.Join(dir, "token"), filepath.Join(dir, "wrong"), filepath.Join(dir, "store")
	if err := errors.Join(os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600), os.WriteFile(wrong, []byte("wrong"), 0o600)); err != nil {
		t.Fatal(err)
	}
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1"}, "--store", store, "--admin-token-file", file)
	const did = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{1, "SKEIN_ADMIN_TOKEN", []string{"resync", "--admin", d.admin, did}},
		{1, "SKEIN_ADMIN_TOKEN", []string{"backfill", "--admin", d.admin, "--did", did}},
		{1, "SKEIN_ADMIN_TOKEN", []string{"resync", "--admin", d.admin, "--admin-token-file", wrong, did}},
		{0, "1 queued", []string{"resync", "--admin", d.admin, "--admin-token-file", file, did}},
		{0, "ready", []string{"health", "--admin", d.admin}},
		{0, "ready", []string{"health", "--admin", d.admin, "--admin-token-file", file}},
	} {
		if code, out, errs := skein(t, c.args...); code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("skein %s: exit %d, want %d and %q:\n%s%s", strings.Join(c.args, " "), code, c.code, c.want, out, errs)
		}
	}
	t.Setenv("SKEIN_ADMIN_TOKEN", "0123456789abcdef")
	if code, out, errs := skein(t, "resync", "--admin", d.admin, did); code != 0 {
		t.Errorf("with the variable: %d %s%s", code, out, errs)
	}
	d.stop()
}

// A bad listen address or token is a usage error.
func TestAdminUsage(t *testing.T) {
	dir := t.TempDir()
	empty, two, store := filepath.Join(dir, "empty"), filepath.Join(dir, "two"), filepath.Join(dir, "store")
	if err := errors.Join(os.WriteFile(empty, []byte("\n"), 0o600), os.WriteFile(two, []byte("two words"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"unknown port 99999", []string{"--listen", ":99999"}},
		{"unknown port -1", []string{"--admin-listen", "127.0.0.1:-1"}},
		{"unknown port frob", []string{"--listen", "127.0.0.1:frob"}},
		{"expected HOST:PORT", []string{"--listen", "127.0.0.1:"}},
		{"is empty", []string{"--admin-token-file", empty}},
		{"no such file", []string{"--admin-token-file", filepath.Join(dir, "none")}},
		{"openssl rand", []string{"--admin-token-file", two}},
	} {
		if code, out, errs := skein(t, append([]string{"serve", "--store", store}, c.args...)...); code != 64 || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit %d: %s%s", c.args, code, out, errs)
		}
	}
	t.Setenv("SKEIN_ADMIN_TOKEN", "x")
	if code, _, errs := skein(t, "serve", "--store", store, "--admin-token-file", two); code != 64 || !strings.Contains(errs, "use one") {
		t.Errorf("two tokens: exit %d: %s", code, errs)
	}
	if _, err := os.Stat(store); !os.IsNotExist(err) {
		t.Errorf("a store was created: %v", err)
	}
}
