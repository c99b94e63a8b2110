package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"skein.blue/internal/app"
	"skein.blue/internal/kv/fdbkv"
	"skein.blue/internal/sim/harness"
	"skein.blue/internal/sim/oracle"
)

// The long run, twenty kills in a minute:
// go test ./cmd/skein -run TestKill -kill.times 20 -kill.rate 35
var (
	killTimes = flag.Int("kill.times", 6, "how often TestKill kills the replay")
	killRate  = flag.Float64("kill.rate", 700, "frames per second of the replay that TestKill kills")
)

const (
	plainPDS   = "../../testdata/pds/plain-pds.frames"
	plainTruth = "../../testdata/pds/plain-truth.json"
)

var binary, simulator string // skein, and skein-sim

// backupPassword is the password of secret keys that sign the tests' backups. The commands read it from the
// environment, which tests that run at the same time share.
const backupPassword = "of a test"

func TestMain(m *testing.M) {
	flag.Parse()
	_ = os.Setenv("SKEIN_BACKUP_PASSWORD", backupPassword)
	if os.Getenv(stuckVariable) != "" {
		stuck()
	}
	if os.Getenv(limitedVariable) != "" {
		fmt.Println("budget", app.DefaultMemory())
		os.Exit(0) // builds nothing: the memory would not suffice
	}
	if address := os.Getenv(peerVariable); address != "" {
		fmt.Fprintln(os.Stderr, indigoConsumer(address))
		os.Exit(1)
	}
	os.Exit(harness.Main(m, func(path func(string) string) { binary, simulator = path("skein"), path("skein-sim") }, "skein", "skein-sim"))
}

// skein runs the program to its end.
func skein(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return harness.Run(t, binary, args...)
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
	d.await(10 * time.Second)
	return d
}

// launch starts skein serve.
func launch(t *testing.T, env []string, args ...string) *daemon {
	t.Helper()
	d := &daemon{t: t, ready: make(chan struct{}), read: make(chan struct{})}
	d.cmd = exec.CommandContext(context.Background(), binary, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)...)
	d.cmd.Env = append(os.Environ(), env...)
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
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

// stop sends SIGTERM, and returns how long the shutdown took, and the log.
func (d *daemon) stop() (time.Duration, string) {
	d.t.Helper()
	start := time.Now()
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		d.t.Fatal(err)
	}
	<-d.read
	if err := d.cmd.Wait(); err != nil {
		d.t.Errorf("serve ended with %v\n%s", err, d.log.String())
	}
	return time.Since(start), d.log.String()
}

// A replay that is killed at random moments and restarted each time still indexes the truth.
func TestKill(t *testing.T) {
	t.Parallel()
	tr, err := oracle.ReadTruth(plainTruth)
	if err != nil {
		t.Fatal(err)
	}
	store := filepath.Join(t.TempDir(), "store")
	args := []string{"replay", "--frames", plainPDS, "--store", store, "--rate", fmt.Sprint(*killRate)}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	whole := time.Duration(2115 / *killRate * float64(time.Second))
	killed, isCreated := 0, false
	for killed < *killTimes {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30*time.Millisecond + time.Duration(rng.Int64N(int64(2*whole)/int64(*killTimes))))
		if err := cmd.Process.Kill(); err != nil {
			break // it has already ended
		}
		err := cmd.Wait()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL { //nolint:errcheck // a test
			break
		}
		killed++
		code, out, errs := skein(t, "check", "--store", store)
		isEmpty := strings.Contains(errs, "no store") || strings.Contains(errs, "cannot read the store: there is no graph in the store")
		if code != 0 && (!isEmpty || isCreated) {
			t.Fatalf("after kill %d: %s%s", killed, out, errs)
		}
		isCreated = isCreated || code == 0
	}
	if killed < 2 {
		t.Errorf("killed only %d times", killed)
	}
	if code, _, errs := skein(t, args...); code != 0 {
		t.Fatal(errs)
	}
	t.Logf("killed %d times, seed %d", killed, seed)
	if code, out, errs := skein(t, "check", "--store", store); code != 0 {
		t.Fatal(out, errs)
	}
	d := serveDaemon(t, nil, "--store", store, "--consume=false")
	for _, limit := range []int{7, 1000} {
		diffs, n, err := tr.Compare(t.Context(), d.api, limit)
		if err != nil || len(diffs) > 0 || n < 200 {
			t.Fatalf("%d sets, %v, %q", n, err, diffs)
		}
	}
	d.stop()
}

// Without a network, serve reports it, keeps trying, and answers queries meanwhile.
func TestServeWithoutRelay(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	if code, _, errs := skein(t, "replay", "--frames", plainPDS, "--store", store); code != 0 {
		t.Fatal(errs)
	}
	start := time.Now()
	d := serveDaemon(t, []string{"SKEIN_RELAY=ws://127.0.0.1:1", "SKEIN_TYPO=1"}, "--store", store)
	if took := time.Since(start); took > 2*time.Second {
		t.Logf("ready only after %v; this machine may be busy", took)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil || resp.StatusCode != 200 || resp.Body.Close() != nil {
			t.Errorf("%s: %v %v", path, resp, err)
		}
	}
	for lag, want := range map[string]int{"": 0, "1m": 1, "1000000h": 0} { // without a relay, it falls ever further behind
		args := []string{"health", "--admin", d.admin}
		if lag != "" {
			args = append(args, "--max-lag", lag)
		}
		if code, out, errs := skein(t, args...); code != want || (code == 1) != strings.Contains(out, "behind, which is more than 1m0s") {
			t.Errorf("--max-lag %s: %d %s%s", lag, code, out, errs)
		}
	}
	const known = "did:plc:6tnmqzyj3aj56cfk2uw7mi5e"
	if code, out, errs := skein(t, "query", "--server", d.api, "--count", "followers("+known+")"); code != 0 || out != "9\n" {
		t.Errorf("%d %q %s", code, out, errs)
	}
	if code, out, errs := skein(t, "query", "--server", d.api, "followers("+known+")"); code != 0 || strings.Count(out, "did:plc:") != 9 {
		t.Errorf("%d %q %s", code, out, errs)
	}
	if code, out, _ := skein(t, "query", "--server", d.api, "--limit", "4", "followers("+known+")"); code != 0 || strings.Count(out, "\n") != 4 {
		t.Errorf("%d %q", code, out)
	}
	if code, _, errs := skein(t, "query", "--server", d.api, "followers(x)"); code != 1 || !strings.Contains(errs, "position 10") {
		t.Errorf("%d %s", code, errs)
	}
	if code, _, errs := skein(t, "check", "--store", store); code != 1 || !strings.Contains(errs, "in use by another skein") {
		t.Errorf("a second process on the store: %d %s", code, errs)
	}
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

func withoutFDB(without, with string) string {
	if fdbkv.Built {
		return with
	}
	return without
}

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	store := filepath.Join(dir, "store")
	broken := filepath.Join(dir, "broken.frames")
	if err := os.WriteFile(broken, []byte{0, 0, 0, 9, 1}, 0o600); err != nil {
		t.Fatal(err)
	}
	packed, exported := filepath.Join(dir, "packed"), filepath.Join(dir, "exported")
	if err := errors.Join(os.WriteFile(packed, []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"), 0o600), os.WriteFile(exported, []byte(`{"export":2,"kinds":[]}`), 0o600)); err != nil {
		t.Fatal(err)
	}
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>hello") }))
	defer stranger.Close()
	const nobody = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
	t.Setenv("SKEIN_RELAY", "ws://127.0.0.1:1") // --frames must ignore it
	for _, c := range []struct {
		code int
		want string
		args []string
	}{
		{0, "", []string{"help"}},
		{0, "engines: pebble", []string{"version"}},
		{64, "unknown command", []string{"frob"}},
		{64, "did you mean serve?", []string{"serv"}},
		{64, "skein serve has no flag --bogus", []string{"serve", "--bogus"}},
		{64, "did you mean --listen?", []string{"serve", "--lisen", "x"}},
		{64, "takes no arguments", []string{"serve", "frob"}},
		{64, "set expression", []string{"query"}},
		{64, "--memory", []string{"serve", "--store", store, "--memory", "lots"}},
		{64, "--cursor", []string{"serve", "--store", store, "--cursor", "-1"}},
		{64, "did you mean ws://relay.example.com", []string{"serve", "--store", store, "--relay", "relay.example.com"}},
		{64, "did you mean ws://127.0.0.1:2583", []string{"serve", "--store", store, "--relay", "127.0.0.1:2583"}},
		{64, "--log-level", []string{"serve", "--store", store, "--log-level", "loud"}},
		{1, "no such file", []string{"replay", "--store", store, "--frames", "nothing.frames"}},
		{1, "ends within a message", []string{"replay", "--store", store, "--frames", broken}},
		{1, "FutureCursor", []string{"replay", "--store", store, "--frames", "../../testdata/pds/error-futurecursor.frames"}},
		{64, "--cursor N (0: the oldest", []string{"replay", "--store", filepath.Join(dir, "never")}},
		{64, "--cursor N (0: the oldest", []string{"replay", "--store", store}},
		{1, "no store found", []string{"serve", "--store", filepath.Join(dir, "never"), "--consume=false"}},
		{0, "all were new", []string{"replay", "--store", store, "--frames", plainPDS}},
		{0, "read 2115 messages", []string{"replay", "--store", store, "--frames", plainPDS, "--cursor", "0"}},
		{0, "none were new", []string{"replay", "--store", store, "--frames", plainPDS, "--cursor", "0"}},
		{64, "would be skipped", []string{"replay", "--store", store, "--frames", plainPDS, "--cursor", "99999"}},
		{0, "none were new", []string{"replay", "--store", store, "--frames", plainPDS}},
		{0, "", []string{"replay", "--store", store, "--frames", plainPDS, "--cursor", "2116"}},
		{1, "has no events after seq 99999", []string{"replay", "--store", filepath.Join(dir, "never"), "--frames", plainPDS, "--cursor", "99999"}},
		{64, "--rate needs --frames", []string{"replay", "--store", store, "--rate", "5", "--cursor", "0"}},
		{64, "--rate NaN", []string{"replay", "--store", store, "--frames", plainPDS, "--rate", "NaN"}},
		{64, "is available to this process", []string{"serve", "--store", store, "--memory", "1000TiB"}},
		{64, "expected HOST:PORT", []string{"serve", "--store", store, "--admin-listen", ""}},
		{64, "expected HOST:PORT", []string{"serve", "--store", store, "--listen", "3210"}},
		{64, "needs its own address", []string{"serve", "--store", store, "--listen", ":3210", "--admin-listen", ":3210"}},
		{64, "indexes nothing", []string{"serve", "--store", store, "--consume=false", "--cursor", "5"}},
		{64, "--force-cursor needs --cursor", []string{"serve", "--store", store, "--force-cursor"}},
		{64, "--store is empty", []string{"serve", "--store", ""}},
		{64, "write the whole path", []string{"serve", "--store", "~/skein"}},
		{64, "expected a folder", []string{"check", "--store", "http://example.com"}},
		{64, "24 base32 characters", []string{"resync", "did:plc:short"}},
		{64, "24 base32 characters", []string{"backfill", "--did", "did:plc:short"}},
		{64, "--host is empty", []string{"backfill", "--host", ""}},
		{1, "no answer from a daemon at 127.0.0.1:1", []string{"backfill", "--did", nobody, "--admin", "127.0.0.1:1"}},
		{1, "not answer as skein", []string{"backfill", "--did", nobody, "--admin", stranger.URL}},
		{1, "not answer as skein", []string{"resync", "--admin", stranger.URL, nobody}},
		{1, "not an answer from skein", []string{"health", "--admin", stranger.URL}},
		{64, "expected HOST:PORT", []string{"health", "--admin", "3211"}},
		{64, "must be more than 0", []string{"health", "--max-lag", "-1s"}},
		{64, "neither a network", []string{"serve", "--store", store, "--trusted-proxies", "X-Forwarded-For=proxy"}},
		{64, "does not begin with the header", []string{"serve", "--store", store, "--trusted-proxies", "127.0.0.1"}},
		{64, "no such file", []string{"serve", "--store", store, "--tokens", "/none"}},
		{64, "must not be negative", []string{"serve", "--store", store, "--rate", "-1"}},
		{64, "--min-free", []string{"serve", "--store", store, "--min-free", "much"}},
		{64, "the engine needs 76 MiB", []string{"serve", "--store", store, "--memory", "32MiB", "--min-free", "6MiB"}},
		{1, "something other than a store", []string{"serve", "--store", dir}},
		{64, "token needs a NAME", []string{"token"}},
		{64, "rte=1", []string{"token", "app", "rte=1"}},
		{64, "rank has no", []string{"query", "rank(off=follows(" + nobody + "))"}},
		{64, "from 1 to 1000", []string{"query", "rank(of=follows(" + nobody + "), via=likes, limit=0)"}},
		{64, "--count does not work with rank", []string{"query", "--count", "rank(of=follows(" + nobody + "), via=likes)"}},
		{64, "write name=value", []string{"query", "rank(follows(" + nobody + "))"}},
		{0, "cursor 1000", []string{"replay", "--store", filepath.Join(dir, "until"), "--frames", plainPDS, "--until", "1000"}},
		{0, "no problems found", []string{"check", "--store", store}},
		{1, "no store", []string{"check", "--store", filepath.Join(dir, "none")}},
		{1, "no store", []string{"check", "--store", dir}},
		{1, "not a folder", []string{"check", "--store", broken}},
		{1, withoutFDB("-tags fdb", "reading the cluster file"), []string{"check", "--store", "fdb:///nowhere/fdb.cluster"}},
		{64, "a store on FoundationDB has no write-ahead logs", []string{"serve", "--store", "fdb:///nowhere/fdb.cluster", "--accept-loss", "000001.log"}},
		{64, "three slashes", []string{"check", "--store", "fdb://nowhere"}},
		{64, "prefix", []string{"serve", "--store", "fdb:///nowhere/fdb.cluster?prefix=a/b"}},
		{64, "i/n", []string{"serve", "--store", store, "--partition", "2/2"}},
		{64, "one writer", []string{"serve", "--store", store, "--partition", "0/2"}},
		{64, "shards=5-4", []string{"serve", "--store", store, "--ids", "shards=5-4"}},
		{64, "the store has 0-16383", []string{"serve", "--store", store, "--ids", "shards=0-16384"}},
		{64, "lease=3", []string{"serve", "--store", store, "--ids", "lease=3"}},
		{64, "bits=33", []string{"serve", "--store", store, "--ids", "bits=33"}},
		{64, "leases of 4096", []string{"serve", "--store", store, "--ids", "bits=14,lease=4096"}},
		{0, "bytes per edge", []string{"stats", "--store", store}},
		{0, `"records": 874`, []string{"stats", "--store", store, "--json"}},
		{0, "complete", []string{"completion", "bash"}},
		{0, `{"end":{"accounts":30,"records":874,"sha256":"`, []string{"export", "--store", store}},
		{1, "no such file", []string{"import", "--store", filepath.Join(dir, "new"), "nothing.export"}},
		{1, "not an export of skein", []string{"import", "--store", filepath.Join(dir, "new"), broken}},
		{1, "compressed", []string{"import", "--store", filepath.Join(dir, "new"), packed}},
		{1, "import into an empty store", []string{"import", "--store", store, exported}},
		{64, "import needs a file", []string{"import", "--store", store}},
		{1, "skein serve", []string{"query", "--server", "http://127.0.0.1:1", "followers(did:plc:a)"}},
	} {
		code, out, errs := skein(t, c.args...)
		if code != c.code || !strings.Contains(out+errs, c.want) {
			t.Errorf("skein %s: exit %d, want %d and %q:\n%s%s", strings.Join(c.args, " "), code, c.code, c.want, out, errs)
		}
		for _, leak := range []string{"usage: ", "consumer: ", "pebblekv: ", "graph: ", "kv: ", "app: "} {
			if strings.Contains(errs, leak) && !strings.Contains(errs, "USAGE") {
				t.Errorf("skein %s: package name in the message:\n%s", strings.Join(c.args, " "), errs)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "never")); !os.IsNotExist(err) {
		t.Errorf("a command that only reads created a store: %v", err)
	}
}

// The help shows one default for each flag.
func TestHelpShowsOneDefault(t *testing.T) {
	for _, command := range []string{"serve", "replay", "import"} {
		_, out, _ := skein(t, command, "--help")
		for line := range strings.Lines(out) {
			if strings.Count(line, "(default:") > 1 {
				t.Errorf("%s: %s", command, line)
			}
		}
	}
}

// An error in an expression is shown below its position.
func TestQueryMarksTheError(t *testing.T) {
	store := filepath.Join(t.TempDir(), "store")
	if code, _, errs := skein(t, "replay", "--frames", plainPDS, "--store", store); code != 0 {
		t.Fatal(errs)
	}
	d := serveDaemon(t, nil, "--store", store, "--consume=false")
	const expr = "union(folowers(did:plc:6tnmqzyj3aj56cfk2uw7mi5e))"
	code, _, errs := skein(t, "query", "--server", d.api, expr)
	if code != 1 || !strings.Contains(errs, expr+"\n      ^\n") || !strings.Contains(errs, "did you mean followers?") {
		t.Errorf("%d\n%s", code, errs)
	}
	d.stop()
}

// An environment variable that cannot be parsed is a usage error.
func TestBadVariableIsWrongUsage(t *testing.T) {
	t.Setenv("SKEIN_BACKUP_EVERY", "soon")
	if code, _, errs := skein(t, "serve", "--store", filepath.Join(t.TempDir(), "store")); code != 64 || !strings.Contains(errs, "soon") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

// A command that fails before it begins leaves nothing behind.
func TestNothingLeftBehind(t *testing.T) {
	dir := t.TempDir()
	skein(t, "check", "--store", dir)
	skein(t, "replay", "--frames", filepath.Join(dir, "none.frames"), "--store", filepath.Join(dir, "store"))
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}
