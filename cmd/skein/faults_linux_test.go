package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skein.blue/internal/sim/harness"
	simulated "skein.blue/internal/sim/network"
	"skein.blue/internal/sim/relay"
)

// noRepair turns off what needs hosts: the recorded stream has none.
var noRepair = []string{"--repair=false"}

// sufferer is a daemon that indexes a recorded stream while faults happen to it.
type sufferer struct {
	*daemon

	relay   http.Handler
	address string // of the relay
	cut     func() // the connections to the relay
}

// join lets the relay accept connections again.
func (s *sufferer) join() { _, s.cut = listen(s.t, s.address, s.relay) }

// endure lets a fault happen to a daemon times times while it indexes a recorded stream, and then
// compares all answers with the truth.
func endure(t *testing.T, fault string, few int, env, args []string, hurt func(s *sufferer)) {
	t.Helper()
	times := harness.Times(few)
	happened := harness.NewFault(t, fault, times)
	whole := time.Duration(times) * (harness.Pause() + time.Second)
	store := filepath.Join(t.TempDir(), "store")
	s := &sufferer{relay: recording(t, max(1, int(2115/whole.Seconds())))}
	s.address, s.cut = listen(t, "", s.relay)
	s.daemon = serveDaemon(t, env, append([]string{"--store", store, "--relay", "ws://" + s.address, "--cursor", "0"}, args...)...)
	for range times {
		s.indexes(min(s.cursor()+1, last))
		hurt(s)
		happened.Happened()
	}
	s.indexes(last)
	s.isTrue()
	if _, log := s.stop(); strings.Contains(log, "goroutine ") || strings.Contains(log, "panic") {
		t.Errorf("the log has a trace:\n%s", log)
	}
	run(t, 0, "no problems found", "check", "--store", store)
}

// busy is a network whose relay sends thousands of events a second.
var busy = simulated.Options{Accounts: 20_000}

// A daemon that indexes thousands of events a second and answers queries is killed at any moment,
// again and again. Its store is then exactly the network up to its cursor.
func TestFaultKill(t *testing.T) {
	t.Parallel()
	times := harness.Times(5)
	killed := harness.NewFault(t, "SIGKILL under load", times)
	store := filepath.Join(t.TempDir(), "store")
	relay, _ := simulate(t, "", relay.Options{Network: busy, Rate: 3000})
	rng := seeded(t)
	args := []string{"--store", store, "--relay", relay, "--cursor", "0", "--repair=false"}
	seq, answered := 0, 0
	for range times {
		d := serveDaemon(t, nil, args...)
		args = append(args[:4:4], "--repair=false") // later starts use the stored cursor
		d.indexes(seq + 1)
		seq = d.cursor()
		for end := time.Now().Add(time.Duration(rng.Int64N(int64(harness.Pause() / 2)))); time.Now().Before(end); answered++ {
			if code, body := askAt(t, d.api+"/xrpc/blue.skein.graph.getStats"); code != http.StatusOK {
				t.Errorf("a query under load: %d %s", code, body)
			}
		}
		d.kill()
		killed.Happened()
	}
	t.Logf("%d events, %d queries answered", seq, answered)
	verifyNetwork(t, store, busy, 0)
}

// A daemon that does not run for a while, as on a suspended machine, goes on where it was.
func TestFaultStopped(t *testing.T) {
	t.Parallel()
	endure(t, fmt.Sprintf("SIGSTOP for %v", harness.Pause()), 2, nil, noRepair, func(s *sufferer) {
		s.signal(syscall.SIGSTOP)
		time.Sleep(harness.Pause())
		s.signal(syscall.SIGCONT)
	})
}

// While the relay is gone, queries are answered. When it is back, nothing is missed.
func TestFaultRelayGone(t *testing.T) {
	t.Parallel()
	endure(t, fmt.Sprintf("relay gone for %v", harness.Pause()), 2, nil, noRepair, func(s *sufferer) {
		s.cut()
		time.Sleep(harness.Pause())
		s.answers()
		s.join()
	})
}

// A daemon that may open no more files or connections waits until it may. It indexes on, or ends
// with one message; after a restart nothing is missing.
func TestFaultDescriptors(t *testing.T) {
	t.Parallel()
	limit := func(s *sufferer, n int) {
		s.t.Helper()
		pid := strconv.Itoa(s.cmd.Process.Pid)
		if out, err := exec.CommandContext(s.t.Context(), "prlimit", "--pid", pid, fmt.Sprintf("--nofile=%d:", n)).CombinedOutput(); err != nil {
			s.t.Skipf("prlimit: %v: %s", err, out)
		}
	}
	const plenty = 4096
	endure(t, "out of file descriptors", 2, nil, noRepair, func(s *sufferer) {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid))
		must(s.t, err)
		limit(s, len(open))
		s.cut() // it must connect again, which takes a descriptor
		s.join()
		ctx, cancel := context.WithTimeout(s.t.Context(), harness.Pause())
		defer cancel()
		for range 50 { // connections that stay open take what is free
			c, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(s.api, "http://"))
			if err != nil {
				break
			}
			defer func() { _ = c.Close() }()
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		if code, _ := fetch(ctx, &client, s.api+"/xrpc/blue.skein.graph.getStats"); code != 0 {
			s.t.Error("a connection was accepted without a descriptor for it")
		}
		limit(s, plenty)
	})
}

// A host, an archive, a directory and a resolver that accept connections and never answer hold up
// neither the stream, nor queries, nor the end of the process.
func TestFaultHangingServers(t *testing.T) {
	t.Parallel()
	var accepted sync.Map
	hang := func(name string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted.Store(name, true)
				t.Cleanup(func() { _ = c.Close() })
			}
		}()
		return "http://" + l.Addr().String()
	}
	archive, directory, resolver := hang("archive"), hang("directory"), hang("resolver")
	endure(t, "servers that never answer: archive, directory, resolver", 1, nil, []string{
		"--backfill", "archive=" + archive, "--plc", directory, "--resolver", resolver, "--allow-private-hosts",
	}, func(s *sufferer) {
		ctx, cancel := context.WithTimeout(s.t.Context(), harness.Pause())
		defer cancel()
		if _, err := fetch(ctx, new(http.Client), s.api+"/xrpc/blue.skein.graph.query?set=followers(@somebody.example.com)"); err != nil && ctx.Err() == nil {
			s.t.Error(err)
		}
		eventually(s.t, time.Minute, "the archive and the resolver are asked", func() bool {
			_, a := accepted.Load("archive")
			_, r := accepted.Load("resolver")
			return a && r
		})
		s.answers()
	})
}

// A daemon at the limit of its control group's memory is not killed: it keeps to its budget.
func TestFaultMemoryLimit(t *testing.T) {
	t.Parallel()
	root, file, reached := "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.failcnt"
	if _, err := os.Stat(root); err != nil {
		t.Skip("version 1 of control groups is not mounted here")
	}
	group := filepath.Join(root, fmt.Sprintf("skein-faults-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Skipf("cannot create a control group here: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(group) })
	const limit = 160 << 20
	if err := os.WriteFile(filepath.Join(group, file), []byte(strconv.Itoa(limit)), 0o600); err != nil {
		t.Skipf("cannot set a memory limit here: %v", err)
	}
	endure(t, "memory at the control group's limit", 1, nil, []string{"--repair=false", "--memory", "32MiB"}, func(s *sufferer) {
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(s.cmd.Process.Pid)), 0o600); err != nil {
			s.t.Skipf("cannot put a process in a control group here: %v", err)
		}
		// The kernel counts cached pages of files that a process of the group writes, too.
		filler := exec.CommandContext(s.t.Context(), "sh", "-c", `echo $$ >"$1/cgroup.procs" && exec dd if=/dev/zero of="$2" bs=1M count=200 status=none`, "sh", group, filepath.Join(s.t.TempDir(), "filler"))
		if out, err := filler.CombinedOutput(); err != nil {
			s.t.Fatalf("%v: %s", err, out)
		}
		for i := range 200 {
			if code, body := askAt(s.t, fmt.Sprintf("%s/xrpc/blue.skein.graph.query?set=union(followers(did:web:a%d.example),follows(did:web:b.example))&limit=1000", s.api, i)); code != http.StatusOK {
				s.t.Errorf("a query at the memory limit: %d %s", code, body)
			}
		}
		n, err := os.ReadFile(filepath.Join(group, reached))
		if err != nil || bytes.Equal(bytes.TrimSpace(n), []byte("0")) {
			s.t.Errorf("the limit was reached %s times: %v", n, err)
		}
	})
}

// The wall clock jumps by a day, forward and back, while the daemon indexes and answers. Built with
// a changed package time, which takes minutes: make faults.
func TestFaultClock(t *testing.T) {
	if !harness.Whole() {
		t.Skip("builds a second program, for minutes: make faults")
	}
	changed, clock := harness.BuildWithClock(t, ".")
	was := skeinFile
	skeinFile = changed
	t.Cleanup(func() { skeinFile = was })
	clock.Set(t, 0)
	offset := -24 * time.Hour
	endure(t, "wall clock set by a day", 2, []string{clock.Env()}, noRepair, func(s *sufferer) {
		offset = -offset
		clock.Set(s.t, offset)
		time.Sleep(harness.Pause())
		s.answers()
		// The log proves it: its times are the program's.
		day := time.Now().Add(offset).UTC().Format("2006-01-02")
		clock.Set(s.t, offset)
		s.signal(syscall.SIGHUP)
		s.logs(day)
	})
}
