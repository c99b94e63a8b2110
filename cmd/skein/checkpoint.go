package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/urfave/cli/v3"

	"skein.blue/internal/app"
	"skein.blue/internal/command"
	"skein.blue/internal/kv"
)

// lender makes checkpoints: of the store of a running daemon, or of one that no process has open.
type lender struct {
	admin

	store    app.StoreOptions
	hasStore bool // the user named the store
}

// flags returns the flags that name the daemon and the store. what is done with the checkpoint.
func (l *lender) flags(what string) []cli.Flag {
	l.store.Memory = 64 << 20
	return append([]cli.Flag{command.StoreFlag(&l.store)}, l.admin.flags("admin URL of the running daemon on this machine whose store to "+what+"; off: open the store of --store directly, which no daemon may have open")...)
}

// read reads what the user named.
func (l *lender) read(c *cli.Command) error {
	l.hasStore = c.IsSet("store")
	return l.admin.read(c)
}

// noCheckpoint is the app.ErrNoCheckpoint of a store.
type noCheckpoint struct{ store string }

// Error implements error.
func (n *noCheckpoint) Error() string { return fmt.Sprintf("%s: %v", n.store, app.ErrNoCheckpoint) }

// checkpoint makes a checkpoint, and returns what removes it: of the store of a running daemon, or of
// --store if the daemon has another, or if none answers at the default address.
func (l *lender) checkpoint(ctx context.Context, e *command.Environment) (c app.Checkpoint, done func() error, err error) {
	if err := l.store.Check(); err != nil {
		return c, nil, err
	}
	if !app.InFolder(l.store.Store) {
		return c, nil, &noCheckpoint{l.store.Store}
	}
	if l.address != noAdmin {
		c, done, err = l.lend(ctx)
		switch {
		case err == nil && (l.named || !l.hasStore || sameFolder(l.store.Store, storeOf(c))):
			return c, done, nil
		case err == nil:
			err = done()
			fmt.Fprintf(e.Stderr, "the daemon at %s has another store (%s); using %s\n", l.address, storeOf(c), l.store.Store)
		case l.named || !l.hasStore && !errors.Is(err, syscall.ECONNREFUSED):
			return c, nil, err
		default:
			fmt.Fprintf(e.Stderr, "no daemon at %s lends a copy of its store (%v); using the store %s\n", l.address, err, l.store.Store)
		}
	}
	lost := err
	c, err = app.CheckpointClosed(ctx, l.store)
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return c, nil, command.UsageError("there is no store in %s; name one with --store, or a daemon with --admin", l.store.Store)
	case errors.Is(err, kv.ErrLocked):
		return c, nil, errors.Join(fmt.Errorf("%w; name the daemon that has it with --admin", err), lost)
	case err != nil:
		return c, nil, err
	}
	return c, c.Remove, nil
}

// storeOf returns the folder of the store that a checkpoint is of.
func storeOf(c app.Checkpoint) string { return filepath.Dir(filepath.Dir(c.Folder)) }

func sameFolder(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(b)
	return errors.Join(err1, err2) == nil && os.SameFile(x, y)
}

// lend asks a daemon for a checkpoint. The daemon removes it when done is called, or this process is
// gone.
func (l *lender) lend(ctx context.Context) (c app.Checkpoint, done func() error, err error) {
	resp, err := l.send(ctx, patient, http.MethodPost, "/checkpoint", "application/json", strings.NewReader("{}"))
	if no, ok := errors.AsType[*refusal](err); ok && no.store != "" {
		return c, nil, &noCheckpoint{no.store}
	} else if err != nil {
		return c, nil, err
	}
	if err := json.NewDecoder(resp.Body).Decode(&c); err != nil || c.Folder == "" {
		return c, nil, errors.Join(fmt.Errorf("%s did not answer as skein does; is --admin the admin address of skein serve? %w", l.address, err), resp.Body.Close())
	}
	if _, err := os.Stat(c.Folder); err != nil {
		return c, nil, errors.Join(fmt.Errorf("the daemon's store, %s, cannot be read here; run skein backup on the daemon's machine, or in its container, as a user who may read the store: %w", storeOf(c), err), resp.Body.Close())
	}
	return c, resp.Body.Close, nil
}
