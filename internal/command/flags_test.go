package command

import (
	"context"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"
)

// The service's host comes from its flag or variable. A preview does not need one.
func TestServiceHost(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		env  [2]string
		did  string
	}{
		"none":          {},
		"flag":          {args: []string{"--service-host", "graph.example.com"}, did: "did:web:graph.example.com"},
		"variable":      {env: [2]string{"SKEIN_SERVICE_HOST", "graph.example.com"}, did: "did:web:graph.example.com"},
		"preview":       {args: []string{"--feeds", "feeds.txt", "--feed-preview"}, did: "did:web:localhost"},
		"named preview": {args: []string{"--feeds", "feeds.txt", "--feed-preview", "--service-host", "graph.example.com"}, did: "did:web:graph.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.env[0] != "" {
				t.Setenv(c.env[0], c.env[1])
			}
			s := &Settings{}
			flags := append(append(s.NameFlags(), s.PastFlags()...), s.ComparisonFlags()...)
			EnvironmentWarnings([]string{c.env[0] + "=x"}, flags, func(name, _ string) { t.Errorf("warning: %s is unknown", name) })
			cmd := &cli.Command{Flags: flags, Action: func(context.Context, *cli.Command) error { return nil }}
			if err := cmd.Run(t.Context(), append([]string{"serve"}, c.args...)); err != nil {
				t.Fatal(err)
			}
			service, err := s.Service()
			if err != nil || (service == nil) != (c.did == "") || service != nil && service.DID() != c.did {
				t.Errorf("%v, %v; expected %q", service, err, c.did)
			}
			s.FeedFile = "feeds.txt"
			if _, err := s.Feeds(nil, nil); err == nil || !strings.Contains(err.Error(), "--service-host") {
				t.Errorf("feeds without a service: got error %v", err)
			}
		})
	}
}

// The User-Agent, which relays and labelers log, names the version and the page to read about it.
func TestUserAgent(t *testing.T) {
	s := &Settings{Relay: "ws://127.0.0.1:1", labelers: []string{"did:plc:6tnmqzyj3aj56cfk2uw7mi5e"}}
	co, err := s.ConsumerOptions()
	if err != nil {
		t.Fatal(err)
	}
	lo, err := s.Labels()
	if err != nil {
		t.Fatal(err)
	}
	for _, agent := range []string{co.UserAgent, lo.UserAgent} {
		if want := "skein/" + Version() + " (+https://skein.blue)"; agent != want {
			t.Errorf("%q, want %q", agent, want)
		}
	}
}
