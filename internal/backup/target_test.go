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
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skein.blue/internal/backup"
	"skein.blue/internal/outward"
	"skein.blue/internal/sim/harness"
)

// Every target does what a map does.
func testTarget(t *testing.T, to backup.Target) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 5))
	want := map[string]string{}
	name := func() string { return fmt.Sprintf("parts/%02x/%d", rng.IntN(3), rng.IntN(4)) }
	for range 150 {
		n := name()
		switch rng.IntN(6) {
		case 0, 1:
			v := strings.Repeat(fmt.Sprint(rng.Uint64()), rng.IntN(4000))
			must(t, to.Put(t.Context(), n, int64(len(v)), bytes.NewReader([]byte(v)), false))
			want[n] = v
		case 2: // a reader that is too short, or fails
			err := to.Put(t.Context(), n, 5000, io.MultiReader(strings.NewReader("short"), failingReader{rng.IntN(2) == 0}), false)
			if err == nil {
				t.Fatal("a short object was written")
			}
		case 3:
			err := to.Put(t.Context(), n, 7, strings.NewReader("claimed"), true)
			if _, ok := want[n]; ok != errors.Is(err, backup.ErrExists) || !ok && err != nil {
				t.Fatalf("claim of %s, which exists: %v: %v", n, ok, err)
			} else if !ok {
				want[n] = "claimed"
			}
		case 4:
			must(t, to.Delete(t.Context(), n))
			delete(want, n)
		case 5:
			v, ok := want[n]
			r, err := to.Get(t.Context(), n)
			if !ok {
				if !errors.Is(err, backup.ErrNotFound) {
					t.Fatal(err)
				}
				break
			}
			must(t, err)
			b, err := io.ReadAll(r)
			if err = errors.Join(err, r.Close()); err != nil || string(b) != v {
				t.Fatalf("%d bytes of %d: %v", len(b), len(v), err)
			}
		}
		got, err := to.List(t.Context(), "parts")
		must(t, err)
		sizes := map[string]int64{}
		for n, v := range want {
			sizes[n] = int64(len(v))
		}
		if !maps.Equal(got, sizes) {
			t.Fatalf("%v, want %v", got, sizes)
		}
	}
	if other, err := to.List(t.Context(), "other"); err != nil || len(other) > 0 {
		t.Fatal(other, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := to.Put(ctx, "parts/x", 3, strings.NewReader("abc"), false); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

type failingReader struct{ fails bool }

func (f failingReader) Read([]byte) (int, error) {
	if f.fails {
		return 0, errors.New("cannot be read")
	}
	return 0, io.EOF
}

func TestFolder(t *testing.T) { testTarget(t, open(t, filepath.Join(t.TempDir(), "a", "b"))) }

func TestS3(t *testing.T) {
	harness.Start(t)
	for _, name := range []string{"s3://" + harness.Name, "s3://" + harness.Name + "/a/prefix/"} {
		testTarget(t, open(t, name))
	}
}

// Reading from a web server that goes silent in the middle, or drips, fails, and says so.
func TestSlowServer(t *testing.T) {
	defer backup.SetPace(outward.Pace{Bytes: 5000, Within: 100 * time.Millisecond})()
	for _, drips := range []bool{true, false} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000000")
			for r.Context().Err() == nil {
				_, _ = w.Write(make([]byte, 10))
				_ = http.NewResponseController(w).Flush()
				if !drips {
					<-r.Context().Done()
				}
				time.Sleep(time.Millisecond)
			}
		}))
		to, n := open(t, srv.URL), int64(0)
		body, err := to.Get(t.Context(), "x")
		if err == nil {
			n, err = io.Copy(io.Discard, body)
			err = errors.Join(err, body.Close())
		}
		if !errors.Is(err, outward.ErrSlow) || n < 10 || n > 5000 {
			t.Errorf("drips %v: %d bytes, %v", drips, n, err)
		}
		srv.Close()
	}
}

// A bucket's service that stops reading what is sent to it, or that drips, is given up. It does not hold
// a backup, nor a restore.
func TestSlowService(t *testing.T) {
	defer backup.SetPace(outward.Pace{Bytes: 5000, Within: 100 * time.Millisecond})()
	end := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Length", "1000000")
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			_, _ = w.Write(make([]byte, 10))
			_ = http.NewResponseController(w).Flush()
		}
		<-end
	}))
	defer srv.Close()
	defer close(end)
	useService(t, srv.URL)
	to := open(t, "s3://bucket/x")
	const size = 32 << 20 // more than the buffers between
	if err := to.Put(t.Context(), "x", size, io.LimitReader(zeros{}, size), false); !errors.Is(err, outward.ErrSlow) {
		t.Errorf("sending: %v", err)
	}
	body, err := to.Get(t.Context(), "x")
	must(t, err)
	if n, err := io.Copy(io.Discard, body); !errors.Is(err, outward.ErrSlow) || n != 10 {
		t.Errorf("reading: %d bytes, %v", n, err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestOpenTarget(t *testing.T) {
	for name, want := range map[string]string{
		"":                          "empty",
		"s3://":                     "BUCKET",
		"ftp://x/y":                 "unknown scheme",
		"http://example.com/":       "loopback only",
		"http://10.0.0.1/":          "loopback only",
		"https://":                  "HOST",
		"https://example.com/x?y=1": "HOST",
	} {
		if _, err := backup.OpenTarget(name); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for name, want := range map[string]string{
		"/a/b/": "/a/b", "s3://bucket/a/b/": "s3://bucket/a/b", "http://127.0.0.1:80/x": "http://127.0.0.1:80/x", "https://user:pass@example.com/x": "https://user:xxxxx@example.com/x",
	} {
		to, err := backup.OpenTarget(name)
		if err != nil || to.String() != want {
			t.Errorf("%q: %v %v", name, to, err)
		}
	}
}

// useService makes an address the service of all buckets.
func useService(t *testing.T, url string) {
	for name, value := range map[string]string{"AWS_ENDPOINT_URL_S3": url, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"} {
		t.Setenv(name, value)
	}
}
