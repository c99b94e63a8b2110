package command

import (
	"log/slog"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
)

// StoreFlag returns the flag that names the store.
func StoreFlag(o *app.StoreOptions) cli.Flag {
	return &cli.StringFlag{Name: "store", Value: "skein-data", Usage: "folder of the store, or the URL of a store on FoundationDB: fdb:///path/to/fdb.cluster?prefix=skein", Destination: &o.Store, Sources: Env("store")}
}

// StoreFlags returns the flags of a command that writes to a store, and those of its log.
func StoreFlags(e *Environment, o *app.StoreOptions) []cli.Flag {
	return []cli.Flag{
		StoreFlag(o),
		&cli.StringFlag{Name: "memory", DefaultText: "an eighth of the available memory, at most 1GiB; 96MiB with serve --around", Usage: "memory for caches and buffers, such as 512MiB: raise it if the store is larger, lower it if the process shares the machine. The process takes up to twice this value, or 2.75 times while it reads an archive", Validator: o.ParseMemory, Sources: Env("memory")},
		&cli.StringFlag{Name: "min-free", Value: "1GiB", Usage: "free space to leave on the store's disk; change it if the disk is small, or others fill it. With less, serve stops indexing but keeps answering queries until there is space again; other commands stop. 0 means the minimum, which depends on --memory", Validator: o.ParseMinFree, ValidateDefaults: true, Sources: Env("min-free")},
		&cli.StringFlag{Name: "accept-loss", DefaultText: "none", Usage: "open a damaged store without the writes that were lost in this write-ahead log. You need it if skein refuses to open a store because of such a loss: the error message names the log. Any other damage is still an error", Destination: &o.AcceptLoss, Sources: Env("accept-loss")},
		&cli.StringFlag{Name: "log-level", Value: "info", Usage: "debug, info, warn or error; debug to see what each connection does", Destination: &e.Level, Sources: Env("log-level")},
		&cli.StringFlag{Name: "log-format", Value: "auto", Usage: "auto, text or json; auto is text on a terminal and json elsewhere, which suits unless people read the log in a file", Destination: &e.Format, Sources: Env("log-format")},
	}
}

// Prepare sets the log of a store, and how the process ends if the store fails.
func (e *Environment) Prepare(o *app.StoreOptions) (err error) {
	o.Fatal = e.fatal
	o.Logger, err = e.logger()
	return err
}

// logger returns the program's logger: text for people, JSON for machines. What libraries log to slog's default logger goes
// there too, warnings and errors only: strangers cause what libraries do, and could fill the log.
func (e *Environment) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(e.Level)); err != nil {
		return nil, UsageError("--log-level %q: use debug, info, warn or error", e.Level)
	}
	text := e.Terminal()
	switch e.Format {
	case "", "auto":
	case "text", "json":
		text = e.Format == "text"
	default:
		return nil, UsageError("--log-format %q: use auto, text or json", e.Format)
	}
	from := func(level slog.Level) *slog.Logger {
		o := &slog.HandlerOptions{Level: level, ReplaceAttr: plainAttr}
		if text {
			return slog.New(slog.NewTextHandler(e.Stderr, o))
		}
		return slog.New(slog.NewJSONHandler(e.Stderr, o))
	}
	slog.SetDefault(from(max(level, slog.LevelWarn)))
	log := from(level)
	if !text {
		e.json = log
	}
	return log, nil
}

// plainAttr shows errors without the names of packages, and durations in units, which JSON would show in nanoseconds.
func plainAttr(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case error:
		a.Value = slog.StringValue(plain(v))
	case time.Duration:
		a.Value = slog.StringValue(v.String())
	}
	return a
}
