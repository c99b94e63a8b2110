// Package fdbkv is the engine for several machines: kv.Store on a FoundationDB
// cluster, through the official Go binding. Build with the tag fdb to include
// it; it then needs FoundationDB's client library (libfdb_c 7.3).
//
// All keys of a store lie under one prefix, so a cluster can hold several
// stores. A small merge is an append, which FoundationDB does without a read and
// without a conflict; readers fold the appended operands (frames.go). A large merge, and
// occasionally a small one, is folded in the transaction: it reads the value, folds it with
// the operand and writes it back.
//
// A View reads one snapshot for up to five seconds; ViewAcross continues in newer ones. The snapshot has all that
// this process has committed; of what others committed, the last tenth of a second may be missing, because
// Views share the read version that the client library keeps: asking for one took a third of the time of a small question. An
// Update retries until it is committed, its context ends, or it is too large. Any number of
// processes and goroutines may use a store.
//
// ViewAcross has batch priority: while the cluster is near its limits, it waits. What is kv.Urgent has system
// immediate priority, and everything else the default.
//
// A monitor (monitor.go) knows whether the cluster answers. While it does not, a View fails
// at once with kv.ErrUnavailable, and an Update waits.
package fdbkv

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"time"

	"skein.blue/internal/kv"
)

// ErrNotBuilt is returned by Open in a program built without the tag fdb.
var ErrNotBuilt = errors.New("this skein was built without FoundationDB")

// Options say how a store is opened.
type Options struct {
	Location

	// Create makes the store if it does not exist; without it Open returns
	// kv.ErrNotFound.
	Create bool
	// Merger folds merges. The store records its name.
	Merger kv.Merger
	// Timeout limits how long the cluster may be silent. After it, Open and View
	// return kv.ErrUnavailable. 0 means DefaultTimeout.
	Timeout time.Duration
	// Logger receives the engine's messages. nil means no logging.
	Logger *slog.Logger
	// Metrics count retries, conflicts, and what Views wait for. nil counts nothing.
	Metrics *kv.Metrics
}

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = 5 * time.Second

// A Location is the place of a store.
type Location struct {
	ClusterFile string // path
	Prefix      string // of the store's keys
}

// DefaultClusterFile is where FoundationDB's packages put the cluster file.
const DefaultClusterFile = "/etc/foundationdb/fdb.cluster"

// DefaultPrefix is the prefix of a store whose URL does not set one.
const DefaultPrefix = "skein"

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Parse parses the URL of a store: fdb:///path/to/fdb.cluster?prefix=skein.
func Parse(store string) (Location, error) {
	l := Location{ClusterFile: DefaultClusterFile, Prefix: DefaultPrefix}
	u, err := url.Parse(store)
	if err != nil {
		return l, fmt.Errorf("the store %q is not a URL: %w", store, err)
	}
	if u.Scheme != "fdb" || u.Opaque != "" || u.Host != "" {
		return l, fmt.Errorf("the store %q must look like fdb:///path/to/fdb.cluster?prefix=skein: three slashes and an absolute path", store)
	}
	if u.Path != "" && u.Path != "/" {
		l.ClusterFile = u.Path
	} else if env := os.Getenv("FDB_CLUSTER_FILE"); env != "" {
		l.ClusterFile = env
	}
	for name, values := range u.Query() {
		if name != "prefix" || len(values) != 1 {
			return l, fmt.Errorf("the store %q: unknown or repeated parameter %s; the only one is prefix", store, name)
		}
		if l.Prefix = values[0]; !validPrefix.MatchString(l.Prefix) {
			return l, fmt.Errorf("the store %q: the prefix must have 1 to 64 letters, digits, dots, hyphens and underscores", store)
		}
	}
	return l, nil
}

// String returns the URL of the store.
func (l Location) String() string {
	return (&url.URL{Scheme: "fdb", Path: l.ClusterFile, RawQuery: url.Values{"prefix": {l.Prefix}}.Encode()}).String()
}
