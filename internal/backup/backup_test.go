package backup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aead.dev/minisign"
	"filippo.io/age"

	"skein.blue/internal/backup"
	"skein.blue/internal/backup/target"
)

// folder is the content of a folder, by file name.
type folder map[string]string

func (f folder) write(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range f {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readFolder(t *testing.T, dir string) folder {
	t.Helper()
	f := folder{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == "skein.restored" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
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
		b := make([]byte, s.rng.IntN(200_000))
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
	for name := range maps.Clone(s.has) {
		if strings.HasSuffix(name, ".sst") && s.rng.IntN(6) == 0 {
			delete(s.has, name)
		}
	}
	s.has["MANIFEST-000001"] = fmt.Sprint(s.next, s.rng.Uint64())
	s.has["marker.manifest.000001.MANIFEST-000001"] = ""
	s.now = s.now.Add(time.Duration(1 + s.rng.Int64N(int64(5*time.Hour))))
	return maps.Clone(s.has)
}

func open(t *testing.T, name string) target.Target {
	t.Helper()
	to, err := target.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// faulty is a target that fails at the nth operation, and from then on: the process is gone. A
// write may have happened nevertheless.
type faulty struct {
	target.Target

	left atomic.Int64
	rng  *rand.Rand
	mu   sync.Mutex
}

var errGone = errors.New("gone")

// step returns whether the operation happens, and its error.
func (f *faulty) step() (happens bool, err error) {
	switch n := f.left.Add(-1); {
	case n > 0:
		return true, nil
	case n == 0:
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.rng.IntN(2) == 0, errGone
	}
	return false, errGone
}

func (f *faulty) List(ctx context.Context, dir string, each func(target.Object) error) error {
	if _, err := f.step(); err != nil {
		return err
	}
	return f.Target.List(ctx, dir, each)
}

func (f *faulty) Get(ctx context.Context, name string, from int64) (io.ReadCloser, error) {
	if _, err := f.step(); err != nil {
		return nil, err
	}
	return f.Target.Get(ctx, name, from)
}

func (f *faulty) Put(ctx context.Context, name string, size int64, r io.Reader) error {
	happens, err := f.step()
	if happens {
		return errors.Join(f.Target.Put(ctx, name, size, r), err)
	}
	if err == nil {
		return nil
	}
	_, _ = io.CopyN(io.Discard, r, size/2)
	return err
}

func (f *faulty) Claim(ctx context.Context, name string, b []byte) error {
	happens, err := f.step()
	if happens {
		return errors.Join(f.Target.Claim(ctx, name, b), err)
	}
	return err
}

func (f *faulty) Delete(ctx context.Context, name string) error {
	happens, err := f.step()
	if happens {
		return errors.Join(f.Target.Delete(ctx, name), err)
	}
	return err
}

func seal(t *testing.T) *backup.Seal {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("# made by a test\n"+i.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := backup.ReadSeal(file)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func signer(t *testing.T) (*backup.Signer, *backup.Trust) {
	t.Helper()
	public, secret, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key")
	text, err := secret.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := backup.ReadSigner(file, "")
	if err != nil {
		t.Fatal(err)
	}
	trust, err := backup.ParseTrust(public.String())
	if err != nil {
		t.Fatal(err)
	}
	return s, trust
}

func create(t *testing.T, to target.Target, f folder, o backup.CreateOptions) (backup.Report, error) {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
		f.write(t, o.Dir)
	}
	return backup.Create(t.Context(), to, o)
}

// Whatever operation is the last that a process does, every manifest that exists restores to what
// was backed up, and the next backup works. This holds with and without encryption, and with
// removal of old backups.
func TestInterruptedAnywhere(t *testing.T) {
	defer backup.SetPause(time.Microsecond)()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var key *backup.Seal
			if seed%2 == 1 {
				key = seal(t)
			}
			sign, trust := signer(t)
			to := open(t, filepath.Join(t.TempDir(), "target"))
			s := newStore(seed)
			was := map[string]folder{}
			killed := 0
			for round := range 24 {
				content := s.step()
				dir := t.TempDir()
				content.write(t, dir)
				o := backup.CreateOptions{Dir: dir, Time: s.now, Seal: key, Signer: sign, Keep: backup.Retention{{6, 24 * time.Hour}}}
				f := &faulty{Target: to, rng: rand.New(rand.NewPCG(seed, uint64(round)))}
				f.left.Store(1 + s.rng.Int64N(40))
				was[s.now.Truncate(time.Millisecond).Format(time.RFC3339Nano)] = content
				if _, err := backup.Create(t.Context(), f, o); err != nil {
					if !errors.Is(err, errGone) {
						t.Fatal(err)
					}
					killed++
				}
				if err := to.Delete(t.Context(), "lock.json"); err != nil { // it expires
					t.Fatal(err)
				}
				if round%4 != 3 {
					continue
				}
				all, err := backup.List(t.Context(), to)
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range all {
					m, err := backup.Find(t.Context(), to, b.Time, trust)
					if err != nil {
						t.Fatal(err)
					}
					into := filepath.Join(t.TempDir(), "store")
					if err := backup.Restore(t.Context(), to, backup.RestoreOptions{Dir: into, Manifest: m, Seal: key}); err != nil {
						t.Fatal(err)
					}
					if want := was[b.Time.Format(time.RFC3339Nano)]; !maps.Equal(readFolder(t, into), want) {
						t.Fatalf("round %d: %s restored to something else", round, b.Name)
					}
				}
				v, err := backup.Verify(t.Context(), to, backup.VerifyOptions{Trust: trust, Seal: key, Sample: 1, Problem: func(err error) { t.Error(err) }})
				if err != nil || v.Backups != len(all) || v.Read != v.Parts {
					t.Fatalf("%+v %v", v, err)
				}
			}
			if killed < 3 || killed > 23 {
				t.Fatalf("%d of 24 backups were killed", killed)
			}
			// One that is not interrupted leaves what its manifests need, and nothing else.
			s.step()
			if _, err := create(t, to, s.has, backup.CreateOptions{Time: s.now, Seal: key, Keep: backup.Retention{{1, time.Hour}}}); err != nil {
				t.Fatal(err)
			}
			distinct := map[string]bool{}
			for _, c := range s.has {
				distinct[c] = true
			}
			n := 0
			if err := to.List(t.Context(), "parts", func(target.Object) error { n++; return nil }); err != nil || n != len(distinct) {
				t.Fatalf("%d parts, want %d: %v", n, len(distinct), err)
			}
		})
	}
}

// A second backup sends what is new, and reads nothing else.
func TestSendsWhatIsNew(t *testing.T) {
	to, dir := open(t, filepath.Join(t.TempDir(), "target")), t.TempDir()
	folder{"000001.sst": strings.Repeat("a", 5000), "000002.sst": "b", "MANIFEST-000001": "1"}.write(t, dir)
	var checked []string
	o := backup.CreateOptions{Dir: dir, Time: time.Now(), Parallel: 1, Check: func(p string, _ func()) error { checked = append(checked, filepath.Base(p)); return nil }}
	r, err := create(t, to, nil, o)
	if err != nil || r.Sent != 5002 || r.Parts != 3 || r.Bytes != 5002 {
		t.Fatalf("%+v %v", r, err)
	}
	folder{"000003.sst": "ccc", "MANIFEST-000001": "12"}.write(t, dir)
	checked, o.Time = nil, o.Time.Add(time.Second)
	r, err = create(t, to, nil, o)
	if err != nil || r.Sent != 5 || r.Parts != 2 || r.Bytes != 5006 || !slices.Equal(checked, []string{"000003.sst", "MANIFEST-000001"}) {
		t.Fatalf("%+v %v %v", r, checked, err)
	}
	// A part that the target has lost is sent again.
	m, err := backup.Find(t.Context(), to, time.Time{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Delete(t.Context(), partOf(m, "000001.sst")); err != nil {
		t.Fatal(err)
	}
	o.Time = o.Time.Add(time.Second)
	if r, err = create(t, to, nil, o); err != nil || r.Sent != 5000 {
		t.Fatalf("%+v %v", r, err)
	}
	// A file that fails its check is not backed up.
	o.Time, o.Check = o.Time.Add(time.Second), func(string, func()) error { return errGone }
	folder{"000004.sst": "d"}.write(t, dir)
	if _, err = create(t, to, nil, o); !errors.Is(err, errGone) || !strings.Contains(err.Error(), "000004.sst") {
		t.Fatal(err)
	}
	// So is one that is not newer than the newest.
	o.Time, o.Check = o.Time.Add(-time.Hour), nil
	if _, err = create(t, to, nil, o); err == nil || !strings.Contains(err.Error(), "clock") {
		t.Fatal(err)
	}
}

func partOf(m *backup.Manifest, name string) string {
	for _, f := range m.Files {
		if f.Name == name {
			p := "parts/" + f.SHA256[:2] + "/" + f.SHA256
			if m.Sealed != "" {
				p += "." + m.Sealed
			}
			return p
		}
	}
	return ""
}

// Parts that are flipped, cut, lengthened, missing or swapped are refused by Restore and found by
// Verify, with the name of the part; and so is a manifest that was changed, if it is signed.
func TestDamage(t *testing.T) {
	content := folder{"000001.sst": strings.Repeat("first", 3000), "000002.sst": strings.Repeat("other", 3000), "MANIFEST-000001": "m"}
	for _, sealed := range []bool{false, true} {
		for name, damage := range map[string]func(path, other string) error{
			"flipped": func(path, _ string) error {
				b, err := os.ReadFile(path)
				b[len(b)/2] ^= 1
				return errors.Join(err, os.WriteFile(path, b, 0o600))
			},
			"cut": func(path, _ string) error { return os.Truncate(path, 700) },
			"longer": func(path, _ string) error {
				b, err := os.ReadFile(path)
				return errors.Join(err, os.WriteFile(path, append(b, 1), 0o600))
			},
			"emptied": func(path, _ string) error { return os.Truncate(path, 0) },
			"missing": func(path, _ string) error { return os.Remove(path) },
			"swapped": func(path, other string) error {
				return errors.Join(os.Rename(path, path+"x"), os.Rename(other, path), os.Rename(path+"x", other))
			},
		} {
			t.Run(fmt.Sprint(name, sealed), func(t *testing.T) {
				var key *backup.Seal
				if sealed {
					key = seal(t)
				}
				at := filepath.Join(t.TempDir(), "target")
				to := open(t, at)
				if _, err := create(t, to, content, backup.CreateOptions{Time: time.Now(), Seal: key}); err != nil {
					t.Fatal(err)
				}
				m, err := backup.Find(t.Context(), to, time.Time{}, nil)
				if err != nil {
					t.Fatal(err)
				}
				bad := partOf(m, "000001.sst")
				if err := damage(filepath.Join(at, bad), filepath.Join(at, partOf(m, "000002.sst"))); err != nil {
					t.Fatal(err)
				}
				var problems []error
				v, err := backup.Verify(t.Context(), to, backup.VerifyOptions{Seal: key, Sample: 1, Problem: func(err error) { problems = append(problems, err) }})
				if err != nil || v.Problems == 0 || !slices.ContainsFunc(problems, func(err error) bool {
					return errors.Is(err, backup.ErrPart) && strings.Contains(err.Error(), bad) && strings.Contains(err.Error(), "000001.sst")
				}) {
					t.Fatalf("%+v %v %v", v, problems, err)
				}
				into := filepath.Join(t.TempDir(), "store")
				err = backup.Restore(t.Context(), to, backup.RestoreOptions{Dir: into, Manifest: m, Seal: key, Parallel: 1})
				if !errors.Is(err, backup.ErrPart) || !strings.Contains(err.Error(), bad) && name != "swapped" {
					t.Fatal(err)
				}
				if !backup.Unfinished(into) {
					t.Fatal("the folder looks like a store")
				}
				if _, err := os.Stat(filepath.Join(into, "000001.sst")); err == nil {
					t.Fatal("the damaged file has its name")
				}
				// The next backup mends what it can see.
				if name == "flipped" || name == "swapped" {
					return
				}
				if _, err := create(t, to, content, backup.CreateOptions{Time: time.Now().Add(time.Second), Seal: key}); err != nil {
					t.Fatal(err)
				}
				if err = backup.Restore(t.Context(), to, backup.RestoreOptions{Dir: into, Manifest: m, Seal: key}); err != nil || !maps.Equal(readFolder(t, into), content) {
					t.Fatal(err)
				}
			})
		}
	}
}

// A manifest without the trusted signature is refused.
func TestSignature(t *testing.T) {
	at := filepath.Join(t.TempDir(), "target")
	to := open(t, at)
	sign, trust := signer(t)
	_, other := signer(t)
	content := folder{"000001.sst": "x"}
	if _, err := create(t, to, content, backup.CreateOptions{Time: time.Now(), Signer: sign}); err != nil {
		t.Fatal(err)
	}
	find := func(k *backup.Trust) error { _, err := backup.Find(t.Context(), to, time.Time{}, k); return err }
	if err := errors.Join(find(trust), find(nil)); err != nil {
		t.Fatal(err)
	}
	if err := find(other); !errors.Is(err, backup.ErrSignature) {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(at, "manifests", "*.json"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(names[0], bytes.Replace(b, []byte("000001"), []byte("000002"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := find(trust); !errors.Is(err, backup.ErrSignature) {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(names[0], b, 0o600), os.Remove(names[0]+".minisig")); err != nil {
		t.Fatal(err)
	}
	if err := find(trust); !errors.Is(err, backup.ErrSignature) {
		t.Fatal(err)
	}
}

// An encrypted part has none of the plaintext, is as long as announced, and opens with its key
// only. Public keys alone make backups.
func TestSeal(t *testing.T) {
	key, other := seal(t), seal(t)
	at := filepath.Join(t.TempDir(), "target")
	to := open(t, at)
	content := folder{}
	for _, n := range []int{0, 1, 65535, 65536, 65537, 131072, 200000} {
		content[fmt.Sprintf("%06d.sst", n)] = strings.Repeat("plain", n)[:n]
	}
	if _, err := create(t, to, content, backup.CreateOptions{Time: time.Now(), Seal: key}); err != nil {
		t.Fatal(err)
	}
	if err := to.List(t.Context(), "parts", func(o target.Object) error {
		b, err := os.ReadFile(filepath.Join(at, o.Name))
		if bytes.Contains(b, []byte("plainplain")) || !strings.Contains(o.Name, ".age-") {
			t.Errorf("%s is not encrypted", o.Name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	m, err := backup.Find(t.Context(), to, time.Time{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []*backup.Seal{nil, other} {
		if err := backup.Restore(t.Context(), to, backup.RestoreOptions{Dir: filepath.Join(t.TempDir(), "s"), Manifest: m, Seal: wrong}); !errors.Is(err, backup.ErrKey) || !strings.Contains(err.Error(), "--backup-key") {
			t.Fatal(err)
		}
		v, err := backup.Verify(t.Context(), to, backup.VerifyOptions{Seal: wrong, Sample: 1, Problem: func(err error) { t.Error(err) }})
		if wrong == nil && !errors.Is(err, backup.ErrKey) || wrong != nil && (err != nil || v.OtherKey != len(content) || v.Read != 0) {
			t.Fatalf("%+v %v", v, err)
		}
	}
	file := filepath.Join(t.TempDir(), "public")
	i, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(i.Recipient().String()), 0o600); err != nil {
		t.Fatal(err)
	}
	public, err := backup.ReadSeal(file)
	if err != nil || public.CanRead() {
		t.Fatal(err)
	}
	to = open(t, filepath.Join(t.TempDir(), "target"))
	if _, err := create(t, to, content, backup.CreateOptions{Time: time.Now(), Seal: public}); err != nil {
		t.Fatal(err)
	}
	if v, err := backup.Verify(t.Context(), to, backup.VerifyOptions{Seal: public, Sample: 0, Problem: func(err error) { t.Error(err) }}); err != nil || v.Parts != len(content) || v.Read != 0 {
		t.Fatalf("%+v %v", v, err)
	}
}

// Over HTTP, a restore survives connections that are cut, and goes on where they ended; after an
// interruption it reads only what it lacks.
func TestRestoreOverHTTP(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "target")
	s := newStore(9)
	for range 6 {
		s.step()
	}
	s.has["000999.sst"] = strings.Repeat("0123456789abcdef", 40_000)
	sign, trust := signer(t)
	if _, err := create(t, open(t, dir), s.has, backup.CreateOptions{Time: s.now, Signer: sign}); err != nil {
		t.Fatal(err)
	}
	var served, cuts atomic.Int64
	files := http.FileServer(http.Dir(dir))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		files.ServeHTTP(&cut{ResponseWriter: w, left: 100_000, served: &served, cuts: &cuts}, r)
	}))
	defer srv.Close()
	defer backup.SetPause(time.Millisecond)()
	web := open(t, srv.URL)
	m, err := backup.Find(t.Context(), web, time.Time{}, trust)
	if err != nil {
		t.Fatal(err)
	}
	into := filepath.Join(t.TempDir(), "store")
	ctx, cancel := context.WithCancel(t.Context())
	err = backup.Restore(ctx, web, backup.RestoreOptions{Dir: into, Manifest: m, Parallel: 2, Progress: func(done, total int64) {
		if done > total/2 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || !backup.Unfinished(into) {
		t.Fatal(err)
	}
	first := served.Load()
	last := int64(0)
	if err = backup.Restore(t.Context(), web, backup.RestoreOptions{Dir: into, Manifest: m, Progress: func(done, _ int64) { last = done }, Parallel: 1}); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(readFolder(t, into), s.has) || last != m.Bytes() {
		t.Fatalf("restored to something else, %d of %d bytes told", last, m.Bytes())
	}
	if n := served.Load() - first; n > m.Bytes()*6/10 || cuts.Load() < 3 {
		t.Fatalf("%d bytes were read again of %d, %d cuts", n, m.Bytes(), cuts.Load())
	}
	// Another backup does not go into the same folder.
	if err = backup.Restore(t.Context(), web, backup.RestoreOptions{Dir: into, Manifest: m}); !errors.Is(err, backup.ErrFolder) {
		t.Fatal(err)
	}
	// A web server is never written to.
	if _, err := create(t, web, s.has, backup.CreateOptions{Time: time.Now()}); !errors.Is(err, target.ErrReadOnly) {
		t.Fatal(err)
	}
}

// A server that breaks off after a few bytes, again and again, holds no restore, although each attempt
// gets further.
func TestRestoreFromADrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "target")
	s := newStore(9)
	s.has["000999.sst"] = strings.Repeat("0123456789abcdef", 40_000)
	if _, err := create(t, open(t, dir), s.has, backup.CreateOptions{Time: s.now}); err != nil {
		t.Fatal(err)
	}
	var served, cuts atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	files := http.FileServer(http.Dir(dir))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cuts.Load() > 20 {
			cancel()
		}
		if strings.HasPrefix(r.URL.Path, "/parts/") {
			w = &cut{ResponseWriter: w, left: 10, served: &served, cuts: &cuts}
		}
		files.ServeHTTP(w, r)
	}))
	defer srv.Close()
	defer backup.SetPause(2 * time.Millisecond)()
	web := open(t, srv.URL)
	m, err := backup.Find(t.Context(), web, time.Time{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = backup.Restore(ctx, web, backup.RestoreOptions{Dir: filepath.Join(t.TempDir(), "store"), Manifest: m, Parallel: 1})
	if err == nil || errors.Is(err, backup.ErrPart) || ctx.Err() != nil {
		t.Errorf("after %d attempts: %v", cuts.Load(), err)
	}
}

// cut is an answer that ends after so many bytes, as if the connection broke.
type cut struct {
	http.ResponseWriter

	left         int64
	served, cuts *atomic.Int64
}

func (c *cut) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b[:min(int64(len(b)), c.left)])
	c.left -= int64(n)
	c.served.Add(int64(n))
	if c.left == 0 {
		c.cuts.Add(1)
		_ = http.NewResponseController(c.ResponseWriter).Flush() // the client gets what was written
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// A restore links the files that it shares with another folder, and reads the rest.
func TestReuse(t *testing.T) {
	to := open(t, filepath.Join(t.TempDir(), "target"))
	a := folder{"000001.sst": "one", "000002.sst": "two", "MANIFEST-000001": "m"}
	b := folder{"000001.sst": "one", "000002.sst": "TWO", "000003.sst": "three", "MANIFEST-000001": "m"}
	dirs, found := []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")}, []*backup.Manifest{}
	for i, f := range []folder{a, b} {
		if _, err := create(t, to, f, backup.CreateOptions{Time: time.Now()}); err != nil {
			t.Fatal(err)
		}
		m, err := backup.Find(t.Context(), to, time.Time{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, m)
		o := backup.RestoreOptions{Dir: dirs[i], Manifest: m}
		if i == 1 {
			o.Reuse, o.Was = dirs[0], found[0]
		}
		if err := backup.Restore(t.Context(), to, o); err != nil || !maps.Equal(readFolder(t, dirs[i]), f) {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond)
	}
	for name, linked := range map[string]bool{"000001.sst": true, "000002.sst": false, "MANIFEST-000001": false} {
		x, err := os.Stat(filepath.Join(dirs[0], name))
		y, err2 := os.Stat(filepath.Join(dirs[1], name))
		if err = errors.Join(err, err2); err != nil || os.SameFile(x, y) != linked {
			t.Errorf("%s: linked %v: %v", name, !linked, err)
		}
	}
}

// Two writers take turns; one that died holds nobody up for long.
func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "target")
	to := open(t, dir)
	content := folder{"000001.sst": "x"}
	inside := make(chan struct{})
	goOn := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		o := backup.CreateOptions{Time: time.Now(), Check: func(string, func()) error { close(inside); <-goOn; return nil }}
		if _, err := create(t, to, content, o); err != nil {
			t.Error(err)
		}
	})
	<-inside
	if _, err := create(t, to, content, backup.CreateOptions{Time: time.Now()}); !errors.Is(err, backup.ErrBusy) {
		t.Error(err)
	}
	if _, err := backup.Retain(t.Context(), to, backup.Retention{{1, time.Hour}}); !errors.Is(err, backup.ErrBusy) {
		t.Error(err)
	}
	close(goOn)
	busy.Wait()
	for _, left := range []string{`{"owner":"dead","until":"2020-01-01T00:00:00Z"}`, `{"owner":"of a wrong clock","until":"2999-01-01T00:00:00Z"}`, "", "{"} {
		if err := os.WriteFile(filepath.Join(dir, "lock.json"), []byte(left), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := create(t, to, content, backup.CreateOptions{Time: time.Now().Add(time.Second)}); err != nil && !strings.Contains(err.Error(), "clock") {
			t.Fatal(left, err)
		}
	}
}

// A manifest that a stranger publishes cannot name files outside the folder, or lie about sizes.
func TestHostileManifests(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	for _, file := range []string{
		`{"name":"../x","size":1,"stored":1,"sha256":"` + sum + `"}`,
		`{"name":"/etc/passwd","size":1,"stored":1,"sha256":"` + sum + `"}`,
		`{"name":"a..b","size":1,"stored":1,"sha256":"` + sum + `"}`,
		`{"name":".hidden","size":1,"stored":1,"sha256":"` + sum + `"}`,
		`{"name":"a\u0000b","size":1,"stored":1,"sha256":"` + sum + `"}`,
		`{"name":"x","size":-1,"stored":-1,"sha256":"` + sum + `"}`,
		`{"name":"x","size":2,"stored":1,"sha256":"` + sum + `"}`,
		`{"name":"x","size":1,"stored":1,"sha256":"../../` + sum[6:] + `"}`,
		`{"name":"x","size":1,"stored":1,"sha256":"` + strings.ToUpper(sum) + `"}`,
		`{"name":"x","size":1,"stored":1,"sha256":"` + sum + `"},{"name":"x","size":1,"stored":1,"sha256":"` + sum + `"}`,
		"",
	} {
		at := filepath.Join(t.TempDir(), "target")
		now := time.Now().UTC()
		if err := os.MkdirAll(filepath.Join(at, "manifests"), 0o755); err != nil {
			t.Fatal(err)
		}
		m := fmt.Sprintf(`{"skeinBackup":1,"time":%q,"files":[%s]}`, now.Format(time.RFC3339Nano), file)
		if err := os.WriteFile(filepath.Join(at, "manifests", now.Format("20060102T150405.000Z")+".json"), []byte(m), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := backup.Find(t.Context(), open(t, at), time.Time{}, nil); !errors.Is(err, backup.ErrManifest) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// Retention against a simple rule: of each hour, day and week, the newest.
func TestRetention(t *testing.T) {
	r, err := backup.ParseRetention("24h, 7d,4w")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 26, 12, 30, 0, 0, time.UTC)
	var times []time.Time
	for at := now.Add(-60 * 24 * time.Hour); !at.After(now); at = at.Add(20 * time.Minute) {
		times = append(times, at)
	}
	kept := backup.Keeps(r, times, now)
	newest := func(unit time.Duration, within int) map[time.Time]bool {
		of := map[int64]time.Time{}
		for _, at := range times {
			of[at.Unix()/int64(unit.Seconds())] = at
		}
		m := map[time.Time]bool{}
		for n := range within {
			m[of[now.Unix()/int64(unit.Seconds())-int64(n)]] = true
		}
		return m
	}
	h, d, w := newest(time.Hour, 24), newest(24*time.Hour, 7), newest(7*24*time.Hour, 4)
	n := 0
	for i, at := range times {
		if want := h[at] || d[at] || w[at]; kept[i] != want {
			t.Errorf("%v: kept %v", at, kept[i])
		} else if want {
			n++
		}
	}
	if n < 30 || n > 35 {
		t.Errorf("%d kept", n)
	}
	if kept := backup.Keeps(r, []time.Time{now.Add(-9000 * time.Hour)}, now); !kept[0] {
		t.Error("the only backup is removed")
	}
	for _, bad := range []string{"", "24", "h", "0h", "-1d", "24h,", "3y", "99999h"} {
		if _, err := backup.ParseRetention(bad); err == nil {
			t.Errorf("%q", bad)
		}
	}
}

// Parts that a backup left which was cut off are used by the next one, unless they are not what their
// names say.
func TestLeftParts(t *testing.T) {
	for _, key := range []*backup.Seal{nil, seal(t)} {
		at := filepath.Join(t.TempDir(), "target")
		to := open(t, at)
		content := folder{"000001.sst": strings.Repeat("one", 9), "000002.sst": strings.Repeat("two", 9)}
		if _, err := create(t, to, content, backup.CreateOptions{Time: time.Now(), Seal: key}); err != nil {
			t.Fatal(err)
		}
		m, err := backup.Find(t.Context(), to, time.Time{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		left := filepath.Join(at, partOf(m, "000002.sst"))
		b, err := os.ReadFile(left)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)-1] ^= 1
		if err := errors.Join(os.WriteFile(left, b, 0o600), os.RemoveAll(filepath.Join(at, "manifests"))); err != nil {
			t.Fatal(err)
		}
		r, err := create(t, to, content, backup.CreateOptions{Time: time.Now(), Seal: key})
		if err != nil || r.Parts != 1 {
			t.Fatalf("%+v %v", r, err)
		}
		v, err := backup.Verify(t.Context(), to, backup.VerifyOptions{Seal: key, Sample: 1, Problem: func(err error) { t.Error(err) }})
		if err != nil || v.Read != 2 {
			t.Fatalf("%+v %v", v, err)
		}
	}
}

// After a change of keys, backups open with the keys that they were made for.
func TestKeysChange(t *testing.T) {
	a, b := seal(t), seal(t)
	both := backup.Both(a, b)
	to := open(t, filepath.Join(t.TempDir(), "target"))
	content := folder{"000001.sst": strings.Repeat("one", 900), "MANIFEST-000001": "m"}
	at := time.Now()
	for _, key := range []*backup.Seal{a, both, b, nil} {
		at = at.Add(time.Second)
		if _, err := create(t, to, content, backup.CreateOptions{Time: at, Seal: key}); err != nil {
			t.Fatal(err)
		}
	}
	all, err := backup.List(t.Context(), to)
	if err != nil || len(all) != 4 {
		t.Fatal(all, err)
	}
	for i, opens := range [][]*backup.Seal{{a}, {a, b}, {b}, {nil, a, b}} {
		m, err := backup.Find(t.Context(), to, all[i].Time, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []*backup.Seal{a, b, nil} {
			into := filepath.Join(t.TempDir(), "store")
			err := backup.Restore(t.Context(), to, backup.RestoreOptions{Dir: into, Manifest: m, Seal: key})
			if can := slices.Contains(opens, key); can && (err != nil || !maps.Equal(readFolder(t, into), content)) || !can && !errors.Is(err, backup.ErrKey) {
				t.Errorf("backup %d: %v", i, err)
			}
		}
	}
	v, err := backup.Verify(t.Context(), to, backup.VerifyOptions{Seal: a, Sample: 1, Problem: func(err error) { t.Error(err) }})
	if err != nil || v.Parts != 8 || v.OtherKey != 2 || v.Read != 6 {
		t.Fatalf("%+v %v", v, err)
	}
}

// A restore that was interrupted is continued with a newer backup, and what they share is used.
func TestRestoreOfANewerBackup(t *testing.T) {
	to := open(t, filepath.Join(t.TempDir(), "target"))
	older := folder{"000001.sst": strings.Repeat("1", 5000), "000002.sst": strings.Repeat("2", 5000), "MANIFEST-000001": "m"}
	newer := folder{"000001.sst": strings.Repeat("1", 5000), "000003.sst": "three", "MANIFEST-000001": "mm"}
	into := filepath.Join(t.TempDir(), "store")
	if err := os.MkdirAll(filepath.Join(into, "lost+found"), 0o755); err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	for i, content := range []folder{older, newer} {
		if _, err := create(t, to, content, backup.CreateOptions{Time: at.Add(time.Duration(i) * time.Second)}); err != nil {
			t.Fatal(err)
		}
	}
	m, err := backup.Find(t.Context(), to, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = backup.Restore(ctx, to, backup.RestoreOptions{Dir: into, Manifest: m, Parallel: 1, Progress: func(done, _ int64) {
		if done >= 10_000 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if m, err = backup.Find(t.Context(), to, time.Time{}, nil); err != nil {
		t.Fatal(err)
	}
	if err := to.Delete(t.Context(), partOf(m, "000001.sst")); err != nil { // it is there already
		t.Fatal(err)
	}
	if err := backup.Restore(t.Context(), to, backup.RestoreOptions{Dir: into, Manifest: m}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(into, "lost+found")); err != nil {
		t.Fatal(err)
	}
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
		if _, err := create(t, to, content, backup.CreateOptions{Time: now.Add(time.Duration(i-3) * time.Hour)}); err != nil {
			t.Fatal(err)
		}
	}
	var once sync.Once
	removing := &hooked{Target: to, before: func(op, name string) error {
		if op == "get" && strings.HasPrefix(name, "parts/") {
			once.Do(func() {
				if _, err := backup.Retain(t.Context(), to, backup.Retention{{1, time.Hour}}); err != nil {
					t.Error(err)
				}
			})
		}
		return nil
	}}
	v, err := backup.Verify(t.Context(), removing, backup.VerifyOptions{Sample: 1, Problem: func(err error) { t.Error(err) }})
	if err != nil || v.Backups != 3 {
		t.Fatalf("%+v %v", v, err)
	}
}

// hooked calls before ahead of each operation, which fails if that does.
type hooked struct {
	target.Target

	before func(op, name string) error
}

func (h *hooked) Get(ctx context.Context, name string, from int64) (io.ReadCloser, error) {
	if err := h.before("get", name); err != nil {
		return nil, err
	}
	return h.Target.Get(ctx, name, from)
}

func (h *hooked) Put(ctx context.Context, name string, size int64, r io.Reader) error {
	if err := h.before("put", name); err != nil {
		_, _ = io.CopyN(io.Discard, r, size/2) // it was under way
		return err
	}
	return h.Target.Put(ctx, name, size, r)
}

func (h *hooked) Delete(ctx context.Context, name string) error {
	if err := h.before("delete", name); err != nil {
		return err
	}
	return h.Target.Delete(ctx, name)
}

// A part is sent again from its beginning if the target fails, four times at most. A file that changes
// meanwhile fails the backup at once, and its part does not stay.
func TestPutRetries(t *testing.T) {
	defer backup.SetPause(time.Millisecond)()
	content := folder{"000001.sst": strings.Repeat("a", 300_000), "MANIFEST-000001": "m"}
	for _, fails := range []int{0, 1, 3, 4} {
		to := open(t, filepath.Join(t.TempDir(), "target"))
		sent := map[string]int{}
		var mu sync.Mutex
		flaky := &hooked{Target: to, before: func(op, name string) error {
			if op != "put" || !strings.HasPrefix(name, "parts/") {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if sent[name]++; sent[name] <= fails {
				return errGone
			}
			return nil
		}}
		r, err := create(t, flaky, content, backup.CreateOptions{Time: time.Now()})
		if fails == 4 {
			if !errors.Is(err, errGone) || !strings.Contains(err.Error(), "000001.sst") && !strings.Contains(err.Error(), "MANIFEST-000001") {
				t.Errorf("after %d failures: %v", fails, err)
			}
			continue
		}
		if err != nil || r.Parts != 2 {
			t.Fatalf("after %d failures: %+v %v", fails, r, err)
		}
		for name, n := range sent {
			if n != fails+1 {
				t.Errorf("%s was sent %d times, after %d failures", name, n, fails)
			}
		}
		v, err := backup.Verify(t.Context(), to, backup.VerifyOptions{Sample: 1, Problem: func(err error) { t.Error(err) }})
		if err != nil || v.Read != 2 {
			t.Errorf("%+v %v", v, err)
		}
	}

	dir, to := t.TempDir(), open(t, filepath.Join(t.TempDir(), "target"))
	content.write(t, dir)
	puts := 0
	changing := &hooked{Target: to, before: func(op, name string) error {
		if op == "put" && strings.HasPrefix(name, "parts/") {
			puts++
			return os.WriteFile(filepath.Join(dir, "000001.sst"), []byte(strings.Repeat("b", 300_000)), 0o600)
		}
		return nil
	}}
	o := backup.CreateOptions{Dir: dir, Time: time.Now(), Parallel: 1}
	if _, err := backup.Create(t.Context(), changing, o); err == nil || !strings.Contains(err.Error(), "changed while it was read") || puts != 1 {
		t.Errorf("a file that changes: %v, sent %d times", err, puts)
	}
	if err := to.List(t.Context(), "parts", func(o target.Object) error { return fmt.Errorf("%s stays", o.Name) }); err != nil {
		t.Error(err)
	}
}

// A writer that stood still for longer than its lock lasts writes and removes nothing that could
// hurt the writer that has the lock now.
func TestSuspendedWriter(t *testing.T) {
	const lockFor = time.Second // a loaded machine renews a lock of 0.2 s too late
	// suspend stops a writer before an operation, for longer than its lock lasts; it renews nothing after.
	suspend := func(to target.Target, at func(op, name string) bool, meanwhile func()) *hooked {
		var still atomic.Bool
		return &hooked{Target: to, before: func(op, name string) error {
			if op == "put" && name == "lock.json" && still.Load() {
				return errGone
			}
			if at(op, name) && !still.Load() {
				still.Store(true)
				time.Sleep(lockFor * 3 / 2)
				meanwhile()
			}
			return nil
		}}
	}
	now := time.Now()
	content := func(i int) folder {
		return folder{"000001.sst": strings.Repeat(fmt.Sprint(i), 500), "MANIFEST-000001": fmt.Sprint(i)}
	}
	fill := func() target.Target {
		to := open(t, filepath.Join(t.TempDir(), "target"))
		for i := range 4 {
			if _, err := create(t, to, content(i), backup.CreateOptions{Time: now.Add(time.Duration(i-9) * time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		return to
	}
	partsOf := func(to target.Target) (n int) {
		if err := to.List(t.Context(), "parts", func(target.Object) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	whole := func(to target.Target, backups int) {
		t.Helper()
		v, err := backup.Verify(t.Context(), to, backup.VerifyOptions{Sample: 1, Problem: func(err error) { t.Error(err) }})
		if err != nil || v.Backups != backups {
			t.Errorf("%+v %v", v, err)
		}
	}

	// While it removes manifests: the others stay. While it removes parts: they stay, too.
	to := fill()
	restore := backup.SetLockFor(lockFor)
	deleted := 0
	_, err := backup.Retain(t.Context(), suspend(to, func(op, name string) bool {
		if op == "delete" {
			deleted++
		}
		return op == "delete" && strings.HasPrefix(name, "manifests/")
	}, func() {}), backup.Retention{{1, time.Hour}})
	if !errors.Is(err, backup.ErrBusy) || deleted != 2 { // a manifest, and its signature
		t.Errorf("%v after %d removals", err, deleted)
	}
	whole(to, 3)
	before := partsOf(to)
	deleted = 0
	_, err = backup.Retain(t.Context(), suspend(to, func(op, name string) bool {
		isPart := op == "delete" && strings.HasPrefix(name, "parts/")
		if isPart {
			deleted++
		}
		return isPart
	}, func() {}), backup.Retention{{1, time.Hour}})
	if !errors.Is(err, backup.ErrBusy) || deleted != 1 || partsOf(to) != before-1 {
		t.Errorf("%v after %d removals; %d parts of %d", err, deleted, partsOf(to), before)
	}
	whole(to, 1)
	restore()

	// While it writes its manifest, or before it: another writer removes the parts that no backup needs.
	for _, where := range []string{"manifests/", "parts/"} {
		to = fill()
		restore := backup.SetLockFor(lockFor)
		suspended := suspend(to, func(op, name string) bool { return op == "put" && strings.HasPrefix(name, where) }, func() {
			if _, err := backup.Retain(t.Context(), to, backup.Retention{{1, time.Hour}}); err != nil {
				t.Error(err)
			}
		})
		if _, err := create(t, suspended, content(7), backup.CreateOptions{Time: now, Parallel: 1}); !errors.Is(err, backup.ErrBusy) {
			t.Errorf("%s: %v", where, err)
		}
		whole(to, 1)
		restore()
	}
}
