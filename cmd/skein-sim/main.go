// Command skein-sim is a made-up AT Protocol network: a relay that serves it, and the
// load test that offers it to skein's indexer. It is a program of its own, so that what
// only it needs (repos that are signed, and their trees) is not in skein.
package main

import (
	"os"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
)

func main() {
	os.Exit(command.Main(command.Program{
		Name:  "skein-sim",
		Usage: "a made-up AT Protocol network: a relay that serves it, and a load test of skein",
		Commands: func(e *command.Environment) []*cli.Command {
			return []*cli.Command{relayCommand(e), archiveCommand(e), loadCommand(e), command.VersionCommand(e)}
		},
	}))
}
