package backup

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"aead.dev/minisign"

	"skein.blue/internal/say"
)

// Errors of this package. They are wrapped; test with errors.Is.
var (
	// ErrNone is returned if a target has no backup, or none from before the time asked for.
	ErrNone = errors.New("no backup")
	// ErrManifest is returned for a manifest that is damaged, or that this version cannot read.
	ErrManifest = errors.New("the manifest cannot be used")
	// ErrPart is returned for a part that is missing or damaged.
	ErrPart = errors.New("a part of the backup is missing or damaged")
	// ErrSignature is returned if a manifest lacks the signature that it must have.
	ErrSignature = errors.New("the manifest is not signed by the trusted key")
	// ErrKey is returned if a key cannot be used.
	ErrKey = errors.New("the key cannot be used")
	// ErrBusy is returned if somebody else is writing to the target.
	ErrBusy = errors.New("the target is in use")
	// ErrFolder is returned by Restore for a folder that is not empty.
	ErrFolder = errors.New("the folder is not empty")
)

// version is the version of the manifests that this program writes and reads.
const version = 1

// Bounds of what is read from a target, which may be a stranger's.
const (
	maxManifest = 64 << 20 // bytes
	maxFiles    = 1 << 20
	maxIndex    = 8 << 20 // bytes
	maxPart     = 1 << 40 // bytes
)

// A Manifest is one backup. Its time, in milliseconds, is its name.
type Manifest struct {
	Version int       `json:"skeinBackup"` // of this format
	Time    time.Time `json:"time"`        // of the checkpoint
	Program string    `json:"program"`     // that made it: skein and its version
	Store   Summary   `json:"store"`
	Files   []File    `json:"files"` // sorted by name
}

// A Summary says what a backed-up store holds. It is for people, and for those who must decide
// whether to use it.
type Summary struct {
	Format   int              `json:"format"`           // version of the store's own format
	Source   string           `json:"source,omitempty"` // the relay of the newest cursor
	Cursor   int64            `json:"cursor,omitempty"` // the sequence number at which the store goes on
	Seen     time.Time        `json:"seen,omitzero"`    // the time of that event
	Accounts int64            `json:"accounts"`
	Records  map[string]int64 `json:"records"`  // by kind
	Complete bool             `json:"complete"` // nothing is known to be missing
}

// A File is a file of a store.
type File struct {
	Name     string `json:"name"`
	Size     int64  `json:"size"`               // in bytes
	SHA256   string `json:"sha256"`             // of its bytes, in hexadecimal
	Modified int64  `json:"modified,omitempty"` // of the file when it was read, in nanoseconds since 1970
}

// part returns the name of the object that has the file's bytes.
func (f *File) part() string { return parts + "/" + f.SHA256[:2] + "/" + f.SHA256 }

// Bytes returns the size of the restored store.
func (m *Manifest) Bytes() (n int64) {
	for i := range m.Files {
		n += m.Files[i].Size
	}
	return n
}

// fileName matches the names of a store's files. None of them can name another folder.
var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,200}$`)

// decodeManifest reads a manifest, which may be a stranger's.
func decodeManifest(b []byte) (*Manifest, error) {
	var m Manifest
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if m.Version != version {
		return nil, fmt.Errorf("%w: it has version %d, and this skein reads version %d; use the skein that made it (%s)", ErrManifest, m.Version, version, say.Line(m.Program))
	}
	if len(m.Files) == 0 || len(m.Files) > maxFiles {
		return nil, fmt.Errorf("%w: it names %d files", ErrManifest, len(m.Files))
	}
	for i := range m.Files {
		f := &m.Files[i]
		sum, err := hex.DecodeString(f.SHA256)
		switch {
		case !fileName.MatchString(f.Name) || strings.Contains(f.Name, ".."):
			return nil, fmt.Errorf("%w: %q is not the name of a store's file", ErrManifest, f.Name)
		case i > 0 && m.Files[i-1].Name >= f.Name:
			return nil, fmt.Errorf("%w: %q is out of order", ErrManifest, f.Name)
		case err != nil || len(sum) != 32 || strings.ToLower(f.SHA256) != f.SHA256:
			return nil, fmt.Errorf("%w: the hash of %s is not one", ErrManifest, f.Name)
		case f.Size < 0 || f.Size > maxPart:
			return nil, fmt.Errorf("%w: the size of %s is impossible", ErrManifest, f.Name)
		}
	}
	return &m, nil
}

const (
	manifests = "manifests"
	parts     = "parts"
	indexName = "index.json"
	signature = ".minisig"
	// timeForm is a manifest's name: sorted by name, manifests are sorted by time.
	timeForm = "20060102T150405.000Z"
)

// manifestOf returns the name of the manifest of a time.
func manifestOf(at time.Time) string { return manifests + "/" + at.UTC().Format(timeForm) + ".json" }

// An index names the manifests of a target that cannot be listed.
type index struct {
	Manifests []string `json:"manifests"` // oldest first
}

// writeIndex writes the list of the manifests.
func writeIndex(ctx context.Context, t Target, backups []time.Time) error {
	x := index{Manifests: []string{}}
	for _, at := range backups {
		x.Manifests = append(x.Manifests, manifestOf(at))
	}
	b, err := json.MarshalIndent(x, "", " ")
	if err != nil {
		return fmt.Errorf("the list of backups: %w", err)
	}
	return put(ctx, t, indexName, append(b, '\n'))
}

// List returns the times of a target's backups, oldest first. A backup's time is its name.
func List(ctx context.Context, t Target) (backups []time.Time, err error) {
	var x index
	found, err := t.List(ctx, manifests)
	for name := range found {
		x.Manifests = append(x.Manifests, name)
	}
	if errors.Is(err, ErrReadOnly) {
		var b []byte
		if b, err = get(ctx, t, indexName, maxIndex); errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("%s: %w: it has no %s: %w", t, ErrNone, indexName, err)
		}
		if err == nil {
			err = json.Unmarshal(b, &x)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listing the backups of %s: %w", t, err)
	}
	for _, name := range x.Manifests {
		at, err := time.Parse(manifests+"/"+timeForm+".json", name)
		if err == nil {
			backups = append(backups, at)
		}
	}
	slices.SortFunc(backups, time.Time.Compare)
	return backups, nil
}

// Find returns the newest backup of a target that is not newer than at; the newest of all if at is
// zero. If trust is set, the manifest must be signed by it.
func Find(ctx context.Context, t Target, at time.Time, trust *Trust) (*Manifest, error) {
	backups, err := List(ctx, t)
	if err != nil {
		return nil, err
	}
	for _, when := range slices.Backward(backups) {
		if at.IsZero() || !when.After(at) {
			return read(ctx, t, when, trust)
		}
	}
	if len(backups) > 0 {
		return nil, fmt.Errorf("%w in %s from %s or before; the oldest is of %s", ErrNone, t, at.UTC().Format(time.RFC3339Nano), backups[0].Format(time.RFC3339Nano))
	}
	return nil, fmt.Errorf("%w in %s", ErrNone, t)
}

// read reads a manifest and checks its signature.
func read(ctx context.Context, t Target, at time.Time, trust *Trust) (*Manifest, error) {
	name := manifestOf(at)
	b, err := get(ctx, t, name, maxManifest)
	if err != nil {
		return nil, err
	}
	if trust != nil {
		sig, err := get(ctx, t, name+signature, 4<<10)
		if errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("%s of %s: %w: it has no signature", name, t, ErrSignature)
		}
		if err != nil {
			return nil, err
		}
		if !minisign.Verify(*trust, b, sig) {
			return nil, fmt.Errorf("%s of %s: %w (key %X)", name, t, ErrSignature, trust.ID())
		}
	}
	m, err := decodeManifest(b)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", name, t, err)
	}
	if manifestOf(m.Time) != name { // else somebody could offer an old backup as a new one
		return nil, fmt.Errorf("%s of %s: %w: it is of %s, which is not what its name says", name, t, ErrManifest, m.Time.UTC().Format(timeForm))
	}
	return m, nil
}

// encode returns a manifest's bytes.
func (m *Manifest) encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, fmt.Errorf("the manifest: %w", err)
	}
	return append(b, '\n'), nil
}
