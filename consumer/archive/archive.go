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
	"cmp"
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

	"golang.org/x/sync/semaphore"

	"skein.blue/consumer/wire"
	"skein.blue/graph"
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
	// Poll is how often to ask an archive that does not reach Until yet. 0 means 30
	// seconds.
	Poll time.Duration
	// Tries bounds the attempts of a request. 0 means 12, over some ten minutes.
	Tries  int
	Logger *slog.Logger
	// Dropped is called for each malformed row or record.
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
	Records   int64     // created or updated, in indexed collections
	Bytes     int64     // transferred
	Seq, Tip  int64     // of the archive
	Witnessed time.Time // when the archive saw the last row that was read
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
	o.Ops = cmp.Or(o.Ops, 30_000)
	o.Poll = cmp.Or(o.Poll, 30*time.Second)
	o.Tries = cmp.Or(o.Tries, 12)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	r := &Reader{o: o, source: source, free: make(chan []byte, parallel)}
	r.progress.Store(new(Progress))
	r.client = &client{
		base: strings.TrimPrefix(source, "archive "), key: o.Key, tries: o.Tries, delay: time.Second,
		http: &http.Client{Transport: outward.Paced(outward.Named(&http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 20 * time.Second}).DialContext, TLSHandshakeTimeout: 20 * time.Second,
			ResponseHeaderTimeout: time.Minute, MaxIdleConnsPerHost: 32, DisableCompression: true,
		}), pace)},
		log: o.Logger,
	}
	for _, c := range o.Store.Kinds().Collections() {
		r.client.collections = append(r.client.collections, c.NSID)
	}
	return r, nil
}

// Source returns the name of the archive's cursor.
func (r *Reader) Source() string { return r.source }

// Progress returns how much of the archive was read. Any goroutine may call it.
func (r *Reader) Progress() Progress {
	p := *r.progress.Load()
	p.Bytes = r.transferred.Load()
	return p
}

// Run reads the archive to its end, starting at the stored cursor of the archive.
func (r *Reader) Run(ctx context.Context) error {
	c, _ := r.o.Store.Cursor(r.source)
	if c.Future {
		return ErrRestarted
	}
	r.progress.Store(&Progress{Seq: int64(c.Seq), Witnessed: c.Time})
	a := newApplier(r, int64(c.Seq))
	a.witnessed = c.Time
	defer func() { _ = a.wait() }() // it failed, or was interrupted, for another reason
	for replans := 0; ; {
		err := r.pages(ctx, a)
		if errors.Is(err, errReplan) && replans < 20 {
			if err := a.flush(ctx); err != nil {
				return err
			}
			replans++
			r.o.Logger.Info("archive compacted during the read; requesting a new plan", "after_seq", a.appliedTo, "reason", err)
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
		until := r.o.Until()
		if until.IsZero() || !p.Witnessed.Before(until) {
			return nil
		}
		r.o.Logger.Info("the archive has not sealed the events up to the start of the stream yet; waiting", "sealed_until", p.Witnessed.UTC().Format(time.RFC3339), "needed_until", until.UTC().Format(time.RFC3339))
		if err := outward.Wait(ctx, r.o.Poll); err != nil {
			return err
		}
	}
}

// pages reads everything that is sealed now, page by page.
func (r *Reader) pages(ctx context.Context, a *applier) error {
	for a.tip = 0; ; {
		p, err := r.client.plan(ctx, a.read, a.tip)
		if err != nil {
			return err
		}
		if a.tip == 0 {
			a.tip = p.SealedTipSeq
		}
		from := a.read
		if err := r.page(ctx, &p, a); err != nil {
			return err
		}
		a.read = max(a.read, p.PlannedThroughSeq) // even if there was no row
		if p.PlannedThroughSeq >= a.tip {
			return nil
		}
		if a.read <= from { // the next plan would be the same
			return fmt.Errorf("%w: planSnapshot after %d makes no progress towards %d", ErrArchive, from, a.tip)
		}
	}
}

// parallel is how many segments, or eight times as many blocks, are fetched at once.
const parallel = 2

// wholeCost is the room that a segment takes among the parts that are fetched at once; a block takes 1.
const wholeCost = 8

// part is a segment to fetch, or a block of one.
type part struct {
	segment *planSegment
	block   int   // -1: all of it
	cost    int64 // see wholeCost
	done    chan struct{}
	data    []byte
	err     error
}

// page fetches the parts of a plan, several at a time, and decodes them in order.
func (r *Reader) page(ctx context.Context, p *plan, a *applier) error {
	fetching, cancel := context.WithCancel(ctx) // the last batch may be applied after the page
	defer cancel()
	most := parallel * wholeCost
	window, room := make(chan *part, most), semaphore.NewWeighted(int64(most)) // in order
	read := a.read
	go func() {
		defer close(window)
		for i := range p.Segments {
			s := &p.Segments[i]
			if s.MaxSeq <= read {
				continue
			}
			for _, block := range blocksOf(s) {
				one := &part{segment: s, block: block, cost: 1, done: make(chan struct{})}
				if block < 0 {
					one.cost = wholeCost
				}
				if room.Acquire(fetching, one.cost) != nil {
					return
				}
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
		if one.block < 0 {
			select {
			case r.free <- one.data:
			default:
			}
		}
		room.Release(one.cost)
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
	count := func(n int64) { r.transferred.Add(n) }
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
