package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skein.blue/internal/backup"
	"skein.blue/internal/kv"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/relay"
)

// A daemon that indexes thousands of events a second is backed up, and meanwhile the command, the
// daemon or the target's server is killed at any moment. Every backup that exists restores to what
// the network was at its cursor, and the last one goes on to what it is.
func TestFaultBackup(t *testing.T) {
	t.Run("folder", func(t *testing.T) { testFaultBackup(t, filepath.Join(t.TempDir(), "target"), nil) })
	t.Run("bucket", func(t *testing.T) { testFaultBackup(t, "s3://"+harness.Name+"/skein", harness.Start(t)) })
}

func testFaultBackup(t *testing.T, to string, server *harness.Server) {
	times := harness.Times(2)
	killed := harness.NewFault(t, "SIGKILL of a backup, its daemon or its target", times)
	rng := seeded(t)
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	relay, _ := simulate(t, "", relay.Options{Network: busy, Rate: 3000})
	args := []string{"--store", store, "--relay", relay, "--repair=false"}
	d := serveDaemon(t, nil, append(args, "--cursor", "0")...)
	place, err := backup.OpenTarget(to)
	must(t, err)
	took := 500 * time.Millisecond // a backup, about
	proved := map[time.Time]bool{}
	backups := func() []time.Time {
		t.Helper()
		all, err := backup.List(t.Context(), place)
		must(t, err)
		return all
	}
	for round := range times + 2 {
		was := d.cursor()
		d.indexes(was + 300)
		var out bytes.Buffer
		cli := program(t, "backup", "--admin", d.admin, to)
		cli.Stdout, cli.Stderr = &out, &out
		start := time.Now()
		must(t, cli.Start())
		victim := 0 // none in the first and the last round
		if round > 0 && round <= times {
			time.Sleep(time.Duration(rng.Int64N(int64(took + took/4))))
			switch victim = 1 + rng.IntN(3); {
			case victim == 1:
				_ = cli.Process.Kill()
			case victim == 2 || server == nil:
				victim = 2
				d.kill()
				d = serveDaemon(t, nil, args...)
			default:
				server.Kill()
				time.Sleep(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
				server.Restart()
			}
			killed.Happened()
		}
		err := cli.Wait()
		if victim == 0 {
			took = time.Since(start)
			if err != nil {
				t.Fatalf("a backup that nobody hindered: %v: %s", err, out.String())
			}
		}
		if strings.Contains(out.String(), "goroutine ") {
			t.Fatal(out.String())
		}
		must(t, place.Delete(t.Context(), "lock.json")) // it expires
		for _, b := range backups() {
			if !proved[b] {
				proved[b] = true
				proveBackup(t, to, b, filepath.Join(dir, fmt.Sprint("restored", len(proved))))
			}
		}
	}
	run(t, 0, "no problems found", "verify", to)
	t.Logf("%d backups, %d kills", len(proved), times)
	// The machine is lost. The newest backup goes on.
	if _, log := d.stop(); strings.Contains(log, "goroutine ") {
		t.Fatal(log)
	}
	if left, err := os.ReadDir(filepath.Join(store, "checkpoints")); err != nil || len(left) > 0 {
		t.Errorf("%d copies are left in the store: %v", len(left), err)
	}
	again := filepath.Join(dir, "again")
	run(t, 1, "sequence numbers are others", "serve", "--store", again, "--from", to, "--relay", "ws://another.example.com")
	args[1] = again
	d = serveDaemon(t, nil, append(args, "--from", to)...)
	was := d.cursor()
	d.indexes(was + 1000)
	d.stop()
	verifyNetwork(t, again, busy, 0)
}

// proveBackup restores a backup and compares it with the network at its cursor.
func proveBackup(t *testing.T, from string, b time.Time, into string) {
	t.Helper()
	run(t, 0, "restored as of", "restore", "--store", into, "--at", b.Format(time.RFC3339Nano), from)
	verifyNetwork(t, into, busy, 0)
	must(t, os.RemoveAll(into))
}

// The commands of backups: what the target lacks is sent, a damaged one is refused by name, and restored once it is whole.
func TestBackupCommands(t *testing.T) {
	t.Parallel()
	store, dir := replayed(t), t.TempDir()
	to, second := filepath.Join(dir, "target"), filepath.Join(dir, "second")
	run(t, 0, "backed up to "+to, "backup", "--store", store, to)
	// The folder of a restore that fails is the beginning of one: it is not a store yet, and the same command continues.
	parts, err := filepath.Glob(filepath.Join(to, "parts", "*", "*"))
	if err != nil || len(parts) == 0 {
		t.Fatal(parts, err)
	}
	must(t, os.Rename(parts[0], parts[0]+"x"))
	run(t, 1, filepath.Base(parts[0]), "restore", "--store", second, to)
	must(t, os.Rename(parts[0]+"x", parts[0]))
	run(t, 1, "unfinished restore", "check", "--store", second)
	run(t, 0, "restored as of", "restore", "--store", second, to)
	d := serveDaemon(t, nil, "--store", second, "--consume=false")
	d.isTrue()
	run(t, 0, "1 older backups removed", "backup", "--admin", d.admin, "--backup-keep", "1", to)
	a := admin{address: d.admin}
	_, done, err := a.lend(t.Context())
	must(t, err)
	d.stop()
	if err := done(kv.ErrCorrupt); errors.Is(err, kv.ErrCorrupt) || !strings.Contains(err.Error(), "run the command again") {
		t.Errorf("the daemon stopped while its store was read: %v", err)
	}
	run(t, 0, "no problems found in 1 backups", "verify", to)
	at, _, _ := strings.Cut(run(t, 0, "at seq 2116", "restore", "--list", to), " ")
	run(t, 0, "it has no signature", "restore", "--list", "--trust", "RWQ"+strings.Repeat("A", 53), to)
	run(t, 0, "restored as of "+at, "restore", "--store", filepath.Join(dir, "third"), "--at", at, to)
}
