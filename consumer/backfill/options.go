package backfill

import (
	"cmp"
	"log/slog"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/consumer/proof"
	"skein.blue/graph"
	"skein.blue/internal/identities"
)

// Options say what to fetch, and how.
type Options struct {
	// Store receives the repos. New sets it.
	Store *graph.Store
	// Around, if set, is the part of the network that the store holds.
	Around *Around
	// Relay is the address of the relay that lists hosts and repos: http(s):// or ws(s)://.
	// "" means none.
	Relay string
	// PLC is the address of the did:plc directory. "" means the public one.
	PLC string
	// LookUps admits look-ups of DID documents. nil means one of the Manager's own.
	LookUps *identities.Broker
	// AllowPrivateHosts also allows hosts with loopback and private addresses.
	AllowPrivateHosts bool
	// Verifier, if set, checks the signature of every repo.
	Verifier *proof.Verifier
	// TrustHosts believes the lists of all hosts, and fetches from them without reading DID
	// documents: for a private network.
	TrustHosts bool
	// MinRate is the mean number of bytes a second that a host must send in each IdleTimeout.
	// 0 means 4 KiB.
	MinRate int64
	// MaxRepoBytes bounds a repo. 0 means 1 GiB.
	MaxRepoBytes int64
	// Memory bounds the memory for all repos being read, in bytes; one repo may use three
	// quarters of it. 0 means 512 MiB.
	Memory int64
	// Fetchers is how many repos to fetch at once, and PerHost how many from one host. 0
	// means 64 and 8.
	Fetchers, PerHost int
	Patience
	Timeouts
	// Settle is how long after a hole in the stream to compare revs. 0 means 15 seconds: by
	// then most commits after the hole have arrived; fetching the others is wasted.
	Settle time.Duration
	Archives
	// Listening returns the time from which the index has received the stream without a gap;
	// ok is false if that began before this run. Until the first event, the time is the
	// present; without a stream it is zero. nil means that there is no stream.
	Listening func() (since time.Time, ok bool)
	// Live reports whether everything that the relay has sent is applied, or nearly. nil
	// means always.
	Live func() bool
	// CompareEvery is how often to compare all repos with the relay's list, slowly, even
	// without a hole in the stream. 0 means never.
	CompareEvery time.Duration
	// Audit is how many random repos an hour to fetch and compare with the index. 0 means none.
	Audit   float64
	Logger  *slog.Logger
	Metrics *Metrics
}

// Patience is how often, and when, to try again.
type Patience struct {
	// Tries is how often to fetch a repo before giving it up. 0 means 12.
	Tries int
	// Retry is the wait after a first failure; it doubles after each, up to six hours. 0
	// means two seconds: over an hour until the repo is given up.
	Retry time.Duration
	// HostRetry is the wait after a host did not answer; it doubles after each failure in a
	// row, up to ten minutes. After HostTries failures the host and its queued repos are
	// given up. 0 means a second and 14, which is an hour and a half.
	HostRetry time.Duration
	HostTries int
}

// Timeouts bound requests to hosts.
type Timeouts struct {
	// HeaderTimeout bounds the wait for an answer, IdleTimeout the wait for more of it, and
	// RepoTimeout the whole answer. 0 means 30 s, 30 s and 10 minutes.
	HeaderTimeout, IdleTimeout, RepoTimeout time.Duration
}

// Archives are options of reading archives.
type Archives struct {
	// ArchiveKey is sent to archives.
	ArchiveKey string
	// ArchiveOps is Options.Ops of an archive's Reader. Archiving, which may be nil, is
	// called when reading an archive starts and ends.
	ArchiveOps int
	Archiving  func(bool)
}

func (o *Options) defaults() {
	o.Retry = cmp.Or(o.Retry, 2*time.Second)
	o.HostRetry = cmp.Or(o.HostRetry, time.Second)
	o.HostTries = cmp.Or(o.HostTries, 14)
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, 30*time.Second)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 30*time.Second)
	o.RepoTimeout = cmp.Or(o.RepoTimeout, 10*time.Minute)
	o.Settle = cmp.Or(o.Settle, 15*time.Second)
	o.MaxRepoBytes = cmp.Or(o.MaxRepoBytes, 1<<30)
	o.MinRate = cmp.Or(o.MinRate, 4<<10)
	o.Memory = cmp.Or(o.Memory, 512<<20)
	o.Fetchers = cmp.Or(o.Fetchers, 64)
	o.PerHost = cmp.Or(o.PerHost, 8)
	o.Tries = cmp.Or(o.Tries, 12)
	if o.Archiving == nil {
		o.Archiving = func(bool) {}
	}
	if o.Listening == nil {
		o.Listening = func() (time.Time, bool) { return time.Time{}, true }
	}
	if o.Live == nil {
		o.Live = func() bool { return true }
	}
	o.Logger, o.LookUps = cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), cmp.Or(o.LookUps, new(identities.Broker))
	o.Metrics = cmp.Or(o.Metrics, NewMetrics(prometheus.NewRegistry(), func() Status { return Status{} }))
	o.PLC = strings.TrimSuffix(cmp.Or(o.PLC, identity.DefaultPLCURL), "/")
	o.Relay = HTTPAddress(o.Relay)
}

// HTTPAddress returns the HTTP address of a relay or host: https:// unless s names another
// scheme, in lower case, without the scheme's port and a path.
func HTTPAddress(s string) string {
	if s == "" {
		return ""
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		scheme, rest = "https", s
	}
	rest, _, _ = strings.Cut(rest, "/")
	scheme = strings.Replace(strings.ToLower(scheme), "ws", "http", 1)
	return scheme + "://" + strings.TrimSuffix(strings.ToLower(rest), map[string]string{"http": ":80", "https": ":443"}[scheme])
}
