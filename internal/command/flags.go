package command

import (
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
	"github.com/urfave/cli/v3"

	"skein.blue/consumer"
	"skein.blue/consumer/backfill"
	"skein.blue/graph"
	"skein.blue/graph/kinds"
	"skein.blue/intern/dict"
	"skein.blue/internal/app"
	"skein.blue/internal/human"
	"skein.blue/internal/identities"
	"skein.blue/internal/kv/fdbkv"
	"skein.blue/internal/outward"
	"skein.blue/query"
)

// Settings are the flags that several commands share.
type Settings struct {
	Relay         string
	Store         string
	Listen, Admin string

	adminToken, adminTokenFile string

	Cursor       string
	ForceCursor  bool
	Consume      bool
	partition    string
	shards       string
	shardBits    int
	leaseSize    int
	memory       string
	syncInterval time.Duration
	acceptLoss   string
	watchdog     time.Duration

	Past         string // off, archive or repos
	Archive      string
	Repair       bool
	plc          string
	allowPrivate bool
	maxRepo      string
	maxHostRepos int64
	compareEvery time.Duration

	kindsFile            string
	Resolver             string
	serviceHost          string
	FeedFile, feedAuthor string
	FeedPreview          bool
}

// PastFlags are those that concern fetching repos whole.
func (s *Settings) PastFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "plc", Value: identity.DefaultPLCURL, Usage: "the directory in which did:plc are looked up, to find the host of a repo", Destination: &s.plc, Sources: Env("plc")},
		&cli.BoolFlag{Name: "allow-private-hosts", Usage: "fetch repos from loopback and private addresses, too: for a network of one's own", Destination: &s.allowPrivate, Sources: Env("allow-private-hosts")},
		&cli.StringFlag{Name: "max-repo-bytes", Value: "1GiB", Usage: "give up a repo that is larger", Destination: &s.maxRepo, Sources: Env("max-repo-bytes")},
		&cli.Int64Flag{Name: "max-host-repos", Value: 2_000_000, Usage: "stop reading the list of a host that names more repos", Destination: &s.maxHostRepos, Sources: Env("max-host-repos")},
		&cli.DurationFlag{Name: "compare-every", Value: 7 * 24 * time.Hour, Usage: "compare the index with the relay's list of repos, slowly, once in so long; 0: only after gaps in the stream", Destination: &s.compareEvery, Sources: Env("compare-every")},
	}
}

// NameFlags are those that concern names, and feeds.
func (s *Settings) NameFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "resolver", Value: "dns", Usage: "how handles in questions are resolved: dns (and HTTPS), the URL of a service that answers com.atproto.identity.resolveHandle, or off", Destination: &s.Resolver, Sources: Env("resolver")},
		&cli.StringFlag{Name: "service-host", Aliases: []string{"feed-host"}, Usage: "the name under which the world reaches the query API over HTTPS: the service is did:web:NAME, and answers questions with $viewer that a PDS proxies", Destination: &s.serviceHost, Sources: Env("service-host", "feed-host")},
		&cli.StringFlag{Name: "feeds", Usage: "serve the feeds of this file, as a feed generator (with --service-host)", Destination: &s.FeedFile, Sources: Env("feeds")},
		&cli.StringFlag{Name: "feed-publisher", DefaultText: "did:web of --service-host", Usage: "the DID of the account whose records announce the feeds", Destination: &s.feedAuthor, Sources: Env("feed-publisher")},
		&cli.BoolFlag{Name: "feed-preview", Usage: "let anyone on this machine look at the feeds of --feeds as any viewer sees them, on the page and with viewer=DID in getFeedSkeleton, without a token; only where --listen is on loopback", Destination: &s.FeedPreview, Sources: Env("feed-preview")},
	}
}

// Public reports whether the accounts are those of the public network: the relay has a public
// host, and their documents are in the public directory.
func (s *Settings) Public() bool {
	host, _, err := consumer.ParseRelay(s.Relay)
	return err == nil && outward.PublicHost(host) && s.plc == identity.DefaultPLCURL
}

// Handles makes what resolves handles.
func (s *Settings) Handles() (*identities.Resolver, error) {
	r, err := identities.New(identities.Options{Resolver: s.Resolver, AllowPrivate: s.allowPrivate})
	if err != nil {
		return nil, UsageError("--resolver: %v", err)
	}
	return r, nil
}

// CheckPreview says what is wrong with --feed-preview, if it is given: whoever reaches the
// query listener may then look at a feed as anybody.
func (s *Settings) CheckPreview() error {
	if !s.FeedPreview {
		return nil
	}
	if s.FeedFile == "" {
		return UsageError("--feed-preview shows the feeds of a file: give --feeds FILE")
	}
	host, _, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return UsageError("--listen %q: write HOST:PORT", s.Listen)
	}
	addresses, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip", host)
	onLoopback := err == nil && host != "" && !slices.ContainsFunc(addresses, func(a netip.Addr) bool { return !a.Unmap().IsLoopback() })
	if !onLoopback {
		return UsageError("--feed-preview answers as any viewer without a token, and --listen %s can be reached from other machines: listen on 127.0.0.1:3210, or drop --feed-preview", s.Listen)
	}
	return nil
}

// Service makes what this server is to others, nil if it has no name of its own. One that only
// previews its feeds is did:web:localhost.
func (s *Settings) Service() (*query.Service, error) {
	host := s.serviceHost
	if host == "" && s.FeedPreview {
		host = "localhost" // nobody else sees the feeds
	}
	if host == "" {
		return nil, nil //nolint:nilnil // it has none
	}
	client := outward.NewClient(outward.Options{Trusted: []string{s.plc}, AllowPrivate: s.allowPrivate, PerHost: identities.PLCAtOnce})
	v, err := query.NewService(query.ServiceOptions{Host: host, Directory: identities.NewSource(s.plc, client)})
	if err != nil {
		return nil, UsageError("--service-host: %v", err)
	}
	return v, nil
}

// Feeds reads the file of feeds, nil if there is none. They may name what a table has.
func (s *Settings) Feeds(table *kinds.Table, service *query.Service) (*query.Feeds, error) {
	switch {
	case s.FeedFile == "" && s.feedAuthor != "":
		return nil, UsageError("--feed-publisher has no effect without --feeds, which names the file of feeds")
	case s.FeedFile == "":
		return nil, nil //nolint:nilnil // there are none
	case service == nil:
		return nil, UsageError("--feeds needs --service-host, the name under which the world reaches this server; or --feed-preview, to look at them on this machine")
	}
	f, err := query.NewFeeds(query.FeedOptions{Kinds: table, Path: s.FeedFile, Service: service, Preview: s.FeedPreview, Publisher: s.feedAuthor})
	if err != nil {
		return nil, UsageError("--feeds: %v", err)
	}
	return f, nil
}

// BackfillOptions makes the options of fetching repos of the flags.
func (s *Settings) BackfillOptions() (*backfill.Options, error) {
	o := &backfill.Options{Relay: s.Relay, PLC: s.plc, AllowPrivateHosts: s.allowPrivate, TrustHosts: s.allowPrivate, ArchiveKey: os.Getenv(EnvPrefix + "ARCHIVE_KEY")}
	n, err := parseBytes(s.maxRepo)
	if err != nil || n < 1 {
		return nil, UsageError("--max-repo-bytes %q: it must be a number of bytes, such as 1GiB", s.maxRepo)
	}
	o.MaxRepoBytes = n
	if s.maxHostRepos < 1 {
		return nil, UsageError("--max-host-repos must be 1 or more")
	}
	if s.compareEvery < 0 {
		return nil, UsageError("--compare-every must not be negative")
	}
	o.MaxHostRepos, o.CompareEvery = s.maxHostRepos, s.compareEvery
	if u, err := url.Parse(s.plc); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, UsageError("--plc %q: it must be an address such as https://plc.directory", s.plc)
	}
	return o, nil
}

// EnvPrefix begins the names of the variables that flags can be given by.
const EnvPrefix = "SKEIN_"

// Env is the variable that a flag can be given by, and those by the flag's older names.
func Env(names ...string) cli.ValueSourceChain {
	var chain cli.ValueSourceChain
	for _, name := range names {
		chain.Append(cli.EnvVars(EnvPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))))
	}
	return chain
}

// StoreFlag is the flag that names the store.
func (s *Settings) StoreFlag() cli.Flag {
	return &cli.StringFlag{Name: "store", Value: "skein-data", Usage: "the folder of the store, or fdb:///path/to/fdb.cluster?prefix=skein", Destination: &s.Store, Sources: Env("store")}
}

// RelayFlag is the flag that names the relay.
func (s *Settings) RelayFlag() cli.Flag {
	return &cli.StringFlag{Name: "relay", Value: "wss://relay1.us-west.bsky.network", Usage: "the relay: ws(s):// or http(s):// and a host, or a whole subscribeRepos URL", Destination: &s.Relay, Sources: Env("relay")}
}

// IndexFlags are those that concern indexing.
func (s *Settings) IndexFlags(e *Environment) []cli.Flag {
	return append([]cli.Flag{
		s.RelayFlag(),
		&cli.StringFlag{Name: "cursor", DefaultText: "the stored cursor, else live", Usage: "begin after this sequence number; 0 is the oldest that the relay keeps", Destination: &s.Cursor, Sources: Env("cursor")},
		&cli.StringFlag{Name: "partition", Value: "0/1", Usage: "index only the repos of this share, i/n with i from 0: several writers on one FoundationDB", Destination: &s.partition, Sources: Env("partition")},
		s.KindsFlag(),
		&cli.DurationFlag{Name: "idle-timeout", Value: time.Minute, Usage: "reconnect when the relay has sent nothing and answered no ping for so long; 0: never", Destination: &s.watchdog, Sources: Env("idle-timeout")},
	}, s.WriteFlags(e)...)
}

// KindsFlag is the flag that names the file of kinds.
func (s *Settings) KindsFlag() cli.Flag {
	return &cli.StringFlag{Name: "kinds", Usage: "index more kinds of records, those of this file: COLLECTION PATH did|at-uri SET SET in each line", Destination: &s.kindsFile, Sources: Env("kinds")}
}

// EngineFlags are those that concern the engine of a store which is written.
func (s *Settings) EngineFlags(e *Environment) []cli.Flag {
	return []cli.Flag{
		s.StoreFlag(),
		&cli.StringFlag{Name: "memory", DefaultText: "an eighth of what the process may have, at most 1GiB", Usage: "memory budget, such as 512MiB", Destination: &s.memory, Sources: Env("memory")},
		&cli.DurationFlag{Name: "sync-interval", Value: time.Second, Usage: "how soon what is committed is also synced to disk", Destination: &s.syncInterval, Sources: Env("sync-interval")},
		&cli.StringFlag{Name: "accept-loss", DefaultText: "none", Usage: "open a store whose write-ahead log LOG is damaged, without the writes that are lost; the error that refuses the store names it, and another loss is refused all the same", Destination: &s.acceptLoss, Sources: Env("accept-loss")},
		&cli.StringFlag{Name: "log-level", Value: "info", Usage: "debug, info, warn or error", Destination: &e.Level, Sources: Env("log-level")},
		&cli.StringFlag{Name: "log-format", Value: "auto", Usage: "auto (text on a terminal, else json), text or json", Destination: &e.Format, Sources: Env("log-format")},
	}
}

// WriteFlags are those that concern a store which is filled.
func (s *Settings) WriteFlags(e *Environment) []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "shards", DefaultText: "all", Usage: "draw ids from this range of shards only, such as 0-127", Destination: &s.shards, Sources: Env("shards")},
		&cli.IntFlag{Name: "shard-bits", DefaultText: "14", Usage: "of a new store: the width of its shard numbers, 1 to 32", Destination: &s.shardBits, Sources: Env("shard-bits")},
		&cli.IntFlag{Name: "lease-size", DefaultText: "65536", Usage: "of a new store: how many ids a lease takes, a power of two up to 65536", Destination: &s.leaseSize, Sources: Env("lease-size")},
	}, s.EngineFlags(e)...)
}

// EnvironmentWarnings names the SKEIN_ variables that nothing reads: a typing
// error would otherwise be a setting that silently is not. meant is the one that may be, or "".
func EnvironmentWarnings(environ []string, flags []cli.Flag, warn func(name, meant string)) {
	var known []string
	for _, f := range flags {
		for _, name := range f.Names() {
			known = append(known, EnvPrefix+strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
		}
	}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if name != EnvPrefix+"ARCHIVE_KEY" && strings.HasPrefix(name, EnvPrefix) && !slices.Contains(known, name) {
			meant := ""
			for _, k := range known {
				if distance(k, name) < 3 {
					meant = k
				}
			}
			warn(name, meant)
		}
	}
}

func (s *Settings) memoryBytes() (int64, error) {
	if s.memory == "" {
		return app.DefaultMemory(), nil
	}
	n, err := parseBytes(s.memory)
	if err != nil {
		return 0, UsageError("--memory: %v", err)
	}
	if n < 32<<20 {
		return 0, UsageError("--memory %s: at least 32MiB are needed", s.memory)
	}
	if most := app.AvailableMemory(); n > most {
		return 0, UsageError("--memory %s: this process may have %s", s.memory, human.Bytes(uint64(most)))
	}
	return n, nil
}

// parseBytes reads a number of bytes, with a unit or without.
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
				return 0, fmt.Errorf("%q is not a number of bytes, such as 512MiB", s)
			}
			return int64(n * float64(u.size)), nil
		}
	}
	return 0, fmt.Errorf("%q is not a number of bytes", s)
}

// ConsumerOptions makes the consumer's options of the flags.
func (s *Settings) ConsumerOptions() (consumer.Options, error) {
	o := consumer.Options{
		Relay: s.Relay, ForceCursor: s.ForceCursor, Watchdog: s.watchdog, UserAgent: "skein/" + Version(),
	}
	if s.watchdog < 0 {
		return o, UsageError("--idle-timeout %v is negative", s.watchdog)
	}
	if s.Cursor != "" {
		n, err := strconv.ParseInt(s.Cursor, 10, 64)
		if err != nil || n < 0 {
			return o, UsageError("--cursor %q: it must be a sequence number, from 0 to %d", s.Cursor, int64(math.MaxInt64))
		}
		o.Cursor = &n
	}
	return o, nil
}

// StoreOptions makes the options of the store of the flags.
func (s *Settings) StoreOptions(e *Environment) (app.StoreOptions, error) {
	o := app.StoreOptions{Store: s.Store, SyncInterval: s.syncInterval, AcceptLoss: s.acceptLoss, Fatal: e.fatal}
	var err error
	if s.syncInterval <= 0 {
		return o, UsageError("--sync-interval %v: it must be more than 0", s.syncInterval)
	}
	if err := CheckStoreFlag(s.Store); err != nil {
		return o, err
	}
	if s.acceptLoss != "" && strings.HasPrefix(s.Store, "fdb:") {
		return o, UsageError("--accept-loss %s: only a store in a folder has such logs", s.acceptLoss)
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

// kinds reads the file of kinds.
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

// CheckStoreFlag reads --store: a folder, or the URL of a store on FoundationDB.
func CheckStoreFlag(store string) error {
	switch scheme, _, isURL := strings.Cut(store, "://"); {
	case store == "":
		return UsageError("--store is empty: name a folder")
	case isURL && scheme != "fdb":
		return UsageError("--store %q: it must be a folder, or fdb:///path/to/fdb.cluster?prefix=skein", store)
	case strings.HasPrefix(store, "~/"):
		return UsageError("--store %q: the shell has left ~ as it is; write the folder out", store)
	}
	if strings.HasPrefix(store, "fdb:") {
		if _, err := fdbkv.Parse(store); err != nil {
			return UsageError("--store: %v", err)
		}
	}
	return nil
}

// OpenIndex opens the store that is to be written. Settings that it cannot have
// are wrong usage.
func OpenIndex(ctx context.Context, o app.StoreOptions) (*app.Index, error) {
	x, err := app.OpenIndex(ctx, o)
	if errors.Is(err, graph.ErrShare) || errors.Is(err, kinds.ErrContradiction) || errors.Is(err, dict.ErrSettings) {
		return nil, UsageError("%v", err)
	}
	return x, err
}

// idOptions reads the flags that say which share is written, and how ids are
// drawn.
func (s *Settings) idOptions(o *app.StoreOptions) error {
	if s.partition == "" { // a command without the flag
		s.partition = "0/1"
	}
	i, n, ok := twoNumbers(s.partition, "/")
	if !ok || n < 1 || i >= n || n > dict.MaxPartitions {
		return UsageError("--partition %q: it must be i/n, with n from 1 to %d and i from 0 to n-1", s.partition, dict.MaxPartitions)
	}
	o.Share = graph.Share{I: int(i), N: int(n)}
	if s.shards != "" {
		first, last, ok := twoNumbers(s.shards, "-")
		if !ok || first > last || last > 1<<32-1 {
			return UsageError("--shards %q: it must be a range such as 0-127", s.shards)
		}
		o.Shards = &dict.ShardRange{First: uint32(first), Last: uint32(last)}
	}
	if s.shardBits < 0 || s.shardBits > 32 {
		return UsageError("--shard-bits %d: it must be 1 to 32", s.shardBits)
	}
	if s.leaseSize < 0 || s.leaseSize > dict.MaxLeaseSize || s.leaseSize&(s.leaseSize-1) != 0 {
		return UsageError("--lease-size %d: it must be a power of two up to %d", s.leaseSize, dict.MaxLeaseSize)
	}
	o.Settings = dict.Settings{ShardBits: uint8(s.shardBits), LeaseSize: uint32(s.leaseSize)}
	return nil
}

// twoNumbers reads two numbers with sep between them.
func twoNumbers(s, sep string) (a, b uint64, ok bool) {
	left, right, found := strings.Cut(s, sep)
	a, err1 := strconv.ParseUint(left, 10, 64)
	b, err2 := strconv.ParseUint(right, 10, 64)
	return a, b, found && err1 == nil && err2 == nil
}
