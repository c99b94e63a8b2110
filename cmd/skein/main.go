// Command skein keeps an always current graph of who follows whom and who
// likes what on the AT Protocol network, and answers set questions about it.
package main

import (
	"os"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
)

func main() { os.Exit(command.Main(commandLine)) }

var commandLine = command.Program{
	Name:  "skein",
	Usage: "who follows whom and who likes what on the AT Protocol network, as sets",
	Commands: func(e *command.Environment) []*cli.Command {
		return []*cli.Command{
			serveCommand(e), demoCommand(e), replayCommand(e), queryCommand(e), checkCommand(e), statsCommand(e), idsCommand(e),
			exportCommand(e), importCommand(e), upgradeCommand(e), backfillCommand(e), resyncCommand(e), healthCommand(e), command.VersionCommand(e),
		}
	},
	Moved: map[string]string{"simulate": "skein-sim relay", "load": "skein-sim load"},
}
