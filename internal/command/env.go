package command

import (
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"
)

// EnvPrefix begins the names of the environment variables that set flags.
const EnvPrefix = "SKEIN_"

// others are the variables without a flag, since other users of the machine can see flags, and those of the commands that ask a server.
var others = []string{"SKEIN_ADMIN_TOKEN", "SKEIN_ARCHIVE_KEY", "SKEIN_BACKUP_PASSWORD", "SKEIN_WATCH_SECRET", "SKEIN_SERVER", "SKEIN_TOKEN", "SKEIN_ADMIN"}

// Env returns the environment variable that sets a flag.
func Env(name string) cli.ValueSourceChain { return cli.EnvVars(variable(name)) }

func variable(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// UnknownVariables returns the SKEIN_ variables that no flag reads: they are probably misspelled, and would silently have
// no effect.
func UnknownVariables(environ []string, flags []cli.Flag) (unknown []string) {
	known := slices.Clone(others)
	for _, f := range flags {
		for _, name := range f.Names() {
			known = append(known, variable(name))
		}
	}
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, EnvPrefix) && !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// AdminToken returns the token of the admin listener: that of SKEIN_ADMIN_TOKEN, or that in a file; "" if there is none.
func AdminToken(file string) (string, error) {
	token := os.Getenv("SKEIN_ADMIN_TOKEN")
	if file != "" {
		if token != "" {
			return "", UsageError("SKEIN_ADMIN_TOKEN and --admin-token-file both set the token; use one")
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return "", UsageError("--admin-token-file: %v", err)
		}
		if token = strings.TrimSpace(string(b)); token == "" {
			return "", UsageError("--admin-token-file %s is empty; write a token into it, such as the output of openssl rand -hex 32", file)
		}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", UsageError("the admin token contains a space or a non-ASCII character, which an HTTP header cannot carry; use the output of openssl rand -hex 32")
	}
	return token, nil
}
