package backup_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"aead.dev/minisign"

	"skein.blue/internal/backup"
)

func signer(t *testing.T) (*backup.Signer, *backup.Trust) {
	t.Helper()
	public, secret, err := minisign.GenerateKey(nil)
	must(t, err)
	file := filepath.Join(t.TempDir(), "key")
	text, err := secret.MarshalText()
	must(t, err)
	must(t, os.WriteFile(file, text, 0o600))
	s, err := backup.ReadSigner(file, "")
	must(t, err)
	trust, err := backup.ParseTrust(public.String())
	must(t, err)
	return s, trust
}

func create(t *testing.T, to backup.Target, f folder, o backup.CreateOptions) (backup.Report, error) {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
		f.write(t, o.Dir)
	}
	return backup.Create(t.Context(), to, o)
}

// made makes a backup.
func made(t *testing.T, to backup.Target, f folder, o backup.CreateOptions) {
	t.Helper()
	_, err := create(t, to, f, o)
	must(t, err)
}

func find(t *testing.T, in backup.Target, at time.Time, key *backup.Trust) *backup.Manifest {
	t.Helper()
	m, err := backup.Find(t.Context(), in, at, key)
	must(t, err)
	return m
}

// verified verifies a target, which has no problems.
func verified(t *testing.T, to backup.Target) backup.Verified {
	t.Helper()
	v, err := backup.Verify(t.Context(), to, backup.VerifyOptions{Problem: func(err error) { t.Error(err) }})
	must(t, err)
	return v
}

// A second backup sends what is new, and reads nothing else.
func TestSendsWhatIsNew(t *testing.T) {
	to, dir := open(t, filepath.Join(t.TempDir(), "target")), t.TempDir()
	folder{"000001.sst": strings.Repeat("a", 5000), "000002.sst": "b", "MANIFEST-000001": "1"}.write(t, dir)
	var checked []string
	var mu sync.Mutex
	o := backup.CreateOptions{Dir: dir, Time: time.Now(), Check: func(p string) error {
		mu.Lock()
		defer mu.Unlock()
		checked = append(checked, filepath.Base(p))
		slices.Sort(checked)
		return nil
	}}
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
	m := find(t, to, time.Time{}, nil)
	must(t, to.Delete(t.Context(), partOf(m, "000001.sst")))
	o.Time = o.Time.Add(time.Second)
	if r, err = create(t, to, nil, o); err != nil || r.Sent != 5000 {
		t.Fatalf("%+v %v", r, err)
	}
	// A file that fails its check is not backed up.
	o.Time, o.Check = o.Time.Add(time.Second), func(string) error { return errGone }
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
			return "parts/" + f.SHA256[:2] + "/" + f.SHA256
		}
	}
	return ""
}

// Parts that are flipped, cut, lengthened, missing or swapped are refused by Restore and found by
// Verify, with the name of the part; and so is a manifest that was changed, if it is signed.
func TestDamage(t *testing.T) {
	content := folder{"000001.sst": strings.Repeat("first", 3000), "000002.sst": strings.Repeat("other", 3000), "MANIFEST-000001": "m"}
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
		t.Run(name, func(t *testing.T) {
			at := filepath.Join(t.TempDir(), "target")
			to := open(t, at)
			made(t, to, content, backup.CreateOptions{Time: time.Now()})
			m := find(t, to, time.Time{}, nil)
			bad := partOf(m, "000001.sst")
			must(t, damage(filepath.Join(at, bad), filepath.Join(at, partOf(m, "000002.sst"))))
			var problems []error
			v, err := backup.Verify(t.Context(), to, backup.VerifyOptions{Problem: func(err error) { problems = append(problems, err) }})
			if err != nil || v.Problems == 0 || !slices.ContainsFunc(problems, func(err error) bool {
				return errors.Is(err, backup.ErrPart) && strings.Contains(err.Error(), bad) && strings.Contains(err.Error(), "000001.sst")
			}) {
				t.Fatalf("%+v %v %v", v, problems, err)
			}
			into := filepath.Join(t.TempDir(), "store")
			err = backup.Restore(t.Context(), to, backup.RestoreOptions{Dir: into, Manifest: m})
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
			made(t, to, content, backup.CreateOptions{Time: time.Now().Add(time.Second)})
			if err = backup.Restore(t.Context(), to, backup.RestoreOptions{Dir: into, Manifest: m}); err != nil || !maps.Equal(readFolder(t, into), content) {
				t.Fatal(err)
			}
		})
	}
}

// A manifest without the trusted signature is refused, and no signature certifies its hashes.
func TestSignature(t *testing.T) {
	at := filepath.Join(t.TempDir(), "target")
	to := open(t, at)
	sign, trust := signer(t)
	_, other := signer(t)
	content := folder{"000001.sst": "x"}
	o := backup.CreateOptions{Dir: t.TempDir(), Time: time.Now(), Signer: sign}
	content.write(t, o.Dir)
	made(t, to, nil, o)
	find := func(k *backup.Trust) error { _, err := backup.Find(t.Context(), to, time.Time{}, k); return err }
	must(t, errors.Join(find(trust), find(nil)))
	if err := find(other); !errors.Is(err, backup.ErrSignature) {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(at, "manifests", "*.json"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	b, err := os.ReadFile(names[0])
	must(t, err)
	must(t, os.WriteFile(names[0], bytes.Replace(b, []byte("000001"), []byte("000002"), 1), 0o600))
	if err := find(trust); !errors.Is(err, backup.ErrSignature) {
		t.Fatal(err)
	}
	must(t, errors.Join(os.WriteFile(names[0], b, 0o600), os.Remove(names[0]+".minisig")))
	if err := find(trust); !errors.Is(err, backup.ErrSignature) {
		t.Fatal(err)
	}
	hash := func(of string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(of))) }
	must(t, os.WriteFile(names[0], bytes.Replace(b, []byte(hash("x")), []byte(hash("y")), 1), 0o600))
	must(t, to.Put(t.Context(), "parts/"+hash("y")[:2]+"/"+hash("y"), 1, strings.NewReader("y"), false))
	o.Time = o.Time.Add(time.Second)
	made(t, to, nil, o)
	m, err := backup.Find(t.Context(), to, time.Time{}, trust)
	if err != nil || m.Files[0].SHA256 != hash("x") {
		t.Fatalf("%+v %v", m, err)
	}
}

// Parts that a backup left which was cut off are used by the next one, unless they are not what their
// names say.
func TestLeftParts(t *testing.T) {
	at := filepath.Join(t.TempDir(), "target")
	to := open(t, at)
	content := folder{"000001.sst": strings.Repeat("one", 9), "000002.sst": strings.Repeat("two", 9)}
	made(t, to, content, backup.CreateOptions{Time: time.Now()})
	m := find(t, to, time.Time{}, nil)
	left := filepath.Join(at, partOf(m, "000002.sst"))
	b, err := os.ReadFile(left)
	must(t, err)
	b[len(b)-1] ^= 1
	must(t, errors.Join(os.WriteFile(left, b, 0o600), os.RemoveAll(filepath.Join(at, "manifests"))))
	r, err := create(t, to, content, backup.CreateOptions{Time: time.Now()})
	if err != nil || r.Parts != 1 {
		t.Fatalf("%+v %v", r, err)
	}
	if v := verified(t, to); v.Parts != 2 {
		t.Errorf("%+v", v)
	}
}

// Objects that killed writers left are removed with the parts that no backup needs; objects of others stay.
func TestWhatIsRemoved(t *testing.T) {
	at := filepath.Join(t.TempDir(), "target")
	to, now := open(t, at), time.Now()
	part := "parts/3f/" + strings.Repeat("3f", 32)
	left := []string{part, part + ".1234", "manifests/20200101T000000.000Z.json.minisig", "manifests/20200101T000000.000Z.json.77"}
	others := []string{"parts/list", "manifests/v1.json", "manifests/x/20200101T000000.000Z.json", "else"}
	for _, name := range slices.Concat(left, others) {
		must(t, to.Put(t.Context(), name, 1, strings.NewReader("x"), false))
	}
	made(t, to, folder{"000001.sst": "a"}, backup.CreateOptions{Time: now})
	r, err := create(t, to, folder{"000001.sst": "b"}, backup.CreateOptions{Time: now.Add(time.Second), Keep: 1})
	if err != nil || r.Removed != 1 || r.Freed != 3 {
		t.Errorf("%+v %v", r, err)
	}
	for i, name := range slices.Concat(left, others) {
		if _, err := os.Stat(filepath.Join(at, name)); os.IsNotExist(err) != (i < len(left)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A part is sent again from its beginning if the target fails, six times at most. A file that changes
// meanwhile fails the backup at once, and its part does not stay.
func TestPutRetries(t *testing.T) {
	defer backup.SetPause(time.Millisecond)()
	content := folder{"000001.sst": strings.Repeat("a", 300_000), "MANIFEST-000001": "m"}
	for _, fails := range []int{0, 1, 5, 6} {
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
		if fails == 6 {
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
		if v := verified(t, to); v.Parts != 2 {
			t.Errorf("%+v", v)
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
	o := backup.CreateOptions{Dir: dir, Time: time.Now(), Gently: true}
	if _, err := backup.Create(t.Context(), changing, o); err == nil || !strings.Contains(err.Error(), "changed while it was read") || puts != 1 {
		t.Errorf("a file that changes: %v, sent %d times", err, puts)
	}
	if has, err := to.List(t.Context(), "parts"); err != nil || len(has) > 0 {
		t.Errorf("%v stay: %v", has, err)
	}
}
