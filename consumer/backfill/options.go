package backfill

import (
	"log/slog"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"

	"skein.blue/graph"
)

// Options say what is fetched, and how.
type Options struct {
	// Store is what repos are put in. Its Options.Queued must be Manager.Queued.
	Store *graph.Store
	// Relay is the address of the relay that lists hosts and repos, "" if there is none:
	// http(s):// or ws(s)://.
	Relay string
	// PLC is the address of the directory of did:plc. "" means the public one.
	PLC string
	// Hosts are PDSes that the operator named.
	Hosts []string
	// AllowPrivateHosts has hosts asked at loopback and private addresses as well.
	AllowPrivateHosts bool
	// TrustHosts has all hosts believed what they list, and asked for it without a look at
	// the DID documents: in a network of one's own.
	TrustHosts bool
	// MinRate is how many bytes a second a host must send of a repo, in the mean since
	// IdleTimeout after it began. 0 means 4 KiB.
	MinRate int64
	// MaxRepoBytes bounds a repo. 0 means 1 GiB.
	MaxRepoBytes int64
	// Memory bounds what is kept of all repos that are being read, in bytes; one of them may
	// have three quarters of it. 0 means 512 MiB.
	Memory int64
	// Fetchers is how many repos are fetched at once, and PerHost how many from one host.
	// 0 means 64 and 8.
	Fetchers, PerHost int
	// Tries is how often a repo is fetched before it is given up. 0 means 12.
	Tries int
	// Retry is how long to wait after a first failure; doubled after each, up to six
	// hours. 0 means two seconds: over an hour, until it is given up.
	Retry time.Duration
	// HostRetry is how long a host is left alone after it did not answer; doubled after
	// each time in a row, up to ten minutes. After HostTries times it is given up, with
	// what is queued of it. 0 means a second and 14, which is an hour and a half.
	HostRetry time.Duration
	HostTries int
	// HeaderTimeout bounds the wait for an answer, IdleTimeout that for more of it, and
	// RepoTimeout all of it. 0 means 30 s, 30 s and 10 minutes.
	HeaderTimeout, IdleTimeout, RepoTimeout time.Duration
	// ArchiveKey is sent to archives.
	ArchiveKey string
	// Settle is how long after a hole in the stream was noticed revs are compared. 0 means
	// 15 seconds: most of what was not in the hole has come by then, and the rest is
	// fetched in vain.
	Settle time.Duration
	// ArchiveOps is Options.Ops of an archive's Reader, and Archiving is called when one
	// begins to be read, and when it ends. It may be nil.
	ArchiveOps int
	Archiving  func(bool)
	// ArchivePoll is Options.Poll of an archive's Reader.
	ArchivePoll time.Duration
	// Listening returns since when the index has heard the stream without a gap, if that
	// began in this run: the present, while it has heard nothing. nil means that there is
	// no stream.
	Listening func() (since time.Time, ok bool)
	// Live reports whether all that the relay has sent is applied, or nearly. nil means that
	// it always is.
	Live func() bool
	// CompareEvery is how often all repos are compared with the relay's list, slowly, also
	// without a hole in the stream. 0 means never.
	CompareEvery time.Duration
	// MaxHostRepos is how many repos a host may list. 0 means two million.
	MaxHostRepos int64
	Logger       *slog.Logger
	Metrics      *Metrics
}

func (o *Options) defaults() {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	if o.Archiving == nil {
		o.Archiving = func(bool) {}
	}
	set(&o.Retry, 2*time.Second)
	set(&o.HostRetry, time.Second)
	if o.HostTries <= 0 {
		o.HostTries = 14
	}
	set(&o.HeaderTimeout, 30*time.Second)
	set(&o.IdleTimeout, 30*time.Second)
	set(&o.RepoTimeout, 10*time.Minute)
	if o.MaxRepoBytes <= 0 {
		o.MaxRepoBytes = 1 << 30
	}
	if o.MinRate <= 0 {
		o.MinRate = 4 << 10
	}
	if o.Memory <= 0 {
		o.Memory = 512 << 20
	}
	if o.MaxHostRepos <= 0 {
		o.MaxHostRepos = 2_000_000
	}
	if o.Fetchers <= 0 {
		o.Fetchers = 64
	}
	if o.PerHost <= 0 {
		o.PerHost = 8
	}
	if o.Tries <= 0 {
		o.Tries = 12
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.PLC == "" {
		o.PLC = identity.DefaultPLCURL
	}
	o.PLC = strings.TrimSuffix(o.PLC, "/")
	o.Relay = HTTPAddress(o.Relay)
	for i := range o.Hosts {
		o.Hosts[i] = HTTPAddress(o.Hosts[i])
	}
}

// HTTPAddress returns the address at which a relay, or a host that was named in short, is
// asked over HTTP: https:// unless it says otherwise, and without a path.
func HTTPAddress(s string) string {
	if s == "" {
		return ""
	}
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		scheme, rest = "https", s
	}
	switch scheme {
	case "ws":
		scheme = "http"
	case "wss":
		scheme = "https"
	}
	rest, _, _ = strings.Cut(rest, "/")
	return scheme + "://" + rest
}
