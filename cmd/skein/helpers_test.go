package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/outward"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/load"
	simulated "skein.blue/internal/sim/network"
	"skein.blue/internal/sim/oracle"
	"skein.blue/internal/sim/relay"
	"skein.blue/internal/sim/synth"
)

const (
	plainPDS   = "../../testdata/pds/plain-pds.frames"
	plainTruth = "../../testdata/pds/plain-truth.json"

	last  = 2116                               // the last seq of the recorded stream
	known = "did:plc:6tnmqzyj3aj56cfk2uw7mi5e" // an account in it, with nine followers
)

// programVariable makes the tests' program be skein.
const programVariable = "TEST_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(programVariable) {
	case "skein":
		main()
	case "stuck":
		stuck()
	}
	_ = os.Setenv("SKEIN_BACKUP_PASSWORD", backupPassword)
	harness.Waiting()
	os.Exit(m.Run())
}

// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stuck is a command that never stops after a signal.
func stuck() {
	command.MostStopping = 100 * time.Millisecond
	ctx := new(command.Stopping).Listen(os.Stderr)
	fmt.Println("listening")
	<-ctx.Done()
	select {} // the store does not answer
}

// backupPassword is the password of secret keys that sign the tests' backups. The commands read it from the
// environment, which tests that run at the same time share.
const backupPassword = "of a test"

// skeinFile is the tests' program, which programVariable makes skein.
var skeinFile = os.Args[0]

// program returns skein as another process.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), skeinFile, args...)
	cmd.Env = append(os.Environ(), programVariable+"=skein")
	return cmd
}

// skein runs a command in this process.
func skein(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs lockedBuffer
	code = command.Run(t.Context(), &command.Environment{Stdout: &out, Stderr: &errs}, commandLine, append([]string{"skein"}, args...))
	return code, out.String(), errs.String()
}

// run runs a command in this process that must end with a code, and print something that contains want.
func run(t *testing.T, code int, want string, args ...string) (stdout string) {
	t.Helper()
	got, out, errs := skein(t, args...)
	if got != code || !strings.Contains(out+errs, want) {
		t.Errorf("skein %s: exit %d, want %d and %q:\n%s%s", strings.Join(args, " "), got, code, want, out, errs)
	}
	for _, leak := range []string{"usage: ", "consumer: ", "pebblekv: ", "graph: ", "kv: ", "app: "} {
		if strings.Contains(errs, leak) && !strings.Contains(errs, "USAGE") {
			t.Errorf("skein %s: package name in the message:\n%s", strings.Join(args, " "), errs)
		}
	}
	return out
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu  sync.Mutex // guards all
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

// seeded returns random numbers, and logs their seed.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// write writes a file.
func write(t *testing.T, name, content string) {
	t.Helper()
	must(t, os.WriteFile(name, []byte(content), 0o600))
}

// replayed returns a new store of the recorded stream.
func replayed(t *testing.T) string {
	t.Helper()
	store := filepath.Join(t.TempDir(), "store")
	run(t, 0, "", "replay", "--frames", plainPDS, "--store", store)
	return store
}

// eventually waits until a condition holds.
func eventually(t *testing.T, most time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(most); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, most)
		}
	}
}

// daemon is a running skein serve.
type daemon struct {
	t          *testing.T
	cmd        *exec.Cmd
	api, admin string
	log        lockedBuffer
	ready      chan struct{} // closed once it answers
	read       chan struct{} // closed at the end of its log
}

// serveDaemon starts skein serve, and waits until it answers.
func serveDaemon(t *testing.T, env []string, args ...string) *daemon {
	t.Helper()
	d := launch(t, env, args...)
	d.await(30 * time.Second)
	return d
}

// launch starts skein serve.
func launch(t *testing.T, env []string, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, ready: make(chan struct{}), read: make(chan struct{})}
	d.cmd = program(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)...)
	d.cmd.Env = append(d.cmd.Env, env...)
	stderr, err := d.cmd.StderrPipe()
	must(t, err)
	must(t, d.cmd.Start())
	t.Cleanup(func() { _ = d.cmd.Process.Kill(); <-d.read })
	go func() {
		defer close(d.read)
		answered := false
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			fmt.Fprintln(&d.log, lines.Text())
			var l struct{ Msg, API, Admin string }
			if json.Unmarshal(lines.Bytes(), &l) == nil && l.Msg == "answering" && !answered { // the first time
				answered = true
				d.api, d.admin = l.API, l.Admin
				close(d.ready)
			}
		}
	}()
	return d
}

// await waits until the daemon answers.
func (d *daemon) await(most time.Duration) {
	d.t.Helper()
	select {
	case <-d.ready:
	case <-d.read:
		d.t.Fatalf("serve ended:\n%s", d.log.String())
	case <-time.After(most):
		d.t.Fatalf("serve was not ready in %v:\n%s", most, d.log.String())
	}
}

// signal sends the daemon a signal.
func (d *daemon) signal(sig syscall.Signal) {
	d.t.Helper()
	must(d.t, d.cmd.Process.Signal(sig))
}

// kill kills the daemon.
func (d *daemon) kill() {
	d.t.Helper()
	d.signal(syscall.SIGKILL)
	<-d.read
	_ = d.cmd.Wait() // reports the kill
}

// stop sends SIGTERM, and returns how long the shutdown took, and the log.
func (d *daemon) stop() (time.Duration, string) {
	d.t.Helper()
	start := time.Now()
	d.signal(syscall.SIGTERM)
	<-d.read
	if err := d.cmd.Wait(); err != nil {
		d.t.Errorf("serve ended with %v\n%s", err, d.log.String())
	}
	return time.Since(start), d.log.String()
}

// logs waits until the log has a message.
func (d *daemon) logs(message string) {
	d.t.Helper()
	eventually(d.t, 30*time.Second, "the log has: "+message, func() bool { return strings.Contains(d.log.String(), message) })
}

// isTrue compares the answers with the truth about the recorded stream.
func (d *daemon) isTrue() {
	d.t.Helper()
	tr, err := oracle.ReadTruth(plainTruth)
	must(d.t, err)
	for _, limit := range []int{7, 1000} {
		diffs, n, err := tr.Compare(d.t.Context(), d.api, limit)
		if err != nil || len(diffs) > 0 || n < 200 {
			d.t.Fatalf("%d sets, %v, %q", n, err, diffs)
		}
	}
}

// answers checks that a query is answered.
func (d *daemon) answers() {
	d.t.Helper()
	if code, body := askAt(d.t, d.api+"/xrpc/blue.skein.graph.query?set=followers("+known+")"); code != http.StatusOK || !strings.Contains(body, `"total"`) {
		d.t.Errorf("a query: %d %s", code, body)
	}
}

// stats returns what getStats answers.
func (d *daemon) stats() (st struct {
	Cursor, LagSeconds int64
	Unwritten          int
	State              string
	Audited            struct{ Repos, Differences int64 }
}, err error,
) {
	err = oracle.Get(d.t.Context(), d.api+"/xrpc/blue.skein.graph.getStats", &st)
	return st, err
}

// metrics returns the metrics as text.
func (d *daemon) metrics() string {
	d.t.Helper()
	_, all := askAt(d.t, d.admin+"/metrics")
	return all
}

// metric returns the value of a metric without labels, "" if it is 0 or missing.
func (d *daemon) metric(name string) string {
	d.t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(d.metrics())
	if m == nil || m[1] == "0" {
		return ""
	}
	return m[1]
}

// count returns a metric that is a whole number, 0 if there is none. Above a million they are written
// like 1.2e+07.
func (d *daemon) count(name string) int {
	d.t.Helper()
	n, _ := strconv.ParseFloat(d.metric(name), 64)
	return int(n)
}

// cursor returns the sequence number of the last event that is indexed.
func (d *daemon) cursor() int { d.t.Helper(); return d.count("skein_consumer_cursor") }

// indexes waits until the daemon has indexed an event, and those before it.
func (d *daemon) indexes(seq int) {
	d.t.Helper()
	eventually(d.t, 3*time.Minute, fmt.Sprintf("event %d is indexed", seq), func() bool { return d.cursor() >= seq })
}

// recording is a relay of the recorded stream, at a rate.
func recording(t *testing.T, rate int) *relay.Recorded {
	t.Helper()
	all, err := synth.ReadFrames(plainPDS)
	must(t, err)
	r := relay.NewRecorded(nil)
	ctx, begun := t.Context(), time.Now()
	go func() {
		for i, f := range all {
			if outward.Wait(ctx, time.Until(begun.Add(time.Duration(float64(i)/float64(rate)*float64(time.Second))))) != nil {
				return
			}
			r.Append(f)
		}
	}()
	return r
}

// playRecording serves the recorded stream at a rate, and returns the relay's address.
func playRecording(t *testing.T, rate int) string {
	t.Helper()
	address, _ := listen(t, "", recording(t, rate))
	return "ws://" + address
}

// simulate serves a made-up network at an address, or at any if that is "". stop ends the relay.
func simulate(t *testing.T, address string, o relay.Options) (url string, stop func()) {
	t.Helper()
	o.Network.Seed, o.Hold = 1, true
	r := relay.NewSimulated(o)
	ctx, cancel := context.WithCancel(t.Context())
	go r.Run(ctx)
	address, done := listen(t, address, r)
	return "ws://" + address, func() { cancel(); done() }
}

// listen serves h at an address, or at any if that is "", until stop is called, or the test ends.
func listen(t *testing.T, address string, h http.Handler) (at string, stop func()) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", cmp.Or(address, "127.0.0.1:0"))
	for tries := 0; err != nil && address != "" && tries < 300; tries++ { // somebody's connection has got the port meanwhile
		time.Sleep(100 * time.Millisecond)
		l, err = new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	}
	must(t, err)
	var mu sync.Mutex // guards websockets
	var websockets []net.Conn
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ConnState: func(c net.Conn, s http.ConnState) {
		if s == http.StateHijacked {
			mu.Lock()
			defer mu.Unlock()
			websockets = append(websockets, c)
		}
	}}
	go func() { _ = srv.Serve(l) }()
	stop = func() {
		_ = srv.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range websockets {
			_ = c.Close()
		}
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// verifyNetwork compares a store with the simulated network at its cursor. past is how many events happened before the store
// was made.
func verifyNetwork(t *testing.T, store string, n simulated.Options, past int64) {
	t.Helper()
	n.Seed = 1
	problems, err := load.Verify(t.Context(), load.Options{Network: n, Backfill: past, Store: app.StoreOptions{Store: store}, Stderr: io.Discard})
	if err != nil || len(problems) > 0 {
		t.Fatalf("%v: %q", err, problems)
	}
	run(t, 0, "no problems found", "check", "--store", store)
}

// needsHangup skips a test where SIGHUP is ignored, as under nohup: child processes inherit that.
func needsHangup(t *testing.T) {
	t.Helper()
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored here (nohup)")
	}
}

// exitCode returns the exit code of a process that has ended.
func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return 0
}

// askAt returns the status and the body of an answer.
func askAt(t *testing.T, url string) (code int, body string) {
	t.Helper()
	client := http.Client{Timeout: 20 * time.Second}
	resp, err := client.Get(url)
	must(t, err)
	b, err := io.ReadAll(resp.Body)
	must(t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode, string(b)
}

// fetch reads an answer to its end. code is 0 if there was none.
func fetch(ctx context.Context, c *http.Client, url string) (code int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, err
}
