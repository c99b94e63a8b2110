package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skein.blue/internal/sim/harness"
)

// filler takes space on the disk of the tests, until it is removed.
type filler struct {
	path string
	free uint64 // bytes free before
}

const fills = 4 << 30

// newFiller returns a filler. The test is skipped if the disk is too small or cannot set space aside.
func newFiller(t *testing.T) *filler {
	t.Helper()
	dir := t.TempDir()
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Skip(err)
	}
	const tmpfs = 0x01021994
	if st.Type == tmpfs {
		t.Skip("the tests' folder is in memory: filling it would take the machine's memory")
	}
	f := &filler{filepath.Join(dir, "filler"), st.Bavail * uint64(st.Bsize)}
	if f.free < 2*fills {
		t.Skipf("the disk of %s has %d bytes free, and the test needs %d", dir, f.free, 2*fills)
	}
	f.fill(t)
	f.empty(t)
	return f
}

func (f *filler) fill(t *testing.T) {
	t.Helper()
	file, err := os.Create(f.path)
	must(t, err)
	defer func() { _ = file.Close() }()
	if err := syscall.Fallocate(int(file.Fd()), 0, 0, fills); err != nil {
		t.Skipf("the file system of %s cannot set space aside: %v", f.path, err)
	}
}

func (f *filler) empty(t *testing.T) {
	t.Helper()
	must(t, os.Remove(f.path))
}

// minFree is a floor that the disk is below with the filler, and a GiB and a half above without
// it: writing resumes a GiB above the floor.
func (f *filler) minFree() string { return fmt.Sprint(f.free - 5<<29) }

// state returns the state of the stream.
func (d *daemon) state() string {
	d.t.Helper()
	st, err := d.stats()
	must(d.t, err)
	return st.State
}

// While the disk has too little free space, a daemon indexes nothing, says so everywhere, and
// answers. When there is space, it resumes, and nothing is missing. A daemon that starts on a full
// disk answers at once.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	f := newFiller(t)
	store := filepath.Join(t.TempDir(), "store")
	rounds := harness.Times(2)
	filled := harness.NewFault(t, "disk full, and space again", rounds)
	relay := playRecording(t, max(20, 400/rounds)) // 11 s, and as many events left for each round
	args := []string{"--store", store, "--relay", relay, "--cursor", "0", "--min-free", f.minFree(), "--repair=false"}
	d := serveDaemon(t, nil, args...)
	eventually(t, 10*time.Second, "events are indexed", func() bool { return d.metric("skein_consumer_cursor") != "" })
	for round := range rounds {
		f.fill(t)
		eventually(t, 10*time.Second, "the daemon notices that the disk is full", func() bool { return d.state() == "full" })
		if code, body := askAt(t, d.admin+"/readyz"); code != http.StatusOK || !strings.Contains(body, "ready, but not indexing") || !strings.Contains(body, "--min-free") {
			t.Errorf("/readyz: %d %s", code, body)
		}
		if full := d.metric("skein_store_full"); full != "1" {
			t.Errorf("skein_store_full is %s", full)
		}
		was := d.metric("skein_consumer_cursor")
		time.Sleep(2 * time.Second)
		if now := d.metric("skein_consumer_cursor"); now != was {
			t.Errorf("round %d: the cursor moved from %s to %s on a full disk", round, was, now)
		}
		d.answers()
		filled.Happened()
		if round < rounds-1 {
			f.empty(t)
			eventually(t, 10*time.Second, "the daemon resumes", func() bool { return d.state() != "full" && d.metric("skein_consumer_cursor") != was })
		}
	}
	took, log := d.stop()
	if took > 10*time.Second {
		t.Errorf("on a full disk, stopping took %v", took)
	}
	if strings.Count(log, "disk full: indexing stops") != rounds || strings.Count(log, "the disk has space again: indexing resumes") != rounds-1 || strings.Contains(log, "goroutine ") {
		t.Errorf("the log:\n%s", log)
	}
	run(t, 0, "no problems found", "check", "--store", store)

	// The disk is full at the start.
	reader := serveDaemon(t, nil, "--store", store, "--consume=false", "--min-free", f.minFree())
	if state := reader.state(); state != "off" {
		t.Errorf("--consume=false on a full disk: %s", state)
	}
	reader.stop()
	m := newManager(t)
	d = serveDaemon(t, []string{"NOTIFY_SOCKET=" + m.socket}, "--store", store, "--relay", relay, "--min-free", f.minFree(), "--repair=false")
	if state := d.state(); state != "full" {
		t.Errorf("started on a full disk: %s", state)
	}
	run(t, 1, "--min-free", "resync", "--admin", d.admin, "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa")
	run(t, 1, "--min-free", "backup", "--admin", d.admin, t.TempDir())
	f.empty(t)
	eventually(t, 20*time.Second, "the daemon indexes once there is space", func() bool {
		return strings.Count(d.log.String(), `"msg":"answering"`) == 2
	})
	for message, ok := m.next(t, time.Now().Add(time.Second)); ok; message, ok = m.next(t, time.Now().Add(100*time.Millisecond)) {
		if strings.Contains(message, "STOPPING=1") {
			t.Error("the service manager was told that the daemon stops")
		}
	}
	_, again, _ := strings.Cut(d.log.String(), `"msg":"the disk has space again`)
	for line := range strings.Lines(again) {
		var l struct{ Msg, API, Admin string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == "answering" {
			d.api, d.admin = l.API, l.Admin
		}
	}
	d.indexes(last)
	d.isTrue()
	d.stop()

	// A node that drains goes on answering.
	f.fill(t)
	d = serveDaemon(t, nil, "--store", store, "--relay", relay, "--min-free", f.minFree(), "--repair=false", "--drain", "1h")
	d.signal(syscall.SIGTERM)
	f.empty(t)
	time.Sleep(3 * time.Second)
	if code, body := askAt(t, d.admin+"/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "draining") {
		t.Errorf("/readyz of a node that drains, once there is space: %d %s", code, body)
	}
	d.stop()
}
