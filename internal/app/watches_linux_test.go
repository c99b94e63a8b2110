package app

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

// Of a line that cannot be written whole, nothing stays; one that a power failure has cut off does not take the next with it.
func TestTornLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "changes")
	must(t, os.WriteFile(path, []byte("cut off"), 0o600))
	must(t, appendLine(path, []byte("1")))
	var most syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &most))
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 15, Max: most.Max}))
	err := appendLine(path, []byte("does not fit"))
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &most), appendLine(path, []byte("2")))
	if b, failed := os.ReadFile(path); err == nil || failed != nil || string(b) != "cut off\n1\n2\n" {
		t.Errorf("%q %v %v", b, err, failed)
	}
}
