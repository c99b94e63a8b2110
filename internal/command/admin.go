package command

import (
	"net"
	"os"
	"strings"

	"github.com/urfave/cli/v3"
)

// AdminTokenFlags returns the flags for the admin token that the daemon requires.
func (s *Settings) AdminTokenFlags() []cli.Flag {
	return s.adminTokenFlags("token that clients of the admin listener must send, except for /metrics, /healthz and /readyz. Without a token, a listener that is not on loopback serves only those three")
}

// SentAdminTokenFlags returns the flags for the admin token that a command sends to the daemon.
func (s *Settings) SentAdminTokenFlags() []cli.Flag {
	return s.adminTokenFlags("admin token of the daemon: the value of its --admin-token")
}

func (s *Settings) adminTokenFlags(usage string) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "admin-token", Usage: usage + ". Other users of this machine can see flags; prefer --admin-token-file or SKEIN_ADMIN_TOKEN", Destination: &s.adminToken, Sources: Env("admin-token")},
		&cli.StringFlag{Name: "admin-token-file", Usage: "file that holds the admin token", Destination: &s.adminTokenFile, Sources: Env("admin-token-file")},
	}
}

// AdminToken returns the token that the flags give, "" if there is none.
func (s *Settings) AdminToken() (string, error) {
	token := s.adminToken
	if s.adminTokenFile != "" {
		if token != "" {
			return "", UsageError("--admin-token and --admin-token-file both set the token; use one")
		}
		b, err := os.ReadFile(s.adminTokenFile)
		if err != nil {
			return "", UsageError("--admin-token-file: %v", err)
		}
		if token = strings.TrimSpace(string(b)); token == "" {
			return "", UsageError("--admin-token-file %s is empty; write a token into it, such as the output of openssl rand -hex 32", s.adminTokenFile)
		}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", UsageError("the admin token contains a space or a non-ASCII character, which an HTTP header cannot carry; use the output of openssl rand -hex 32")
	}
	return token, nil
}

// CheckListen checks the listen address that a flag gives.
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
