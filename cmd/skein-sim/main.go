// Command skein-sim simulates an AT Protocol network: a relay that serves it, and a load test
// that feeds it to skein's indexer. It is a separate program so that the code for signed repos and
// their trees, which only it needs, is not part of skein.
package main

import (
	"os"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
)

func main() {
	os.Exit(command.Main(command.Program{
		Name:  "skein-sim",
		Usage: "simulate an AT Protocol network: a relay, an archive, and a load test of skein",
		Commands: func(e *command.Environment) []*cli.Command {
			return []*cli.Command{relayCommand(e), archiveCommand(e), loadCommand(e), sizeCommand(e), verifyCommand(e), command.VersionCommand(e)}
		},
	}))
}
