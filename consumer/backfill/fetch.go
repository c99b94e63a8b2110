package backfill

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	indigo "github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/consumer/repo"
	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/internal/outward"
	"skein.blue/internal/say"
)

// The reasons why a repo was not fetched: labels of a metric, and values in the queue's
// rows.
const (
	failNoDID    = "no_did"       // the DID has no document
	failNoPDS    = "no_pds"       // the document names no PDS
	failNotFound = "not_found"    // the PDS does not have the repo
	failPrivate  = "private_host" // the PDS has a private address
	failTooLarge = "too_large"
	failInvalid  = "invalid"   // the PDS sent something other than this repo
	failRefused  = "refused"   // the PDS refused
	failHost     = "host"      // the PDS did not answer, or broke off
	failOlder    = "older"     // the PDS has an older state than the stream
	failIdentity = "identity"  // resolving the DID failed
	failNoRoom   = "no_room"   // too little memory
	failUnsigned = "signature" // the account's key did not sign the repo
)

// failures are all of them.
var failures = []string{
	failNoDID, failNoPDS, failNotFound, failPrivate, failTooLarge, failInvalid, failRefused, failHost, failOlder, failIdentity, failNoRoom, failUnsigned,
}

// failure is the reason why a repo was not fetched.
type failure struct {
	why   string
	err   error
	final bool          // retrying soon is useless
	host  bool          // the host's fault, which may affect all its repos
	gone  bool          // the host says that it has no such repo
	busy  bool          // the host, the memory or the directory is busy: does not count as a try
	wait  time.Duration // at most, until a busy one is asked again, if its host is not to blame
	after time.Duration // the wait that the host asks for
}

// Error implements error.
func (f *failure) Error() string { return f.why + ": " + f.err.Error() }

// Unwrap returns the cause.
func (f *failure) Unwrap() error { return f.err }

// failureOf returns the failure in an error; one without fault if err is nil.
func failureOf(err error) *failure {
	f, ok := errors.AsType[*failure](err)
	switch {
	case ok:
		return f
	case err == nil:
		return &failure{}
	}
	return &failure{why: failHost, err: err}
}

// A fetcher fetches the repos of jobs from their hosts, and puts them in place.
type fetcher struct {
	o      *Options
	queue  *Queue
	client *client
	jobs   *jobs
	placer *placer
	memory *repo.Memory // shared by all Readers
	seldom say.Limiter

	fetched, records, bytes atomic.Int64
}

// report adds the fetched repos to a Status.
func (f *fetcher) report(st *Status) {
	st.Fetched, st.Records, st.Bytes = f.fetched.Load(), f.records.Load(), f.bytes.Load()
}

// resolve finds the host of a repo.
func (f *fetcher) resolve(ctx context.Context, j *job) {
	host, err := f.client.resolve(ctx, j.did)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		f.failed(ctx, j, err)
		return
	}
	f.queue.send(j, host)
}

// reader returns a Reader, to be released after use.
func (f *fetcher) reader() *repo.Reader {
	return &repo.Reader{Kinds: f.o.Store.Kinds(), Memory: f.memory}
}

// Some repos lack the blocks of records; the reference PDS sends some imported repos like that. If few blocks are missing and the
// repo has been sent like that trustAfter times, it is accepted.
const (
	trustAfter = 3
	tolerated  = 100
)

// fetch fetches a repo, and hands it to the placer.
func (f *fetcher) fetch(ctx context.Context, j *job) {
	if f.o.Verifier != nil && f.o.Verifier.KeyUnreachable(ctx, j.did) { // the repo could not be verified
		f.queue.leave(j)
		if outward.Wait(ctx, keyPause) == nil {
			f.failed(ctx, j, busyDirectory(errNoKey))
		}
		return
	}
	asked, err := f.askIfHidden(ctx, j)
	if err != nil {
		f.queue.leave(j)
		if errors.Is(err, errNotQueued) {
			f.queue.done(j)
			return
		}
		f.failed(ctx, j, err)
		return
	}
	r := f.reader()
	defer r.Release()
	err = f.askForRepo(ctx, j, r)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		if why := failureOf(err); why.gone && asked != nil {
			why.why = inactive
		}
		f.failed(ctx, j, err)
		return
	}
	if j.tries >= trustAfter { // its host sends the repo like that every time
		r.Tolerate = tolerated
	}
	f.placer.place(ctx, &fetchedRepo{r, j.started, true, asked}, func(o batch.Outcome, records int, err error) { f.placed(ctx, j, o, records, err) })
	f.o.Metrics.dropped(wire.SpaceSubject, r.Spaces)
}

// askForRepo fetches a job's repo from its host, unless it takes long and others wait. If the host
// is given up, all its jobs fail.
func (f *fetcher) askForRepo(ctx context.Context, j *job, r *repo.Reader) error {
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.queue.asks(j, cancel)
	n, err := f.getRepo(asking, j.host, j.did, r)
	if err != nil && errors.Is(context.Cause(asking), errOthersWait) {
		err = &failure{why: failHost, err: fmt.Errorf("%s is slow, and %w", j.host, errOthersWait), busy: true, wait: time.Minute}
	}
	f.bytes.Add(n)
	lost := f.queue.answered(j, failureOf(err))
	if len(lost) > 0 && ctx.Err() == nil {
		f.o.Logger.Warn("host given up after too many failures; when it is back, fetch its repos with skein backfill --host, those of a part of the network with a restart", "host", j.host, "repos", len(lost), "error", say.Short(err.Error()))
		for _, other := range lost {
			f.failed(ctx, other, &failure{why: failHost, err: err, final: true})
		}
	}
	return err
}

var errNotQueued = errors.New("the repo has left the queue")

// askIfHidden asks the host and the relay whether an account is active, if the index hides it: a relay
// may repair an account's status without an #account. If both say that it is, or say nothing, as servers without
// getRepoStatus, askIfHidden returns the account's state from before; nil if the account is not hidden. errNotQueued means that the
// repo no longer has to be fetched.
func (f *fetcher) askIfHidden(ctx context.Context, j *job) (hidden *graph.RepoState, err error) {
	st, known, row, err := f.o.account(ctx, j.did)
	if err == nil && row == nil { // the stream has shown that nothing was missed, or the account is gone
		err = errNotQueued
	}
	if err != nil || !known || !st.Has(graph.FlagHidden) {
		return nil, err
	}
	for _, server := range []string{j.host, f.o.Relay} {
		if server == "" {
			continue
		}
		var status struct{ Active *bool }
		err := f.client.askOnce(ctx, server, "com.atproto.sync.getRepoStatus", url.Values{"did": {j.did}}, &status)
		a, isAnswer := errors.AsType[*outward.Answer](err)
		if err == nil && status.Active != nil && !*status.Active {
			return nil, &failure{why: inactive, err: fmt.Errorf("%s says that it is not active", server)}
		}
		if err != nil && (!isAnswer || !a.IsFinal()) {
			f := &failure{why: failHost, err: fmt.Errorf("asking %s for the status: %w", server, err)}
			if isAnswer {
				f.busy, f.wait, f.after = true, time.Minute, a.After
			}
			return nil, f
		}
	}
	return &st, nil
}

// mostMoves is how often a repo may turn out to have moved during a fetch.
const mostMoves = 3

// mayHaveMoved are the failures of a host that may no longer be the account's.
var mayHaveMoved = []string{failNotFound, inactive, failOlder, failUnsigned}

// hasMoved handles a repo that its host failed to send. It reads the DID document again, because the cached one may be from before a
// move, and an operator may have named the host. If the document names another host, hasMoved queues the repo for that host, and
// reports true; also if nothing is known, because the document cannot be read at present: then the repo waits.
func (f *fetcher) hasMoved(ctx context.Context, j *job) bool {
	if j.moves >= mostMoves {
		return false
	}
	_ = f.client.directory.Purge(ctx, indigo.DID(j.did).AtIdentifier()) // the cached document may be from before the move
	host, err := f.client.resolve(ctx, j.did)
	switch {
	case err != nil && (ctx.Err() != nil || failureOf(err).busy):
		f.failed(ctx, j, err)
		return true
	case err != nil || host == j.host:
		return false
	}
	j.moves++
	f.queue.send(j, host)
	return true
}

// getRepo fetches an account's repo from a host.
func (f *fetcher) getRepo(ctx context.Context, host, did string, r *repo.Reader) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.o.RepoTimeout)
	defer cancel()
	resp, err := f.client.get(ctx, host, "com.atproto.sync.getRepo", url.Values{"did": {did}}, "application/vnd.ipld.car")
	if err != nil {
		return 0, explain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	err = r.Read(ctx, resp.Body, f.o.MaxRepoBytes)
	switch {
	case err == nil && string(r.DID) != did:
		err = &failure{why: failInvalid, err: fmt.Errorf("%s sent the repo of %s", host, r.DID)}
	case err == nil && f.o.Verifier != nil:
		err = f.verified(ctx, host, r)
	case err == nil:
	case errors.Is(err, repo.ErrTooLarge):
		err = &failure{why: failTooLarge, err: f.tooLarge(err), final: true}
	case errors.Is(err, repo.ErrNoRoom):
		err = &failure{why: failNoRoom, err: fmt.Errorf("%w (--memory)", err), busy: true}
	case errors.Is(err, repo.ErrCAR), errors.Is(err, repo.ErrHash), errors.Is(err, repo.ErrCommit), errors.Is(err, repo.ErrMissing), errors.Is(err, repo.ErrTruncated):
		err = &failure{why: failInvalid, err: fmt.Errorf("%s: %w", host, err)}
	default:
		err = &failure{why: failHost, err: fmt.Errorf("%s broke off: %w", host, err), host: true}
	}
	return int64(r.Bytes()), err
}

// keyWait is at most how long until a repo is fetched whose account's document or key could not be looked up. A
// directory that is slow for a moment fails all look-ups for half a minute (package proof): a fetcher
// waits keyPause before it takes the next repo, which will likely fail as well.
const (
	keyWait  = time.Minute
	keyPause = 100 * time.Millisecond
)

// busyDirectory is the failure of a look-up that is not the repo's fault.
func busyDirectory(err error) *failure {
	return &failure{why: failIdentity, err: err, busy: true, wait: keyWait}
}

var errNoKey = errors.New("the account's signing key could not be looked up (--plc names the directory)")

// verified checks the signature of a repo.
func (f *fetcher) verified(ctx context.Context, host string, r *repo.Reader) error {
	switch reason := f.o.Verifier.VerifyRepo(ctx, string(r.DID), r.Commit); reason {
	case "":
		return nil
	case wire.KeyUnreachable:
		return busyDirectory(errNoKey)
	default:
		return &failure{why: failUnsigned, err: fmt.Errorf("%s sent a repo that the account's key did not sign (%s)", host, reason)}
	}
}

// tooLarge adds the exceeded limit to the error, and the flag that raises it, if there is one.
func (f *fetcher) tooLarge(err error) error {
	switch {
	case errors.Is(err, repo.ErrEdges):
		return err
	case errors.Is(err, repo.ErrMemory):
		return fmt.Errorf("%w: %s (--memory)", err, say.Bytes(f.memory.One()))
	}
	return fmt.Errorf("%w: %s", err, say.Bytes(f.o.MaxRepoBytes))
}

// explain classifies the error of a host that did not send a repo.
func explain(err error) error {
	a, ok := errors.AsType[*outward.Answer](err)
	switch {
	case errors.Is(err, outward.ErrPrivate):
		return &failure{why: failPrivate, err: err, final: true}
	case !ok:
		return &failure{why: failHost, err: err, host: true}
	case a.Name == "RepoDeactivated" || a.Name == "RepoTakendown" || a.Name == "RepoSuspended":
		return &failure{why: inactive, err: a}
	case a.Code == http.StatusTooManyRequests:
		return &failure{why: failHost, err: a, host: true, busy: true, after: max(a.After, time.Second)}
	case a.Name == "RepoNotFound" || a.Code == http.StatusNotFound:
		return &failure{why: failNotFound, err: a, gone: a.Name == "RepoNotFound"}
	case a.Code >= 500:
		return &failure{why: failHost, err: a, host: true, after: a.After}
	}
	return &failure{why: failRefused, err: a, after: a.After}
}
