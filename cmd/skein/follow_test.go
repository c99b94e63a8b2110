package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"aead.dev/minisign"

	"skein.blue/internal/sim/oracle"
)

// published is a folder of signed backups behind a web server.
type published struct {
	dir, secret, public string
	url                 string
}

// publish makes a target that a web server publishes, and a key that signs its backups. Opening a key with a password takes
// seconds of processor time, each time.
func publish(t *testing.T, password string) *published {
	t.Helper()
	dir := t.TempDir()
	p := &published{dir: filepath.Join(dir, "target"), secret: filepath.Join(dir, "secret")}
	public, secret, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := secret.MarshalText()
	if password != "" {
		text, err = minisign.EncryptKey(password, secret)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.secret, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p.public = public.String()
	srv := httptest.NewServer(http.FileServer(http.Dir(p.dir)))
	t.Cleanup(srv.Close)
	p.url = srv.URL
	return p
}

// add publishes a backup of a daemon's store.
func (p *published) add(t *testing.T, d *daemon) {
	t.Helper()
	if code, out, errs := skein(t, "backup", "--admin", d.admin, "--backup-sign", p.secret, p.dir); code != 0 {
		t.Fatal(out, errs)
	}
}

// An empty node begins with a published backup, and goes on from there to the truth.
func TestServeFrom(t *testing.T) {
	t.Parallel()
	p := publish(t, backupPassword)
	tr, err := oracle.ReadTruth(plainTruth)
	if err != nil {
		t.Fatal(err)
	}
	relay := startSimulator(t, plainPDS, 3000)
	d := serveDaemon(t, nil, "--store", filepath.Join(t.TempDir(), "s"), "--relay", relay, "--cursor", "0", "--repair=false")
	eventually(t, time.Minute, "some events are indexed", func() bool { return count(t, d, "skein_consumer_cursor") > 900 })
	p.add(t, d)
	d.stop()
	_, other, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	wrong, ok := other.Public().(minisign.PublicKey)
	if !ok {
		t.Fatal("not a public key")
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{nil, 64, "--trust"},
		{[]string{"--trust", "RWx"}, 64, "--trust"},
		{[]string{"--trust", wrong.String()}, 1, "not signed by the trusted key"},
		{[]string{"--trust", p.public, "--relay", "ws://127.0.0.1:1"}, 1, "sequence numbers are others"},
		{[]string{"--trust", p.public, "--consume=false"}, 64, "--follow"},
		{[]string{"--trust", p.public, "--store", "fdb:///x?prefix=y"}, 64, "not one"},
	} {
		into := filepath.Join(t.TempDir(), "none")
		if code, _, errs := skein(t, append([]string{"serve", "--store", into, "--relay", relay, "--from", p.url}, c.args...)...); code != c.code || !strings.Contains(errs, c.says) {
			t.Errorf("%q: %d %s", c.args, code, errs)
		}
		if _, err := os.Stat(into); err == nil {
			t.Errorf("%q: a store was made", c.args)
		}
	}
	into := filepath.Join(t.TempDir(), "new")
	if err := os.MkdirAll(filepath.Join(into, "lost+found"), 0o755); err != nil { // it is the root of a file system
		t.Fatal(err)
	}
	args := []string{"--store", into, "--relay", relay, "--repair=false", "--from", p.url, "--trust", p.public}
	for _, restores := range []bool{true, false} { // the second time there is a store
		d = serveDaemon(t, nil, args...)
		eventually(t, time.Minute, "everything is indexed", func() bool { return count(t, d, "skein_consumer_cursor") == 2116 })
		diffs, n, err := tr.Compare(t.Context(), d.api, 1000)
		if err != nil || len(diffs) > 0 || n < 200 {
			t.Fatalf("%d sets, %v, %q", n, err, diffs)
		}
		if _, log := d.stop(); strings.Contains(log, `"msg":"restored"`) != restores {
			t.Fatal(log)
		}
	}
}

// A node that follows backups answers without a gap while it changes from one to the next, says how
// old its answers are, and ends at the truth. It never goes back to an older backup, and needs no
// target to start again.
func TestServeFollow(t *testing.T) {
	t.Parallel()
	p := publish(t, "")
	tr, err := oracle.ReadTruth(plainTruth)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "snapshots")
	args := []string{"--consume=false", "--follow", p.url, "--trust", p.public, "--store", dir}
	if code, _, errs := skein(t, append([]string{"serve"}, args...)...); code != 1 || !strings.Contains(errs, "nothing to answer from") {
		t.Fatalf("without a backup: %d %s", code, errs)
	}
	writer := serveDaemon(t, nil, "--store", filepath.Join(t.TempDir(), "s"), "--relay", startSimulator(t, plainPDS, 200), "--cursor", "0", "--repair=false")
	eventually(t, time.Minute, "some events are indexed", func() bool { return count(t, writer, "skein_consumer_cursor") > 100 })
	p.add(t, writer)
	d := serveDaemon(t, nil, args...)
	cursor := func() int64 {
		var st struct {
			Cursor     int64
			LagSeconds int64
			State      string
		}
		if err := oracle.Get(t.Context(), d.api+"/xrpc/blue.skein.graph.getStats", &st); err != nil || st.State != "off" || st.LagSeconds <= 0 {
			t.Fatalf("%+v: %v", st, err)
		}
		return st.Cursor
	}
	stop, asked := make(chan struct{}), make(chan struct{})
	var failed, answers atomic.Int64
	go func() { // questions all the time
		defer close(asked)
		last := ""
		for {
			select {
			case <-stop:
				return
			default:
			}
			resp, err := http.Get(d.api + "/xrpc/blue.skein.graph.query?set=followers(did:web:a.example)")
			if err != nil {
				failed.Add(1)
				continue
			}
			of := resp.Header.Get("Skein-As-Of")
			if resp.StatusCode != http.StatusOK || of < last || of == "" {
				failed.Add(1)
			}
			last = of
			answers.Add(1)
			_ = resp.Body.Close()
			time.Sleep(time.Millisecond)
		}
	}()
	was := cursor()
	for n := 0; was < 2116; n++ {
		if n > 100 {
			t.Fatal("the node does not follow")
		}
		eventually(t, time.Minute, "events are indexed", func() bool {
			now := count(t, writer, "skein_consumer_cursor")
			return now > int(was)+250 || now == 2116
		})
		p.add(t, writer)
		eventually(t, time.Minute, "the node changes to the next backup", func() bool { return cursor() > was })
		was = cursor()
	}
	close(stop)
	<-asked
	if failed.Load() > 0 || answers.Load() < 100 {
		t.Errorf("%d of %d questions failed", failed.Load(), answers.Load())
	}
	compare := func() {
		t.Helper()
		diffs, n, err := tr.Compare(t.Context(), d.api, 1000)
		if err != nil || len(diffs) > 0 || n < 200 {
			t.Fatalf("%d sets, %v, %q", n, err, diffs)
		}
	}
	compare()
	eventually(t, time.Minute, "older backups are removed", func() bool { all, _ := os.ReadDir(dir); return len(all) == 1 })
	if log := d.log.String(); strings.Contains(log, "cannot change to a newer backup") {
		t.Error(log)
	}
	if code, _, errs := skein(t, "backup", "--admin", d.admin, filepath.Join(t.TempDir(), "x")); code != 1 || !strings.Contains(errs, "reading only") {
		t.Errorf("a backup of a following node: %d %s", code, errs)
	}
	d.stop()
	// The newest backup is gone from the target: the node has what it has.
	manifests, err := filepath.Glob(filepath.Join(p.dir, "manifests", "*"))
	if err != nil || len(manifests) < 3 {
		t.Fatal(manifests, err)
	}
	index, err := os.ReadFile(filepath.Join(p.dir, "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	newest := filepath.Base(manifests[len(manifests)-2])
	if err := os.WriteFile(filepath.Join(p.dir, "index.json"), []byte(strings.ReplaceAll(string(index), newest, "x")), 0o600); err != nil {
		t.Fatal(err)
	}
	d = serveDaemon(t, nil, args...)
	eventually(t, time.Minute, "it says that the target was set back", func() bool { return strings.Contains(d.log.String(), "older than the one that is answered from") })
	compare()
	d.stop()
	writer.stop()
}

// A following node that has a damaged backup restores it again, and one that is the root of a file
// system, or has the folder of an interrupted restore, answers. It touches no folder that holds something else.
func TestServeFollowDamaged(t *testing.T) {
	t.Parallel()
	p := publish(t, "")
	writer := serveDaemon(t, nil, "--store", filepath.Join(t.TempDir(), "s"), "--relay", startSimulator(t, plainPDS, 3000), "--cursor", "0", "--repair=false")
	eventually(t, time.Minute, "everything is indexed", func() bool { return count(t, writer, "skein_consumer_cursor") == last })
	p.add(t, writer)
	writer.stop()
	dir := t.TempDir()
	for _, other := range []string{"lost+found", "20200101T000000.000Z"} {
		if err := os.Mkdir(filepath.Join(dir, other), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--consume=false", "--follow", p.url, "--trust", p.public, "--store", dir}
	answers := func() {
		t.Helper()
		var st struct{ Cursor int64 }
		d := serveDaemon(t, nil, args...)
		if err := oracle.Get(t.Context(), d.api+"/xrpc/blue.skein.graph.getStats", &st); err != nil || st.Cursor != last {
			t.Errorf("%+v: %v", st, err)
		}
		d.stop()
	}
	answers()
	restored, err := filepath.Glob(filepath.Join(dir, "2*"))
	if err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(restored[len(restored)-1], "MANIFEST-*"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	for _, damage := range []func(path string) error{
		func(path string) error { return os.WriteFile(path, []byte("not a manifest"), 0o600) },
		os.Remove,
		func(path string) error { return os.Truncate(path, 20) },
	} {
		if err := damage(tables[0]); err != nil {
			t.Fatal(err)
		}
		answers()
	}
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := skein(t, append([]string{"serve"}, args...)...); code != 1 || !strings.Contains(errs, "thesis.txt") {
		t.Errorf("%d %s", code, errs)
	}
}
