package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/consumer"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/kv"
)

func replayCommand(e *command.Environment) *cli.Command {
	r := &replay{network: newNetwork()}
	o := &r.stream
	flags := append(append(streamFlags(r.network, &r.store, o, "the stored cursor"), verifyFlags(r.network)...), command.StoreFlags(e, &r.store)...)
	flags = append(flags,
		&cli.StringFlag{Name: "frames", Usage: "recording of a relay's stream (a .frames file) to read instead of a relay", Destination: &o.Frames},
		&cli.FloatFlag{Name: "rate", DefaultText: "as fast as possible", Usage: "frames per second to read from --frames", Destination: &o.Rate},
		&cli.Int64Flag{Name: "until", DefaultText: "none", Usage: "stop after the first event whose sequence number is this number or higher", Destination: &o.Until},
		&cli.BoolFlag{Name: "force-cursor", Usage: "allow a --cursor that is later than the stored one; the events between them are skipped", Destination: &r.skips},
		&cli.DurationFlag{Name: "idle", Value: 2 * time.Second, Usage: "stop when the relay has sent nothing for this long, since the replay has then caught up", Destination: &o.Idle},
		&cli.DurationFlag{Name: "idle-timeout", Value: time.Minute, Usage: "reconnect if the relay has sent nothing and has not answered a ping for this long; 0: never. Needed only with a larger --idle", Destination: &o.Watchdog, Sources: command.Env("idle-timeout")},
	)
	return &cli.Command{
		Name:  "replay",
		Usage: "index events from a relay (starting at a cursor) or from a recording, then stop",
		Flags: flags,
		Action: func(ctx context.Context, c *cli.Command) error {
			if err := command.NoArguments(c); err != nil {
				return err
			}
			switch {
			case !(o.Rate >= 0): // true for NaN
				return command.UsageError("--rate %v: must be a number, 0 or greater", o.Rate)
			case o.Rate > 0 && o.Frames == "":
				return command.UsageError("--rate needs --frames: a relay sends at its own rate")
			case o.Until < 0:
				return command.UsageError("--until %v is negative", o.Until)
			case o.Idle <= 0:
				return command.UsageError("--idle %v: must be more than 0", o.Idle)
			case o.Watchdog < 0:
				return command.UsageError("--idle-timeout %v is negative", o.Watchdog)
			case o.Frames != "" && c.IsSet("relay") && os.Getenv(command.EnvPrefix+"RELAY") == "":
				return command.UsageError("--frames cannot be combined with --relay")
			}
			return r.run(ctx, e)
		},
	}
}

// A replay is skein replay.
type replay struct {
	store   app.StoreOptions
	network *app.Network
	stream  consumer.Options
	skips   bool // events between the stored cursor and a later --cursor
}

func (r *replay) run(ctx context.Context, e *command.Environment) (err error) {
	so, o := r.store, r.stream
	if err := e.Prepare(&so); err != nil {
		return err
	}
	r.network.Consume(&o)
	o.ForceCursor = true // a replay may start before the stored cursor
	o.StopOnError = true
	o.CatchUp = o.Frames == ""
	if o.Frames != "" {
		o.Idle = 0
	}
	if o.Frames != "" { // before a store is created for it
		if _, err := os.Stat(o.Frames); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	app.LimitMemory(so)
	// Without a cursor the consumer would start live and replay nothing, so the store must
	// exist and have one.
	so.Create = o.Frames != "" || o.Cursor != nil
	_, statErr := os.Stat(so.Store)
	isNew := errors.Is(statErr, fs.ErrNotExist) && app.InFolder(so.Store)
	x, err := app.OpenIndex(ctx, so)
	if errors.Is(err, kv.ErrNotFound) && !so.Create {
		return command.UsageError("%v", errNothingToReplay)
	}
	if err != nil {
		return err
	}
	defer func() {
		applied, _ := x.Graph.Events()
		isEmpty := x.Graph.Made() && applied == 0 && x.Progressed() == 0
		if err = errors.Join(err, x.Close(ctx)); err != nil && isNew && isEmpty { // a failed replay leaves no empty store behind
			err = errors.Join(err, os.RemoveAll(so.Store))
		}
	}()
	if !so.Create {
		source, _, err := consumer.ParseRelay(o.Relay)
		if err != nil {
			return command.UsageError("--relay: %v", err)
		}
		if _, stored := x.Graph.Cursor(source); !stored {
			return command.UsageError("%v", errNothingToReplay)
		}
	}
	c, err := x.Consumer(o)
	if err != nil {
		return err
	}
	stored, isStored := x.Graph.Cursor(c.Source())
	if isStored && o.Cursor != nil && *o.Cursor > int64(stored.Seq) && stored.Time.Unix() > 0 && !stored.Future && !r.skips {
		return command.UsageError("--cursor %d is after the stored cursor of %s (seq %d), so the events between them would be skipped; remove --cursor to resume at seq %[3]d, or add --force-cursor to skip them", *o.Cursor, c.Source(), stored.Seq)
	}
	return r.read(ctx, e, x, c, &o, isStored)
}

// read reads the stream, and prints what it had.
func (r *replay) read(ctx context.Context, e *command.Environment, x *app.Index, c *consumer.Consumer, o *consumer.Options, isStored bool) error {
	stop := showProgress(e, c, o.Until)
	start := time.Now()
	err := c.Run(ctx)
	stop()
	p := c.Progress()
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = fmt.Errorf("stopped at seq %d; %s", p.Applied, resumeHint(o))
		if p.Applied == 0 {
			err = errors.New("stopped before the first event")
		}
	}
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	if applied, again := x.Graph.Events(); !isStored && o.Frames != "" && o.Cursor != nil && *o.Cursor > 0 && applied+again == 0 && o.Until == 0 {
		err := fmt.Errorf("replay: %s has no events after seq %d", o.Frames, *o.Cursor)
		return errors.Join(err, x.Graph.Rewind(ctx, c.Source(), 0, nil)) // or a later replay would start there
	}
	for x.Graph.Erasing() { // finish the background work of deletions
		if err := x.Graph.EraseSlice(ctx); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	took := time.Since(start)
	fmt.Fprintf(e.Stderr, "read %d messages in %v, %.0f/s: %s; cursor %d\n",
		p.Events, took.Round(time.Millisecond), float64(p.Events)/took.Seconds(), news(o, x), p.Applied)
	return nil
}

var errNothingToReplay = errors.New("replay: the store has no cursor for this relay; pass --cursor N (0: the oldest event that the relay keeps), or --frames FILE")

// resumeHint says how to resume a replay that was stopped.
func resumeHint(o *consumer.Options) string {
	if o.Cursor != nil {
		return "run the same command without --cursor to resume there"
	}
	return "run the same command to resume there"
}

// news says how many of the events had not been applied before.
func news(o *consumer.Options, x *app.Index) string {
	applied, replayed := x.Graph.Events()
	switch {
	case o.Frames != "" && o.Cursor != nil && *o.Cursor > 0 && replayed == 0:
		return fmt.Sprintf("%d repo events after seq %d were new", applied, *o.Cursor)
	case applied == 0:
		return "none were new"
	case replayed == 0:
		return "all were new"
	}
	return fmt.Sprintf("%d of %d repo events were new", applied, applied+replayed)
}

// showProgress shows the progress of c on a terminal, until stop is called.
func showProgress(e *command.Environment, c *consumer.Consumer, until int64) (stop func()) {
	if !e.Terminal() {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		start := time.Now()
		bar := e.Progress("events", 0)
		for {
			select {
			case <-quit:
				bar.End()
				return
			case <-ticker.C:
			}
			p := c.Progress()
			bar.Of(p.Events, eventsInAll(p, until, start), whereIn(p))
		}
	}()
	return func() { close(quit); <-done }
}

// whereIn describes the position in the stream.
func whereIn(p consumer.Progress) string {
	if p.Time.IsZero() {
		return fmt.Sprintf("seq %d", p.Seq)
	}
	return fmt.Sprintf("seq %d  %s", p.Seq, p.Time.UTC().Format(time.DateTime))
}

// eventsInAll estimates the number of events to read, 0 if unknown: from the part of the file,
// of the sequence numbers, or of the time up to start that has been read.
func eventsInAll(p consumer.Progress, until int64, start time.Time) int64 {
	var share float64
	switch {
	case p.Size > 0:
		share = float64(p.Bytes) / float64(p.Size)
	case until > 0 && p.Applied > 0:
		share = float64(p.Applied) / float64(until)
	case !p.First.IsZero() && p.Time.After(p.First):
		share = p.Time.Sub(p.First).Seconds() / start.Sub(p.First).Seconds()
	}
	if share <= 0 || share >= 1 {
		return 0
	}
	return int64(float64(p.Events) / share)
}
