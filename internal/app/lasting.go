package app

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"skein.blue/internal/outward"
	"skein.blue/query/watch"
)

// This file keeps the place of a subscription, so that it survives restarts of both ends.

const (
	maxWatched = 50_000           // members of a set that a lasting watch keeps
	toldAtOnce = 100              // changes that are stored before they are reported
	silentMost = 45 * time.Second // a server sends something every 15 seconds
	longestRow = 64 << 20         // of a message of a subscription, in bytes
)

// A Told is a change of a watched set.
type Told struct {
	ID     string    `json:"id"`   // the same each time
	Type   string    `json:"type"` // entered, left, or restored
	Time   time.Time `json:"time"` // when the change was noticed; restored: of the backup
	Member string    `json:"member,omitempty"`
}

// place is what a lasting watch stores: the members that it has told, and which changes it may not have told yet.
type place struct {
	Set     string          `json:"set"`
	Cursor  string          `json:"cursor"`
	Members map[string]bool `json:"members"` // only true
	Pending []Told          `json:"pending,omitempty"`
	Backup  time.Time       `json:"backup,omitzero"` // that the store was restored from
}

// A LastingWatch tells each change of a set at least once, over restarts of both ends: it is a subscription that stores its place. If the
// server does not know what has changed since, it compares the members.
type LastingWatch struct {
	Asker

	Set  string
	Load func(ctx context.Context) ([]byte, error) // what Save has stored last; nil: nothing
	Save func(ctx context.Context, state []byte) error
	Tell func(ctx context.Context, change Told) error // fails only if ctx ends, or for ever
	// Failed receives the errors after which the server is asked again, and nil after each message and heartbeat.
	Failed func(err error, wait time.Duration)
	// Forever says to go on whatever fails, and to forget the place of another set.
	Forever bool
	Backup  time.Time // that the server's store was restored from, if known

	at place
}

// stopError is an error that another attempt would meet, too.
type stopError struct{ error }

// Run tells changes until ctx ends, or no further attempt can succeed.
func (w *LastingWatch) Run(ctx context.Context) error {
	stored, err := w.Load(ctx)
	if err == nil && stored != nil {
		err = json.Unmarshal(stored, &w.at)
	}
	switch {
	case err != nil:
		return fmt.Errorf("reading the place of the watch: %w", err)
	case w.at.Set != w.Set && stored != nil && !w.Forever:
		return UsageError("the state is that of another set, %s; use another file", w.at.Set)
	case w.at.Set != w.Set:
		w.at = place{Set: w.Set, Backup: w.Backup}
	}
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		begun := time.Now()
		err := w.follow(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // what failed, failed because of that
		}
		if _, stop := errors.AsType[stopError](err); (stop || errors.Is(err, ErrUsage)) && !w.Forever {
			return err
		}
		if time.Since(begun) > time.Minute {
			wait = time.Second
		}
		if answer, ok := errors.AsType[*outward.Answer](err); ok {
			if answer.IsFinal() && answer.After == 0 && !w.Forever {
				return err
			}
			wait = max(wait, answer.After)
		}
		w.Failed(err, wait)
		if outward.Wait(ctx, wait) != nil {
			return nil //nolint:nilerr // stopped
		}
	}
}

// follow tells changes as long as a connection lasts.
func (w *LastingWatch) follow(ctx context.Context) error {
	if err := w.tell(ctx); err != nil {
		return err
	}
	connection, end := context.WithCancelCause(ctx)
	defer end(nil)
	silent := time.AfterFunc(silentMost, func() { end(fmt.Errorf("no data from %s for %v", w.Server, silentMost)) })
	defer silent.Stop()
	resp, err := w.open(connection, "subscribe", url.Values{"set": {w.Set}, "cursor": {w.at.Cursor}})
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return notSkein(resp)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, longestRow)
	for lines.Scan() {
		silent.Stop()
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			var m struct {
				watch.Message
				Error string `json:"error"`
				Why   string `json:"message"`
			}
			if err := json.Unmarshal(data, &m); err != nil || m.Error+m.Cursor == "" {
				silent.Reset(silentMost)
				if !lines.Scan() { // the connection ended within the line
					break
				}
				return notSkein(resp)
			}
			if m.Error != "" {
				return &outward.Answer{Code: http.StatusServiceUnavailable, Name: m.Error, Message: m.Why}
			}
			if err := w.receive(ctx, &m.Message); err != nil {
				return err
			}
		} else if len(lines.Bytes()) == 0 { // which ends each of them
			w.Failed(nil, 0)
		}
		silent.Reset(silentMost)
	}
	return cmp.Or(lines.Err(), fmt.Errorf("the connection to %s ended", resp.Request.URL.Host))
}

// receive tells the changes of a message. A server that does not know them is asked for the members.
func (w *LastingWatch) receive(ctx context.Context, m *watch.Message) error {
	if m.Reset == "" && w.at.Cursor != "" {
		return w.change(ctx, m.Cursor, m.Entered, m.Left)
	}
	now, err := w.members(ctx)
	if err != nil {
		return err
	}
	if w.at.Members == nil { // the watch begins
		w.at.Members, w.at.Cursor = now, m.Cursor
		return w.save(ctx)
	}
	var left []string
	for member := range w.at.Members {
		if !now[member] {
			left = append(left, member)
		}
	}
	slices.Sort(left)
	err = w.change(ctx, m.Cursor, slices.Sorted(maps.Keys(now)), left)
	if err == nil && !w.at.Backup.Equal(w.Backup) { // the receiver may have later changes than the members that were compared
		w.at.Backup = w.Backup
		w.at.Pending = []Told{{ID: "msg_" + rand.Text(), Type: "restored", Time: w.Backup}}
		err = w.tell(ctx)
	}
	if err != nil || m.Type != "" {
		return err
	}
	return outward.Wait(ctx, 2*time.Second) // comparing costs more than a change
}

// members returns the members of the set.
func (w *LastingWatch) members(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	for params := (url.Values{"set": {w.Set}, "limit": {"1000"}}); ; {
		var page struct {
			Total          int
			Members        []string
			Cursor, Sample string
		}
		err := w.Insist(ctx, "query", params, &page, w.Failed)
		if err == nil && page.Sample != "" {
			err = stopError{fmt.Errorf("the server has only a sample of the set, and a watch that lasts needs all of it: %s", page.Sample)}
		}
		if err := cmp.Or(err, bounded(page.Total)); err != nil {
			return nil, err
		}
		for _, member := range page.Members {
			all[member] = true
		}
		if page.Cursor == "" {
			return all, nil
		}
		params.Set("cursor", page.Cursor)
	}
}

// bounded returns an error for a set with too many members.
func bounded(members int) error {
	if members > maxWatched {
		return stopError{fmt.Errorf("the set has %d members, and a watch that lasts keeps at most %d: watch a smaller set, such as an intersection, or use subscribe", members, maxWatched)}
	}
	return nil
}

// change tells which members enter or leave, unless it has. Some of the changes are stored before they are reported, so that they come
// again, with the same ids, after a failure in between.
func (w *LastingWatch) change(ctx context.Context, cursor string, entered, left []string) error {
	now := time.Now().UTC().Truncate(time.Millisecond)
	for i, member := range slices.Concat(left, entered) {
		enters := i >= len(left)
		if w.at.Members[member] == enters {
			continue
		}
		c := Told{ID: "msg_" + rand.Text(), Type: "left", Time: now, Member: member}
		if delete(w.at.Members, member); enters {
			w.at.Members[member], c.Type = true, "entered"
		}
		if w.at.Pending = append(w.at.Pending, c); len(w.at.Pending) == toldAtOnce {
			if err := w.tell(ctx); err != nil {
				return err
			}
		}
	}
	if err := bounded(len(w.at.Members)); err != nil {
		w.at.Cursor = "" // the next connection compares: the set may have shrunk
		return errors.Join(err, w.save(ctx))
	}
	w.at.Cursor = cursor
	return w.tell(ctx)
}

// tell stores the pending changes, tells them, and stores that.
func (w *LastingWatch) tell(ctx context.Context) (err error) {
	if len(w.at.Pending) == 0 {
		return nil
	}
	if err := w.save(ctx); err != nil {
		return err
	}
	for len(w.at.Pending) > 0 && err == nil {
		if err = w.Tell(ctx, w.at.Pending[0]); err == nil {
			w.at.Pending = w.at.Pending[1:]
		} else {
			err = stopError{err}
		}
	}
	return errors.Join(err, w.save(ctx))
}

// save stores the place, for which a stop waits: without it, the next start would tell the pending changes again.
func (w *LastingWatch) save(ctx context.Context) error {
	saving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(2*time.Second, end) })() // the disk may be full
	b, err := json.Marshal(&w.at)
	if err == nil {
		err = w.Save(saving, b)
	}
	if err != nil {
		return stopError{fmt.Errorf("storing the place of the watch: %w", err)}
	}
	return nil
}
