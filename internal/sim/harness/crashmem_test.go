package harness

import (
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestCloneInUse clones a file system while another goroutine reuses its files. Neither waits for the other forever, and a clone
// has the file under one of its names.
func TestCloneInUse(t *testing.T) {
	const rounds = 20_000
	fs := NewCrashFS()
	f, err := fs.Create("0", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				files, err := fs.CrashClone(vfs.CrashCloneCfg{}).List("/")
				if err != nil || len(files) > 1 {
					t.Errorf("a clone has %q, %v", files, err)
					return
				}
			}
		})
	}
	for n := range rounds {
		f, err := fs.ReuseForWrite(fmt.Sprint(n), fmt.Sprint(n+1), vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	last, err := fs.Open(fmt.Sprint(rounds))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(last); err != nil {
		t.Fatal(err)
	}
}
