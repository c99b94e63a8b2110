package backfill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"
	indigo "github.com/bluesky-social/indigo/atproto/syntax"

	"skein.blue/consumer/repo"
	"skein.blue/graph/batch"
	"skein.blue/graph/format"
	"skein.blue/internal/human"
	"skein.blue/internal/outward"
)

// The reasons for which a repo is not fetched: labels of a metric, and what is in the
// queue's row.
const (
	failNoDID    = "no_did"       // its DID has no document
	failNoPDS    = "no_pds"       // its document names no PDS
	failNotFound = "not_found"    // its PDS does not have it
	failPrivate  = "private_host" // its PDS is at an address that is not asked
	failTooLarge = "too_large"
	failInvalid  = "invalid" // what its PDS sent is no repo of it
	failRefused  = "refused" // its PDS refuses
	failHost     = "host"    // its PDS does not answer, or breaks off
	failOlder    = "older"   // its PDS has an older state than the stream told
	failIdentity = "identity"
	failNoRoom   = "no_room" // other repos held the memory; it counts as no try
)

// failure is why a repo was not fetched.
type failure struct {
	why   string
	err   error
	final bool          // trying again soon is of no use
	host  bool          // it is the host's fault, and may be that of all its repos
	gone  bool          // the host says that there is no such repo
	busy  bool          // the host wants to be left alone: it counts as no try
	after time.Duration // how long the host wants to be left alone
}

// Error implements error.
func (f *failure) Error() string { return f.why + ": " + f.err.Error() }

// Unwrap returns the error.
func (f *failure) Unwrap() error { return f.err }

// resolveOne finds out where a repo is.
func (m *Manager) resolveOne(ctx context.Context, j *job) {
	host, err := m.resolve(ctx, j.did)
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	before := m.sched.suspects[j.did]
	delete(m.sched.suspects, j.did)
	m.mu.Unlock()
	if err != nil && before != "" { // where it was listed is all that is known
		host, err = before, nil
	}
	if err != nil {
		m.failedJob(ctx, j, err)
		return
	}
	m.mu.Lock()
	j.host, j.looked, j.running = host, true, false
	m.sched.ready(j)
	m.mu.Unlock()
}

// resolve returns the address of an account's PDS, by its DID document.
func (m *Manager) resolve(ctx context.Context, did string) (host string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	ident, err := m.directory.LookupDID(ctx, indigo.DID(did))
	switch {
	case errors.Is(err, outward.ErrPrivate):
		return "", &failure{why: failPrivate, err: err, final: true}
	case errors.Is(err, identity.ErrDIDNotFound):
		return "", &failure{why: failNoDID, err: err}
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

// readers are used again.
var readers = sync.Pool{New: func() any { return new(repo.Reader) }}

func (m *Manager) reader() *repo.Reader {
	r, _ := readers.Get().(*repo.Reader)
	r.Kinds, r.Memory = m.o.Store.Kinds(), m.memory
	return r
}

// free gives a Reader and its memory back.
func free(r *repo.Reader) {
	r.Release()
	readers.Put(r)
}

// A repo of which records' blocks are missing, as the reference PDS sends some that were
// imported, is taken as it is when it was sent so for some times, if they are few.
const (
	trustAfter = 3
	tolerated  = 100
)

// fetchOne fetches a repo, and has it put in place.
func (m *Manager) fetchOne(ctx context.Context, j *job) {
	m.mu.Lock()
	generation := j.generation
	h := m.sched.host(j.host)
	m.mu.Unlock()
	r := m.reader()
	defer free(r)
	began := time.Now()
	n, err := m.getRepo(ctx, j.host, j.did, r)
	m.bytes.Add(n)
	f := &failure{}
	isFailure := errors.As(err, &f)
	m.mu.Lock()
	h.done(isFailure && f.host && !f.busy, f.after, m.o.HostRetry, time.Now())
	lost := m.sched.giveUp(h, m.o.HostTries)
	m.mu.Unlock()
	if len(lost) > 0 && ctx.Err() == nil {
		m.log.Warn("a host is given up: it has not answered for long. skein backfill --host fetches its repos when it is back", "host", j.host, "repos", len(lost), "error", shorten(err.Error()))
		for _, other := range lost {
			m.failedJob(ctx, other, &failure{why: failHost, err: err, final: true})
		}
	}
	if ctx.Err() != nil {
		return
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
	if j.tries >= trustAfter { // its host sends it so, again and again
		r.Tolerate = tolerated
	}
	m.o.Metrics.fetched(n, time.Since(began))
	if j.alone {
		m.placer.flush(ctx)
		defer m.placer.flush(ctx)
	}
	m.placer.place(ctx, r, generation, true, func(o batch.Outcome, records int, err error) { m.placed(ctx, j, o, records, err) })
	m.o.Metrics.spaces(r.Spaces)
}

// mostMoves is how often a repo may be found to have moved while it is fetched.
const mostMoves = 3

// hasMoved has a repo fetched where its DID document says that it is now, if that is another
// host than the one that does not have it, or not as an active one. The document that was
// kept may be from before it moved.
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
	j.host, j.looked, j.running = host, true, false
	j.moves++
	m.sched.ready(j)
	return true
}

// placed takes over what became of a repo that was fetched.
func (m *Manager) placed(ctx context.Context, j *job, o batch.Outcome, records int, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		var invalid bool
		for _, e := range []error{repo.ErrMissing, repo.ErrTree} {
			invalid = invalid || errors.Is(err, e)
		}
		if !invalid && !j.alone { // it may be another's of the same write
			m.mu.Lock()
			defer m.mu.Unlock()
			defer m.poke()
			m.sched.drop(j)
			m.sched.put(j.did, j.generation, time.Now().Add(time.Second), j.tries, cmp.Or(j.listed, j.host))
			if next := m.sched.jobs[j.did]; next != nil {
				next.alone = true
			}
			return
		}
		if !invalid {
			m.log.Error("a repo that was fetched could not be indexed", "did", j.did, "error", err)
		}
		m.jobs.Go(func() { m.failedJob(ctx, j, &failure{why: failInvalid, err: err}) })
		return
	}
	m.o.Metrics.outcome(o)
	switch o {
	case batch.Older:
		m.jobs.Go(func() {
			m.failedJob(ctx, j, &failure{why: failOlder, err: errors.New("its PDS sends an older state than the stream has told of")})
		})
		return
	case batch.Placed:
		m.fetched.Add(1)
		m.records.Add(int64(records))
	default:
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.poke()
	j.running = false
	if again := j.again; again || o == batch.Superseded {
		j.again = false
		j.index = -1
		m.sched.drop(j)
		m.sched.put(j.did, j.generation, time.Now().Add(100*time.Millisecond), 0, cmp.Or(j.listed, j.host))
		return
	}
	m.sched.drop(j)
}

// mostBusy is how often a host may want to be left alone before that counts as a try.
const mostBusy = 100

// failedJob notes that a repo was not fetched, and when it is tried again, if ever.
func (m *Manager) failedJob(ctx context.Context, j *job, err error) {
	f := &failure{}
	if !errors.As(err, &f) {
		f = &failure{why: failHost, err: err}
	}
	m.o.Metrics.failed(f.why)
	if f.busy && j.busy < mostBusy {
		m.mu.Lock()
		j.busy++
		busy := j.busy
		j.running, j.again, j.index = false, false, -1
		m.sched.drop(j)
		m.sched.put(j.did, j.generation, time.Now(), j.tries, cmp.Or(j.listed, j.host))
		m.sched.jobs[j.did].busy = busy
		m.mu.Unlock()
		return
	}
	var row format.Resync
	queued, werr := m.o.Store.ChangeResync(ctx, j.did, func(r *format.Resync) bool {
		if r.Generation > j.generation && !f.final { // something more was missed meanwhile: it is tried as if anew
			row = *r
			return false
		}
		r.Tries++
		most := m.o.Tries
		if f.why == failNoDID || f.why == failNotFound {
			most = min(most, 4)
		}
		r.Failure, r.Detail = f.why, shorten(f.err.Error())
		switch {
		case f.why == inactive:
			r.State, r.Failure, r.Tries = format.ResyncInactive, "", 0
		case f.final || r.Tries >= most:
			r.State = format.ResyncFailed
		default:
			r.Due = time.Now().UTC().Add(max(backoff(r.Tries, m.o.Retry, 6*time.Hour), min(f.after, time.Hour)))
		}
		row = *r
		return true
	})
	if ctx.Err() != nil {
		return
	}
	if werr != nil {
		m.log.Error("the queue of repos could not be written", "did", j.did, "error", werr)
		row.Due = time.Now().Add(time.Minute)
	}
	state, due := row.State, row.Due
	m.mu.Lock()
	again := j.again
	j.running, j.again, j.index = false, false, -1
	m.sched.drop(j)
	switch {
	case !queued && werr == nil: // it was taken out of the queue meanwhile
	case state != format.ResyncWaiting && !again:
		m.park(j.did, row.Failure)
	default:
		hint := j.host
		if !j.looked && (f.why == failHost || f.why == failRefused) { // it may have moved
			m.sched.suspect(j.did, j.host)
			hint = ""
		}
		m.sched.put(j.did, max(row.Generation, j.generation), due, row.Tries, hint)
	}
	m.mu.Unlock()
	m.poke()
	if state == format.ResyncFailed && f.gone {
		m.setStatus(ctx, j.did, false) // not deleted: only the stream tells that
	}
	if state == format.ResyncFailed {
		if held, ok := m.seldom.Allow(f.why); ok {
			m.log.Warn("a repo was given up: what the index has of it is not complete. skein resync queues it again", "did", j.did, "reason", f.why, "error", shorten(f.err.Error()), "tries", row.Tries, "more_since_last_said", held)
		}
	}
}

// inactive is the reason of an account that is not active, which is no failure.
const inactive = "inactive"

func shorten(s string) string {
	const most = 300
	s = strings.ToValidUTF8(s, "?")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// getRepo reads an account's repo from a host.
func (m *Manager) getRepo(ctx context.Context, host, did string, r *repo.Reader) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.o.RepoTimeout)
	defer cancel()
	resp, err := m.get(ctx, host, "com.atproto.sync.getRepo", url.Values{"did": {did}}, "application/vnd.ipld.car")
	if err != nil {
		return 0, explain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	timer := time.AfterFunc(m.o.IdleTimeout, cancel)
	defer timer.Stop()
	body := &counted{Reader: &idle{Reader: resp.Body, timer: timer, most: m.o.IdleTimeout}, least: m.o.MinRate, from: time.Now().Add(m.o.IdleTimeout)}
	err = r.Read(ctx, body, m.o.MaxRepoBytes)
	switch {
	case err == nil && string(r.DID) != did:
		err = &failure{why: failInvalid, err: fmt.Errorf("%s sent the repo of %s", host, r.DID)}
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

// tooLarge says which bound a repo is over, and which flag raises it.
func (m *Manager) tooLarge(err error) error {
	if errors.Is(err, repo.ErrMemory) {
		return fmt.Errorf("%w: %s (--memory)", err, human.Bytes(m.memory.One()))
	}
	return fmt.Errorf("%w: %s (--max-repo-bytes)", err, human.Bytes(m.o.MaxRepoBytes))
}

// errSlow is the error of a repo that comes too slowly: it would hold a fetcher for long.
var errSlow = errors.New("it comes too slowly")

// counted counts what is read, and ends a repo that comes too slowly. Between two Reads the
// time stands still: the host is not to blame for our waiting for memory.
type counted struct {
	io.Reader

	least int64     // bytes a second, from then on
	from  time.Time // by the monotonic clock
	ended time.Time // the last Read

	n int64
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	if !c.ended.IsZero() {
		c.from = c.from.Add(time.Since(c.ended))
	}
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	c.ended = time.Now()
	if late := time.Since(c.from); err == nil && late > 0 && c.n < c.least*int64(late/time.Millisecond)/1000 {
		return n, fmt.Errorf("%w: %d bytes so far, and less than %d a second", errSlow, c.n, c.least)
	}
	return n, err //nolint:wrapcheck // an io.Reader's
}

// get asks a host. An answer that is none is an *answer.
func (m *Manager) get(ctx context.Context, host, method string, query url.Values, accept string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, host+"/xrpc/"+method+"?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", host, err)
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "skein")
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the request
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		return nil, answerOf(resp)
	}
	return resp, nil
}

// explain says what it means that a host did not send a repo.
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

// purge forgets an account's DID document: it may have changed.
func (m *Manager) purge(ctx context.Context, did string) {
	if err := m.directory.Purge(ctx, indigo.DID(did).AtIdentifier()); err != nil {
		m.log.Debug("forgetting a DID document", "did", did, "error", err)
	}
}

// setStatus notes whether its host says that an account is active.
func (m *Manager) setStatus(ctx context.Context, did string, isActive bool) {
	var b batch.Batch
	b.AddStatus([]byte(did), isActive)
	if err := m.o.Store.Apply(ctx, "", &b); err != nil && ctx.Err() == nil {
		m.log.Error("the status of an account could not be written", "did", did, "error", err)
	}
}
