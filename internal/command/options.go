package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"

	"skein.blue/consumer"
	"skein.blue/consumer/backfill"
	"skein.blue/consumer/labels"
	"skein.blue/consumer/proof"
	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/app"
	"skein.blue/internal/human"
	"skein.blue/internal/identities"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/outward"
	"skein.blue/query"
	"skein.blue/query/feed"
)

// keptKeys is how many signing keys --verify full caches, some 500 bytes each, and for how long at
// most: an #identity event, or a signature that does not match, makes it look a key up again.
const (
	keptKeys    = 200_000
	keptKeysFor = 24 * time.Hour
)

// Verifier builds the verifier of --verify full, nil without it.
func (s *Settings) Verifier() (*proof.Verifier, error) {
	switch s.Verify {
	case "", "cid":
		return nil, nil // nothing else is verified
	case "full":
	default:
		return nil, UsageError("--verify %q: expected cid or full", s.Verify)
	}
	if s.verifier == nil {
		client := outward.NewClient(outward.Options{Trusted: []string{s.plc}, AllowPrivate: s.allowPrivate, PerHost: identities.PLCAtOnce})
		s.verifier = proof.NewVerifier(identities.NewKeysKept(s.directory(client), keptKeys, keptKeysFor))
	}
	return s.verifier, nil
}

// Public reports whether the accounts belong to the public network: the relay has a public
// host, and DID documents come from the public directory.
func (s *Settings) Public() bool {
	host, _, err := consumer.ParseRelay(s.Relay)
	return err == nil && outward.PublicHost(host) && s.plc == identity.DefaultPLCURL
}

// Handles builds the resolver of handles.
func (s *Settings) Handles() (*identities.Resolver, error) {
	r, err := identities.New(identities.Options{Resolver: s.Resolver, AllowPrivate: s.allowPrivate, Broker: &s.lookUps})
	if err != nil {
		return nil, UsageError("--resolver: %v", err)
	}
	return r, nil
}

// CheckPreview checks --feed-preview. With it, everybody who reaches the query listener can see
// a feed as any viewer does.
func (s *Settings) CheckPreview() error {
	if !s.FeedPreview {
		return nil
	}
	if s.FeedFile == "" {
		return UsageError("--feed-preview needs --feeds FILE, the feeds to preview")
	}
	host, _, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return UsageError("--listen %q: expected HOST:PORT", s.Listen)
	}
	addresses, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip", host)
	onLoopback := err == nil && host != "" && !slices.ContainsFunc(addresses, func(a netip.Addr) bool { return !a.Unmap().IsLoopback() })
	if !onLoopback {
		return UsageError("--feed-preview answers as any account without a token, so --listen must be a loopback address, and %s is not one; use 127.0.0.1:3210, or remove --feed-preview", s.Listen)
	}
	return nil
}

// Service builds the server's public identity, nil if it has no name. A server that only
// previews its feeds is did:web:localhost.
func (s *Settings) Service() (*query.Service, error) {
	host := s.serviceHost
	if host == "" && s.FeedPreview {
		host = "localhost" // only this machine sees the feeds
	}
	if host == "" {
		return nil, nil // it has no identity
	}
	client := outward.NewClient(outward.Options{Trusted: []string{s.plc}, AllowPrivate: s.allowPrivate, PerHost: identities.PLCAtOnce})
	v, err := query.NewService(query.ServiceOptions{Host: host, Directory: s.directory(client)})
	if err != nil {
		return nil, UsageError("--service-host: %v", err)
	}
	return v, nil
}

// Feeds reads the file of feeds, nil if there is none. Feeds may use the sets of the table's
// kinds.
func (s *Settings) Feeds(table *kinds.Table, service *query.Service) (*feed.Feeds, error) {
	switch {
	case s.FeedFile == "" && s.feedAuthor != "":
		return nil, UsageError("--feed-publisher needs --feeds, the file of feeds")
	case s.FeedFile == "":
		return nil, nil // there are no feeds
	case service == nil:
		return nil, UsageError("--feeds needs --service-host NAME (the public name of this server), or --feed-preview to try the feeds on this machine")
	}
	f, err := feed.New(feed.Options{Kinds: table, Path: s.FeedFile, Service: service.DID(), Preview: s.FeedPreview, Publisher: s.feedAuthor})
	if err != nil {
		return nil, UsageError("--feeds: %v", err)
	}
	return f, nil
}

// Labels builds the options for reading labels.
func (s *Settings) Labels() (*labels.Options, error) {
	if err := labels.CheckLabelers(s.labelers); err != nil {
		return nil, UsageError("--labelers: %v", err)
	}
	o := outward.Options{Trusted: []string{s.plc}, AllowPrivate: s.allowPrivate}
	return &labels.Options{
		Labelers: s.labelers, UserAgent: UserAgent(),
		Identities: identities.Labelers{Directory: s.lookUps.NewSource(s.plc, outward.NewClient(o))},
		Dial:       outward.Dialer(outward.Options{AllowPrivate: s.allowPrivate}),
	}, nil
}

// BackfillOptions builds the backfill options from the flags.
func (s *Settings) BackfillOptions() (*backfill.Options, error) {
	o := &backfill.Options{Relay: s.Relay, PLC: s.plc, LookUps: &s.lookUps, Mirror: s.mirror, AllowPrivateHosts: s.allowPrivate, TrustHosts: s.allowPrivate, ArchiveKey: os.Getenv(EnvPrefix + "ARCHIVE_KEY")}
	n, err := parseBytes(s.maxRepo)
	if err != nil || n < 1 {
		return nil, UsageError("--max-repo-bytes %q: expected a number of bytes, such as 1GiB", s.maxRepo)
	}
	o.MaxRepoBytes = n
	if s.maxHostRepos < 1 {
		return nil, UsageError("--max-host-repos must be 1 or more")
	}
	if s.compareEvery < 0 {
		return nil, UsageError("--compare-every must not be negative")
	}
	o.MaxHostRepos, o.CompareEvery = s.maxHostRepos, s.compareEvery
	if o.Audit, err = strconv.ParseFloat(strings.TrimSuffix(cmp.Or(s.audit, "0"), "/h"), 64); err != nil || !(o.Audit >= 0 && o.Audit <= maxAudit) {
		return nil, UsageError("--audit %q: expected a number of repos an hour, such as 100/h, and at most %d/h", s.audit, maxAudit)
	}
	if o.Verifier, err = s.Verifier(); err != nil {
		return nil, err
	}
	if u, err := url.Parse(s.plc); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, UsageError("--plc %q: expected a URL such as https://plc.directory", s.plc)
	}
	return o, nil
}

// maxAudit bounds --audit: an audit is a sample, and not a second backfill.
const maxAudit = 100_000

func (s *Settings) memoryBytes() (int64, error) {
	if s.memory == "" {
		return app.DefaultMemory(), nil
	}
	n, err := parseBytes(s.memory)
	if err != nil {
		return 0, UsageError("--memory: %v", err)
	}
	if n < 32<<20 {
		return 0, UsageError("--memory %s: the minimum is 32MiB", s.memory)
	}
	if most := app.AvailableMemory(); n > most {
		return 0, UsageError("--memory %s: only %s is available to this process", s.memory, human.Bytes(uint64(most)))
	}
	return n, nil
}

// parseBytes parses a number of bytes, with or without a unit.
func parseBytes(s string) (int64, error) {
	units := []struct {
		suffix string
		size   int64
	}{
		{"KiB", 1 << 10},
		{"MiB", 1 << 20},
		{"GiB", 1 << 30},
		{"TiB", 1 << 40},
		{"KB", 1e3},
		{"MB", 1e6},
		{"GB", 1e9},
		{"TB", 1e12},
		{"K", 1 << 10},
		{"M", 1 << 20},
		{"G", 1 << 30},
		{"B", 1},
		{"", 1},
	}
	for _, u := range units {
		if number, ok := strings.CutSuffix(s, u.suffix); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err != nil || n < 0 || n*float64(u.size) > 1<<62 {
				return 0, fmt.Errorf("%q is not a size; write it like 512MiB", s)
			}
			return int64(n * float64(u.size)), nil
		}
	}
	return 0, fmt.Errorf("%q is not a size; write it like 512MiB", s)
}

// ConsumerOptions builds the consumer's options from the flags.
func (s *Settings) ConsumerOptions() (consumer.Options, error) {
	o := consumer.Options{
		Relay: s.Relay, ForceCursor: s.ForceCursor, Watchdog: s.watchdog, UserAgent: UserAgent(),
	}
	if s.watchdog < 0 {
		return o, UsageError("--idle-timeout %v is negative", s.watchdog)
	}
	if s.Cursor != "" {
		n, err := strconv.ParseInt(s.Cursor, 10, 64)
		if err != nil || n < 0 {
			return o, UsageError("--cursor %q: expected a sequence number from 0 to %d", s.Cursor, int64(math.MaxInt64))
		}
		o.Cursor = &n
	}
	v, err := s.Verifier()
	if err != nil {
		return o, err
	}
	if v != nil { // a nil pointer in an interface would not be nil
		o.Verifier = v
	}
	return o, nil
}

// StoreOptions builds the store's options from the flags.
func (s *Settings) StoreOptions(e *Environment) (app.StoreOptions, error) {
	o := app.StoreOptions{Store: s.Store, SyncInterval: s.syncInterval, AcceptLoss: s.acceptLoss, Fatal: e.fatal}
	var err error
	if s.syncInterval <= 0 {
		return o, UsageError("--sync-interval %v: must be more than 0", s.syncInterval)
	}
	if err := CheckStoreFlag(s.Store); err != nil {
		return o, err
	}
	if s.minFree != "" {
		n, err := parseBytes(s.minFree)
		if err != nil {
			return o, UsageError("--min-free: %v", err)
		}
		o.MinFree = uint64(n)
	}
	if s.acceptLoss != "" && !app.EngineOf(s.Store).InProcess {
		return o, UsageError("--accept-loss %s: a store on FoundationDB has no write-ahead logs", s.acceptLoss)
	}
	if err := s.idOptions(&o); err != nil {
		return o, err
	}
	if o.Memory, err = s.memoryBytes(); err != nil {
		return o, err
	}
	if o.Kinds, err = s.kinds(); err != nil {
		return o, err
	}
	o.Logger, err = e.logger()
	return o, err
}

// kinds reads the file that --kinds names.
func (s *Settings) kinds() ([]kinds.Info, error) {
	if s.kindsFile == "" {
		return nil, nil
	}
	b, err := os.ReadFile(s.kindsFile)
	if err != nil {
		return nil, UsageError("--kinds: %v", err)
	}
	all, err := kinds.Parse(string(b))
	if err != nil {
		return nil, UsageError("--kinds %s: %v", s.kindsFile, err)
	}
	return all, nil
}

// CheckStoreFlag checks --store: a folder, or the URL of a store on FoundationDB.
func CheckStoreFlag(store string) error {
	switch scheme, _, isURL := strings.Cut(store, "://"); {
	case store == "":
		return UsageError("--store is empty; name a folder")
	case isURL && scheme != app.FoundationDB:
		return UsageError("--store %q: expected a folder, or fdb:///path/to/fdb.cluster?prefix=skein", store)
	case strings.HasPrefix(store, "~/"):
		return UsageError("--store %q: the shell did not expand ~; write the whole path", store)
	}
	if err := app.EngineOf(store).CheckStore(store); err != nil {
		return UsageError("--store: %v", err)
	}
	return nil
}

// OpenIndex opens a store to write to it. Settings that the store cannot have are usage errors.
func OpenIndex(ctx context.Context, o app.StoreOptions) (*app.Index, error) {
	x, err := app.OpenIndex(ctx, o)
	if errors.Is(err, graph.ErrShare) || errors.Is(err, kinds.ErrContradiction) || errors.Is(err, dict.ErrSettings) || errors.Is(err, pebblekv.ErrMinFree) {
		return nil, UsageError("%v", err)
	}
	return x, err
}

// idOptions reads the flags for the share of the accounts and for drawing ids.
func (s *Settings) idOptions(o *app.StoreOptions) error {
	if s.partition == "" { // a command without the flag
		s.partition = "0/1"
	}
	i, n, ok := twoNumbers(s.partition, "/")
	if !ok || n < 1 || i >= n || n > dict.MaxPartitions {
		return UsageError("--partition %q: expected i/n, with n from 1 to %d and i from 0 to n-1", s.partition, dict.MaxPartitions)
	}
	o.Share = graph.Share{I: int(i), N: int(n)}
	if s.shards != "" {
		first, last, ok := twoNumbers(s.shards, "-")
		if !ok || first > last || last > 1<<32-1 {
			return UsageError("--shards %q: expected a range such as 0-127", s.shards)
		}
		o.Shards = &dict.ShardRange{First: uint32(first), Last: uint32(last)}
	}
	if s.shardBits < 0 || s.shardBits > 32 {
		return UsageError("--shard-bits %d: must be from 1 to 32", s.shardBits)
	}
	if s.leaseSize < 0 || s.leaseSize > dict.MaxLeaseSize || s.leaseSize&(s.leaseSize-1) != 0 {
		return UsageError("--lease-size %d: must be a power of two up to %d", s.leaseSize, dict.MaxLeaseSize)
	}
	o.Settings = dict.Settings{ShardBits: uint8(s.shardBits), LeaseSize: uint32(s.leaseSize)}
	return nil
}

// twoNumbers parses two numbers with sep between them.
func twoNumbers(s, sep string) (a, b uint64, ok bool) {
	left, right, found := strings.Cut(s, sep)
	a, err1 := strconv.ParseUint(left, 10, 64)
	b, err2 := strconv.ParseUint(right, 10, 64)
	return a, b, found && err1 == nil && err2 == nil
}
