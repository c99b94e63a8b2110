package backfill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"skein.blue/internal/say"

	"skein.blue/consumer/repo"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
	"skein.blue/internal/outward"
)

// The audit fetches random repos from their hosts, and compares them with what the index holds:
// with the records of each account, and with the sets that queries read. It is the proof to users
// that answers are right. A repo that differs is queued for a fetch, as if events had been missed,
// and its differences become dead letters.

// The outcomes of an audited repo: labels of a metric.
const (
	auditSame      = "same"
	auditDifferent = "different"
	auditUnfetched = "unfetched" // its host did not send it
	auditMoved     = "moved_on"  // the index and the host never had the same rev
)

// Bounds of an audit: how often and how long to wait until the index has the rev of the repo, how
// many differences of a repo to report, and the largest repo, in records.
const (
	auditTries   = 20
	auditWait    = 3 * time.Second
	auditReports = 20
	auditRecords = 500_000
)

// An auditor makes the audits.
type auditor struct {
	o       *Options
	fetcher *fetcher
	counts  struct{ repos, records, differences atomic.Int64 }
}

// run audits Options.Audit repos an hour until ctx ends.
func (a *auditor) run(ctx context.Context) {
	every := time.Duration(float64(time.Hour) / a.o.Audit)
	for outward.Wait(ctx, every/2+rand.N(every)) == nil {
		did, err := a.someAccount(ctx)
		if err == nil && did != "" {
			err = a.one(ctx, did)
		}
		if err != nil && ctx.Err() == nil {
			a.o.Logger.Error("auditing a repo failed", "did", did, "error", err)
		}
	}
}

// someAccount returns a random account that claims to be complete, "" if it found none. Ids are
// spread over random shards, so it starts at a random id, and skips a random number of accounts,
// so that all in a shard get their turn.
func (a *auditor) someAccount(ctx context.Context) (did string, err error) {
	err = a.o.Store.View(ctx, func(s *graph.View) error {
		did = ""
		counts, err := s.Counts()
		if err != nil {
			return err
		}
		skip := rand.IntN(1 + min(int(counts.Accounts), 1000+2*int(counts.Accounts>>a.o.Store.ShardBits())))
		var chosen dict.ID
		choose := func(id dict.ID, st *graph.RepoState) (more bool) {
			if !st.Complete() || s.IsHidden(id) {
				return true
			}
			chosen = id // the last one, if too few follow
			skip--
			return skip >= 0
		}
		err = s.EachAccount(dict.ID(rand.Uint64N(uint64(dict.FirstLong))), choose)
		if err == nil && chosen == dict.None { // none follows
			err = s.EachAccount(dict.None, choose)
		}
		if err != nil || chosen == dict.None {
			return err
		}
		return s.Strings(dict.DID, []dict.ID{chosen}, func(_ int, b []byte) error { did = string(b); return nil })
	})
	return did, err
}

// one fetches a repo, and compares the index with it.
func (a *auditor) one(ctx context.Context, did string) error {
	r := a.fetcher.reader()
	defer r.Release()
	var want map[record]string
	host, err := a.fetcher.client.resolve(ctx, did)
	if err == nil {
		_, err = a.fetcher.getRepo(ctx, host, did, r)
	}
	if err == nil {
		want, err = recordsOf(ctx, r)
	}
	if err != nil {
		if ctx.Err() == nil {
			a.o.Metrics.audited(auditUnfetched, 0)
		}
		return nil // the host's fault, which is counted
	}
	for range auditTries {
		var outcome string
		var differences []string
		err := a.o.Store.View(ctx, func(s *graph.View) (err error) {
			outcome, differences, err = compareRecords(s, a.o.Store.Kinds(), r, want)
			return err
		})
		switch {
		case err != nil:
			return err
		case outcome == auditMoved:
			a.o.Metrics.audited(auditMoved, 0)
			return nil
		case outcome != "":
			return a.report(ctx, did, host, string(r.Rev), len(want), outcome, differences)
		}
		if outward.Wait(ctx, auditWait) != nil { // until the stream has delivered what the host has
			return nil
		}
	}
	a.o.Metrics.audited(auditMoved, 0)
	return nil
}

// record names a record, with its subject if it can have several.
type record struct {
	kind          kinds.Kind
	rkey, subject string
}

func recordOf(k kinds.Kind, rkey, subject []byte) record {
	r := record{kind: k, rkey: string(rkey)}
	if k.IsMany() {
		r.subject = string(subject)
	}
	return r
}

// recordsOf returns the records of a repo that was read with their subjects, "" for none.
func recordsOf(ctx context.Context, r *repo.Reader) (map[record]string, error) {
	records := map[record]string{}
	err := r.Walk(ctx, func(k kinds.Kind, rkey, subject []byte) {
		if len(records) <= auditRecords {
			records[recordOf(k, rkey, subject)] = string(subject)
		}
	})
	if err == nil && len(records) > auditRecords {
		err = errors.New("the repo is too large to be audited")
	}
	return records, err
}

// compareRecords compares an account's records in the index, and the sets of their subjects, with a repo that was read.
// outcome is "" if the index does not have its rev yet: there is nothing to compare. It skips kinds that are known to
// lack records.
func compareRecords(s *graph.View, table *kinds.Table, r *repo.Reader, want map[record]string) (outcome string, differences []string, err error) {
	did, rev := string(r.DID), string(r.Rev)
	st, known, row, err := s.Account(did)
	switch {
	case err != nil:
		return "", nil, err
	case !known || row != nil || !st.Complete() || st.Rev.String() > rev:
		return auditMoved, nil, nil
	case st.Rev.String() < rev:
		return "", nil, nil
	}
	if !st.Has(graph.FlagNoRoot) && st.Data != graph.Root(r.Data[:8]) {
		differences = append(differences, "the index has another root at rev "+rev)
	}
	lacking := s.Lacking()
	var id intern.Batch
	n := id.Add(dict.DID, r.DID)
	if err := s.Lookup(&id); err != nil {
		return "", nil, err
	}
	note := func(name record, format string, args ...any) {
		differences = append(differences, fmt.Sprintf("%s/%s: "+format, append([]any{table.Info(name.kind).Collection, name.rkey}, args...)...))
	}
	left := maps.Clone(want) // what the index does not have
	for i := range table.All {
		k := &table.All[i]
		if _, lacks := lacking[k.Kind]; lacks {
			maps.DeleteFunc(left, func(name record, _ string) bool { return name.kind == k.Kind })
			continue
		}
		err := eachRecord(s, k, id.ID(n), func(rkey, subject []byte, isInSet bool) {
			name := recordOf(k.Kind, rkey, subject)
			switch there, ok := want[name]; {
			case !ok:
				note(name, "the index has it (%s), its host does not", subject)
			case there != string(subject):
				note(name, "the index has %q, its host %q", subject, there)
			}
			if !isInSet {
				note(name, "the record is not in the set of its subject")
			}
			delete(left, name)
		})
		if err != nil {
			return "", nil, err
		}
	}
	for name, subject := range left {
		if subject != "" {
			note(name, "its host has it (%s), the index does not", subject)
		}
	}
	if len(differences) > 0 {
		return auditDifferent, differences, nil
	}
	return auditSame, nil, nil
}

// eachRecord calls each for an account's records of a kind. isInSet says that the record is in the set of its subject, if the
// kind has sets.
func eachRecord(s *graph.View, k *kinds.Info, actor dict.ID, each func(rkey, subject []byte, isInSet bool)) error {
	var rkeys [][]byte
	var ids []dict.ID
	err := s.Records(k.Kind, actor, func(p graph.Path, subject dict.ID) bool {
		rkeys, ids = append(rkeys, p.AppendRkey(nil)), append(ids, subject)
		return true
	})
	for ; len(ids) > 0 && err == nil; rkeys, ids = rkeys[min(len(ids), 1000):], ids[min(len(ids), 1000):] {
		err = s.Strings(k.To.Is(), ids[:min(len(ids), 1000)], func(i int, subject []byte) (err error) {
			isInSet := true
			if k.HasSets() {
				isInSet, err = s.HasEdge(k.Kind, actor, ids[i], graph.Window{})
			}
			each(rkeys[i], subject, isInSet)
			return err
		})
	}
	return err
}

// report counts an audited repo. It keeps the differences as dead letters, and queues the repo for a fetch before it counts
// it: once the count says that it differed, its repo is in the queue, or fetched again.
func (a *auditor) report(ctx context.Context, did, host, rev string, records int, outcome string, differences []string) (err error) {
	if len(differences) > 0 {
		slices.Sort(differences)
		a.o.Logger.Error("the index differs from a repo at the same rev; refetching the repo", "did", did, "host", host, "rev", rev, "records", records, "differences", len(differences), "first", differences[0])
		var b batch.Batch
		for _, d := range differences[:min(len(differences), auditReports)] {
			b.AddDeadLetter(batch.DeadLetter{DID: did, Path: say.Short(d), Reason: "audit", Time: time.Now().UTC()})
		}
		if err = a.o.Store.Apply(ctx, "", &b); err == nil {
			err = a.o.resync(ctx, batch.Cause{Reason: "audit"}, did)
		}
	}
	a.counts.repos.Add(1)
	a.counts.records.Add(int64(records))
	a.counts.differences.Add(int64(len(differences)))
	a.o.Metrics.audited(outcome, len(differences))
	return err
}
