package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skein.blue/internal/sim/oracle"
)

// syncedLog waits until a part of a store's write-ahead log is synced, and returns the log's name.
func syncedLog(t *testing.T, store string) string {
	t.Helper()
	for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(store, "skein.manifest"))
		var guard struct {
			Marks []struct {
				File  string
				Bytes int64
			}
		}
		if err != nil || json.Unmarshal(b, &guard) != nil {
			continue
		}
		for _, m := range guard.Marks {
			if strings.HasSuffix(m.File, ".log") && m.Bytes > 20_000 {
				return m.File
			}
		}
	}
	t.Fatal("no log was synced")
	return ""
}

// The newest log is damaged after a SIGKILL. Every command refuses to open the store, and its
// error says how to go on without the lost writes. The stream then sends them again.
func TestAcceptLoss(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "store")
	replay := []string{"replay", "--frames", plainPDS, "--store", store}
	cmd := exec.CommandContext(t.Context(), binary, append(replay, "--rate", "400")...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	name := syncedLog(t, store)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // fails, because of the kill
	log := filepath.Join(store, name)
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	b[10_000] ^= 4
	if err := os.WriteFile(log, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "--store", store}, {"stats", "--store", store}, replay, append(replay, "--accept-loss", "000000.log")} {
		code, out, errs := skein(t, args...)
		if code != 1 || !strings.Contains(errs, "--accept-loss "+name) || !strings.Contains(errs, "bytes of the log, are lost") {
			t.Errorf("%s: exit %d: %s%s", args, code, out, errs)
		}
	}
	code, _, errs := skein(t, append(replay, "--accept-loss", name)...)
	if code != 0 || !strings.Contains(errs, "store opened without the writes of its damaged log") {
		t.Fatalf("accepting the loss: exit %d: %s", code, errs)
	}
	if code, out, errs := skein(t, "check", "--store", store); code != 0 {
		t.Fatal(out, errs)
	}
	tr, err := oracle.ReadTruth(plainTruth)
	if err != nil {
		t.Fatal(err)
	}
	d := serveDaemon(t, nil, "--store", store, "--consume=false")
	diffs, n, err := tr.Compare(t.Context(), d.api, 1000)
	if err != nil || len(diffs) > 0 || n < 200 {
		t.Errorf("%d sets, %v, %q", n, err, diffs)
	}
	d.stop()
}
