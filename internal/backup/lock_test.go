package backup_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"skein.blue/internal/backup"
)

// Two writers take turns; one that died holds nobody up for long.
func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "target")
	to := open(t, dir)
	content := folder{"000001.sst": "x"}
	inside := make(chan struct{})
	goOn := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		o := backup.CreateOptions{Time: time.Now(), Check: func(string) error { close(inside); <-goOn; return nil }}
		if _, err := create(t, to, content, o); err != nil {
			t.Error(err)
		}
	})
	<-inside
	if _, err := create(t, to, content, backup.CreateOptions{Time: time.Now()}); !errors.Is(err, backup.ErrBusy) {
		t.Error(err)
	}
	close(goOn)
	busy.Wait()
	for _, left := range []string{`{"owner":"dead","until":"2020-01-01T00:00:00Z"}`, `{"owner":"of a wrong clock","until":"2999-01-01T00:00:00Z"}`, "", "{"} {
		must(t, os.WriteFile(filepath.Join(dir, "lock.json"), []byte(left), 0o600))
		if _, err := create(t, to, content, backup.CreateOptions{Time: time.Now().Add(time.Second)}); err != nil && !strings.Contains(err.Error(), "clock") {
			t.Fatal(left, err)
		}
	}
	answers := 0 // the first one is lost, and the request is repeated
	lossy := &hooked{to, func(op, _ string) error {
		if op != "claim" || answers > 0 {
			return nil
		}
		answers++
		return errors.Join(errHappened, backup.ErrExists)
	}}
	made(t, lossy, content, backup.CreateOptions{Time: time.Now().Add(time.Minute)})
}

// A writer that stood still for longer than its lock lasts writes and removes nothing that could
// hurt the writer that has the lock now.
func TestSuspendedWriter(t *testing.T) { synctest.Test(t, testSuspendedWriter) }

func testSuspendedWriter(t *testing.T) {
	now := time.Now()
	content := func(i int) folder {
		return folder{"000001.sst": strings.Repeat(fmt.Sprint(i), 500), "MANIFEST-000001": fmt.Sprint(i)}
	}
	fill := func() backup.Target {
		to := open(t, filepath.Join(t.TempDir(), "target"))
		for i := range 4 {
			made(t, to, content(i), backup.CreateOptions{Time: now.Add(time.Duration(i-9) * time.Hour)})
		}
		return to
	}
	partsOf := func(to backup.Target) int {
		has, err := to.List(t.Context(), "parts")
		must(t, err)
		return len(has)
	}
	whole := func(to backup.Target, backups int) {
		t.Helper()
		if v := verified(t, to); v.Backups != backups {
			t.Errorf("%+v", v)
		}
	}
	// suspend stops a writer before an operation, for longer than its lock lasts; it renews nothing after.
	// It counts the operations like that one.
	suspend := func(to backup.Target, which, where string, meanwhile func()) (*hooked, *atomic.Int64) {
		var n atomic.Int64
		return &hooked{Target: to, before: func(op, name string) error {
			if op == "put" && name == "lock.json" && n.Load() > 0 {
				return errGone
			}
			if op == which && strings.HasPrefix(name, where) && n.Add(1) == 1 {
				time.Sleep(8 * time.Minute)
				meanwhile()
			}
			return nil
		}}, &n
	}

	// While it removes manifests: the others stay. While it removes parts: they stay, too.
	to := fill()
	suspended, deleted := suspend(to, "delete", "manifests/", func() {})
	_, err := create(t, suspended, content(4), backup.CreateOptions{Time: now.Add(-2 * time.Hour), Keep: 1})
	if !errors.Is(err, backup.ErrBusy) || deleted.Load() != 1 {
		t.Errorf("%v after %d removals", err, deleted.Load())
	}
	whole(to, 4)
	before := partsOf(to)
	suspended, deleted = suspend(to, "delete", "parts/", func() {})
	_, err = create(t, suspended, content(5), backup.CreateOptions{Time: now.Add(-time.Hour), Keep: 1})
	if !errors.Is(err, backup.ErrBusy) || deleted.Load() != 1 || partsOf(to) != before+2-1 {
		t.Errorf("%v after %d removals; %d parts of %d", err, deleted.Load(), partsOf(to), before+2)
	}
	whole(to, 1)

	// While it writes its manifest, or before it: another writer removes the parts that no backup needs.
	for _, where := range []string{"manifests/", "parts/"} {
		to = fill()
		suspended, _ := suspend(to, "put", where, func() {
			if _, err := create(t, to, content(8), backup.CreateOptions{Time: time.Now(), Keep: 1}); err != nil {
				t.Error(err)
			}
		})
		if _, err := create(t, suspended, content(7), backup.CreateOptions{Time: now}); !errors.Is(err, backup.ErrBusy) {
			t.Errorf("%s: %v", where, err)
		}
		whole(to, 1)
	}
}
