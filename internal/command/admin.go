package command

import (
	"net"
	"os"
	"strings"

	"github.com/urfave/cli/v3"
)

// AdminTokenFlags are those that say what operators show the admin listener of a daemon: to
// the daemon, and to the commands that ask it.
func (s *Settings) AdminTokenFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "admin-token", Usage: "the token that the admin listener wants for all but /metrics, /healthz and /readyz; needed where it is not on loopback. Others on this machine see a flag: rather use the file, or the variable", Destination: &s.adminToken, Sources: Env("admin-token")},
		&cli.StringFlag{Name: "admin-token-file", Usage: "the file that holds that token", Destination: &s.adminTokenFile, Sources: Env("admin-token-file")},
	}
}

// AdminToken returns the token of the flags, "" if there is none.
func (s *Settings) AdminToken() (string, error) {
	token := s.adminToken
	if s.adminTokenFile != "" {
		if token != "" {
			return "", UsageError("--admin-token and --admin-token-file both give the token: leave one out")
		}
		b, err := os.ReadFile(s.adminTokenFile)
		if err != nil {
			return "", UsageError("--admin-token-file: %v", err)
		}
		if token = strings.TrimSpace(string(b)); token == "" {
			return "", UsageError("--admin-token-file %s is empty: write the token into it, such as what openssl rand -hex 32 prints", s.adminTokenFile)
		}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", UsageError("the admin token has a space, or a character that is not ASCII, and no HTTP header holds that: take what openssl rand -hex 32 prints")
	}
	return token, nil
}

// CheckListen checks the address that a flag says to listen on.
func CheckListen(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return UsageError("%s %q: write HOST:PORT, such as 127.0.0.1:3210, or :3210 for all of the machine's addresses", flag, address)
	}
	if _, err := net.LookupPort("tcp", port); err != nil { //nolint:noctx // a number, or a name of /etc/services
		return UsageError("%s %q: there is no port %s; ports are numbers from 0 to 65535", flag, address, port)
	}
	return nil
}
