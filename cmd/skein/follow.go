package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"skein.blue/consumer"
	"skein.blue/internal/app"
	"skein.blue/internal/backup"
	"skein.blue/internal/command"
	"skein.blue/internal/human"
)

// progressEvery is how often a daemon logs the progress of a restore.
const progressEvery = 10 * time.Second

// beginWith restores the newest backup of --from, unless there is a store.
func beginWith(ctx context.Context, s *command.Settings, b *command.BackupSettings, so app.StoreOptions) error {
	log := so.Logger.With("from", b.From)
	if !backup.Unfinished(s.Store) {
		found, err := app.StoreExists(s.Store)
		if err != nil {
			return err
		}
		if found {
			log.Info("there is a store: --from has no effect", "store", s.Store)
			return nil
		}
	}
	t, trust, err := b.Source("--from ", b.From)
	if err != nil {
		return err
	}
	m, err := backup.Find(ctx, t, time.Time{}, trust)
	if err != nil {
		return err
	}
	if err := app.CheckFormat(m); err != nil {
		return err
	}
	host, _, err := consumer.ParseRelay(s.Relay)
	if err != nil {
		return command.UsageError("--relay: %v", err)
	}
	if m.Store.Source != host {
		return fmt.Errorf("the backup follows the stream of %s, and --relay is %s, whose sequence numbers are others: start with --relay %s, or choose another backup", human.Line(m.Store.Source), host, human.Line(m.Store.Source))
	}
	log.Info("restoring a backup", "of", m.Time.Format(time.RFC3339), "size", human.Bytes(m.Bytes()), "holds", contents(m))
	start, said := time.Now(), time.Now()
	var mu sync.Mutex
	err = backup.Restore(ctx, t, backup.RestoreOptions{Dir: s.Store, Manifest: m, Progress: func(done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(said) >= progressEvery {
			said = time.Now()
			log.Info("restoring", "done", human.Bytes(done), "of", human.Bytes(total))
		}
	}})
	if ctx.Err() != nil {
		log.Info("stopped during the restore; the next start continues it")
		return nil //nolint:nilerr // that is why
	}
	if err != nil {
		return err
	}
	log.Info("restored", "took", time.Since(start).Round(time.Millisecond).String())
	return nil
}

// follow answers from the newest backup of --follow until ctx ends.
func (d daemonConfig) follow(ctx context.Context, b *command.BackupSettings) error {
	o, err := b.FollowOptions()
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, command.NotifyStopping)()
	d.store.Memory = halfOf(d.store.Memory) // two backups are open while one replaces the other
	o.Dir, o.Store, o.Serve, o.Logger = d.s.Store, d.store, d.serve, d.store.Logger
	draining := make(chan struct{})
	o.Serve.Draining = draining
	if d.s.Drain > 0 {
		d.e.Stop.OnDrain(func() time.Duration {
			d.store.Logger.Info("draining: not ready for new clients, and answering until then; a second SIGTERM stops now", "for", d.s.Drain.String())
			close(draining)
			return d.s.Drain
		})
	}
	o.Prepare = func(x *app.Index, so *app.ServeOptions) error {
		feeds, err := d.s.Feeds(x.Graph.Kinds(), so.Service)
		if err != nil {
			return err
		}
		d.e.Stop.OnHangup(func() { reload(d.store.Logger, feeds, so.Clients.Tokens) })
		so.Feeds, so.Page.Feeds = feeds, feeds.Previews
		return nil
	}
	var alive sync.WaitGroup
	watched, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	defer func() { unwatch(); alive.Wait() }()
	o.Serve.Ready = func(net.Addr, net.Addr) {
		command.NotifyReady("answering")
		alive.Go(func() { command.KeepAlive(watched, func() {}) })
	}
	err = app.Follow(ctx, o)
	switch {
	case ctx.Err() != nil: // what failed, failed because of that
		return nil
	case errors.Is(err, backup.ErrNone):
		return fmt.Errorf("%w: there is nothing to answer from; make one with skein backup, or serve --backup-to, on the node that indexes", err)
	}
	return err
}

// halfOf returns half of a memory budget.
func halfOf(memory int64) int64 {
	if memory == 0 {
		memory = app.DefaultMemory()
	}
	return memory / 2
}
