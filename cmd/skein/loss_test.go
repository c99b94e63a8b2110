package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
	cmd := program(t, append(replay, "--rate", "400")...)
	must(t, cmd.Start())
	name := syncedLog(t, store)
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // fails, because of the kill
	log := filepath.Join(store, name)
	b, err := os.ReadFile(log)
	must(t, err)
	b[10_000] ^= 4
	must(t, os.WriteFile(log, b, 0o600))
	for _, args := range [][]string{{"check", "--store", store}, {"stats", "--store", store}, replay, append(replay, "--accept-loss", "000000.log")} {
		run(t, 1, "bytes of the log, are lost", args...)
		run(t, 1, "--accept-loss "+name, args...)
	}
	run(t, 0, "store opened without the writes of its damaged log", append(replay, "--accept-loss", name)...)
	run(t, 0, "no problems found", "check", "--store", store)
	d := serveDaemon(t, nil, "--store", store, "--consume=false")
	d.isTrue()
	d.stop()
}
