package kvtest

// A FoundationDB cluster on loopback: of one server process, or of several with copies of the data. fdbserver and
// fdbcli must be in the PATH or where FoundationDB's packages put them; without them, tests are skipped.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Main runs the tests of a package, then stops the cluster if they started it:
// os.Exit(fdbtest.Main(m)).
func Main(m *testing.M) int {
	code := m.Run()
	mu.Lock()
	defer mu.Unlock()
	if shared != nil {
		if err := shared.Remove(); err != nil {
			fmt.Fprintln(os.Stderr, "fdbtest:", err)
			return 1
		}
	}
	return code
}

var (
	mu     sync.Mutex
	shared *Cluster
)

// Shared returns the cluster that all tests of a package share, each under its own
// prefix. The first call starts it.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if shared == nil {
		shared = Start(t)
	}
	return shared
}

// A Cluster is one fdbserver process, or several.
type Cluster struct {
	File string // the cluster file

	dir, server, cli string
	knobs            []string // arguments of the servers
	servers          []server
}

// server is an fdbserver process.
type server struct {
	address string
	process *exec.Cmd // nil: it is down
}

// Start starts a cluster of one server, or skips the test if FoundationDB is not installed. The
// caller must call Remove. knobs are more arguments of the server, such as "--knob_name=1".
func Start(t testing.TB, knobs ...string) *Cluster {
	t.Helper()
	return StartServers(t, 1, "single", knobs...)
}

// StartServers starts a cluster of n servers, each of them a coordinator and as if on a machine of its own.
// redundancy is FoundationDB's: "double" keeps two copies of the data, so that one of three servers can be
// lost.
func StartServers(t testing.TB, n int, redundancy string, knobs ...string) *Cluster {
	t.Helper()
	c := &Cluster{knobs: knobs, servers: make([]server, n)}
	var err error
	if c.server, err = find("fdbserver"); err == nil {
		c.cli, err = find("fdbcli")
	}
	if err != nil {
		t.Skipf("FoundationDB is not installed: %v", err)
	}
	if err := c.create(redundancy); err != nil {
		t.Fatal(errors.Join(err, c.Remove()))
	}
	return c
}

// folders are where FoundationDB's packages put programs that are not in the PATH.
var folders = []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/usr/libexec", "/usr/lib/foundationdb/backup_agent"}

// Shell returns a shell that runs a line of FoundationDB's tools, and ends with the tests. It skips the test
// if the tools for backups are not installed.
func Shell(t testing.TB, line string) *exec.Cmd {
	t.Helper()
	for _, tool := range []string{"fdbbackup", "fdbrestore", "backup_agent"} {
		if _, err := find(tool); err != nil {
			t.Skipf("FoundationDB's tools for backups are not installed: %v", err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "exec "+line)
	cmd.Env = append(os.Environ(), "PATH="+strings.Join(append(folders, os.Getenv("PATH")), ":"))
	dieWithParent(cmd)
	return cmd
}

// find looks in the PATH, and where FoundationDB's packages put their programs.
func find(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range folders {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is neither in the PATH nor in %s", name, strings.Join(folders, ", "))
}

func (c *Cluster) create(redundancy string) error {
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.Up(); err != nil {
		return err
	}
	engine := cmp.Or(os.Getenv("SKEIN_TEST_FDB_ENGINE"), "ssd-2") // to compare FoundationDB's storage engines
	return c.run("configure new " + redundancy + " " + engine)
}

// prepare chooses the servers' addresses, and writes the cluster file.
func (c *Cluster) prepare() (err error) {
	if c.dir, err = os.MkdirTemp("", "skein-fdb-"); err != nil {
		return err
	}
	var addresses []string
	for i := range c.servers {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close() //nolint:errcheck // only its port was needed; all are different because all are open
		c.servers[i].address = l.Addr().String()
		addresses = append(addresses, c.servers[i].address)
	}
	c.File = filepath.Join(c.dir, "fdb.cluster")
	return os.WriteFile(c.File, []byte("skein:test@"+strings.Join(addresses, ",")+"\n"), 0o600)
}

// Up starts the servers.
func (c *Cluster) Up() (err error) {
	for i := range c.servers {
		err = errors.Join(err, c.UpServer(i))
	}
	return err
}

// UpServer starts one server.
func (c *Cluster) UpServer(i int) error {
	dir := filepath.Join(c.dir, strconv.Itoa(i))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "fdbserver.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	id := "server" + strconv.Itoa(i)
	process := exec.CommandContext(context.Background(), c.server, append([]string{
		"--cluster-file", c.File, "--public-address", c.servers[i].address,
		"--datadir", filepath.Join(dir, "data"), "--logdir", dir, "--memory", "3GiB", "--cache-memory", "512MiB",
		"--locality-zoneid", id, "--locality-machineid", id, "--knob_disable_posix_kernel_aio=1",
	}, c.knobs...)...)
	process.Stdout, process.Stderr = log, log
	if err := errors.Join(start(process), log.Close()); err != nil {
		return fmt.Errorf("starting fdbserver: %w", err)
	}
	c.servers[i].process = process
	return nil
}

// Down kills the servers, as a power cut would.
func (c *Cluster) Down() (err error) {
	for i := range c.servers {
		err = errors.Join(err, c.DownServer(i))
	}
	return err
}

// DownServer kills one server.
func (c *Cluster) DownServer(i int) error {
	process := c.servers[i].process
	if process == nil {
		return nil
	}
	err := process.Process.Kill()
	_ = process.Wait() // returns "killed"
	c.servers[i].process = nil
	return err
}

// Pause stops the servers until Resume, as if their machines swapped or their disks hung.
func (c *Cluster) Pause() error { return c.signal(syscall.SIGSTOP) }

// Resume continues the servers after Pause.
func (c *Cluster) Resume() error { return c.signal(syscall.SIGCONT) }

func (c *Cluster) signal(s os.Signal) (err error) {
	for i := range c.servers {
		err = errors.Join(err, c.servers[i].process.Process.Signal(s))
	}
	return err
}

// Ready waits until the cluster answers.
func (c *Cluster) Ready() error { return c.run("getversion") }

// Processes returns the process ids of the running servers.
func (c *Cluster) Processes() (pids []int) {
	for _, s := range c.servers {
		if s.process != nil {
			pids = append(pids, s.process.Process.Pid)
		}
	}
	return pids
}

// Whole waits until all servers have joined, and the cluster has all copies of the data again.
func (c *Cluster) Whole() error {
	return c.await("status json", func(out []byte) error {
		var status struct {
			Cluster struct {
				Data      struct{ State struct{ Healthy bool } }
				Processes map[string]any
			}
		}
		err := json.Unmarshal(out, &status)
		if all := len(status.Cluster.Processes) == len(c.servers); err == nil && (!all || !status.Cluster.Data.State.Healthy) {
			err = errors.New("the cluster is not whole")
		}
		return err
	})
}

func (c *Cluster) run(command string) error {
	return c.await(command, func([]byte) error { return nil })
}

// await runs a command until it succeeds, and what it prints is good.
func (c *Cluster) await(command string, good func(out []byte) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for {
		out, err := exec.CommandContext(ctx, c.cli, "-C", c.File, "--timeout", "20", "--exec", command).Output()
		if err == nil {
			err = good(out)
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("fdbcli %s: %w: %s", command, err, out)
		}
	}
}

// Remove stops the cluster and deletes its data.
func (c *Cluster) Remove() error {
	return errors.Join(c.Down(), os.RemoveAll(c.dir))
}
