package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skein.blue/internal/backup"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/oracle"
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
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	relay := startRelay(t, "--accounts", "20000", "--rate", "3000")
	args := []string{"--store", store, "--relay", relay, "--repair=false"}
	d := serveDaemon(t, nil, append(args, "--cursor", "0")...)
	place, err := backup.OpenTarget(to)
	if err != nil {
		t.Fatal(err)
	}
	took := 500 * time.Millisecond // a backup, about
	proved := map[time.Time]bool{}
	backups := func() (all []time.Time) {
		t.Helper()
		if all, err = backup.List(t.Context(), place); err != nil {
			t.Fatal(err)
		}
		return all
	}
	for round := range times + 2 {
		was := count(t, d, "skein_consumer_cursor")
		eventually(t, time.Minute, "events are indexed", func() bool { return count(t, d, "skein_consumer_cursor") > was+300 })
		var out bytes.Buffer
		cli := exec.CommandContext(context.Background(), binary, "backup", "--admin", d.admin, to)
		cli.Stdout, cli.Stderr = &out, &out
		start := time.Now()
		if err := cli.Start(); err != nil {
			t.Fatal(err)
		}
		victim := 0 // none in the first and the last round
		if round > 0 && round <= times {
			time.Sleep(time.Duration(rng.Int64N(int64(took + took/4))))
			switch victim = 1 + rng.IntN(3); {
			case victim == 1:
				_ = cli.Process.Kill()
			case victim == 2 || server == nil:
				victim = 2
				_ = d.cmd.Process.Kill()
				<-d.read
				_ = d.cmd.Wait()
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
		if err := place.Delete(t.Context(), "lock.json"); err != nil { // it expires
			t.Fatal(err)
		}
		for _, b := range backups() {
			if !proved[b] {
				proved[b] = true
				proveBackup(t, to, b, filepath.Join(dir, fmt.Sprint("restored", len(proved))))
			}
		}
	}
	if code, out, errs := skein(t, "verify", to); code != 0 {
		t.Fatal(out, errs)
	}
	t.Logf("%d backups, %d kills", len(proved), times)
	// The machine is lost. The newest backup goes on.
	if _, log := d.stop(); strings.Contains(log, "goroutine ") {
		t.Fatal(log)
	}
	if left, err := os.ReadDir(filepath.Join(store, "checkpoints")); err != nil || len(left) > 0 {
		t.Errorf("%d copies are left in the store: %v", len(left), err)
	}
	again := filepath.Join(dir, "again")
	if code, out, errs := skein(t, "restore", "--store", again, to); code != 0 {
		t.Fatal(out, errs)
	}
	args[1] = again
	d = serveDaemon(t, nil, args...)
	was := count(t, d, "skein_consumer_cursor")
	eventually(t, time.Minute, "events are indexed", func() bool { return count(t, d, "skein_consumer_cursor") > was+1000 })
	d.stop()
	verifyNetwork(t, again)
}

// proveBackup restores a backup and compares it with the network at its cursor.
func proveBackup(t *testing.T, from string, b time.Time, into string) {
	t.Helper()
	if code, out, errs := skein(t, "restore", "--store", into, "--at", b.Format(time.RFC3339Nano), from); code != 0 {
		t.Fatal(b, out, errs)
	}
	if code, out, errs := skein(t, "check", "--store", into); code != 0 {
		t.Fatal(b, out, errs)
	}
	verifyNetwork(t, into)
	if err := os.RemoveAll(into); err != nil {
		t.Fatal(err)
	}
}

// verifyNetwork compares a store with the simulated network at its cursor.
func verifyNetwork(t *testing.T, store string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), simulator, "verify", "--store", store, "--accounts", "20000").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// The stream of the official PDS is backed up in the middle, restored elsewhere, and goes on to the
// truth.
func TestBackupOfRecordedStream(t *testing.T) {
	t.Parallel()
	tr, err := oracle.ReadTruth(plainTruth)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	to := filepath.Join(dir, "target")
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	relay := "ws://" + strings.TrimPrefix(startSimulator(t, plainPDS, 3000), "ws://")
	d := serveDaemon(t, nil, "--store", first, "--relay", relay, "--cursor", "0", "--repair=false")
	eventually(t, time.Minute, "some events are indexed", func() bool { return count(t, d, "skein_consumer_cursor") > 700 })
	code, out, errs := skein(t, "backup", "--admin", d.admin, to)
	if code != 0 || !strings.Contains(out, "backed up to "+to) {
		t.Fatal(out, errs)
	}
	d.stop()
	// The folder of a restore that fails is the beginning of one: it is not a store yet, and the same command continues.
	parts, err := filepath.Glob(filepath.Join(to, "parts", "*", "*"))
	if err != nil || len(parts) == 0 {
		t.Fatal(parts, err)
	}
	if err := os.Rename(parts[0], parts[0]+"x"); err != nil {
		t.Fatal(err)
	}
	if code, out, errs = skein(t, "restore", "--store", second, to); code != 1 || !strings.Contains(errs, filepath.Base(parts[0])) {
		t.Fatal(code, out, errs)
	}
	if err := os.Rename(parts[0]+"x", parts[0]); err != nil {
		t.Fatal(err)
	}
	if code, out, errs = skein(t, "check", "--store", second); code != 1 || !strings.Contains(errs, "unfinished restore") {
		t.Fatal(code, out, errs)
	}
	if code, out, errs = skein(t, "restore", "--store", second, to); code != 0 || !strings.Contains(out, "restored as of") {
		t.Fatal(code, out, errs)
	}
	d = serveDaemon(t, nil, "--store", second, "--relay", relay, "--repair=false")
	eventually(t, time.Minute, "everything is indexed", func() bool { return count(t, d, "skein_consumer_cursor") == 2116 })
	diffs, n, err := tr.Compare(t.Context(), d.api, 1000)
	if err != nil || len(diffs) > 0 || n < 200 {
		t.Fatalf("%d sets, %v, %q", n, err, diffs)
	}
	// The store of a daemon that has ended is backed up, too; then the next one sends little.
	d.stop()
	if code, out, errs = skein(t, "backup", "--store", second, "--admin", "off", "--backup-keep", "1", to); code != 0 || !strings.Contains(out, "1 older backups removed") {
		t.Fatal(code, out, errs)
	}
	if code, out, errs = skein(t, "verify", to); code != 0 || !strings.Contains(out, "no problems found in 1 backups") {
		t.Fatal(code, out, errs)
	}
	if code, out, errs = skein(t, "restore", "--list", to); code != 0 || !strings.Contains(out, "at seq 2116") {
		t.Fatal(code, out, errs)
	}
}

// A daemon backs up automatically, and says how old the last backup is.
func TestBackupSchedule(t *testing.T) {
	to := filepath.Join(t.TempDir(), "target")
	for _, args := range [][]string{
		{"--backup-keep", "7"},
		{"--backup-to", "https://example.com/x"},
		{"--backup-to", "ftp://x"},
		{"--backup-to", to, "--backup-every", "1s"},
		{"--backup-to", to, "--backup-keep", "-1"},
		{"--backup-to", to, "--store", "fdb:///x?prefix=y"},
	} {
		if code, _, errs := skein(t, append([]string{"serve", "--store", filepath.Join(t.TempDir(), "s")}, args...)...); code != 64 || !strings.Contains(errs, "--backup-") {
			t.Errorf("%q: %d %s", args, code, errs)
		}
	}
	d := serveDaemon(t, nil, "--store", filepath.Join(t.TempDir(), "s"), "--relay", startSimulator(t, plainPDS, 3000), "--cursor", "0", "--repair=false", "--backup-to", to, "--backup-every", "1m", "--backup-keep", "24")
	if n := count(t, d, "skein_backup_last_timestamp_seconds"); n != 0 {
		t.Errorf("the last backup was at %d", n)
	}
	d.stop()
}
