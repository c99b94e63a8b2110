// Package archive reads the history of a network from an archive: Jetstream v2
// (bluesky-social/jetstream, docs/README.md and lexicons/network/bsky/jetstream), which
// publishes every record, and every deletion since it began, as files.
//
// A plan names the files with indexed records (client.go). The Reader fetches several at a
// time, and decodes them in order (segment.go) into batches for the graph (fold.go).
// Progress is the cursor of the archive as a source, stored in the same write as the data,
// so that an interrupted run continues from there. docs/semantics.md#s49 says how archive and
// stream meet.
//
// Delivery is at least once, and in order for each account; the graph folds creates,
// updates, deletes, #account and #sync. A Reader is for one goroutine; it starts its own
// goroutines to fetch.
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
	"skein.blue/internal/outward"
)

// Options say what to read.
type Options struct {
	// URL is the address of the archive.
	URL string
	// Key, if not empty, is sent as a bearer token.
	Key string
	// Store receives the records.
	Store *graph.Store
	// Until returns the end of the history to read: the Reader continues until the archive
	// has everything witnessed up to then. The zero time means what is sealed now.
	Until func() time.Time
	// Ops is how many operations to apply in one write; each needs some 700 bytes of
	// memory. Larger writes cost less per operation, because one write reads and writes in
	// the order of the keys. 0 means 30,000.
	Ops int
	// Parallel is how many segments, or eight times as many blocks, to fetch at once. 0
	// means 2.
	Parallel int
	// Poll is how often to ask an archive that does not reach Until yet. 0 means 30
	// seconds.
	Poll time.Duration
	// Tries bounds the attempts of a request. 0 means 12, over some ten minutes.
	Tries  int
	Logger *slog.Logger
	// Dropped, if set, is called for each malformed row or record.
	Dropped func(wire.Reason)
}

// A Reader reads an archive.
type Reader struct {
	o      Options
	client *client
	source string

	transferred atomic.Int64
	free        chan []byte // memory of segments that are done
	progress    atomic.Pointer[Progress]
}

// Progress says how much of an archive was read.
type Progress struct {
	Counts

	Seq, Tip  int64     // of the archive
	Witnessed time.Time // when the archive saw the last row that was read
	Waiting   bool      // for the archive to seal newer events
}

// Source returns the name of an archive's cursor.
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
		http: &http.Client{Transport: outward.Paced(outward.Named(&http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 20 * time.Second}).DialContext, TLSHandshakeTimeout: 20 * time.Second,
			ResponseHeaderTimeout: time.Minute, MaxIdleConnsPerHost: 32, DisableCompression: true,
		}), pace)},
		retrying: func(what string, err error, wait time.Duration) {
			o.Logger.Warn("archive request failed; retrying", "request", what, "error", err, "retry_in", wait.Round(time.Millisecond).String())
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

// Source returns the name of the archive's cursor.
func (r *Reader) Source() string { return r.source }

// Progress returns how much of the archive was read. Any goroutine may call it.
func (r *Reader) Progress() Progress {
	p := r.progress.Load()
	if p == nil {
		return Progress{}
	}
	out := *p
	out.Bytes = r.transferred.Load()
	return out
}

// Run reads the archive to its end, starting at the stored cursor of the archive.
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
			r.o.Logger.Info("archive compacted during the read; requesting a new plan", "after_seq", a.applied(), "reason", err)
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
		r.o.Logger.Info("the archive has not sealed the events up to the start of the stream yet; waiting", "sealed_until", p.Witnessed.UTC().Format(time.RFC3339), "needed_until", r.until().UTC().Format(time.RFC3339))
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

// pages reads everything that is sealed now, page by page.
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
		from := a.read
		if err := r.page(ctx, &p, a); err != nil {
			return tip, err
		}
		a.reached(p.PlannedThroughSeq)
		if p.PlannedThroughSeq >= tip {
			return tip, nil
		}
		if a.read <= from { // the next plan would be the same
			return tip, fmt.Errorf("%w: planSnapshot after %d makes no progress towards %d", ErrArchive, from, tip)
		}
	}
}

// part is a segment to fetch, or a block of one.
type part struct {
	segment *planSegment
	block   int // -1: all of it
	done    chan struct{}
	data    []byte
	err     error
}

// page fetches the parts of a plan, several at a time, and decodes them in order.
func (r *Reader) page(ctx context.Context, p *plan, a *applier) error {
	fetching, cancel := context.WithCancel(ctx) // the last batch may be applied after the page
	defer cancel()
	window := make(chan *part, r.o.Parallel*8) // in order
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
