package harness

// A real S3-compatible server: Versity's gateway, in front of a folder, as a process of its own.
// .ci/run installs it; a test that needs it is skipped without it.

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Module is the module that go install builds the server from.
const Module = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"

// Name is the name of the bucket.
const Name = "backups"

// A Server is a running S3 server with one bucket.
type Server struct {
	t       *testing.T
	bin     string
	folder  string
	address string
	cmd     *exec.Cmd
	log     bytes.Buffer
}

const access, secret = "skein-test", "skein-test-secret"

// Start starts a server, which ends with the test, and points the environment variables of S3
// clients at it.
func Start(t *testing.T) *Server {
	t.Helper()
	bin, err := find()
	if err != nil {
		t.Skipf("skipped: no S3 server: %v; install it with: GOBIN=$PWD/.tools go install %s", err, Module)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, bin: bin, folder: t.TempDir(), address: l.Addr().String()}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(s.folder, "data", Name), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": "http://" + s.address, "AWS_ENDPOINT_URL_S3": "", "AWS_REGION": "us-east-1",
		"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": "",
	} {
		t.Setenv(name, value)
	}
	s.Restart()
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	return s
}

// find returns the path of the server's program: in PATH, or in .tools at the root of the repo.
func find() (string, error) {
	if bin, err := exec.LookPath("versitygw"); err == nil {
		return bin, nil
	}
	dir, err := os.Getwd()
	for ; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			bin := filepath.Join(dir, ".tools", "versitygw")
			_, err := os.Stat(bin)
			return bin, err
		}
	}
	return "", fmt.Errorf("versitygw is not in PATH: %w", os.ErrNotExist)
}

// Kill kills the server: what it has not answered may have happened or not.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // it may be gone
	_ = s.cmd.Wait()
}

// Restart starts the server again, with what it had.
func (s *Server) Restart() {
	s.t.Helper()
	s.cmd = exec.Command(s.bin, "--port", s.address, "--quiet", "--keep-alive", "posix", "--sidecar", filepath.Join(s.folder, "meta"), filepath.Join(s.folder, "data")) //nolint:noctx // a test's own program; it outlives contexts
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+access, "ROOT_SECRET_KEY="+secret)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := os.MkdirAll(filepath.Join(s.folder, "meta"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		c, err := net.DialTimeout("tcp", s.address, time.Second) //nolint:noctx // bounded
		if err == nil {
			_ = c.Close() // it only proves that the server listens
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the S3 server does not listen: %v\n%s", err, s.log.String())
		}
		<-time.After(20 * time.Millisecond)
	}
}
