// Package fdbkv is the engine for more than one machine: kv.Store on a
// FoundationDB cluster, through the official Go binding. It is built in with
// the tag fdb, and then needs FoundationDB's client library (libfdb_c 7.3).
//
// All of a store's keys lie under one prefix, so that a cluster can hold
// several. A small merge is an append, which FoundationDB does without a read and
// without a conflict: readers fold what was appended (frames.go). A larger one, and now
// and then a small one, is folded in the transaction: the value is read, folded with the
// operand and written.
//
// A View is one state for up to five seconds; ViewAcross goes over to newer ones. An
// Update is tried until it is committed, its context ends, or it is too large. A store
// is for any number of processes, and goroutines.
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

// ErrReadOnly is returned by Update of a store that was opened for reading.
var ErrReadOnly = errors.New("fdbkv: the store is open for reading only")

// Options say how a store is opened.
type Options struct {
	Location

	// Create makes a store where there is none; without it Open returns
	// kv.ErrNotFound.
	Create bool
	// ReadOnly opens the store for reading only.
	ReadOnly bool
	// Merger folds merges; its name is kept in the store.
	Merger kv.Merger
	// Timeout is how long a cluster may take to answer. After it Open, and a
	// View of a cluster that has answered nobody for so long, return
	// kv.ErrUnavailable. 0 means DefaultTimeout.
	Timeout time.Duration
	// Logger receives what the engine says. nil means nothing is said.
	Logger *slog.Logger
	// Retried, if set, is told of each attempt of an Update that is made
	// again: conflict, unknown, too_old, timeout or other.
	Retried func(cause string)
	// Conflicted, if set, is told of each key range that made a commit
	// conflict, as FoundationDB reports it: by its first key.
	Conflicted func(key []byte)
	// Wrote, if set, is told of each key and value that a commit is about to
	// set, merges folded. It is for measurements.
	Wrote func(key, value []byte)
}

// DefaultTimeout is how long a cluster may take to answer.
const DefaultTimeout = 5 * time.Second

// A Location says where a store is.
type Location struct {
	ClusterFile string
	Prefix      string
}

// DefaultClusterFile is where FoundationDB's packages put the cluster file.
const DefaultClusterFile = "/etc/foundationdb/fdb.cluster"

// DefaultPrefix is that of a store whose URL names none.
const DefaultPrefix = "skein"

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// Parse reads the URL of a store: fdb:///path/to/fdb.cluster?prefix=skein.
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
			return l, fmt.Errorf("the store %q: one parameter is known, prefix, not %s", store, name)
		}
		if l.Prefix = values[0]; !validPrefix.MatchString(l.Prefix) {
			return l, fmt.Errorf("the store %q: a prefix has 1 to 64 letters, digits, dots, hyphens and underscores", store)
		}
	}
	return l, nil
}

// String returns the URL of the store.
func (l Location) String() string {
	return (&url.URL{Scheme: "fdb", Path: l.ClusterFile, RawQuery: url.Values{"prefix": {l.Prefix}}.Encode()}).String()
}
