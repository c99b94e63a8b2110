package labels

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/gorilla/websocket"

	"skein.blue/consumer"
	"skein.blue/consumer/wire"
	"skein.blue/graph"
	"skein.blue/graph/batch"
	"skein.blue/graph/kinds"
	"skein.blue/internal/outward"
	"skein.blue/internal/say"
)

// Bounds on what a labeler sends, and how long it may be silent.
const (
	messageBytes    = 1 << 20
	silence         = 90 * time.Second // without a message or an answer to a ping
	pingEvery       = 30 * time.Second
	messagesAtOnce  = 1000 // in one write, and about a messageBytes
	messagesWaiting = 16   // not decoded yet
	askTime         = 10 * time.Second
)

// recent: labels that were all made longer ago than this are of a labeler's past.
const recent = 5 * time.Minute

const (
	badFor     = 10 * time.Second // after this long without a connection, the state gets a Problem
	keyFor     = time.Hour        // after this long, the key is looked up again
	renewAfter = time.Minute      // a wrong signature makes skein look the key up again after this long,
	renewSoon  = 5 * time.Second  // or each time after this long until the label is older than renewAfter
)

// labeler reads one labeler. Only one goroutine uses it; receive runs in another one.
type labeler struct {
	c     *Consumer
	log   *slog.Logger
	name  string
	state graph.Labeler // as it is in the store

	key       atcrypto.PublicKey
	keyOf     string    // the DID that it belongs to
	keyTime   time.Time // when it was looked up
	candidate string    // the source of the first label, while the labeler's DID is not known
	failedAt  time.Time // start of the current failure; zero if there is none

	service   *url.URL  // its stream
	dial      dialer    // how to reach it; nil for an address that the operator named
	connected time.Time // when the connection was opened
	caughtUp  bool      // on this connection, everything up to a number that is younger than it has been read
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

func (c *Consumer) newLabeler(name string, state graph.Labeler) *labeler {
	state.Name = name
	if kinds.DID.Valid([]byte(name)) {
		state.DID = name
	}
	return &labeler{c: c, log: c.o.Logger.With("labeler", name), name: name, state: state}
}

// errStore marks errors of the store, which end the Consumer.
var errStore = errors.New("labels: the store failed")

// run connects again and again until ctx ends. Its error is the store's.
func (l *labeler) run(ctx context.Context) error {
	// The labeler may have given labels while this process was not running.
	start := l.state
	start.Current, start.Problem = false, ""
	if err := l.write(ctx, nil, start); err != nil {
		return err
	}
	wait := l.c.o.Retry
	for ctx.Err() == nil {
		began := l.state.Seq
		err := l.read(ctx)
		if errors.Is(err, errStore) {
			return err
		}
		l.c.o.Metrics.connected(l.name, false)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it ends because the process does
		}
		if l.failedAt.IsZero() {
			l.failedAt = time.Now()
		}
		if time.Since(l.failedAt) >= badFor || l.state.Problem != "" {
			problem := say.Short(err.Error())
			if err := l.note(ctx, func(s *graph.Labeler) { s.Current, s.Problem = false, problem }); err != nil {
				return err
			}
		}
		if errors.Is(err, errKey) {
			_ = outward.Wait(ctx, renewSoon-time.Since(l.keyTime))
			continue
		}
		l.candidate = ""
		if l.state.Seq != began || errors.Is(err, errAgain) {
			wait = l.c.o.Retry
		}
		if held, ok := l.c.limiter.Allow(l.name); ok {
			l.log.Warn("labeler cannot be read; trying again", "error", err, "next_try", wait.Round(time.Millisecond).String(), "seq", l.state.Seq, "occurrences", held+1)
		}
		next := wait/2 + time.Duration(rand.Int64N(int64(wait))) // spread, so that not all come back at once
		if l.state.Problem == "" {                               // which is written once badFor has passed
			next = min(next, max(badFor-time.Since(l.failedAt), 0))
		}
		_ = outward.Wait(ctx, next)
		wait = min(2*wait, l.c.o.RetryMost)
	}
	return nil
}

// note writes the state if change modified it.
func (l *labeler) note(ctx context.Context, change func(*graph.Labeler)) error {
	after := l.state
	if change(&after); after == l.state {
		return nil
	}
	return l.write(ctx, nil, after)
}

// write writes labels and the state after them.
func (l *labeler) write(ctx context.Context, labels []batch.Label, after graph.Labeler) error {
	if after.Current && l.caughtUp {
		after.Seen = now()
	}
	if err := l.c.store.ApplyLabels(ctx, time.Now(), labels, l.state, after); err != nil {
		return fmt.Errorf("%w: %w", errStore, err)
	}
	l.state = after
	l.c.o.Metrics.state(&after)
	return nil
}

// Reasons to connect again: the labeler restarted its sequence, or its key is not known or may be new, which connect looks up.
var (
	errAgain = errors.New("the labeler has restarted its sequence")
	errKey   = errors.New("the labeler's key is looked up again: it is an hour old, or does not verify a label")
)

// read connects, and reads until the connection fails.
func (l *labeler) read(ctx context.Context) error {
	conn, err := l.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	l.c.o.Metrics.connected(l.name, true)
	if held, ok := l.c.limiter.Allow(l.name + " connected"); ok {
		l.log.Info("reading labels", "from", conn.RemoteAddr().String(), "after_seq", l.state.Seq, "connections", held+1)
	}
	received := make(chan []byte, messagesWaiting)
	failed := make(chan error, 1)
	reading, stop := context.WithCancel(ctx)
	defer stop()
	go func() { failed <- receive(reading, conn, received); close(received) }()
	defer context.AfterFunc(reading, func() { _ = conn.Close() })()
	idle := time.NewTimer(l.c.o.Quiet)
	defer idle.Stop()
	pings := time.NewTicker(pingEvery) // they keep a quiet connection alive
	defer pings.Stop()
	for {
		var messages [][]byte
		select {
		case m, open := <-received:
			if !open {
				return <-failed
			}
			messages = gather(received, m)
		case <-idle.C:
			if err := l.quiet(ctx); err != nil {
				return err
			}
			idle.Reset(l.seenEvery())
			continue
		case <-pings.C:
			_ = conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second)) // the reader notices a failure
			continue
		}
		if err := l.c.takeTurn(ctx, func() error { return l.apply(ctx, l.decodeAll(messages)) }); err != nil {
			return err
		}
		idle.Reset(l.c.o.Quiet)
	}
}

// gather appends messages that wait.
func gather(from <-chan []byte, first []byte) (messages [][]byte) {
	messages = [][]byte{first}
	for n := len(first); n < messageBytes && len(messages) < messagesAtOnce && len(from) > 0; { // nobody else receives
		m := <-from
		n += len(m)
		messages = append(messages, m)
	}
	return messages
}

// decodeAll decodes messages. It drops what cannot be read.
func (l *labeler) decodeAll(raw [][]byte) (messages []message) {
	for _, b := range raw {
		m, err := decode(b)
		if err != nil {
			l.drop("frame", "error", err)
		}
		for range m.unreadable {
			l.drop("label", "seq", m.seq)
		}
		if err == nil || len(m.labels) > 0 {
			messages = append(messages, m)
		}
	}
	return messages
}

// seenEvery is how often a labeler is asked for its end while it sends nothing.
func (l *labeler) seenEvery() time.Duration { return 6 * l.c.o.Quiet }

// quiet is called when the labeler has sent nothing for a while. That alone says nothing: it may be at its end, or
// be slow. So skein asks.
func (l *labeler) quiet(ctx context.Context) error {
	l.failedAt = time.Time{}
	if l.caughtUp && time.Since(l.state.Seen) < l.seenEvery() {
		return l.note(ctx, func(s *graph.Labeler) { s.Current, s.Problem = true, "" })
	}
	// Having been at the end once says nothing of later labels: a connection may hang.
	atEnd := l.atEnd(ctx)
	if l.caughtUp = l.caughtUp || atEnd; atEnd && l.state.Current {
		return l.write(ctx, nil, l.state) // seen now
	}
	return l.note(ctx, func(s *graph.Labeler) { s.Current, s.Problem = l.caughtUp, "" })
}

// atEnd asks the labeler, on another connection, for what follows the number after the last one. If the labeler has
// nothing beyond the last one, this cursor is in its future, and it must say so.
func (l *labeler) atEnd(ctx context.Context) bool {
	ctx, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	conn, err := l.open(ctx, l.state.Seq+1)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_, b, err := conn.ReadMessage()
	if err != nil {
		return false
	}
	m, err := decode(b)
	return err == nil && m.kind == wire.Error && m.name == futureCursor
}

// connect finds the labeler and connects to it.
func (l *labeler) connect(ctx context.Context) (_ *websocket.Conn, err error) {
	service, dial := l.name, dialer(nil)
	if did := cmp.Or(l.state.DID, l.candidate); did != "" {
		endpoint, key, err := l.c.o.Identities.Labeler(ctx, did)
		if err != nil {
			return nil, fmt.Errorf("looking up the labeler: %w", err)
		}
		l.key, l.keyOf, l.keyTime = key, did, time.Now()
		if did == l.name {
			service, dial = endpoint, l.c.o.Dial
		}
		if service == "" {
			return nil, errors.New("its DID document names no labeler service (#atproto_labeler)")
		}
	}
	if l.service, err = addressOf(service); err != nil {
		return nil, fmt.Errorf("the address of the labeler: %w", err)
	}
	l.dial, l.connected, l.caughtUp = dial, time.Now(), false
	return l.open(ctx, l.state.Seq)
}

// open connects to the labeler's stream after a number.
func (l *labeler) open(ctx context.Context, after int64) (*websocket.Conn, error) {
	u := *l.service
	u.RawQuery = "cursor=" + strconv.FormatInt(after, 10)
	conn, err := consumer.Dial(ctx, u.String(), l.c.o.UserAgent, l.dial)
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(messageBytes)
	return conn, nil
}

// receive passes messages on until the connection fails.
func receive(ctx context.Context, conn *websocket.Conn, to chan<- []byte) error {
	alive := func() { _ = conn.SetReadDeadline(time.Now().Add(silence)) }
	conn.SetPongHandler(func(string) error { alive(); return nil })
	for {
		alive()
		_, b, err := conn.ReadMessage()
		if err != nil {
			return fmt.Errorf("reading from the labeler: %w", err)
		}
		select {
		case to <- b:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// apply verifies and writes the labels of some messages.
func (l *labeler) apply(ctx context.Context, messages []message) error {
	after := l.state
	var labels []batch.Label
	var ending error
	for _, m := range messages {
		switch m.kind {
		default:
			if m.seq > 0 && m.seq < after.Seq {
				// It ignores the cursor, or has restarted its sequence. Labels that it sends again change nothing.
				if held, ok := l.c.limiter.Allow(l.name + " restarted"); ok {
					l.log.Warn("labeler sent a lower sequence number; continuing from it", "seq", m.seq, "after_seq", after.Seq, "occurrences", held+1)
				}
				after.Restarted, after.Current, l.caughtUp = now(), false, false
			}
			if m.seq > 0 { // else its frame is damaged before the number
				after.Seq, after.Time = m.seq, now()
			}
			for i := range m.labels {
				label, err := l.verify(&m.labels[i], &after)
				if err != nil {
					return err
				}
				if label != nil {
					labels = append(labels, *label)
				}
			}
		case wire.Info:
			if m.name == "OutdatedCursor" && after.Missed.IsZero() {
				l.log.Warn("labeler no longer has all labels after the cursor: some are missing", "after_seq", after.Seq, "message", say.Short(m.text))
				after.Missed = now()
			}
		case wire.Error:
			if m.name == futureCursor && after.Seq > 0 {
				l.log.Warn("labeler has restarted its sequence: reading it from its beginning", "after_seq", after.Seq, "message", say.Short(m.text))
				after.Seq, after.Restarted, after.Current = 0, now(), false
				ending = errAgain
			} else {
				ending = fmt.Errorf("the labeler ended the stream: %s: %s", say.Short(m.name), say.Short(m.text))
			}
		}
		if ending != nil {
			break
		}
	}
	if len(labels) > 0 {
		l.failedAt, after.Problem = time.Time{}, ""
		madeSince := func(from time.Time) bool {
			return slices.ContainsFunc(labels, func(x batch.Label) bool {
				made := time.UnixMicro(x.Time)
				return !made.Before(from) && time.Until(made) < recent
			})
		}
		switch isRecent := madeSince(time.Now().Add(-recent)); {
		case ending != nil:
		case !isRecent: // it sends its past
			after.Current, l.caughtUp = false, false
		case madeSince(l.connected): // its number was given out after the connection was opened
			after.Current, l.caughtUp = true, true
		}
	}
	if after != l.state || len(labels) > 0 { // a damaged message may have labels and no number
		if err := l.write(ctx, labels, after); err != nil {
			return err
		}
	}
	return ending
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
