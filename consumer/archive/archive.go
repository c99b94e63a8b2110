// Package archive reads the past of a network from an archive: Jetstream v2
// (bluesky-social/jetstream, docs/README.md and lexicons/network/bsky/jetstream), which
// keeps every record, and every deletion since it began, in files that anyone may fetch.
//
// A plan says which of them have what is indexed (client.go); they are fetched side by
// side, and read in their order (segment.go) into batches for the graph (fold.go). How far
// that came is the cursor of the archive as a source, in the same write as the data: a run
// that was interrupted goes on from there. How the archive and the stream meet is said in
// docs/semantics.md#s49.
//
// It is at least once, and in order for each account; creates, updates, deletes, #account
// and #sync are folded by the graph. A Reader is for one goroutine; what it fetches, it
// fetches in goroutines of its own.
package archive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/kinds"
)

// Options say what is read.
type Options struct {
	// URL is the address of the archive.
	URL string
	// Key is sent as a bearer token, if it is not empty.
	Key string
	// Store takes what is read.
	Store *graph.Store
	// Until is when the past ends: the archive is read until it holds what was witnessed
	// up to then. The zero time is what is sealed now.
	Until func() time.Time
	// Ops is how many operations are applied at once, in one write: some 700 bytes of
	// memory each. The more, the less each costs, because what one write reads and writes
	// is in the order of the keys. 0 means 30,000.
	Ops int
	// Parallel is how many segments, or eight times as many blocks, are fetched at once. 0
	// means 2.
	Parallel int
	// Poll is how often an archive that does not reach Until is asked for more. 0 means
	// 30 seconds.
	Poll time.Duration
	// Tries is how often a request is made before it is given up. 0 means 12, over some
	// ten minutes.
	Tries  int
	Logger *slog.Logger
	// Dropped, if set, is told of what was malformed.
	Dropped func(wire.Reason)
}

// A Reader reads an archive.
type Reader struct {
	o      Options
	client *client
	source string

	transferred atomic.Int64
	free        chan []byte // memory of segments that were read
	progress    atomic.Pointer[Progress]
}

// Progress says how far an archive was read.
type Progress struct {
	Counts

	Seq, Tip  int64     // of the archive
	Witnessed time.Time // when the archive saw the last row that was read
	Waiting   bool      // for the archive to seal what came since
}

// Source returns the name under which the cursor of an archive is kept.
func Source(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%w: %q is not an address like https://archive.example.com", ErrArchive, address)
	}
	return "archive " + u.Scheme + "://" + u.Host + strings.TrimSuffix(u.Path, "/"), nil
}

// New returns a Reader.
func New(o Options) (*Reader, error) {
	source, err := Source(o.URL)
	if err != nil {
		return nil, err
	}
	if o.Ops <= 0 {
		o.Ops = 30_000
	}
	if o.Parallel <= 0 {
		o.Parallel = 2
	}
	if o.Poll <= 0 {
		o.Poll = 30 * time.Second
	}
	if o.Tries <= 0 {
		o.Tries = 12
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Reader{o: o, source: source, free: make(chan []byte, o.Parallel)}
	r.client = &client{
		base: strings.TrimPrefix(source, "archive "), key: o.Key, tries: o.Tries, delay: time.Second,
		collections: collections(o.Store.Kinds()),
		http: &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 20 * time.Second}).DialContext, TLSHandshakeTimeout: 20 * time.Second,
			ResponseHeaderTimeout: time.Minute, MaxIdleConnsPerHost: 32, DisableCompression: true,
		}},
		said: func(what string, err error, wait time.Duration) {
			o.Logger.Warn("the archive did not answer, and is asked again", "request", what, "error", err, "retry_in", wait.Round(time.Millisecond).String())
		},
	}
	return r, nil
}

func collections(t *kinds.Table) (all []string) {
	for _, c := range t.Collections() {
		all = append(all, c.NSID)
	}
	return all
}

// Source returns the name under which the cursor is kept.
func (r *Reader) Source() string { return r.source }

// Progress returns how far the archive was read. It may be called from any goroutine.
func (r *Reader) Progress() Progress {
	p := r.progress.Load()
	if p == nil {
		return Progress{}
	}
	out := *p
	out.Bytes = r.transferred.Load()
	return out
}

// Run reads the archive to its end, from where the store's cursor of it is.
func (r *Reader) Run(ctx context.Context) error {
	after := int64(0)
	if c, ok := r.o.Store.Cursor(r.source); ok {
		after = int64(c.Seq)
	}
	a := newApplier(r, after)
	defer a.stop()
	for replans := 0; ; {
		tip, err := r.pages(ctx, a)
		if errors.Is(err, errReplan) && replans < 20 {
			if err := a.flush(ctx); err != nil {
				return err
			}
			replans++
			r.o.Logger.Info("the archive was compacted meanwhile, and is planned anew", "after_seq", a.applied(), "reason", err)
			continue
		}
		if err == nil {
			err = a.flush(ctx)
		}
		if err != nil {
			return err
		}
		replans = 0
		p := r.Progress()
		if until := r.until(); until.IsZero() || !p.Witnessed.Before(until) {
			return nil
		}
		p.Waiting, p.Tip = true, tip
		r.progress.Store(&p)
		r.o.Logger.Info("the archive has not sealed yet what came until the index began to listen; it is asked again", "sealed_until", p.Witnessed.UTC().Format(time.RFC3339), "needed_until", r.until().UTC().Format(time.RFC3339))
		select {
		case <-time.After(r.o.Poll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (r *Reader) until() time.Time {
	if r.o.Until == nil {
		return time.Time{}
	}
	return r.o.Until()
}

// pages reads what is sealed now, page by page.
func (r *Reader) pages(ctx context.Context, a *applier) (tip int64, err error) {
	for {
		p, err := r.client.plan(ctx, a.read, tip)
		if err != nil {
			return tip, err
		}
		if tip == 0 {
			tip = p.SealedTipSeq
		}
		a.tip = tip
		if err := r.page(ctx, &p, a); err != nil {
			return tip, err
		}
		a.reached(p.PlannedThroughSeq)
		if p.PlannedThroughSeq >= tip {
			return tip, nil
		}
	}
}

// part is something to fetch: a segment, or a block of one.
type part struct {
	segment *planSegment
	block   int // -1: all of it
	done    chan struct{}
	data    []byte
	err     error
}

// page fetches what a plan names, some parts at once, and reads them in their order.
func (r *Reader) page(ctx context.Context, p *plan, a *applier) error {
	fetching, cancel := context.WithCancel(ctx) // what is being applied goes on after the page
	defer cancel()
	window := make(chan *part, r.o.Parallel*8) // in their order
	weight := make(chan struct{}, r.o.Parallel*8)
	read := a.read
	go func() {
		defer close(window)
		for i := range p.Segments {
			s := &p.Segments[i]
			if s.MaxSeq <= read {
				continue
			}
			for _, block := range blocksOf(s) {
				cost := 1
				if block < 0 {
					cost = 8
				}
				for range cost {
					select {
					case weight <- struct{}{}:
					case <-fetching.Done():
						return
					}
				}
				one := &part{segment: s, block: block, done: make(chan struct{})}
				go func() { defer close(one.done); r.fetch(fetching, one) }()
				window <- one
			}
		}
	}()
	for one := range window {
		select {
		case <-one.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if one.err != nil {
			return one.err
		}
		if err := a.part(ctx, one); err != nil {
			return err
		}
		cost := 1
		if one.block < 0 {
			cost = 8
			select {
			case r.free <- one.data:
			default:
			}
		}
		for range cost {
			<-weight
		}
	}
	return ctx.Err()
}

func blocksOf(s *planSegment) (list []int) {
	if s.Mode != "blocks" {
		return []int{-1}
	}
	for _, run := range s.Blocks {
		for n := run.First; n <= run.Last && len(list) < 1<<20; n++ {
			list = append(list, n)
		}
	}
	return list
}

func (r *Reader) fetch(ctx context.Context, one *part) {
	count := func(n int) { r.transferred.Add(int64(n)) }
	if one.block >= 0 {
		one.data, one.err = r.client.frame(ctx, one.segment.Name, one.block, count)
		return
	}
	var into []byte
	select {
	case into = <-r.free:
	default:
	}
	one.data, one.err = r.client.segment(ctx, one.segment, into, count)
}
