// Package fdbtest runs a FoundationDB cluster of one process on loopback, for
// tests. It needs fdbserver and fdbcli in the PATH or where FoundationDB's
// packages put them; without them, tests are skipped.
package fdbtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// A Cluster is one fdbserver process.
type Cluster struct {
	File string // the cluster file

	dir, server, cli, address string
	knobs                     []string // arguments of the server
	process                   *exec.Cmd
}

// Start starts a cluster, or skips the test if FoundationDB is not installed. The
// caller must call Remove. knobs are more arguments of the server, such as "--knob_name=1".
func Start(t testing.TB, knobs ...string) *Cluster {
	t.Helper()
	c := &Cluster{knobs: knobs}
	var err error
	if c.server, err = find("fdbserver"); err == nil {
		c.cli, err = find("fdbcli")
	}
	if err != nil {
		t.Skipf("FoundationDB is not installed: %v", err)
	}
	if err := c.create(); err != nil {
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
	return "", fmt.Errorf("%s is neither in the PATH nor in /usr/sbin", name)
}

func (c *Cluster) create() (err error) {
	if c.dir, err = os.MkdirTemp("", "skein-fdb-"); err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c.address = l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	c.File = filepath.Join(c.dir, "fdb.cluster")
	if err := os.WriteFile(c.File, []byte("skein:test@"+c.address+"\n"), 0o600); err != nil {
		return err
	}
	if err := c.Up(); err != nil {
		return err
	}
	engine := os.Getenv("SKEIN_TEST_FDB_ENGINE") // to compare FoundationDB's storage engines
	if engine == "" {
		engine = "ssd-2"
	}
	return c.run("configure new single " + engine)
}

// Up starts the server process.
func (c *Cluster) Up() error {
	log, err := os.OpenFile(filepath.Join(c.dir, "fdbserver.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	c.process = exec.CommandContext(context.Background(), c.server, append([]string{
		"--cluster-file", c.File, "--public-address", c.address,
		"--datadir", filepath.Join(c.dir, "data"), "--logdir", c.dir, "--memory", "3GiB", "--cache-memory", "512MiB",
		"--knob_disable_posix_kernel_aio=1",
	}, c.knobs...)...)
	c.process.Stdout, c.process.Stderr = log, log
	dieWithParent(c.process)
	if err := errors.Join(c.process.Start(), log.Close()); err != nil {
		return fmt.Errorf("starting fdbserver: %w", err)
	}
	return nil
}

// Down kills the server process, as a power cut would.
func (c *Cluster) Down() error {
	if c.process == nil {
		return nil
	}
	err := c.process.Process.Kill()
	_ = c.process.Wait() // returns "killed"
	c.process = nil
	return err
}

// Pause stops the server process until Resume, as if its machine swapped or its disk hung.
func (c *Cluster) Pause() error { return c.process.Process.Signal(syscall.SIGSTOP) }

// Resume continues the server process after Pause.
func (c *Cluster) Resume() error { return c.process.Process.Signal(syscall.SIGCONT) }

// Ready waits until the cluster answers.
func (c *Cluster) Ready() error { return c.run("getversion") }

func (c *Cluster) run(command string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		out, err := exec.CommandContext(ctx, c.cli, "-C", c.File, "--timeout", "20", "--exec", command).CombinedOutput()
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
func (c *Cluster) Remove() error { return errors.Join(c.Down(), os.RemoveAll(c.dir)) }
