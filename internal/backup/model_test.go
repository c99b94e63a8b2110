package backup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"skein.blue/internal/backup"
)

// folder is the content of a folder, by file name.
type folder map[string]string

func (f folder) write(t *testing.T, dir string) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	for name, content := range f {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
}

func readFolder(t *testing.T, dir string) folder {
	t.Helper()
	f := folder{}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if e.Name() == "skein.restored" || e.Name() == "lost+found" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if errors.Is(err, os.ErrNotExist) { // a restore that is under way gave it its name since
			continue
		}
		must(t, err)
		f[e.Name()] = string(b)
	}
	return f
}

// A store is a simulated one: numbered tables that are never changed, and small files that are.
type store struct {
	rng  *rand.Rand
	next int
	now  time.Time
	has  folder
}

func newStore(seed uint64) *store {
	return &store{rng: rand.New(rand.NewPCG(seed, 3)), now: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), has: folder{}}
}

// step adds tables, removes others, and changes the small files.
func (s *store) step() folder {
	for range s.rng.IntN(4) {
		s.next++
		b := make([]byte, s.rng.IntN(20_000))
		if s.rng.IntN(8) == 0 { // equal to others
			b = make([]byte, 100)
		}
		for i := range b {
			b[i] = byte(s.rng.Uint32())
		}
		if len(b) == 100 {
			clear(b)
		}
		s.has[fmt.Sprintf("%06d.sst", s.next)] = string(b)
	}
	for _, name := range slices.Sorted(maps.Keys(s.has)) {
		if strings.HasSuffix(name, ".sst") && s.rng.IntN(6) == 0 {
			delete(s.has, name)
		}
	}
	s.has["MANIFEST-000001"] = fmt.Sprint(s.next, s.rng.Uint64())
	s.has["marker.manifest.000001.MANIFEST-000001"] = ""
	s.now = s.now.Add(time.Duration(1+s.rng.Int64N(5*3600*1000)) * time.Millisecond)
	return maps.Clone(s.has)
}

// must ends a test at an error.
func must(t *testing.T, err ...error) {
	t.Helper()
	if err := errors.Join(err...); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, name string) backup.Target {
	t.Helper()
	to, err := backup.OpenTarget(name)
	must(t, err)
	return to
}

// memory is a target in memory.
type memory struct {
	mu  sync.Mutex // guards has
	has map[string]string
}

func (m *memory) String() string { return "memory" }

func (m *memory) List(_ context.Context, dir string) (map[string]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sizes := map[string]int64{}
	for name, b := range m.has {
		if strings.HasPrefix(name, dir+"/") {
			sizes[name] = int64(len(b))
		}
	}
	return sizes, nil
}

func (m *memory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.has[name]
	if !ok {
		return nil, backup.ErrNotFound
	}
	return io.NopCloser(strings.NewReader(b)), nil
}

func (m *memory) Put(_ context.Context, name string, size int64, r io.Reader, onlyNew bool) error {
	b, err := io.ReadAll(r)
	if err != nil || int64(len(b)) != size {
		return errors.Join(err, io.ErrUnexpectedEOF)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.has[name]; ok && onlyNew {
		return backup.ErrExists
	}
	m.has[name] = string(b)
	return nil
}

func (m *memory) Delete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.has, name)
	return nil
}

// hooked calls before ahead of each operation. If that fails, the operation does, too; it happens
// nevertheless if the error is errHappened, or a half of a Put.
type hooked struct {
	backup.Target

	before func(op, name string) error
}

var errGone, errHappened = errors.New("gone"), errors.New("but it happened")

func (h *hooked) do(op, name string, fn func() error) error {
	err := h.before(op, name)
	if err == nil || errors.Is(err, errHappened) {
		err = errors.Join(fn(), err)
	}
	return err
}

func (h *hooked) List(ctx context.Context, dir string) (sizes map[string]int64, err error) {
	err = h.do("list", dir, func() (err error) { sizes, err = h.Target.List(ctx, dir); return err })
	return sizes, err
}

func (h *hooked) Get(ctx context.Context, name string) (r io.ReadCloser, err error) {
	err = h.do("get", name, func() (err error) { r, err = h.Target.Get(ctx, name); return err })
	return r, err
}

func (h *hooked) Put(ctx context.Context, name string, size int64, r io.Reader, onlyNew bool) error {
	happened := false
	op := "put"
	if onlyNew {
		op = "claim"
	}
	err := h.do(op, name, func() error { happened = true; return h.Target.Put(ctx, name, size, r, onlyNew) })
	if !happened {
		_, _ = io.CopyN(io.Discard, r, size/2) // it was under way
	}
	return err
}

func (h *hooked) Delete(ctx context.Context, name string) error {
	return h.do("delete", name, func() error { return h.Target.Delete(ctx, name) })
}

// failing is a target that fails at an operation, which happens or not, and from then on: the process is gone.
func failing(to backup.Target, at int64, happens bool) *hooked {
	var left atomic.Int64
	left.Store(at)
	return &hooked{to, func(string, string) error {
		switch n := left.Add(-1); {
		case n > 0:
			return nil
		case n == 0 && happens:
			return errors.Join(errGone, errHappened)
		}
		return errGone
	}}
}

// A model is a target beside what must be in it: what was backed up at each time.
type model struct {
	to   *memory
	sign *backup.Signer
	key  *backup.Trust
	keep int
	was  map[time.Time]folder
}

func newModel(t *testing.T, keep int) *model {
	t.Helper()
	m := &model{to: &memory{has: map[string]string{}}, keep: keep, was: map[time.Time]folder{}}
	m.sign, m.key = signer(t)
	return m
}

// backUp backs content up through a target, which may be cut off. The lock of one that was is removed:
// it expires.
func (m *model) backUp(t *testing.T, through backup.Target, content folder, at time.Time) (backup.Report, error) {
	t.Helper()
	dir := t.TempDir()
	content.write(t, dir)
	m.was[at.UTC()] = maps.Clone(content)
	r, err := backup.Create(t.Context(), through, backup.CreateOptions{Dir: dir, Time: at, Signer: m.sign, Keep: m.keep})
	must(t, m.to.Delete(t.Context(), "lock.json"))
	return r, errors.Join(err, os.RemoveAll(dir))
}

// check restores each backup that exists, and verifies all of them. It returns their times.
func (m *model) check(t *testing.T) []time.Time {
	t.Helper()
	all, err := backup.List(t.Context(), m.to)
	must(t, err)
	for _, at := range all {
		found := find(t, m.to, at, m.key)
		into := filepath.Join(t.TempDir(), "store")
		must(t, backup.Restore(t.Context(), m.to, backup.RestoreOptions{Dir: into, Manifest: found}))
		if !maps.Equal(readFolder(t, into), m.was[at]) {
			t.Fatalf("the backup of %v restored to something else", at)
		}
		must(t, os.RemoveAll(into))
	}
	if len(all) > 0 {
		v, err := backup.Verify(t.Context(), m.to, backup.VerifyOptions{Trust: m.key, Problem: func(err error) { t.Error(err) }})
		if err != nil || v.Backups != len(all) {
			t.Fatalf("%+v %v", v, err)
		}
	}
	return all
}

// whole is check after a backup that was not cut off: the target has the newest backups, their
// signatures, the parts that they need, the list of them, and nothing else.
func (m *model) whole(t *testing.T, made []time.Time) {
	t.Helper()
	all := m.check(t)
	if want := made[max(len(made)-m.keep, 0):]; !slices.Equal(all, want) {
		t.Fatalf("there are backups of %v, want %v", all, want)
	}
	distinct := map[string]bool{}
	for _, at := range all {
		for _, content := range m.was[at] {
			distinct[content] = true
		}
	}
	for dir, want := range map[string]int{"parts": len(distinct), "manifests": 2 * len(all)} {
		if has, err := m.to.List(t.Context(), dir); err != nil || len(has) != want {
			t.Fatalf("%d objects in %s, want %d: %v", len(has), dir, want, err)
		}
	}
	r, err := m.to.Get(t.Context(), "index.json")
	must(t, err)
	index, err := io.ReadAll(r)
	if n := strings.Count(string(index), "manifests/"); errors.Join(err, r.Close()) != nil || n != len(all) {
		t.Fatalf("the list has %d backups, want %d: %v", n, len(all), err)
	}
}

// A backup is cut off at each of its operations, which have happened or not. Earlier backups are
// there still, but for those that it was to remove; it is there whole, or not at all; and the next one
// works, and leaves nothing over.
func TestInterruptedAnywhere(t *testing.T) {
	defer backup.SetPause(time.Microsecond)()
	s, m := newStore(5), newModel(t, 2)
	var made []time.Time
	for range 3 {
		content := s.step()
		_, err := m.backUp(t, m.to, content, s.now)
		must(t, err)
		made = append(made, s.now)
	}
	before := maps.Clone(m.to.has)
	content, when := s.step(), s.now
	next, then := s.step(), s.now
	for cut, ended := int64(1), false; !ended; cut++ {
		for _, happens := range []bool{false, true} {
			m.to.has = maps.Clone(before)
			_, err := m.backUp(t, failing(m.to, cut, happens), content, when)
			ended = err == nil
			now := slices.Clone(made)
			all := m.check(t)
			if slices.Contains(all, when) {
				now = append(now, when)
			} else if !slices.Equal(all, made[1:]) || ended {
				t.Fatalf("cut off at operation %d, before the backup exists: %v are left (%v)", cut, all, err)
			}
			if !slices.Contains(all, made[2]) {
				t.Fatalf("cut off at operation %d: the backup before is gone", cut)
			}
			_, err = m.backUp(t, m.to, next, then)
			must(t, err)
			m.whole(t, append(now, then))
		}
		if ended && cut < 20 || cut > 200 {
			t.Fatalf("%d operations", cut)
		}
	}
}

// A restore is cut off at each of its operations. The folder is not a store then, and the same call continues.
func TestRestoreInterruptedAnywhere(t *testing.T) {
	defer backup.SetPause(time.Microsecond)()
	s, m := newStore(6), newModel(t, 1)
	for range 8 {
		s.step()
	}
	_, err := m.backUp(t, m.to, s.has, s.now)
	must(t, err)
	found := find(t, m.to, time.Time{}, m.key)
	for cut := int64(1); ; cut++ {
		into := filepath.Join(t.TempDir(), "store")
		err := backup.Restore(t.Context(), failing(m.to, cut, false), backup.RestoreOptions{Dir: into, Manifest: found})
		if err == nil {
			if int(cut) <= len(s.has) {
				t.Fatalf("%d operations for %d files", cut, len(s.has))
			}
			return
		}
		if !errors.Is(err, errGone) || !backup.Unfinished(into) {
			t.Fatalf("cut off at operation %d: %v; the folder looks like a store: %v", cut, err, !backup.Unfinished(into))
		}
		if _, err := backup.Restored(into); !errors.Is(err, backup.ErrNone) {
			t.Fatal(err)
		}
		must(t, backup.Restore(t.Context(), m.to, backup.RestoreOptions{Dir: into, Manifest: found}))
		if backup.Unfinished(into) || !maps.Equal(readFolder(t, into), s.has) {
			t.Fatalf("cut off at operation %d, it restored to something else", cut)
		}
	}
}
