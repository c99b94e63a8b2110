package command

import (
	"github.com/urfave/cli/v3"

	"skein.blue/internal/clients"
)

// clientSettings are the flags for the clients of the query API.
type clientSettings struct {
	rate, rateBytes float64
	proxies         string
	tokens          string
}

// ClientFlags returns the flags that tell the clients of the query API apart, and limit them.
func (s *Settings) ClientFlags() []cli.Flag {
	c := &s.clients
	return []cli.Flag{
		&cli.FloatFlag{Name: "rate", Usage: "average number of requests per second allowed for each client of the query API; bursts of ten seconds' worth are allowed. An IPv6 /64 counts as one client. 0: no limit", Destination: &c.rate, Sources: Env("rate")},
		&cli.FloatFlag{Name: "rate-bytes", Usage: "average number of response bytes per second allowed for each client; 0: no limit", Destination: &c.rateBytes, Sources: Env("rate-bytes")},
		&cli.StringFlag{Name: "tokens", Usage: "file of client tokens, each with its own limits. To make a line, run skein token NAME. SIGHUP reloads the file", Destination: &c.tokens, Sources: Env("tokens")},
		&cli.StringFlag{Name: "trusted-proxies", Usage: "the header in which your reverse proxies name the client, and their addresses and networks, such as X-Forwarded-For=10.0.0.0/8,127.0.0.1. Name only a header that they all set or append to", Destination: &c.proxies, Sources: Env("trusted-proxies")},
	}
}

// Clients reads the options for the clients of the query API.
func (s *Settings) Clients() (o clients.Options, err error) {
	c := &s.clients
	if c.rate < 0 || c.rateBytes < 0 {
		return o, UsageError("--rate and --rate-bytes must not be negative")
	}
	o.Limit = clients.Limit{Requests: c.rate, Bytes: c.rateBytes}
	if c.proxies != "" {
		if o.Proxies, err = clients.ParseProxies(c.proxies); err != nil {
			return o, UsageError("--trusted-proxies: %v", err)
		}
	}
	if c.tokens != "" {
		if o.Tokens, err = clients.OpenTokens(c.tokens, o.Limit); err != nil {
			return o, UsageError("--tokens: %v", err)
		}
	}
	return o, nil
}
