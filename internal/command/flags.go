package command

import (
	"slices"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/urfave/cli/v3"

	"skein.blue/consumer/proof"
	"skein.blue/internal/identities"
	"skein.blue/internal/identities/plc"
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
	minFree      string
	watchdog     time.Duration

	Past         string // off, archive or repos
	Archive      string
	Repair       bool
	Drain        time.Duration
	plc          string
	allowPrivate bool
	maxRepo      string
	maxHostRepos int64
	compareEvery time.Duration
	audit        string
	Verify       string // cid or full
	verifier     *proof.Verifier
	lookUps      identities.Broker // of this process
	mirrorDir    string
	mirror       *plc.Mirror

	labelers             []string
	kindsFile            string
	Resolver             string
	serviceHost          string
	FeedFile, feedAuthor string
	FeedPreview          bool

	clients clientSettings
}

// VerifyFlags returns the flags for verifying what relays and hosts send.
func (s *Settings) VerifyFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "verify", Value: "cid", Usage: "what to verify in commits and repos. cid: the hash of every block. full: also the signatures, and that the operations that a commit lists are exactly what changed in the repo", Destination: &s.Verify, Sources: Env("verify")},
		&cli.StringFlag{Name: "plc", Value: identity.DefaultPLCURL, Usage: "URL of the PLC directory, where skein looks up the host and the signing key of did:plc accounts", Destination: &s.plc, Sources: Env("plc")},
		&cli.BoolFlag{Name: "allow-private-hosts", Usage: "also fetch repos from loopback and private IP addresses; only for a private AT Protocol network", Destination: &s.allowPrivate, Sources: Env("allow-private-hosts")},
	}
}

// PastFlags returns the flags for fetching whole repos.
func (s *Settings) PastFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "max-repo-bytes", Value: "1GiB", Usage: "size of the largest repo to fetch; skein does not index larger ones", Destination: &s.maxRepo, Sources: Env("max-repo-bytes")},
		&cli.Int64Flag{Name: "max-host-repos", Value: 2_000_000, Usage: "maximum number of repos to read from one host's list", Destination: &s.maxHostRepos, Sources: Env("max-host-repos")},
		s.mirrorFlag(),
	}
}

// ComparisonFlags returns the flags for comparing the index with repos and the relay's list.
func (s *Settings) ComparisonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "audit", Value: "0", Usage: "number of random repos per hour to fetch and compare with the index, such as 100/h; 0: off", Destination: &s.audit, Sources: Env("audit")},
		&cli.DurationFlag{Name: "compare-every", Value: 7 * 24 * time.Hour, Usage: "how often to compare the index with the relay's list of repos, slowly, in the background; 0: only after gaps in the stream", Destination: &s.compareEvery, Sources: Env("compare-every")},
	}
}

// NameFlags returns the flags for names and feeds.
func (s *Settings) NameFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "resolver", Value: "dns", Usage: "how to resolve handles in queries: dns (DNS and HTTPS), off, or the URL of a service that has the method com.atproto.identity.resolveHandle", Destination: &s.Resolver, Sources: Env("resolver")},
		&cli.StringFlag{Name: "service-host", Usage: "public host name of the query API. The server's DID is then did:web:NAME. Feeds need it, and so do queries with $viewer (the account that asks)", Destination: &s.serviceHost, Sources: Env("service-host")},
		&cli.StringFlag{Name: "feeds", Usage: "file of feeds to serve as a feed generator; needs --service-host or --feed-preview", Destination: &s.FeedFile, Sources: Env("feeds")},
		&cli.StringFlag{Name: "feed-publisher", DefaultText: "did:web of --service-host", Usage: "DID of the account that publishes the feeds: its repo holds the app.bsky.feed.generator records", Destination: &s.feedAuthor, Sources: Env("feed-publisher")},
		&cli.BoolFlag{Name: "feed-preview", Usage: "let anyone preview the feeds of --feeds as any account, without a token: on the web page, or with the parameter viewer=DID of getFeedSkeleton. Needs a loopback address in --listen", Destination: &s.FeedPreview, Sources: Env("feed-preview")},
	}
}

// LabelersFlag returns the flag that names the labelers.
func (s *Settings) LabelersFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "labelers", Usage: "labelers to index, separated by commas: DIDs or service URLs. Queries can then use labeled(LABELER, VALUE), the accounts or records to which LABELER gave the label VALUE", Destination: &s.labelers, Sources: Env("labelers")}
}

// EnvPrefix begins the names of the environment variables that set flags.
const EnvPrefix = "SKEIN_"

// Env returns the environment variable that sets a flag.
func Env(name string) cli.ValueSourceChain {
	return cli.EnvVars(EnvPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
}

// StoreFlag returns the flag that names the store.
func (s *Settings) StoreFlag() cli.Flag {
	return &cli.StringFlag{Name: "store", Value: "skein-data", Usage: "folder of the store, or the URL of a store on FoundationDB: fdb:///path/to/fdb.cluster?prefix=skein", Destination: &s.Store, Sources: Env("store")}
}

// RelayFlag returns the flag that names the relay.
func (s *Settings) RelayFlag() cli.Flag {
	return &cli.StringFlag{Name: "relay", Value: "wss://relay1.us-west.bsky.network", Usage: "URL of the relay: ws(s):// or http(s):// with a host name, or the full subscribeRepos URL", Destination: &s.Relay, Sources: Env("relay")}
}

// IndexFlags returns the flags for indexing.
func (s *Settings) IndexFlags(e *Environment) []cli.Flag {
	return append([]cli.Flag{
		s.RelayFlag(),
		&cli.StringFlag{Name: "cursor", DefaultText: "the stored cursor; without one, the newest event", Usage: "start after this sequence number; 0 starts at the oldest event that the relay keeps", Destination: &s.Cursor, Sources: Env("cursor")},
		&cli.StringFlag{Name: "partition", Value: "0/1", Usage: "part of the repos that this process indexes, I/N: part I, counted from 0, of N parts; needed only if several processes write to one FoundationDB store", Destination: &s.partition, Sources: Env("partition")},
		s.KindsFlag(),
		&cli.DurationFlag{Name: "idle-timeout", Value: time.Minute, Usage: "reconnect if the relay has sent nothing and has not answered a ping for this long; 0: never", Destination: &s.watchdog, Sources: Env("idle-timeout")},
	}, s.WriteFlags(e)...)
}

// KindsFlag returns the flag that names the file of kinds.
func (s *Settings) KindsFlag() cli.Flag {
	return &cli.StringFlag{Name: "kinds", Usage: "file that lists more collections to index, one per line: COLLECTION PATH did|at-uri FORWARD REVERSE, such as com.example.bookmark subject at-uri bookmarks bookmarkers. Queries can then use bookmarks(ACCOUNT), what an account links to, and bookmarkers(RECORD), the accounts that link to it. did or at-uri is what PATH holds", Destination: &s.kindsFile, Sources: Env("kinds")}
}

// EngineFlags returns the flags for the engine of a store that is opened for writing.
func (s *Settings) EngineFlags(e *Environment) []cli.Flag {
	return []cli.Flag{
		s.StoreFlag(),
		&cli.StringFlag{Name: "memory", DefaultText: "an eighth of the available memory, at most 1GiB", Usage: "memory for caches and buffers, such as 512MiB. The process needs 1.5 times this value, or 2.75 times while it reads an archive", Destination: &s.memory, Sources: Env("memory")},
		&cli.DurationFlag{Name: "sync-interval", Value: time.Second, Usage: "how long a write may wait before it is synced to disk", Destination: &s.syncInterval, Sources: Env("sync-interval")},
		&cli.StringFlag{Name: "min-free", Value: "1GiB", Usage: "free space to leave on the store's disk. With less, serve stops indexing but keeps answering queries until there is space again; other commands stop. 0 means the minimum, which depends on --memory", Destination: &s.minFree, Sources: Env("min-free")},
		&cli.StringFlag{Name: "accept-loss", DefaultText: "none", Usage: "open a damaged store without the writes that were lost in this write-ahead log. If skein refuses to open a store because of such a loss, the error message names the log. Any other damage is still an error", Destination: &s.acceptLoss, Sources: Env("accept-loss")},
		&cli.StringFlag{Name: "log-level", Value: "info", Usage: "debug, info, warn or error", Destination: &e.Level, Sources: Env("log-level")},
		&cli.StringFlag{Name: "log-format", Value: "auto", Usage: "auto, text or json; auto is text on a terminal and json elsewhere", Destination: &e.Format, Sources: Env("log-format")},
	}
}

// WriteFlags returns the flags for a store that is filled.
func (s *Settings) WriteFlags(e *Environment) []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "shards", DefaultText: "all", Usage: "range of shards from which this process takes new ids, such as 0-127; rarely needed", Destination: &s.shards, Sources: Env("shards")},
		&cli.IntFlag{Name: "shard-bits", DefaultText: "14", Usage: "number of bits in a shard number, 1 to 32; fixed when the store is created; rarely needed", Destination: &s.shardBits, Sources: Env("shard-bits")},
		&cli.IntFlag{Name: "lease-size", DefaultText: "65536", Usage: "number of ids that a writer reserves at a time, a power of two up to 65536; fixed when the store is created; rarely needed", Destination: &s.leaseSize, Sources: Env("lease-size")},
	}, s.EngineFlags(e)...)
}

// EnvironmentWarnings calls warn for each SKEIN_ variable that no flag reads: it is probably
// misspelled, and would silently have no effect. meant is the most similar variable, or "".
func EnvironmentWarnings(environ []string, flags []cli.Flag, warn func(name, meant string)) {
	var known []string
	for _, f := range flags {
		for _, name := range f.Names() {
			known = append(known, EnvPrefix+strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
		}
	}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if name != EnvPrefix+"ARCHIVE_KEY" && name != EnvPrefix+"BACKUP_PASSWORD" && strings.HasPrefix(name, EnvPrefix) && !slices.Contains(known, name) {
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
