package app

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"

	"skein.blue/consumer"
	"skein.blue/consumer/backfill"
	"skein.blue/consumer/labels"
	"skein.blue/consumer/proof"
	"skein.blue/internal/backup"
	"skein.blue/internal/identities"
	"skein.blue/internal/outward"
	"skein.blue/internal/say"
	"skein.blue/query"
)

// Bounds on what a stranger may cost.
const (
	// Signing keys that --verify full caches, some 500 bytes each, and for how long at most: an
	// #identity event, or a signature that does not match, makes it look a key up again.
	keptKeys    = 200_000
	keptKeysFor = 24 * time.Hour
)

const compareEvery = 7 * 24 * time.Hour // with the relay's list of repos, slowly

// DefaultPLC is the directory of did:plc identities.
var DefaultPLC = identity.DefaultPLCURL

// A Network says where skein reads from, and what it believes. All parts of the process that its
// methods build share one broker of look-ups, and one cache of keys.
type Network struct {
	Relay        string
	Full         bool   // verify signatures, and operations of commits
	PLC          string // URL of the directory of did:plc identities
	AllowPrivate bool   // also fetch from loopback and private addresses
	UserAgent    string

	lookUps  identities.Broker
	verifier *proof.Verifier
}

// ParseVerify sets Full.
func (n *Network) ParseVerify(s string) error {
	if s != "cid" && s != "full" {
		return errors.New("expected cid or full")
	}
	n.Full = s == "full"
	return nil
}

// CheckPLC returns an error for the URL of a directory that cannot be meant.
func CheckPLC(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return errors.New("expected a URL such as " + DefaultPLC)
	}
	return nil
}

// Public reports whether the accounts belong to the public network: the relay has a public host, and
// DID documents come from the public directory.
func (n *Network) Public() bool {
	host, _, err := consumer.ParseRelay(n.Relay)
	return err == nil && outward.PublicHost(host) && n.PLC == DefaultPLC
}

// Continues returns an error unless a backed-up store can go on with the stream of the relay.
func (n *Network) Continues(m *backup.Manifest) error {
	host, _, err := consumer.ParseRelay(n.Relay)
	if err != nil || m.Store.Source == host {
		return err
	}
	source := say.Line(m.Store.Source)
	return fmt.Errorf("the backup follows the stream of %s, and --relay is %s, whose sequence numbers are others: start with --relay %s, or choose another backup", source, host, source)
}

// CheckListen returns an ErrUsage for the address of a listener that cannot be meant.
func CheckListen(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return UsageError("%s %q: expected HOST:PORT, such as 127.0.0.1:3210, or :3210 for all addresses of this machine", flag, address)
	}
	if _, err := net.LookupPort("tcp", port); err != nil { //nolint:noctx // a number, or a name of /etc/services
		return UsageError("%s %q: unknown port %s; ports are numbers from 0 to 65535", flag, address, port)
	}
	return nil
}

// client returns a client of the directory, and of hosts.
func (n *Network) client() *http.Client {
	return outward.NewClient(outward.Options{Trusted: []string{n.PLC}, AllowPrivate: n.AllowPrivate, PerHost: identities.PLCAtOnce})
}

// directory returns the source of DID documents, without a cache.
func (n *Network) directory() identity.Directory {
	return n.lookUps.NewSource(n.PLC, n.client())
}

// full returns the verifier of signatures and operations, nil unless Full is set.
func (n *Network) full() *proof.Verifier {
	if n.Full && n.verifier == nil {
		n.verifier = proof.NewVerifier(identities.NewKeysKept(n.directory(), keptKeys, keptKeysFor))
	}
	return n.verifier
}

// Consume completes the options of a consumer of the relay.
func (n *Network) Consume(o *consumer.Options) {
	o.Relay, o.UserAgent = n.Relay, n.UserAgent
	if v := n.full(); v != nil { // a nil pointer in an interface would not be nil
		o.Verifier = v
	}
}

// Backfill completes the options for fetching repos.
func (n *Network) Backfill(o *backfill.Options) {
	o.Relay, o.PLC, o.LookUps, o.Verifier = n.Relay, n.PLC, &n.lookUps, n.full()
	o.AllowPrivateHosts, o.TrustHosts = n.AllowPrivate, n.AllowPrivate
	o.CompareEvery = compareEvery
	o.ArchiveKey = os.Getenv("SKEIN_ARCHIVE_KEY")
}

// Labels returns the options for reading labelers.
func (n *Network) Labels(labelers []string) (*labels.Options, error) {
	if err := labels.CheckLabelers(labelers); err != nil {
		return nil, UsageError("--labelers: %v", err)
	}
	return &labels.Options{
		Labelers: labelers, UserAgent: n.UserAgent,
		Identities: identities.Labelers{Directory: n.lookUps.NewSource(n.PLC, n.client())},
		Dial:       outward.Dialer(outward.Options{AllowPrivate: n.AllowPrivate}),
	}, nil
}

// Handles returns the resolver of handles that --resolver names.
func (n *Network) Handles(resolver string) (query.Handles, error) {
	r, err := identities.New(identities.Options{Resolver: resolver, AllowPrivate: n.AllowPrivate, Broker: &n.lookUps, Directory: n.directory()})
	if err != nil {
		return nil, UsageError("--resolver: %v", err)
	}
	return r, nil
}

// Service returns the public identity of a server by its host name, nil without one.
func (n *Network) Service(host string) (*query.Service, error) {
	if host == "" {
		return nil, nil // it has no identity
	}
	v, err := query.NewService(host, n.directory())
	if err != nil {
		return nil, UsageError("--service-host: %v", err)
	}
	return v, nil
}
