package main

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"skein.blue/consumer"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
)

// This file has the flags that several commands share.

// newNetwork returns a network that sees who asks.
func newNetwork() *app.Network { return &app.Network{UserAgent: command.UserAgent()} }

// streamFlags returns the flags of a command that indexes a stream. start says where it starts without --cursor.
func streamFlags(n *app.Network, so *app.StoreOptions, o *consumer.Options, start string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "relay", Value: "wss://relay1.us-west.bsky.network", Usage: "URL of the relay: ws(s):// or http(s):// with a host name, or the full subscribeRepos URL", Destination: &n.Relay, Validator: func(s string) error { _, _, err := consumer.ParseRelay(s); return err }, Sources: command.Env("relay")},
		&cli.StringFlag{Name: "cursor", DefaultText: start, Usage: "start after this sequence number, to index what the relay still keeps; 0 starts at the oldest event", Validator: func(s string) error {
			seq, err := strconv.ParseInt(s, 10, 64)
			if o.Cursor = &seq; err != nil || seq < 0 {
				return fmt.Errorf("expected a sequence number from 0 to %d", int64(math.MaxInt64))
			}
			return nil
		}, Sources: command.Env("cursor")},
		&cli.BoolFlag{Name: "posts", Usage: "also index posts, what they answer and quote, and whom they mention. Queries can then use posts, replies, repliers, quotes, quoters, repliedTo, quoted, mentions and mentioners. In an index that has been running, skein backfill adds older posts", Validator: so.AddPosts, Sources: command.Env("posts")},
		&cli.StringFlag{Name: "kinds", Usage: "file that lists more collections to index, one per line: COLLECTION PATH TYPE SUBJECTS ACCOUNTS [RECORDS], such as com.example.bookmark subject at-uri bookmarks bookmarkers. Queries can then use bookmarks(ACCOUNT), what an account links to, and bookmarkers(RECORD), the accounts that link to it. TYPE is what PATH holds: did, at-uri, uri or text", Validator: so.ParseKinds, Sources: command.Env("kinds")},
	}
}

// verifyFlags returns the flags for verifying what relays and hosts send.
func verifyFlags(n *app.Network) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "verify", Value: "cid", Usage: "what to verify in commits and repos. cid: the hash of every block. full, if you do not trust the relay: also the signatures, and that the operations that a commit lists are exactly what changed in the repo", Validator: n.ParseVerify, Sources: command.Env("verify")},
		&cli.StringFlag{Name: "plc", Value: app.DefaultPLC, Usage: "URL of the PLC directory, where skein looks up the host and the signing key of did:plc accounts; for a private AT Protocol network, or a mirror of your own", Destination: &n.PLC, Validator: app.CheckPLC, Sources: command.Env("plc")},
		&cli.BoolFlag{Name: "allow-private-hosts", Usage: "also fetch repos from loopback and private IP addresses; only for a private AT Protocol network", Destination: &n.AllowPrivate, Sources: command.Env("allow-private-hosts")},
	}
}

// notNegative is the validator of rates.
func notNegative(n float64) error {
	if !(n >= 0) { // true for NaN
		return errors.New("must not be negative")
	}
	return nil
}

// askFlags returns the flags of a command that asks a server.
func askFlags(a *app.Asker) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "server", Value: "http://127.0.0.1:3210", Usage: "URL of the query API", Destination: &a.Server, Sources: command.Env("server")},
		&cli.StringFlag{Name: "token", Usage: "token that the server's operator gave you, if any. Other users of this machine can see flags; prefer SKEIN_TOKEN", Destination: &a.Token, Sources: command.Env("token")},
	}
}

// prepareAsker completes an Asker.
func prepareAsker(a *app.Asker) {
	if !strings.Contains(a.Server, "://") {
		a.Server = "http://" + a.Server
	}
	a.UserAgent, a.Client = command.UserAgent(), new(http.Client)
}
