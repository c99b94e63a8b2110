package backup_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"skein.blue/internal/backup"
	"skein.blue/internal/kv"
)

// Over HTTP, a restore survives connections that break; after an interruption it reads only what it
// lacks; and a server that always breaks off does not hold it.
func TestRestoreOverHTTP(t *testing.T) {
	defer backup.SetPause(time.Millisecond)()
	dir := filepath.Join(t.TempDir(), "target")
	s := newStore(9)
	for range 12 {
		s.step()
	}
	sign, trust := signer(t)
	made(t, open(t, dir), s.has, backup.CreateOptions{Time: s.now, Signer: sign})
	var mu sync.Mutex
	breaks, asked, served := 3, map[string]int{}, map[string]int{} // served by host
	files := http.FileServer(http.Dir(dir))
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path]++
		broken := strings.HasPrefix(r.URL.Path, "/parts/") && asked[r.URL.Path] <= breaks
		if strings.HasPrefix(r.URL.Path, "/parts/") && !broken {
			served[r.Host]++
		}
		mu.Unlock()
		if broken {
			w.Header().Set("Content-Length", "1000")
			if !strings.Contains(r.URL.Path, "e3b0c442") { // the empty file has no beginning
				_, _ = w.Write([]byte("the beginning"))
			}
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		files.ServeHTTP(w, r)
	})
	first, srv := httptest.NewServer(serve), httptest.NewServer(serve) // requests of the restore that is interrupted may come late
	defer first.Close()
	defer srv.Close()
	web := open(t, srv.URL)
	m := find(t, web, time.Time{}, trust)
	into := filepath.Join(t.TempDir(), "store")
	ctx, cancel := context.WithCancel(t.Context())
	err := backup.Restore(ctx, open(t, first.URL), backup.RestoreOptions{Dir: into, Manifest: m, Progress: func(done, total int64) {
		if done > total/2 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || !backup.Unfinished(into) {
		t.Fatal(err)
	}
	left := 0
	for name := range s.has {
		if _, err := os.Stat(filepath.Join(into, name)); err != nil {
			left++
		}
	}
	told := int64(0)
	if err = backup.Restore(t.Context(), web, backup.RestoreOptions{Dir: into, Manifest: m, Progress: func(done, _ int64) {
		mu.Lock()
		defer mu.Unlock()
		told = max(told, done)
	}}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	n := served[strings.TrimPrefix(srv.URL, "http://")]
	mu.Unlock()
	if !maps.Equal(readFolder(t, into), s.has) || told != m.Bytes() || n != left || left == len(s.has) {
		t.Fatalf("restored to something else; %d of %d bytes told; %d files were read, %d were left", told, m.Bytes(), n, left)
	}
	// Another backup does not go into the same folder.
	if err = backup.Restore(t.Context(), web, backup.RestoreOptions{Dir: into, Manifest: m}); !errors.Is(err, backup.ErrFolder) {
		t.Fatal(err)
	}
	// A web server is never written to.
	if _, err := create(t, web, s.has, backup.CreateOptions{Time: time.Now()}); !errors.Is(err, backup.ErrReadOnly) {
		t.Fatal(err)
	}
	mu.Lock()
	breaks, asked = 1<<30, map[string]int{}
	mu.Unlock()
	err = backup.Restore(t.Context(), web, backup.RestoreOptions{Dir: into + "2", Manifest: m})
	srv.Close() // no handler runs any more
	if err == nil || errors.Is(err, backup.ErrPart) || slices.Max(slices.Collect(maps.Values(asked))) != 6 {
		t.Errorf("a server that always breaks off: %v, %v", err, asked)
	}
}

// A manifest that a stranger publishes cannot name files outside the folder, or lie about sizes.
func TestHostileManifests(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	for _, file := range []string{
		`{"name":"../x","size":1,"sha256":"` + sum + `"}`,
		`{"name":"/etc/passwd","size":1,"sha256":"` + sum + `"}`,
		`{"name":"a..b","size":1,"sha256":"` + sum + `"}`,
		`{"name":".hidden","size":1,"sha256":"` + sum + `"}`,
		`{"name":"a\u0000b","size":1,"sha256":"` + sum + `"}`,
		`{"name":"x","size":-1,"sha256":"` + sum + `"}`,
		`{"name":"x","size":1,"sha256":"../../` + sum[6:] + `"}`,
		`{"name":"x","size":1,"sha256":"` + strings.ToUpper(sum) + `"}`,
		`{"name":"x","size":1,"sha256":"` + sum + `"},{"name":"x","size":1,"sha256":"` + sum + `"}`,
		"",
	} {
		at := filepath.Join(t.TempDir(), "target")
		now := time.Now().UTC()
		must(t, os.MkdirAll(filepath.Join(at, "manifests"), 0o755))
		m := fmt.Sprintf(`{"skeinBackup":1,"time":%q,"files":[%s]}`, now.Format(time.RFC3339Nano), file)
		must(t, os.WriteFile(filepath.Join(at, "manifests", now.Format("20060102T150405.000Z")+".json"), []byte(m), 0o600))
		if _, err := backup.Find(t.Context(), open(t, at), time.Time{}, nil); !errors.Is(err, backup.ErrManifest) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// A restore that was interrupted is continued with a newer backup, and what they share is used. While it runs, no other has the folder.
func TestRestoreOfANewerBackup(t *testing.T) {
	defer backup.SetPause(time.Millisecond)()
	to := open(t, filepath.Join(t.TempDir(), "target"))
	older := folder{"000001.sst": strings.Repeat("1", 5000), "000002.sst": strings.Repeat("2", 5000), "MANIFEST-000001": "m"}
	newer := folder{"000001.sst": strings.Repeat("1", 5000), "000003.sst": "three", "MANIFEST-000001": "mm"}
	into := filepath.Join(t.TempDir(), "store")
	must(t, os.MkdirAll(filepath.Join(into, "lost+found"), 0o755))
	at := time.Now()
	for i, content := range []folder{older, newer} {
		made(t, to, content, backup.CreateOptions{Time: at.Add(time.Duration(i) * time.Second)})
	}
	m := find(t, to, at, nil)
	cut := &hooked{to, func(_, name string) error { // when the tables are there
		for name == partOf(m, "MANIFEST-000001") {
			if has := readFolder(t, into); has["000001.sst"] != "" && has["000002.sst"] != "" {
				if err := backup.Restore(t.Context(), to, backup.RestoreOptions{Dir: into, Manifest: m}); !errors.Is(err, kv.ErrLocked) {
					t.Errorf("a second restore into the folder: %v", err)
				}
				return errGone
			}
			time.Sleep(time.Millisecond)
		}
		return nil
	}}
	if err := backup.Restore(t.Context(), cut, backup.RestoreOptions{Dir: into, Manifest: m}); !errors.Is(err, errGone) {
		t.Fatal(err)
	}
	m = find(t, to, time.Time{}, nil)
	must(t, to.Delete(t.Context(), partOf(m, "000001.sst"))) // it is there already
	must(t, backup.Restore(t.Context(), to, backup.RestoreOptions{Dir: into, Manifest: m}))
	must(t, os.Remove(filepath.Join(into, "lost+found")))
	if !maps.Equal(readFolder(t, into), newer) {
		t.Fatalf("%v", readFolder(t, into))
	}
}

// Parts that retention removes while a backup is verified are no damage.
func TestVerifyWhileRemoving(t *testing.T) {
	at := filepath.Join(t.TempDir(), "target")
	to := open(t, at)
	now := time.Now()
	for i := range 3 {
		content := folder{"000001.sst": strings.Repeat(fmt.Sprint(i), 500), "MANIFEST-000001": fmt.Sprint(i)}
		made(t, to, content, backup.CreateOptions{Time: now.Add(time.Duration(i-3) * time.Hour)})
	}
	var once sync.Once
	removing := &hooked{Target: to, before: func(op, name string) error {
		if op == "get" && strings.HasPrefix(name, "parts/") {
			once.Do(func() {
				if _, err := create(t, to, folder{"MANIFEST-000001": "x"}, backup.CreateOptions{Time: now, Keep: 1}); err != nil {
					t.Error(err)
				}
			})
		}
		return nil
	}}
	if v := verified(t, removing); v.Backups != 3 {
		t.Errorf("%+v", v)
	}
}
