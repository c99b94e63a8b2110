//go:build fdb

package fdbkv

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/tuple"

	"skein.blue/internal/kv"
)

// Built reports whether this program can open a store on FoundationDB.
const Built = true

// apiVersion is the version of FoundationDB's API that this package uses;
// clusters and libraries from 7.3 on support it.
const apiVersion = 730

// formatVersion is the version of the layout of keys and values under the prefix.
const formatVersion = "1"

// The error codes of FoundationDB that this package distinguishes
// (https://apple.github.io/foundationdb/api-error-codes.html).
const (
	codeTooOld        = 1007 // transaction_too_old
	codeFutureVersion = 1009 // future_version
	codeNotCommitted  = 1020 // not_committed: a conflict
	codeUnknown       = 1021 // commit_unknown_result
	codeCancelled     = 1025 // transaction_cancelled
	codeOtherVersion  = 1039 // cluster_version_changed: another client library goes on
	codeTimedOut      = 1031 // transaction_timed_out
	codeBehind        = 1037 // process_behind
	codeTxnTooLarge   = 2101 // transaction_too_large
	codeKeyTooLarge   = 2102 // key_too_large
	codeValueTooLarge = 2103 // value_too_large
)

// Store is an open store. It implements kv.Store.
//
//	prefix as a tuple              the keys of the store: 0x02 prefix 0x00 key
//	0x02 prefix 0x01 "format"  →   formatVersion, a space, the Merger's name
type Store struct {
	db      fdb.Database
	o       Options
	prefix  []byte
	end     []byte // PrefixEnd(prefix)
	closed  atomic.Bool
	cluster *monitor
}

// Open opens the store that o names.
func Open(ctx context.Context, o Options) (kv.Store, error) {
	o.Timeout, o.Logger = cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if err := checkClusterFile(o.ClusterFile); err != nil {
		return nil, err
	}
	if err := prepare(); err != nil {
		return nil, fmt.Errorf("FoundationDB's client library: %w", err)
	}
	db, err := fdb.OpenDatabase(o.ClusterFile)
	if err != nil {
		return nil, fmt.Errorf("opening the cluster of %s: %w", o.ClusterFile, err)
	}
	if err := db.Options().SetTransactionReportConflictingKeys(); err != nil {
		return nil, fmt.Errorf("opening the cluster of %s: %w", o.ClusterFile, err)
	}
	s := &Store{db: db, o: o, prefix: tuple.Tuple{o.Prefix}.Pack()}
	s.end = kv.PrefixEnd(s.prefix)
	s.cluster = &monitor{silence: o.Timeout, clusterFile: o.ClusterFile, log: o.Logger, ask: s.ask}
	if err := s.checkFormat(ctx); err != nil {
		return nil, err
	}
	s.cluster.start()
	return s, nil
}

// prepare sets the options of the process before it opens a database. Without the bypass, Views can share read versions (reader.allow).
var prepare = sync.OnceValue(func() error {
	return cmp.Or(fdb.APIVersion(apiVersion), fdb.Options().SetDisableClientBypass())
})

// ask reads a key, for the monitor. An error other than a timeout or a cancellation
// is an answer too.
func (s *Store) ask(ctx context.Context, patience time.Duration) error {
	tr, err := s.db.CreateTransaction()
	if err != nil {
		return err
	}
	if err := tr.Options().SetTimeout(patience.Milliseconds()); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, tr.Cancel)()
	_, err = tr.Snapshot().Get(s.formatKey()).Get()
	if fe, ok := errors.AsType[fdb.Error](err); ok && fe.Code != codeTimedOut && fe.Code != codeCancelled {
		return nil
	}
	return err
}

// Healthy returns a kv.ErrUnavailable, without I/O, while the cluster does not answer.
func (s *Store) Healthy() error { return s.cluster.err() }

func (s *Store) formatKey() fdb.Key {
	k := bytes.Clone(s.prefix)
	k[len(k)-1] = 1
	return append(k, "format"...)
}

// checkFormat checks the format of the store, or records that of a new one.
func (s *Store) checkFormat(ctx context.Context) error {
	want := formatVersion + " " + s.o.Merger.Name()
	return s.transact(ctx, false, func(tr fdb.Transaction) error {
		v, err := tr.Get(s.formatKey()).Get()
		switch {
		case err != nil:
			return err
		case v == nil && !s.o.Create:
			return fmt.Errorf("%s: %w", s.o.Location, kv.ErrNotFound)
		case v == nil:
			tr.Set(s.formatKey(), []byte(want))
		case string(v) != want:
			return fmt.Errorf("%s: %w: the store has %q, this program needs %q", s.o.Location, kv.ErrFormat, v, want)
		}
		return nil
	})
}

// transact calls fn with transactions until one is committed. If the cluster
// does not answer, transact waits with persist, and fails without.
func (s *Store) transact(ctx context.Context, persist bool, fn func(fdb.Transaction) error) error {
	tooOld := 0
	entered := time.Now()
	patience := s.o.Timeout
	if persist {
		patience = max(2*s.o.Timeout, stateAge+2*time.Second)
	}
	for {
		tr, err := s.begin()
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, tr.Cancel)
		for begun := time.Now(); err == nil; {
			// FoundationDB counts the timeout from the beginning of the
			// transaction, earlier attempts included.
			tried := time.Now()
			if err = tr.Options().SetTimeout((time.Since(begun) + patience).Milliseconds()); err != nil {
				break
			}
			err = s.attempt(tr, kv.IsUrgent(ctx), fn)
			if err == nil {
				stop()
				s.cluster.success()
				return nil
			}
			fe, ok := errors.AsType[fdb.Error](err)
			if !ok {
				stop()
				return err
			}
			if fe.Code == codeTooOld && time.Since(tried) > stateAge*3/4 {
				if tooOld++; tooOld == 3 {
					stop()
					return fmt.Errorf("fdbkv: three attempts took longer than FoundationDB keeps a snapshot: %w", kv.ErrTooLarge)
				}
			}
			s.o.Metrics.Retried(cmp.Or(causes[fe.Code], "other"))
			if fe.Code == codeNotCommitted {
				s.reportConflicts(tr)
			}
			err = tr.OnError(fe).Get()
		}
		stop()
		switch fe, _ := errors.AsType[fdb.Error](err); {
		case ctx.Err() != nil:
			return fmt.Errorf("fdbkv: %w", context.Cause(ctx))
		case fe.Code == codeTimedOut && persist:
			if s.cluster.err() == nil { // else the monitor has logged the outage
				s.o.Logger.Warn("the FoundationDB cluster answers reads, but not a write; retrying",
					"cluster_file", s.o.ClusterFile, "for", time.Since(entered).Round(time.Second).String())
			}
		default:
			return s.explain(err)
		}
	}
}

// causes names the errors that are retried, for the metrics.
var causes = map[int]string{codeNotCommitted: "conflict", codeUnknown: "unknown", codeTooOld: "too_old", codeTimedOut: "timeout"}

func (s *Store) begin() (fdb.Transaction, error) {
	if s.closed.Load() {
		return fdb.Transaction{}, kv.ErrClosed
	}
	tr, err := s.db.CreateTransaction()
	if err != nil {
		return tr, fmt.Errorf("fdbkv: beginning a transaction: %w", err)
	}
	return tr, nil
}

// attempt calls fn and commits. Reads never see the transaction's own writes
// (kv.Txn), so the client library need not merge them into its reads.
func (s *Store) attempt(tr fdb.Transaction, urgent bool, fn func(fdb.Transaction) error) error {
	if err := tr.Options().SetReadYourWritesDisable(); err != nil {
		return err
	}
	if urgent {
		if err := tr.Options().SetPrioritySystemImmediate(); err != nil {
			return err
		}
	}
	if err := fn(tr); err != nil {
		return err
	}
	return tr.Commit().Get()
}

// conflictSpace is where a failed transaction lists the ranges of its reads that
// other writers changed: first keys map to "1", ends to "0".
const conflictSpace = "\xff\xff/transaction/conflicting_keys/"

func (s *Store) reportConflicts(tr fdb.Transaction) {
	if s.o.Metrics == nil {
		return
	}
	rows, err := tr.GetRange(fdb.KeyRange{Begin: fdb.Key(conflictSpace), End: fdb.Key(conflictSpace + "\xff")}, fdb.RangeOptions{}).GetSliceWithError()
	if err != nil {
		s.o.Logger.Warn("conflicting keys unreadable", "error", err)
	}
	for _, row := range rows {
		key, ok := bytes.CutPrefix(row.Key[len(conflictSpace):], s.prefix)
		if ok && string(row.Value) == "1" {
			s.o.Metrics.Conflicted(key)
		}
	}
}

// explain translates an error of FoundationDB into one of package kv.
func (s *Store) explain(err error) error {
	fe, ok := errors.AsType[fdb.Error](err)
	if !ok {
		return err
	}
	switch fe.Code {
	case codeTimedOut, codeOtherVersion:
		return fmt.Errorf("the FoundationDB cluster of %s does not answer: is it running (fdbcli --exec status)? %w", s.o.ClusterFile, kv.ErrUnavailable)
	case codeTooOld:
		return fmt.Errorf("fdbkv: %w: %w", kv.ErrTooOld, err)
	case codeTxnTooLarge, codeKeyTooLarge, codeValueTooLarge:
		return fmt.Errorf("fdbkv: %w: %w", kv.ErrTooLarge, err)
	}
	return fmt.Errorf("fdbkv: %w", err)
}

// stateAge is how long FoundationDB keeps a snapshot.
const stateAge = 5 * time.Second

// View implements kv.Store.
func (s *Store) View(ctx context.Context, fn func(kv.Reader) error) error {
	answering := s.cluster.now.Load()
	if err := s.cluster.errOf(answering); err != nil {
		return err
	}
	// If the cluster stops answering, the View ends.
	viewCtx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(answering.ctx, func() { end(kv.ErrUnavailable) })()
	_, err := s.view(viewCtx, ctx, 0, fn) // viewCtx ends a moment after ctx
	if err != nil && ctx.Err() == nil && viewCtx.Err() != nil {
		return s.cluster.errOf(answering)
	}
	return err
}

// ViewAcross implements kv.Store.
func (s *Store) ViewAcross(ctx context.Context, fn func(kv.Reader) error) (crossings int, err error) {
	return s.view(ctx, ctx, maxCrossings, fn)
}

// view is View, and may continue in a newer snapshot up to crossings times. ctx ends with the caller's, or earlier.
func (s *Store) view(ctx, caller context.Context, crossings int, fn func(kv.Reader) error) (crossed int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	tr, err := s.begin()
	if err != nil {
		return 0, err
	}
	r := &reader{s: s, tr: tr, from: tr.Snapshot(), view: true, ctx: caller, mayCross: crossings, urgent: kv.IsUrgent(ctx), begun: time.Now()}
	stop := context.AfterFunc(ctx, tr.Cancel)
	defer stop()
	// Take the snapshot now, not at the first read.
	if err := r.snapshot(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return 0, s.explain(err)
	}
	waited := time.Since(r.begun)
	s.cluster.success()
	err = fn(r)
	if len(r.ahead) > 0 {
		tr.Cancel() // reads that were begun early and are not needed
	}
	if crossings == 0 {
		s.o.Metrics.Viewed(waited, r.trips.Count())
	}
	if ctx.Err() != nil && errors.As(err, &fdb.Error{}) {
		return r.crossed, context.Cause(ctx)
	}
	return r.crossed, s.explain(err)
}

// Update implements kv.Store. After three attempts that took too long it returns
// kv.ErrTooLarge.
func (s *Store) Update(ctx context.Context, fn func(kv.Txn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := &txn{reader: reader{s: s}, seed: maphash.MakeSeed()}
	return s.transact(ctx, true, func(tr fdb.Transaction) error {
		t.begin(tr)
		if err := fn(t); err != nil {
			return err
		}
		return t.finish()
	})
}

// Sync implements kv.Store: FoundationDB syncs before it confirms a commit.
func (s *Store) Sync() error { return nil }

// Engine implements kv.Store.
func (s *Store) Engine() string { return "fdb" }

// Merger implements kv.Store.
func (s *Store) Merger() kv.Merger { return s.o.Merger }

// DiskBytes implements kv.Store with FoundationDB's estimate for one replica.
func (s *Store) DiskBytes() uint64 {
	n, _ := s.RangeBytes(nil, nil) // 0 with an error
	return n
}

// RangeBytes implements kv.Store with FoundationDB's estimate of keys and values,
// prefix included, for one replica. Below 3 MB it is rough.
func (s *Store) RangeBytes(lo, hi []byte) (uint64, error) {
	if hi != nil && bytes.Compare(lo, hi) >= 0 {
		return 0, nil
	}
	if err := s.cluster.err(); err != nil {
		return 0, err
	}
	tr, err := s.begin()
	if err != nil {
		return 0, err
	}
	if err := tr.Options().SetTimeout(s.o.Timeout.Milliseconds()); err != nil {
		return 0, s.explain(err)
	}
	n, err := tr.GetEstimatedRangeSizeBytes(s.keyRange(lo, hi)).Get()
	if err != nil {
		return 0, s.explain(err)
	}
	return uint64(n), nil
}

// Close implements kv.Store. The client library keeps its connection, which all
// stores of the process share.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		s.cluster.close()
	}
	return nil
}

func (s *Store) key(key []byte) fdb.Key {
	return append(append(make(fdb.Key, 0, len(s.prefix)+len(key)), s.prefix...), key...)
}

func (s *Store) keyRange(lo, hi []byte) fdb.KeyRange {
	if hi == nil {
		return fdb.KeyRange{Begin: s.key(lo), End: fdb.Key(s.end)}
	}
	return fdb.KeyRange{Begin: s.key(lo), End: s.key(hi)}
}

// clusterLine matches the line of a cluster file: description:id@address,…
var clusterLine = regexp.MustCompile(`^[A-Za-z0-9_]+:[A-Za-z0-9]+@\S+$`)

// checkClusterFile checks the syntax of a cluster file: on a malformed one, the
// client library would wait forever.
func checkClusterFile(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the cluster file: %w; choose another with --store fdb:///path/to/fdb.cluster", err)
	}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if clusterLine.MatchString(line) {
			return nil
		}
		return fmt.Errorf("the cluster file %s contains %q; want description:id@address:port,…", path, line)
	}
	return fmt.Errorf("the cluster file %s is empty", path)
}
