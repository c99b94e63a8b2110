package backfill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"
	indigo "github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/consumer/repo"
	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/internal/human"
	"skein.blue/internal/identities"
	"skein.blue/internal/outward"
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

// resolveOne finds the host of a repo.
func (m *Manager) resolveOne(ctx context.Context, j *job) {
	host, err := m.resolve(ctx, j.did)
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	before := m.sched.suspects[j.did]
	delete(m.sched.suspects, j.did)
	m.mu.Unlock()
	if err != nil && before != "" { // only the host that listed it is known
		host, err = before, nil
	}
	if err != nil {
		m.failedJob(ctx, j, err)
		return
	}
	m.mu.Lock()
	j.host, j.resolved, j.running = host, true, false
	m.sched.ready(j)
	m.mu.Unlock()
}

// resolve returns the address of an account's PDS from its DID document.
func (m *Manager) resolve(ctx context.Context, did string) (host string, err error) {
	ctx, cancel := context.WithTimeout(identities.ForRepos(ctx), 30*time.Second)
	defer cancel()
	ident, err := m.directory.LookupDID(ctx, indigo.DID(did))
	switch {
	case errors.Is(err, outward.ErrPrivate):
		return "", &failure{why: failPrivate, err: err, final: true}
	case errors.Is(err, identity.ErrDIDNotFound):
		return "", &failure{why: failNoDID, err: err}
	case errors.Is(err, identities.ErrBusy), errors.Is(err, identity.ErrDIDResolutionFailed) && indigo.DID(did).Method() == "plc":
		return "", busyDirectory(fmt.Errorf("resolving the DID: %w", err))
	case err != nil:
		return "", &failure{why: failIdentity, err: fmt.Errorf("resolving the DID: %w", err)}
	}
	address := ident.PDSEndpoint()
	u, err := url.Parse(address)
	if address == "" || err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || !m.o.AllowPrivateHosts) {
		return "", &failure{why: failNoPDS, err: fmt.Errorf("its DID document names the PDS %q", address), final: true}
	}
	return u.Scheme + "://" + u.Host, nil
}

// readers are reused.
var readers = sync.Pool{New: func() any { return new(repo.Reader) }}

func (m *Manager) reader() *repo.Reader {
	r, _ := readers.Get().(*repo.Reader)
	r.Kinds, r.Memory = m.o.Store.Kinds(), m.memory
	return r
}

// free releases a Reader and its memory.
func free(r *repo.Reader) {
	r.Release()
	readers.Put(r)
}

// Some repos lack the blocks of records; the reference PDS sends some imported repos like
// that. If few blocks are missing and the repo has been sent like that trustAfter times, it
// is accepted.
const (
	trustAfter = 3
	tolerated  = 100
)

// fetchOne fetches a repo, and hands it to the placer.
func (m *Manager) fetchOne(ctx context.Context, j *job) {
	m.mu.Lock()
	generation := j.generation
	h := m.sched.host(j.host)
	m.mu.Unlock()
	if m.o.Verifier != nil && m.o.Verifier.KeyUnreachable(ctx, j.did) { // the repo could not be verified
		m.leave(h)
		select {
		case <-time.After(keyPause):
			m.failedJob(ctx, j, busyDirectory(errNoKey))
		case <-ctx.Done():
		}
		return
	}
	asked, err := m.askIfHidden(ctx, j)
	if err != nil {
		m.leave(h)
		if f, ok := errors.AsType[*failure](err); ok && f.why == inactive && m.hasMoved(ctx, j) {
			return
		}
		m.failedJob(ctx, j, err)
		return
	}
	r := m.reader()
	defer free(r)
	began := time.Now()
	n, err := m.askForRepo(ctx, j, h, r)
	m.bytes.Add(n)
	f := &failure{}
	isFailure := errors.As(err, &f)
	m.mu.Lock()
	h.done(isFailure && f.host && !f.busy, f.after, m.o.HostRetry, time.Now())
	lost := m.sched.giveUp(h, m.o.HostTries)
	m.mu.Unlock()
	if len(lost) > 0 && ctx.Err() == nil {
		m.log.Warn("host given up after too many failures; fetch its repos with skein backfill --host when it is back", "host", j.host, "repos", len(lost), "error", shorten(err.Error()))
		for _, other := range lost {
			m.failedJob(ctx, other, &failure{why: failHost, err: err, final: true})
		}
	}
	if ctx.Err() != nil {
		return
	}
	if f.gone && asked != nil { // it is hidden already
		f.why = inactive
	}
	if err != nil {
		if (f.why == failNotFound || f.why == inactive) && m.hasMoved(ctx, j) {
			return
		}
		if f.why == inactive {
			m.setStatus(ctx, j.did, false)
		}
		m.failedJob(ctx, j, err)
		return
	}
	if j.tries >= trustAfter { // its host sends the repo like that every time
		r.Tolerate = tolerated
	}
	m.o.Metrics.fetched(n, time.Since(began))
	if j.alone {
		m.placer.flush(ctx)
		defer m.placer.flush(ctx)
	}
	m.placer.place(ctx, r, generation, true, asked, func(o batch.Outcome, records int, err error) { m.placed(ctx, j, o, records, err) })
	m.o.Metrics.spaces(r.Spaces)
}

// askForRepo fetches a job's repo from its host, unless it takes long and others wait.
func (m *Manager) askForRepo(ctx context.Context, j *job, h *host, r *repo.Reader) (n int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m.mu.Lock()
	j.asked, j.end, m.sched.fetching[j] = time.Now(), cancel, h
	m.mu.Unlock()
	n, err = m.getRepo(ctx, j.host, j.did, r)
	m.mu.Lock()
	delete(m.sched.fetching, j)
	m.mu.Unlock()
	if err != nil && errors.Is(context.Cause(ctx), errOthersWait) {
		err = &failure{why: failHost, err: fmt.Errorf("%s is slow, and %w", j.host, errOthersWait), busy: true, wait: time.Minute}
	}
	return n, err
}

// leave ends a job's turn at a host that was not asked for the repo.
func (m *Manager) leave(h *host) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.leave()
}

// askIfHidden asks the host and the relay whether an account is active, if the index hides it: a relay
// may repair an account's status without an #account. If both say that it is, or say nothing, as servers without
// getRepoStatus, askIfHidden returns the account's state from before; nil if the account is not hidden.
func (m *Manager) askIfHidden(ctx context.Context, j *job) (hidden *graph.RepoState, err error) {
	err = m.o.Store.View(ctx, func(s *graph.View) error {
		st, known, _, err := s.Account(j.did)
		if hidden = nil; known && st.Has(graph.FlagHidden) {
			hidden = &st
		}
		return err
	})
	if err != nil || hidden == nil {
		return nil, err
	}
	for _, server := range []string{j.host, m.o.Relay} {
		if server == "" {
			continue
		}
		var status struct{ Active *bool }
		err := m.askOnce(ctx, server, "com.atproto.sync.getRepoStatus", url.Values{"did": {j.did}}, &status)
		a, isAnswer := errors.AsType[*answer](err)
		switch {
		case err == nil && status.Active != nil && !*status.Active:
			return nil, &failure{why: inactive, err: fmt.Errorf("%s says that it is not active", server)}
		case err == nil, isAnswer && a.code < 500 && a.code != http.StatusTooManyRequests, isAnswer && a.code == http.StatusNotImplemented:
		case isAnswer:
			return nil, &failure{why: failHost, err: fmt.Errorf("asking %s for the status: %w", server, err), busy: true, wait: time.Minute, after: a.after}
		default:
			return nil, &failure{why: failHost, err: fmt.Errorf("asking %s for the status: %w", server, err)}
		}
	}
	return hidden, nil
}

// mostMoves is how often a repo may turn out to have moved during a fetch.
const mostMoves = 3

// hasMoved handles a repo that its host does not have, or reports as inactive. It reads the DID
// document again, because the cached one may be from before a move. If the document names
// another host, hasMoved queues the repo for that host, and reports true.
func (m *Manager) hasMoved(ctx context.Context, j *job) bool {
	if j.moves >= mostMoves {
		return false
	}
	m.purge(ctx, j.did)
	host, err := m.resolve(ctx, j.did)
	if err != nil || host == j.host || ctx.Err() != nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.poke()
	j.host, j.resolved, j.running = host, true, false
	j.moves++
	m.sched.ready(j)
	return true
}

// getRepo fetches an account's repo from a host.
func (m *Manager) getRepo(ctx context.Context, host, did string, r *repo.Reader) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.o.RepoTimeout)
	defer cancel()
	resp, err := m.get(ctx, host, "com.atproto.sync.getRepo", url.Values{"did": {did}}, "application/vnd.ipld.car")
	if err != nil {
		return 0, explain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body := &counted{Reader: resp.Body}
	err = r.Read(ctx, body, m.o.MaxRepoBytes)
	switch {
	case err == nil && string(r.DID) != did:
		err = &failure{why: failInvalid, err: fmt.Errorf("%s sent the repo of %s", host, r.DID)}
	case err == nil && m.o.Verifier != nil:
		err = m.verified(ctx, host, r)
	case err == nil:
	case errors.Is(err, repo.ErrTooLarge):
		err = &failure{why: failTooLarge, err: m.tooLarge(err), final: true}
	case errors.Is(err, repo.ErrNoRoom):
		err = &failure{why: failNoRoom, err: fmt.Errorf("%w (--memory)", err), busy: true}
	case errors.Is(err, repo.ErrCAR), errors.Is(err, repo.ErrHash), errors.Is(err, repo.ErrCommit), errors.Is(err, repo.ErrMissing), errors.Is(err, repo.ErrTruncated):
		err = &failure{why: failInvalid, err: fmt.Errorf("%s: %w", host, err)}
	default:
		err = &failure{why: failHost, err: fmt.Errorf("%s broke off: %w", host, err), host: true}
	}
	return body.n, err
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

var errNoKey = errors.New("the account's signing key could not be looked up")

// verified checks the signature of a repo.
func (m *Manager) verified(ctx context.Context, host string, r *repo.Reader) error {
	switch reason := m.o.Verifier.VerifyRepo(ctx, string(r.DID), r.Commit); reason {
	case "":
		return nil
	case wire.KeyUnreachable:
		return busyDirectory(errNoKey)
	default:
		return &failure{why: failUnsigned, err: fmt.Errorf("%s sent a repo that the account's key did not sign (%s)", host, reason)}
	}
}

// tooLarge adds the exceeded limit to the error, and the flag that raises it, if there is one.
func (m *Manager) tooLarge(err error) error {
	switch {
	case errors.Is(err, repo.ErrEdges):
		return err
	case errors.Is(err, repo.ErrMemory):
		return fmt.Errorf("%w: %s (--memory)", err, human.Bytes(m.memory.One()))
	}
	return fmt.Errorf("%w: %s", err, human.Bytes(m.o.MaxRepoBytes))
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader

	n int64
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// get sends a request to a host. An HTTP error is an *answer.
func (m *Manager) get(ctx context.Context, host, method string, query url.Values, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/xrpc/"+method+"?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("request to %s: %w", host, err)
	}
	req.Header.Set("Accept", accept)
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		return nil, answerOf(resp)
	}
	return resp, nil
}

// explain classifies the error of a host that did not send a repo.
func explain(err error) error {
	a, ok := errors.AsType[*answer](err)
	switch {
	case errors.Is(err, outward.ErrPrivate):
		return &failure{why: failPrivate, err: err, final: true}
	case !ok:
		return &failure{why: failHost, err: err, host: true}
	case a.name == "RepoDeactivated" || a.name == "RepoTakendown" || a.name == "RepoSuspended":
		return &failure{why: inactive, err: a}
	case a.code == http.StatusTooManyRequests:
		return &failure{why: failHost, err: a, host: true, busy: true, after: max(a.after, time.Second)}
	case a.name == "RepoNotFound" || a.code == http.StatusNotFound:
		return &failure{why: failNotFound, err: a, gone: a.name == "RepoNotFound"}
	case a.code >= 500:
		return &failure{why: failHost, err: a, host: true, after: a.after}
	}
	return &failure{why: failRefused, err: a, after: a.after}
}

// purge removes an account's DID document from the cache, because it may be outdated.
func (m *Manager) purge(ctx context.Context, did string) {
	if err := m.directory.Purge(ctx, indigo.DID(did).AtIdentifier()); err != nil {
		m.log.Debug("purging a DID document failed", "did", did, "error", err)
	}
}
