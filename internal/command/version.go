package command

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/kv/fdbkv"
	"skein.blue/internal/outward"
)

// number is the version, and revision the commit. The linker can set both, with
// -X skein.blue/internal/command.number=… and revision=…
var (
	number   = development
	revision = ""
)

const development = "0.1.0-dev"

// released matches a released version of the module, as go install records it.
var released = regexp.MustCompile(`^v\d+\.\d+\.\d+$`)

// Version returns the version of the program.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok && number == development && released.MatchString(info.Main.Version) {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return number
}

// UserAgent returns what requests say about who asks: the program, its version, and where to read
// about it.
func UserAgent() string { return "skein/" + Version() + " (+" + outward.Page + ")" }

// Commit returns the commit that the binary was built from: the linker's, or Go's version of the module, which has its time and
// the beginning of its hash.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if revision != "" || !ok {
		return cmp.Or(revision, "unknown")
	}
	return info.Main.Version
}

// VersionCommand prints the version.
func VersionCommand(e *Environment) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version, commit, Go version, and the storage engines of this build",
		Action: func(context.Context, *cli.Command) error {
			engines := "pebble"
			if fdbkv.Built {
				engines += " fdb"
			}
			fmt.Fprintf(e.Stdout, "%s %s\ncommit %s\n%s %s/%s\nengines: %s\n",
				e.program.Name, Version(), Commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH, engines)
			return nil
		},
	}
}
