package identities

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/hashicorp/golang-lru/v2/expirable"
	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/internal/kv"
	"skein.blue/internal/say"
)

// Bounds of a Mirror.
const (
	// MaxAge is how old the copy may be to be used.
	MaxAge = 10 * time.Minute
	// pollEvery is how often a complete copy asks for new operations.
	pollEvery = 10 * time.Second
	// overlap is how far a poll reads back: the directory may show an operation a little later
	// than its time says.
	overlap = 10 * time.Second
	// purgedFor is how long a purged account is asked for at the directory: longer than the copy
	// may be behind.
	purgedFor = 2 * MaxAge
	// maxPurged bounds the purged accounts in memory. Beyond it, the oldest is forgotten: a row
	// that is out of date then costs a signature that does not match, which purges it again.
	maxPurged = 100_000
)

// MirrorOptions configure a Mirror.
type MirrorOptions struct {
	// Store holds the copy. The Mirror does not close it.
	Store kv.Store
	// URL is the address of the directory.
	URL string
	// Client sends the requests to the directory's export.
	Client *http.Client
	// Logger receives messages. nil means no logging.
	Logger *slog.Logger
	// poll and retry replace the intervals in tests. now replaces the clock.
	poll, retry time.Duration
	now         func() time.Time
}

// A Mirror is a copy of the did:plc directory. Any goroutine may use it.
type Mirror struct {
	o      MirrorOptions
	log    *slog.Logger
	limit  say.Limiter
	purged *expirable.LRU[syntax.DID, bool]

	complete atomic.Int64           // Unix nanoseconds of the last poll that read everything; 0: none yet
	newest   atomic.Int64           // Unix milliseconds of the newest operation
	lookUps  *prometheus.CounterVec // by what answered
}

// OpenMirror opens the copy in a store.
func OpenMirror(ctx context.Context, o MirrorOptions) (*Mirror, error) {
	o.Logger, o.poll, o.retry = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), cmp.Or(o.poll, pollEvery), cmp.Or(o.retry, time.Second)
	if o.now == nil {
		o.now = time.Now
	}
	m := &Mirror{
		o: o, log: o.Logger.With("component", "plc"), limit: say.Limiter{Every: time.Minute},
		purged:  expirable.NewLRU[syntax.DID, bool](maxPurged, nil, purgedFor),
		lookUps: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "skein_plc_lookups_total", Help: "Look-ups of did:plc accounts, by what answered: copy, or directory (the copy is old, or does not have the account)."}, []string{"answered"}),
	}
	for _, by := range []string{"copy", "directory"} {
		m.lookUps.WithLabelValues(by)
	}
	err := o.Store.View(ctx, func(r kv.Reader) error {
		v, _, err := r.Get([]byte{keyCursor})
		n, _ := binary.Uvarint(v)
		m.newest.Store(int64(n))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("plc: reading the copy of the directory: %w; delete its folder to read it again", err)
	}
	return m, nil
}

// Register registers the metrics.
func (m *Mirror) Register(reg prometheus.Registerer) {
	reg.MustRegister(m.lookUps,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "skein_plc_complete_timestamp_seconds", Help: "Time at which the copy of the did:plc directory was last complete; 0: not since the start. It is used for ten minutes from then."}, func() float64 { return float64(m.complete.Load()) / 1e9 }),
	)
}

// Fresh reports whether the copy is new enough to be used.
func (m *Mirror) Fresh() bool {
	at := m.complete.Load()
	return at != 0 && m.o.now().Sub(time.Unix(0, at)) <= MaxAge
}

// Purge makes the next look-ups of an account ask the directory.
func (m *Mirror) Purge(did syntax.DID) { m.purged.Add(did, true) }

// LookUp returns what the document of an account would say. ok is false if the copy cannot tell.
// The error is identity.ErrDIDNotFound for an account that was deleted.
func (m *Mirror) LookUp(ctx context.Context, did syntax.DID) (ident *identity.Identity, ok bool, err error) {
	key, ok := accountKey(string(did))
	if !ok {
		return nil, false, nil
	}
	defer func() {
		by := "directory"
		if ok {
			by = "copy"
		}
		m.lookUps.WithLabelValues(by).Inc()
	}()
	if m.purged.Contains(did) || !m.Fresh() {
		return nil, false, nil
	}
	r := row{kind: rowOther}
	err = m.o.Store.View(ctx, func(tx kv.Reader) error {
		v, has, err := tx.Get(key)
		if err == nil && has {
			r, err = parseRow(v)
		}
		return err
	})
	if err != nil { // the directory knows
		if held, may := m.limit.Allow("read"); may && ctx.Err() == nil {
			m.log.Error("cannot read the copy of the did:plc directory; asking the directory instead. Stop skein and delete the copy to read it again", "error", err, "occurrences", held+1)
		}
		return nil, false, nil
	}
	switch r.kind {
	case rowOther:
		return nil, false, nil
	case rowTombstone:
		return nil, true, fmt.Errorf("%w: %s was deleted", identity.ErrDIDNotFound, did)
	}
	if ident, err = r.identity(did); err != nil {
		return nil, false, nil // the directory knows
	}
	return ident, true, nil
}

// A PLC asks a Mirror first, and another directory for what the copy cannot tell.
type PLC struct {
	identity.Directory

	Mirror *Mirror
}

// LookupDID implements identity.Directory.
func (d PLC) LookupDID(ctx context.Context, did syntax.DID) (*identity.Identity, error) {
	if ident, ok, err := d.Mirror.LookUp(ctx, did); ok {
		return ident, err
	}
	return d.Directory.LookupDID(ctx, did)
}

// Purge implements identity.Directory. From then on, look-ups of the account ask the other
// directory, for as long as the copy may be behind.
func (d PLC) Purge(ctx context.Context, id syntax.AtIdentifier) error {
	if did, err := id.AsDID(); err == nil {
		d.Mirror.Purge(did)
	}
	return d.Directory.Purge(ctx, id)
}

// mirrorMerger is for a store in which nothing is merged.
type mirrorMerger struct{}

// MirrorMerger returns the Merger that a Mirror's store is opened with. Nothing merges.
func MirrorMerger() kv.Merger { return mirrorMerger{} }

// Name implements kv.Merger.
func (mirrorMerger) Name() string { return "skein.plc.2" }

// Fold implements kv.Merger.
func (mirrorMerger) Fold([]byte, []byte, [][]byte, bool) ([]byte, error) {
	return nil, errors.New("plc: nothing is merged in a copy of the directory")
}
