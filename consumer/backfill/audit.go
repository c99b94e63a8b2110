package backfill

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"skein.blue/consumer/repo"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/intern"
	"skein.blue/intern/dict"
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
	for wait(ctx, every/2+rand.N(every)) == nil {
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
	defer free(r)
	host, err := a.fetcher.client.resolve(ctx, did)
	if err == nil {
		_, err = a.fetcher.getRepo(ctx, host, did, r)
	}
	if err != nil {
		if ctx.Err() == nil {
			a.o.Metrics.audited(auditUnfetched, 0, 0)
			a.o.Logger.Debug("a repo could not be audited", "did", did, "error", err)
		}
		return nil // the host's fault, which is counted
	}
	want, err := recordsOf(ctx, r)
	if err != nil {
		a.o.Metrics.audited(auditUnfetched, 0, 0)
		return nil // likewise
	}
	rev, root := string(r.Rev), graph.Root(r.Data[:8])
	for range auditTries {
		var found *auditResult
		err := a.o.Store.View(ctx, func(s *graph.View) (err error) {
			found, err = compareRecords(s, a.o.Store.Kinds(), did, rev, root, want)
			return err
		})
		switch {
		case err != nil:
			return err
		case found.ahead:
			a.o.Metrics.audited(auditMoved, 0, 0)
			return nil
		case found.same:
			return a.report(ctx, did, host, rev, len(want), found.differences)
		}
		if wait(ctx, auditWait) != nil { // until the stream has delivered what the host has
			return nil
		}
	}
	a.o.Metrics.audited(auditMoved, 0, 0)
	return nil
}

// recordsOf returns the records of a repo that was read: the subject by kind and key, "" for none.
func recordsOf(ctx context.Context, r *repo.Reader) (map[string]string, error) {
	records := map[string]string{}
	err := r.Walk(ctx, func(k kinds.Kind, rkey, subject []byte) {
		if len(records) < auditRecords+1 {
			records[recordName(k, rkey, subject)] = string(subject)
		}
	})
	if err == nil && len(records) > auditRecords {
		err = errors.New("the repo is too large to be audited")
	}
	return records, err
}

// recordName returns the kind and the key of a record, and its subject if it can have several.
func recordName(k kinds.Kind, rkey, subject []byte) string {
	name := string([]byte{byte(k)}) + string(rkey)
	if k.IsMany() {
		name += "\x00" + string(subject)
	}
	return name
}

// auditResult is the outcome of comparing the index with a repo.
type auditResult struct {
	same        bool // both have the same rev
	ahead       bool // the index has a newer rev, or the account is no longer complete
	differences []difference
}

// difference is a record that the index and the host do not have alike.
type difference struct {
	path string
	what string
}

// compareRecords compares an account's records with a repo. If the revs differ, there is nothing
// to compare yet.
func compareRecords(s *graph.View, table *kinds.Table, did, rev string, root graph.Root, want map[string]string) (*auditResult, error) {
	c := &auditResult{}
	st, known, row, err := s.Account(did)
	switch {
	case err != nil:
		return nil, err
	case !known || row != nil || !st.Complete() || st.Rev.String() > rev:
		c.ahead = true
		return c, nil
	case st.Rev.String() < rev:
		return c, nil
	}
	c.same = true
	note := func(path, format string, args ...any) {
		c.differences = append(c.differences, difference{path, fmt.Sprintf(format, args...)})
	}
	if !st.Has(graph.FlagNoRoot) && st.Data != root {
		note("", "the index has another root at rev %s", rev)
	}
	lacking, err := s.Lacking()
	if err != nil {
		return nil, err
	}
	actor, err := idOf(s, did)
	if err != nil {
		return nil, err
	}
	have, err := indexedRecords(s, table, actor, lacking, note)
	if err != nil {
		return nil, err
	}
	for name, subject := range have {
		switch there, ok := want[name]; {
		case !ok:
			note(pathOf(table, name), "the index has it (%s), its host does not", subject)
		case there != subject:
			note(pathOf(table, name), "the index has %q, its host %q", subject, there)
		}
	}
	for name, subject := range want {
		_, has := have[name]
		if _, lacks := lacking[kinds.Kind(name[0])]; !has && !lacks && subject != "" {
			note(pathOf(table, name), "its host has it (%s), the index does not", subject)
		}
	}
	return c, nil
}

// pathOf returns the path of a record by its name.
func pathOf(table *kinds.Table, name string) string {
	rkey, _, _ := strings.Cut(name[1:], "\x00")
	return table.Info(kinds.Kind(name[0])).Collection + "/" + rkey
}

// idOf returns the id of an account.
func idOf(s *graph.View, did string) (id dict.ID, err error) {
	var b intern.Batch
	n := b.Add(dict.DID, []byte(did))
	if err := s.Lookup(&b); err != nil {
		return dict.None, err
	}
	return b.ID(n), nil
}

// indexedRecords returns an account's records in the index, as recordsOf returns those of a repo, except those
// of lacking kinds: the index knows that it lacks some. It notes records that are not in the sets of
// their subjects.
func indexedRecords(s *graph.View, table *kinds.Table, actor dict.ID, lacking map[kinds.Kind]time.Time, note func(path, format string, args ...any)) (map[string]string, error) {
	have := map[string]string{}
	for i := range table.All {
		k := &table.All[i]
		if _, lacks := lacking[k.Kind]; lacks {
			continue
		}
		var rkeys [][]byte
		var ids []dict.ID
		err := s.Records(k.Kind, actor, func(p graph.Path, subject dict.ID) bool {
			rkeys, ids = append(rkeys, p.AppendRkey(nil)), append(ids, subject)
			return true
		})
		for part := range slices.Chunk(ids, 1000) {
			if err != nil {
				break
			}
			some := rkeys[:len(part)]
			rkeys = rkeys[len(part):]
			err = s.Strings(k.To.Is(), part, func(i int, subject []byte) error {
				have[recordName(k.Kind, some[i], subject)] = string(subject)
				return nil
			})
			for i := 0; i < len(part) && k.HasSets() && err == nil; i++ {
				var has bool
				if has, err = s.HasEdge(k.Kind, actor, part[i]); !has && err == nil {
					note(k.Collection+"/"+string(some[i]), "the record is not in the set of its subject")
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return have, nil
}

// report counts an audited repo. One that differs is queued before it is counted, so that
// its repo is in the queue, or fetched again, once the count says that it differed.
func (a *auditor) report(ctx context.Context, did, host, rev string, records int, differences []difference) (err error) {
	outcome := auditSame
	if len(differences) > 0 {
		outcome = auditDifferent
		slices.SortFunc(differences, func(x, y difference) int { return strings.Compare(x.path, y.path) })
		a.o.Logger.Error("the index differs from a repo at the same rev; refetching the repo", "did", did, "host", host, "rev", rev, "records", records, "differences", len(differences), "first", differences[0].path+": "+differences[0].what)
		err = a.refetch(ctx, did, differences)
	}
	a.counts.repos.Add(1)
	a.counts.records.Add(int64(records))
	a.counts.differences.Add(int64(len(differences)))
	a.o.Metrics.audited(outcome, records, len(differences))
	return err
}

// refetch keeps the differences of a repo as dead letters, and queues the repo for a fetch.
func (a *auditor) refetch(ctx context.Context, did string, differences []difference) error {
	var b batch.Batch
	for _, d := range differences[:min(len(differences), auditReports)] {
		b.AddDeadLetter(batch.DeadLetter{DID: did, Path: shorten(d.path + ": " + d.what), Reason: "audit", Time: time.Now().UTC()})
	}
	if err := a.o.Store.Apply(ctx, "", &b); err != nil {
		return fmt.Errorf("backfill: keeping the differences: %w", err)
	}
	return a.o.resync(ctx, batch.Cause{Reason: "audit"}, did)
}
