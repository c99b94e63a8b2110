package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"skein.blue/internal/outward"
)

// Errors of a Target. They are wrapped; test with errors.Is.
var (
	// ErrNotFound is returned for an object that does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists is returned by Put if the object exists, and must not.
	ErrExists = errors.New("already exists")
	// ErrReadOnly is returned by the methods that write to a web server, and by List.
	ErrReadOnly = errors.New("a web server: it can only be read from")
)

// A Target is a place for backups: a folder, a bucket, or, for reading only, a web server that publishes
// one of them. It holds objects: bytes under a name such as "parts/3f/3f2a…". An object appears whole or
// not at all, and is never changed, only replaced or deleted. The methods may be called from any
// goroutine.
type Target interface {
	// List returns the sizes of all objects whose names begin with the folder and a slash, by name.
	List(ctx context.Context, folder string) (map[string]int64, error)
	// Get reads an object.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// Put writes an object of size bytes. When it returns nil the object is durable; if it
	// fails, the object is as it was. With onlyNew, it returns ErrExists if the object exists.
	Put(ctx context.Context, name string, size int64, r io.Reader, onlyNew bool) error
	// Delete removes an object. It returns nil if the object does not exist.
	Delete(ctx context.Context, name string) error
	// String returns the target as a user names it, without secrets.
	String() string
}

// OpenTarget returns the target that a user names: a folder, s3://BUCKET/PREFIX, or
// https://HOST/PATH. http:// is for loopback only. It makes no connection.
func OpenTarget(name string) (Target, error) {
	scheme, rest, ok := strings.Cut(name, "://")
	switch {
	case name == "":
		return nil, errors.New("it is empty; name a folder, s3://BUCKET/PREFIX or https://HOST/PATH")
	case !ok:
		abs, err := filepath.Abs(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return &folder{root: abs}, nil
	case scheme == "s3":
		bucket, prefix, _ := strings.Cut(rest, "/")
		if bucket == "" {
			return nil, fmt.Errorf("%s: expected s3://BUCKET/PREFIX", name)
		}
		return openS3(bucket, strings.Trim(prefix, "/"))
	case IsWeb(name):
		u, err := url.Parse(name)
		if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("%s: expected https://HOST/PATH", name)
		}
		return openWeb(u)
	default:
		return nil, fmt.Errorf("%s: unknown scheme %s; name a folder, s3://BUCKET/PREFIX or https://HOST/PATH", name, scheme)
	}
}

// IsWeb reports whether a user's target is a web server.
func IsWeb(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

// pace is the least that a server moves, of a part or of anything else.
var pace = outward.Pace{Bytes: 256 << 10, Within: 30 * time.Second}

// A transfer that fails is tried again: attempts times in all, after a pause that begins with
// firstPause and doubles.
const attempts = 6

var firstPause = time.Second

// again calls try until it returns nil, damage, or what trying again would not change.
func again(ctx context.Context, try func() error) error {
	wait := firstPause
	for n := 1; ; n++ {
		err := try()
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err == nil, n == attempts, errors.Is(err, ErrPart), errors.Is(err, errChanged):
			return err
		}
		_ = outward.Wait(ctx, wait) // try sees that ctx has ended
		wait *= 2
	}
}

// get reads a small object.
func get(ctx context.Context, t Target, name string, most int64) ([]byte, error) {
	r, err := t.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("reading %s of %s: %w", name, t, err)
	}
	if int64(len(b)) > most {
		return nil, fmt.Errorf("%w: %s of %s has more than %d bytes", ErrManifest, name, t, most)
	}
	return b, nil
}

func put(ctx context.Context, t Target, name string, b []byte) error {
	return t.Put(ctx, name, int64(len(b)), bytes.NewReader(b), false)
}

// interruptible is a reader that fails when ctx ends. After each read it calls each, if it is set.
type interruptible struct {
	ctx  context.Context //nolint:containedctx // of one call
	r    io.Reader
	each func(n int)
}

// Read implements io.Reader.
func (i *interruptible) Read(b []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := i.r.Read(b)
	if i.each != nil {
		i.each(n)
	}
	return n, err
}
