// Command skein keeps a current graph of follows, likes and other links on the AT Protocol
// network, and answers set queries about it.
package main

import (
	"os"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/command"
)

func main() { os.Exit(command.Main(commandLine)) }

var commandLine = command.Program{
	Name:  "skein",
	Usage: "index who follows whom, who likes what and other links on the AT Protocol network, and answer questions about sets of accounts and posts",
	Commands: func(e *command.Environment) []*cli.Command {
		return []*cli.Command{
			serveCommand(e), demoCommand(e), replayCommand(e), queryCommand(e), watchCommand(e), mcpCommand(e), checkCommand(e), statsCommand(e),
			backupCommand(e), restoreCommand(e), verifyCommand(e), exportCommand(e), importCommand(e), backfillCommand(e), resyncCommand(e), healthCommand(e), tokenCommand(e), command.VersionCommand(e),
		}
	},
}
