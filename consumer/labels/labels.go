package labels

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/internal/kv"
	"skein.blue/internal/outward"
	"skein.blue/internal/say"
)

// A Store keeps labels. A graph.Store is one.
type Store interface {
	// OwnsLabels reports whether this process writes the labels.
	OwnsLabels() bool
	// Labelers returns the read state of each labeler.
	Labelers(ctx context.Context) ([]graph.Labeler, error)
	// ApplyLabels writes labels, and the state after them.
	ApplyLabels(ctx context.Context, now time.Time, labels []batch.Label, before, after graph.Labeler) error
	// ExpireLabels removes some expired labels from the sets, and reports whether there may be more.
	ExpireLabels(ctx context.Context, now time.Time) (more bool, err error)
}

// An Identities finds labelers. An identities.Labelers is one.
type Identities interface {
	// Labeler reads a labeler's DID document: the address of its service, "" if it has none, and its key.
	Labeler(ctx context.Context, did string) (endpoint string, key atcrypto.PublicKey, err error)
}

// Options configure a Consumer.
type Options struct {
	// Labelers are DIDs, or the addresses (https:// or wss://) of labelers' services. CheckLabelers has checked them.
	Labelers []string
	// Identities finds labelers' keys, and their addresses.
	Identities Identities
	// Dial connects to addresses that DID documents name. It must refuse private ones. Addresses in
	// Labelers are not checked, because the operator chose them.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// UserAgent is sent to labelers.
	UserAgent string
	// Retry is the wait before the second try to connect; it doubles until RetryMost. The zero values mean
	// one second and one minute.
	Retry, RetryMost time.Duration
	// Quiet is how long a labeler must send nothing before skein asks it whether that was all. 0 means ten seconds.
	Quiet time.Duration
	// Logger and Metrics may be nil.
	Logger  *slog.Logger
	Metrics *Metrics
}

// A Consumer reads labelers.
type Consumer struct {
	o       Options
	store   Store
	turn    sync.Mutex    // held by the labeler whose turn it is
	worked  time.Duration // since the last rest; turn is held
	limiter say.Limiter
}

// ErrLabeler is the error of CheckLabelers.
var ErrLabeler = errors.New("not a labeler")

// CheckLabelers checks a list of labelers.
func CheckLabelers(all []string) error {
	for i, name := range all {
		if kinds.DID.Valid([]byte(name)) {
			if !strings.HasPrefix(name, "did:plc:") && !strings.HasPrefix(name, "did:web:") {
				return fmt.Errorf("%w: %s is neither a did:plc nor a did:web", ErrLabeler, name)
			}
		} else if _, err := addressOf(name); err != nil {
			return err
		}
		if slices.Contains(all[:i], name) {
			return fmt.Errorf("%w: %s is listed twice", ErrLabeler, name)
		}
	}
	return nil
}

// addressOf returns the address of a service's stream, without a cursor.
func addressOf(service string) (*url.URL, error) {
	u, err := url.Parse(service)
	if err == nil {
		u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1)
	}
	if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: %q is neither a DID nor a URL such as https://labels.example.com", ErrLabeler, service)
	}
	const method = "/xrpc/com.atproto.label.subscribeLabels"
	u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, method), "/") + method
	return u, nil
}

// New returns a Consumer.
func New(store Store, o Options) *Consumer {
	o.Logger, o.Metrics = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), cmp.Or(o.Metrics, NewMetrics(prometheus.NewRegistry()))
	o.Retry, o.RetryMost, o.Quiet = cmp.Or(o.Retry, time.Second), cmp.Or(o.RetryMost, time.Minute), cmp.Or(o.Quiet, 10*time.Second)
	return &Consumer{o: o, store: store}
}

// Run reads all labelers until ctx ends. It returns an error only if the store fails. In a process that
// does not write the labels, it does nothing.
func (c *Consumer) Run(ctx context.Context) error {
	known, err := c.store.Labelers(ctx)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("reading the states of the labelers: %w", err)
	}
	if !c.store.OwnsLabels() {
		if len(c.o.Labelers) > 0 {
			c.o.Logger.Info("labels are read by the writer of the first partition")
		}
		return nil
	}
	state := map[string]graph.Labeler{}
	for _, l := range known {
		state[l.Name] = l
		if slices.Contains(c.o.Labelers, l.Name) || l.Problem == graph.LabelerRemoved {
			continue
		}
		after := l
		after.Current, after.Problem = false, graph.LabelerRemoved
		if err := c.store.ApplyLabels(ctx, time.Now(), nil, l, after); err != nil {
			return err
		}
	}
	g, running := errgroup.WithContext(ctx)
	for _, name := range c.o.Labelers {
		l := c.newLabeler(name, state[name])
		g.Go(func() error { return l.run(running) })
	}
	if len(known)+len(c.o.Labelers) > 0 {
		g.Go(func() error { return c.expire(running) })
	}
	<-running.Done()
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// expire removes expired labels from the sets, once a second.
func (c *Consumer) expire(ctx context.Context) error {
	for {
		for more := true; more && ctx.Err() == nil; {
			err := c.takeTurn(ctx, func() (err error) {
				more, err = c.store.ExpireLabels(ctx, time.Now())
				return err
			})
			if errors.Is(err, kv.ErrUnavailable) { // the engine logs it; it is tried again in a second
				break
			}
			if err != nil {
				return err
			}
		}
		if outward.Wait(ctx, time.Second) != nil {
			return nil //nolint:nilerr // that is how it ends
		}
	}
}

// takeTurn calls fn while no other labeler has its turn. After 10 ms of work in total, it rests for as long as
// that work took: all labelers together use at most half a core, and half of the store's write time.
func (c *Consumer) takeTurn(ctx context.Context, fn func() error) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	start := time.Now()
	err := fn()
	if c.worked += time.Since(start); c.worked > 10*time.Millisecond {
		_ = outward.Wait(ctx, c.worked)
		c.worked = 0
	}
	return err
}
