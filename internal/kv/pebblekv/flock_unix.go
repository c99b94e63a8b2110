//go:build unix

package pebblekv

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// flock locks a folder for this process until the returned Closer is closed.
func flock(dir string) (io.Closer, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
