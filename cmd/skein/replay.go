package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/urfave/cli/v3"

	"skein.blue/consumer"
	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/kv"
)

func replayCommand(e *command.Environment) *cli.Command {
	r := &replay{network: newNetwork(), stream: consumer.Options{Watchdog: silence}}
	o := &r.stream
	flags := append(append(streamFlags(r.network, &r.store, o, "the stored cursor"), verifyFlags(r.network)...), command.StoreFlags(e, &r.store)...)
	flags = append(flags,
		&cli.StringFlag{Name: "frames", Usage: "recording of a relay's stream (a .frames file) to read instead of a relay", Destination: &o.Frames},
		&cli.FloatFlag{Name: "rate", DefaultText: "as fast as possible", Usage: "frames per second to read from --frames", Destination: &o.Rate, Validator: notNegative},
		&cli.Int64Flag{Name: "until", DefaultText: "none", Usage: "stop after the first event whose sequence number is this number or higher", Destination: &o.Until},
		&cli.BoolFlag{Name: "force-cursor", Usage: "allow a --cursor that is later than the stored one; the events between them are skipped", Destination: &r.skips},
		&cli.DurationFlag{Name: "idle", Value: 2 * time.Second, Usage: "stop when the relay has sent nothing for this long, since the replay has then caught up", Destination: &o.Idle},
	)
	return &cli.Command{
		Name:  "replay",
		Usage: "index events from a relay (starting at a cursor) or from a recording, then stop",
		Flags: flags,
		Action: func(ctx context.Context, c *cli.Command) error {
			switch {
			case o.Rate > 0 && o.Frames == "":
				return command.UsageError("--rate needs --frames: a relay sends at its own rate")
			case o.Until < 0 || o.Idle <= 0:
				return command.UsageError("--until must not be negative, and --idle must be more than 0")
			case r.skips && o.Cursor == nil:
				return command.UsageError("--force-cursor needs --cursor")
			case o.Frames != "" && (c.IsSet("idle") || c.IsSet("relay") && os.Getenv(command.EnvPrefix+"RELAY") == ""):
				return command.UsageError("--frames cannot be combined with --relay or --idle")
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
		if _, err := os.Stat(o.Frames); err != nil { // before a store is created for it
			return fmt.Errorf("replay: %w", err)
		}
	}
	app.LimitMemory(so)
	// Without a cursor the consumer would start live and replay nothing, so the store must
	// exist and have one.
	so.Create = o.Frames != "" || o.Cursor != nil
	x, err := app.OpenIndex(ctx, so)
	if errors.Is(err, kv.ErrNotFound) && !so.Create {
		return command.UsageError("%v", errNothingToReplay)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close(ctx)) }()
	c, err := x.Consumer(o)
	if err != nil {
		return err
	}
	stored, isStored := x.Graph.Cursor(c.Source())
	if !isStored && !so.Create {
		return command.UsageError("%v", errNothingToReplay)
	}
	if isStored && o.Cursor != nil && *o.Cursor > int64(stored.Seq) && stored.Time.Unix() > 0 && !stored.Future && !r.skips {
		return command.UsageError("--cursor %d is after the stored cursor of %s (seq %d), so the events between them would be skipped; remove --cursor to resume at seq %[3]d, or add --force-cursor to skip them", *o.Cursor, c.Source(), stored.Seq)
	}
	return r.read(ctx, e, x, c, &o, isStored)
}

// read reads the stream, and prints what it had.
func (r *replay) read(ctx context.Context, e *command.Environment, x *app.Index, c *consumer.Consumer, o *consumer.Options, isStored bool) error {
	stop := showProgress(e, c)
	start := time.Now()
	err := c.Run(ctx)
	stop()
	p := c.Progress()
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = fmt.Errorf("stopped at seq %d; run the same command without --cursor to resume there", p.Applied)
		if p.Applied == 0 {
			err = errors.New("stopped before the first event")
		}
	}
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	applied, again := x.Graph.Events()
	if !isStored && o.Frames != "" && o.Cursor != nil && *o.Cursor > 0 && applied+again == 0 && o.Until == 0 {
		err := fmt.Errorf("replay: %s has no events after seq %d", o.Frames, *o.Cursor)
		return errors.Join(err, x.Graph.Rewind(ctx, c.Source(), 0, false, nil)) // or a later replay would start there
	}
	for x.Graph.Erasing() { // finish the background work of deletions
		if err := x.Graph.EraseSlice(ctx); err != nil {
			return fmt.Errorf("replay: %w", err)
		}
	}
	took := time.Since(start)
	fmt.Fprintf(e.Stderr, "read %d messages in %v, %.0f/s: %d of %d repo events were new; cursor %d\n",
		p.Events, took.Round(time.Millisecond), float64(p.Events)/took.Seconds(), applied, applied+again, p.Applied)
	return nil
}

var errNothingToReplay = errors.New("replay: the store has no cursor for this relay; pass --cursor N (0: the oldest event that the relay keeps), or --frames FILE")

// showProgress shows the progress of c on a terminal, until stop is called.
func showProgress(e *command.Environment, c *consumer.Consumer) (stop func()) {
	bar, quit := e.Progress("bytes"), make(chan struct{})
	var showing sync.WaitGroup
	showing.Go(func() {
		defer bar.End()
		for {
			p := c.Progress()
			bar.Of(p.Bytes, p.Size, fmt.Sprintf("seq %d  %s", p.Seq, p.Time.UTC().Format(time.DateTime)))
			select {
			case <-time.After(200 * time.Millisecond):
			case <-quit:
				return
			}
		}
	})
	return func() { close(quit); showing.Wait() }
}
