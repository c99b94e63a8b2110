package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/consumer"
	"skein.blue/consumer/archive"
	"skein.blue/consumer/backfill"
	"skein.blue/graph"
	"skein.blue/internal/app"
	"skein.blue/internal/clients"
	"skein.blue/internal/command"
	"skein.blue/internal/kv"
	"skein.blue/query/feed"
)

// silence is how long a relay may send nothing, and answer no ping.
const silence = 20 * time.Second

// A node is skein serve.
type node struct {
	e       *command.Environment
	store   app.StoreOptions
	network *app.Network
	stream  consumer.Options
	fetch   backfill.Options
	serve   app.ServeOptions
	feeds   feed.Options
	backups app.BackupSchedule
	source  reading // of from

	consume, repair   bool
	labelers, around  []string
	hops              int
	resolver, host    string
	tokenFile, tokens string
	watches           string
	backupTo, from    string
	drain             time.Duration

	answering *atomic.Bool
	graph     *atomic.Pointer[graph.Store] // that was opened last
	full      error                        // why it only answers: the disk is full
}

func serveCommand(e *command.Environment) *cli.Command {
	n := &node{e: e, network: newNetwork(), answering: new(atomic.Bool), graph: new(atomic.Pointer[graph.Store]), stream: consumer.Options{Watchdog: silence}}
	n.serve.Version, n.serve.Commit, n.serve.Network, n.backups.Job.Program = command.Version(), command.Commit(), n.network, "skein "+command.Version()
	flags := slices.Concat(streamFlags(n.network, &n.store, &n.stream, "the stored cursor; without one, the newest event"), command.StoreFlags(e, &n.store),
		n.indexFlags(), verifyFlags(n.network), n.listenFlags(), n.nameFlags(), n.backupFlags())
	return &cli.Command{
		Name:  "serve",
		Usage: "index the firehose and answer queries",
		Flags: flags,
		Action: func(ctx context.Context, _ *cli.Command) error {
			return n.start(ctx, flags)
		},
	}
}

// indexFlags returns the flags for what is indexed.
func (n *node) indexFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "force-cursor", Usage: "start at --cursor although the store has a cursor; without this flag, that is an error", Destination: &n.stream.ForceCursor, Sources: command.Env("force-cursor")},
		&cli.BoolFlag{Name: "consume", Value: true, Usage: "index the firehose; with --consume=false, only answer queries, from a store that another process fills or that is complete (default: true)", Destination: &n.consume, Sources: command.Env("consume")},
		&cli.StringFlag{Name: "backfill", Value: "off", Usage: "where to fetch older records from: off, repos (from every host that the relay lists) or archive=URL (an archive of the network's history, Jetstream v2). You need it for answers about what happened before skein was first started. The backfill begins when skein is first started with this option, and resumes after a restart", Validator: n.parseBackfill, Sources: command.Env("backfill")},
		&cli.StringSliceFlag{Name: "around", Usage: "index a part of the network: these accounts, those that they follow, and the members of these lists; separated by commas. Records of others are indexed if they name one of these accounts or its records. Accounts are named like @alice.example.com, lists by AT URI or address at bsky.app", Destination: &n.around, Sources: command.Env("around")},
		&cli.IntFlag{Name: "hops", Value: 1, Usage: "with --around: 2 also indexes those whom the followed accounts follow, which may be hundreds of thousands", Destination: &n.hops, Sources: command.Env("hops")},
		&cli.BoolFlag{Name: "repair", Value: true, Usage: "when skein has missed events of a repo, refetch the repo from its host; --repair=false if this process may reach no hosts (default: true)", Destination: &n.repair, Sources: command.Env("repair")},
		&cli.StringFlag{Name: "audit", Value: "0", Usage: "number of random repos per hour to fetch and compare with the index, such as 100/h, if you want evidence that the index is right; 0: off", Validator: n.parseAudit, Sources: command.Env("audit")},
		&cli.StringSliceFlag{Name: "labelers", Usage: "labelers to index, separated by commas: DIDs or service URLs. Queries can then use labeled(LABELER, VALUE), the accounts or records to which LABELER gave the label VALUE", Destination: &n.labelers, Sources: command.Env("labelers")},
	}
}

// listenFlags returns the flags for listeners and their clients.
func (n *node) listenFlags() []cli.Flag {
	o := &n.serve
	return []cli.Flag{
		&cli.StringFlag{Name: "listen", Value: "127.0.0.1:3210", Usage: "address of the query API", Destination: &o.Listen, Sources: command.Env("listen")},
		&cli.StringFlag{Name: "admin-listen", Value: "127.0.0.1:3211", Usage: "address of the admin listener: metrics, health, gaps, repairs, profiles and whole sets; its path / lists all", Destination: &o.AdminListen, Sources: command.Env("admin-listen")},
		&cli.StringFlag{Name: "admin-token-file", Usage: "file of the token that clients of the admin listener must send, except for /metrics, /healthz and /readyz; or set SKEIN_ADMIN_TOKEN. Without a token, a listener that is not on loopback serves only those three", Destination: &n.tokenFile, Sources: command.Env("admin-token-file")},
		&cli.DurationFlag{Name: "drain", Usage: "how long to keep answering queries after SIGTERM, at most 1h, if a load balancer is in front. During that time /readyz answers \"not ready\", so that it moves clients away. A second SIGTERM stops at once", Destination: &n.drain, Sources: command.Env("drain")},
		&cli.FloatFlag{Name: "rate", Usage: "average number of requests per second allowed for each client, if strangers reach the query API; bursts of ten seconds' worth are allowed. An IPv6 /64 counts as one client. 0: no limit", Destination: &o.Clients.Limit.Requests, Validator: notNegative, Sources: command.Env("rate")},
		&cli.FloatFlag{Name: "rate-bytes", Usage: "average number of response bytes per second allowed for each client, if your connection is narrow or metered; 0: no limit", Destination: &o.Clients.Limit.Bytes, Validator: notNegative, Sources: command.Env("rate-bytes")},
		&cli.StringFlag{Name: "tokens", Usage: "file of client tokens, for clients with limits of their own. To make a line, run skein token NAME. SIGHUP reloads the file", Destination: &n.tokens, Sources: command.Env("tokens")},
		&cli.StringFlag{Name: "trusted-proxies", Usage: "behind reverse proxies: the header in which they name the client, and their addresses and networks, such as X-Forwarded-For=10.0.0.0/8,127.0.0.1. Name only a header that they all set or append to", Validator: func(s string) (err error) {
			o.Clients.Proxies, err = clients.ParseProxies(s)
			return err
		}, Sources: command.Env("trusted-proxies")},
	}
}

// nameFlags returns the flags for names and feeds.
func (n *node) nameFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "resolver", Value: "dns", Usage: "how to resolve handles in queries: dns (DNS and HTTPS), off, or, in a network without public DNS, the URL of a service that has the method com.atproto.identity.resolveHandle", Destination: &n.resolver, Sources: command.Env("resolver")},
		&cli.StringFlag{Name: "service-host", Usage: "public host name of the query API. The server's DID is then did:web:NAME. Feeds need it, and so do queries with $viewer (the account that asks)", Destination: &n.host, Sources: command.Env("service-host")},
		&cli.StringFlag{Name: "feeds", Usage: "file of feeds to serve as a feed generator; needs --service-host", Destination: &n.feeds.Path, Sources: command.Env("feeds")},
		&cli.StringFlag{Name: "feed-publisher", DefaultText: "did:web of --service-host", Usage: "DID of the account that publishes the feeds, if its repo holds the app.bsky.feed.generator records", Destination: &n.feeds.Publisher, Sources: command.Env("feed-publisher")},
		&cli.StringFlag{Name: "watches", Usage: "file of watches, if programs are to hear who enters or leaves a set: a line NAME = EXPRESSION -> URL sends each change as a signed webhook, -> file:PATH appends it to a file. SKEIN_WATCH_SECRET is the secret of the signatures", Destination: &n.watches, Sources: command.Env("watches")},
	}
}

// backupFlags returns the flags for making backups, and for a node that begins with a backup.
func (n *node) backupFlags() []cli.Flag {
	return append(makeFlags(&n.backups.Job),
		&cli.StringFlag{Name: "backup-to", DefaultText: "no backups", Usage: "folder or bucket (s3://BUCKET/PREFIX) to which to back up regularly; see skein backup", Destination: &n.backupTo, Sources: command.Env("backup-to")},
		&cli.DurationFlag{Name: "backup-every", Value: time.Hour, Usage: "how often to back up to --backup-to: a restored store is older than the relay's events by at most this", Destination: &n.backups.Every, Sources: command.Env("backup-every")},
		&cli.StringFlag{Name: "from", Usage: "if there is no store yet, begin with the newest backup in this folder, bucket (s3://BUCKET/PREFIX) or web server (https://HOST/PATH, which needs --trust), and consume the stream from there", Destination: &n.from, Sources: command.Env("from")},
		n.source.trustFlag(),
	)
}

// parseBackfill reads --backfill.
func (n *node) parseBackfill(s string) error {
	url, isArchive := strings.CutPrefix(s, "archive=")
	n.serve.Past = app.Past{Repos: s == "repos"}
	switch {
	case isArchive:
		n.serve.Past.Archive = url
		_, err := archive.Source(url)
		return err
	case s != "off" && s != "repos":
		return errors.New("must be off, repos or archive=URL")
	}
	return nil
}

// parseAudit reads --audit: an audit is a sample, and not a second backfill.
func (n *node) parseAudit(s string) (err error) {
	n.fetch.Audit, err = strconv.ParseFloat(strings.TrimSuffix(s, "/h"), 64)
	if err != nil || !(n.fetch.Audit >= 0 && n.fetch.Audit <= 100_000) { // true for NaN
		return errors.New("expected a number of repos an hour, such as 100/h, and at most 100000/h")
	}
	return nil
}

// check checks the flags that depend on each other, and opens the target of --backup-to.
func (n *node) check() (err error) {
	for _, f := range [][2]string{{"--listen", n.serve.Listen}, {"--admin-listen", n.serve.AdminListen}} {
		if err := app.CheckListen(f[0], f[1]); err != nil {
			return err
		}
	}
	if n.serve.AdminToken, err = command.AdminToken(n.tokenFile); err != nil {
		return err
	}
	past, part, inFolder, j := n.serve.Past != app.Past{}, len(n.around) > 0, app.InFolder(n.store.Store), &n.backups.Job
	for _, f := range []struct {
		wrong bool
		why   string
	}{
		{n.serve.Listen == n.serve.AdminListen && !strings.HasSuffix(n.serve.Listen, ":0"), "--listen and --admin-listen are both " + n.serve.Listen + "; the admin listener needs its own address"},
		{!n.consume && (n.stream.Cursor != nil || past || n.from != "" || n.fetch.Audit > 0 || n.network.Full || len(n.labelers) > 0), "--cursor, --backfill, --from, --audit, --verify full and --labelers have no effect with --consume=false, which indexes nothing"},
		{n.stream.ForceCursor && n.stream.Cursor == nil, "--force-cursor needs --cursor"},
		{n.drain < 0 || n.drain > time.Hour, "--drain " + n.drain.String() + ": must be from 0s to 1h"},
		{n.serve.Past.Archive != "" && n.network.Full, "--backfill archive cannot be combined with --verify full: an archive has no signatures; use --backfill repos"},
		{part && (!n.consume || !n.repair), "--around indexes the stream and fetches repos, which --consume=false and --repair=false forbid; to answer from the store of a part, leave --around out"},
		{part && past, "--around fetches the history of its accounts; remove --backfill"},
		{!part && n.hops != 1, "--hops needs --around"},
		{n.hops < 1 || n.hops > 2, "--hops must be 1 or 2"},
		{(past || n.fetch.Audit > 0) && !n.repair, "--backfill and --audit fetch repos, which --repair=false forbids; remove --repair=false"},
		{n.feeds.Path == "" && n.feeds.Publisher != "", "--feed-publisher needs --feeds FILE"},
		{n.feeds.Path != "" && n.host == "", "--feeds needs --service-host NAME, the public name of this server; to try a feed, paste its line into the page of any server"},
		{n.watches != "" && (!n.consume || !inFolder), "--watches needs a process that consumes the stream into a store in a folder"},
		{n.from != "" && !inFolder, "--from restores into a folder; --store " + n.store.Store + " is not one"},
		{n.from == "" && n.source.trust != nil, "--trust needs --from, the backups that must be signed"},
		{n.backupTo == "" && (j.Keep > 0 || j.Signer != nil || n.backups.Every != time.Hour), "--backup-keep, --backup-every and --backup-sign need --backup-to, the target of the backups"},
		{n.backupTo != "" && !inFolder, "--backup-to: " + app.ErrNoCheckpoint.Error()},
		{n.backups.Every < time.Minute, "--backup-every " + n.backups.Every.String() + ": must be 1m or more"},
	} {
		if f.wrong {
			return command.UsageError("%s", f.why)
		}
	}
	if n.backupTo == "" {
		return nil
	}
	n.serve.Backup = &n.backups
	return aim(j, "--backup-to ", n.backupTo)
}

// build builds what the flags describe.
func (n *node) build(ctx context.Context) (err error) {
	o := &n.serve
	n.network.Consume(&n.stream)
	n.network.Backfill(&n.fetch)
	if n.consume && n.repair {
		n.store.Backfill = &n.fetch
	}
	if n.consume {
		o.Consume = &n.stream
		if o.Labels, err = n.network.Labels(n.labelers); err != nil {
			return err
		}
	}
	if o.Handles, err = n.network.Handles(n.resolver); err != nil {
		return err
	}
	if len(n.around) > 0 {
		if n.fetch.Around, err = n.network.Around(ctx, n.around, n.hops, o.Handles); err != nil {
			return err
		}
		n.stream.Part = n.fetch.Around.Part
		n.fetch.Fetchers, n.fetch.PerHost = 16, 4 // hosts allow some ten repos a second
		n.store.Memory = cmp.Or(n.store.Memory, app.AroundMemory)
	}
	if o.Service, err = n.network.Service(n.host); err != nil {
		return err
	}
	if n.tokens != "" {
		if o.Clients.Tokens, err = clients.OpenTokens(n.tokens, o.Clients.Limit); err != nil {
			return command.UsageError("--tokens: %v", err)
		}
	}
	o.Page.Handles, o.Page.Public = n.resolver != "off", n.network.Public()
	return nil
}

// start checks the flags, and serves until ctx ends.
func (n *node) start(ctx context.Context, flags []cli.Flag) (err error) {
	if err := n.e.Prepare(&n.store); err != nil {
		return err
	}
	if err := n.store.Check(); err != nil {
		return err
	}
	if err := n.check(); err != nil {
		return err
	}
	shared := !app.InFolder(n.store.Store)
	n.store.Create, n.store.Wait = n.consume, shared // a query node never creates a store
	n.store.ReadOnly = shared && !n.consume          // runs beside the writers; a folder has only one process
	n.store.Joins = shared && len(n.around) == 0     // a part of the network has one writer
	n.store.AwaitSpace = true
	log := n.store.Logger
	for _, name := range command.UnknownVariables(os.Environ(), flags) {
		log.Warn("unknown environment variable", "name", name)
	}
	if err := n.build(ctx); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may exit; the index goes on
	n.e.Stop.OnHangup(func() {})   // until there are files to reload
	app.LimitMemory(n.store)
	if n.from != "" {
		if err := n.beginWith(ctx); err != nil || ctx.Err() != nil {
			return err
		}
	}
	n.attend(ctx)
	err = n.run(ctx)
	if errors.Is(err, kv.ErrDiskFull) {
		err = n.runWithoutSpace(ctx, err)
	}
	if errors.Is(err, consumer.ErrCursorStored) {
		return command.UsageError("%v", err)
	}
	return err
}
