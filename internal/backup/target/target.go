// Package target reads and writes the places where backups are kept: a folder, a bucket of an
// S3-compatible service, or, for reading only, a folder that a web server publishes.
//
// A target holds objects: bytes under a name such as "parts/3f/3f2a…". An object appears whole or
// not at all, and is never changed, only replaced or deleted.
package target

import (
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
	// ErrExists is returned by Claim if the object exists.
	ErrExists = errors.New("already exists")
	// ErrReadOnly is returned by the methods that write to a web server, and by List.
	ErrReadOnly = errors.New("a web server: it can only be read from")
	// ErrURL is returned by Open for a TARGET that is not one.
	ErrURL = errors.New("not a backup target")
)

// An Object is an entry of a list.
type Object struct {
	Name     string
	Size     int64 // in bytes
	Modified time.Time
}

// A Target is a place for backups. Its methods may be called from any goroutine.
type Target interface {
	// List calls each for every object whose name begins with the folder and a slash.
	List(ctx context.Context, folder string, each func(Object) error) error
	// Get reads an object from the byte from on.
	Get(ctx context.Context, name string, from int64) (io.ReadCloser, error)
	// Put writes an object of size bytes. When it returns nil the object is durable; if it
	// fails, the object is as it was.
	Put(ctx context.Context, name string, size int64, r io.Reader) error
	// Claim writes an object unless it exists: then it returns ErrExists.
	Claim(ctx context.Context, name string, b []byte) error
	// Delete removes an object. It returns nil if the object does not exist.
	Delete(ctx context.Context, name string) error
	// String returns the target as a user names it, without secrets.
	String() string
}

// Open returns the target that a user names: a folder (a path, or file://PATH), s3://BUCKET/PREFIX,
// or https://HOST/PATH. http:// is for loopback only. It makes no connection.
func Open(name string) (Target, error) {
	scheme, rest, ok := strings.Cut(name, "://")
	switch {
	case name == "":
		return nil, fmt.Errorf("%w: it is empty; name a folder, s3://BUCKET/PREFIX or https://HOST/PATH", ErrURL)
	case !ok:
		return openFolder(name)
	case scheme == "file":
		if !strings.HasPrefix(rest, "/") {
			return nil, fmt.Errorf("%w: %s: a file URL has three slashes and an absolute path, such as file:///var/backups/skein", ErrURL, name)
		}
		return openFolder(rest)
	case scheme == "s3":
		bucket, prefix, _ := strings.Cut(rest, "/")
		if bucket == "" {
			return nil, fmt.Errorf("%w: %s: expected s3://BUCKET/PREFIX", ErrURL, name)
		}
		return openS3(bucket, strings.Trim(prefix, "/"))
	case scheme == "http" || scheme == "https":
		u, err := url.Parse(name)
		if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("%w: %s: expected https://HOST/PATH", ErrURL, name)
		}
		return openWeb(u)
	default:
		return nil, fmt.Errorf("%w: %s: unknown scheme %s; name a folder, s3://BUCKET/PREFIX or https://HOST/PATH", ErrURL, name, scheme)
	}
}

// pace is the least that a server moves, of a part or of anything else.
var pace = outward.Pace{Bytes: 256 << 10, Within: 30 * time.Second}

// Kept reports whether a server that moved so many bytes of an object in a time, and then broke off,
// was fast enough for another attempt that begins there.
func Kept(moved int64, in time.Duration) bool { return pace.Kept(moved, in) }

// LostFound is a folder that some file systems have at their root. A folder that has nothing else is
// empty.
const LostFound = "lost+found"

// IsWeb reports whether a user's target is a web server.
func IsWeb(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

func openFolder(name string) (Target, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrURL, name, err)
	}
	return &folder{root: abs}, nil
}
