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
	run(t, 0, "backed up to", "backup", "--admin", d.admin, "--backup-sign", p.secret, p.dir)
}

// An empty node begins with a published backup, and goes on from there to the truth.
func TestServeFrom(t *testing.T) {
	t.Parallel()
	p := publish(t, backupPassword)
	relay := playRecording(t, 3000)
	d := serveDaemon(t, nil, "--store", filepath.Join(t.TempDir(), "s"), "--relay", relay, "--cursor", "0", "--repair=false")
	d.indexes(900)
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
	into := filepath.Join(t.TempDir(), "new")
	run(t, 1, "not signed by the trusted key", "serve", "--store", into, "--relay", relay, "--from", p.url, "--trust", wrong.String())
	run(t, 1, "sequence numbers are others", "serve", "--store", into, "--relay", "ws://127.0.0.1:1", "--from", p.url, "--trust", p.public)
	if _, err := os.Stat(into); err == nil {
		t.Error("a store was made")
	}
	if err := os.MkdirAll(filepath.Join(into, "lost+found"), 0o755); err != nil { // it is the root of a file system
		t.Fatal(err)
	}
	for _, restores := range []bool{true, false} { // the second time there is a store
		d = serveDaemon(t, nil, "--store", into, "--relay", relay, "--repair=false", "--from", p.url, "--trust", p.public)
		d.indexes(last)
		d.isTrue()
		if _, log := d.stop(); strings.Contains(log, `"msg":"restored"`) != restores {
			t.Fatal(log)
		}
	}
}

// A node that follows backups answers without a gap while it changes from one to the next, says how
// old its answers are, and ends at the truth. It never goes back to an older backup, and needs no
// target to start again. It restores a damaged backup again, and touches no folder that holds something else.
func TestServeFollow(t *testing.T) {
	t.Parallel()
	p := publish(t, "")
	dir := t.TempDir()
	for _, other := range []string{"lost+found", "20200101T000000.000Z"} { // the root of a file system, an interrupted restore
		if err := os.Mkdir(filepath.Join(dir, other), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--consume=false", "--follow", p.url, "--trust", p.public, "--store", dir}
	run(t, 1, "nothing to answer from", append([]string{"serve"}, args...)...)
	writer := serveDaemon(t, nil, "--store", filepath.Join(t.TempDir(), "s"), "--relay", playRecording(t, 500), "--cursor", "0", "--repair=false")
	writer.indexes(100)
	p.add(t, writer)
	d := serveDaemon(t, nil, args...)
	cursor := func() int {
		t.Helper()
		st, err := d.stats()
		if err != nil || st.State != "off" || st.LagSeconds <= 0 {
			t.Fatalf("%+v: %v", st, err)
		}
		return int(st.Cursor)
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
	for was := cursor(); was < last; was = cursor() {
		writer.indexes(min(was+700, last))
		p.add(t, writer)
		eventually(t, time.Minute, "the node changes to the next backup", func() bool { return cursor() > was })
	}
	close(stop)
	<-asked
	if failed.Load() > 0 || answers.Load() < 5 {
		t.Errorf("%d of %d questions failed", failed.Load(), answers.Load())
	}
	d.isTrue()
	restored := func() (manifests []string) {
		manifests, _ = filepath.Glob(filepath.Join(dir, "*", "MANIFEST-*"))
		return manifests
	}
	eventually(t, time.Minute, "older backups are removed", func() bool { return len(restored()) == 1 })
	if log := d.log.String(); strings.Contains(log, "cannot change to a newer backup") {
		t.Error(log)
	}
	run(t, 1, "reading only", "backup", "--admin", d.admin, filepath.Join(t.TempDir(), "x"))
	d.stop()
	writer.stop()
	for _, damage := range []func(path string) error{
		func(path string) error { return os.WriteFile(path, []byte("not a manifest"), 0o600) },
		os.Remove,
		func(path string) error { return os.Truncate(path, 20) },
	} {
		if err := damage(restored()[0]); err != nil {
			t.Fatal(err)
		}
		d = serveDaemon(t, nil, args...)
		if n := cursor(); n != last {
			t.Errorf("cursor %d", n)
		}
		d.stop()
	}
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
	write(t, filepath.Join(p.dir, "index.json"), strings.ReplaceAll(string(index), newest, "x"))
	d = serveDaemon(t, nil, args...)
	d.logs("older than the one that is answered from")
	d.isTrue()
	d.stop()
	write(t, filepath.Join(dir, "thesis.txt"), "x")
	run(t, 1, "thesis.txt", append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)...)
}
