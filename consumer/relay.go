package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"time"

	"skein.blue/internal/outward"
)

const subscribePath = "/xrpc/com.atproto.sync.subscribeRepos"

// ParseRelay parses the address of a relay, as a user gives it: ws(s):// or
// http(s):// and a host, or a whole subscribeRepos URL. It returns the name of the
// source (the host) and the URL to connect to.
func ParseRelay(relay string) (source, address string, err error) {
	if !strings.Contains(relay, "://") {
		return "", "", fmt.Errorf("consumer: relay %q has no scheme: did you mean ws://%s, or wss://%s for TLS?", relay, relay, relay)
	}
	u, err := url.Parse(relay)
	if err != nil {
		return "", "", fmt.Errorf("consumer: relay %q: %w", relay, err)
	}
	if u.Scheme = strings.Replace(u.Scheme, "http", "ws", 1); u.Scheme != "ws" && u.Scheme != "wss" {
		return "", "", fmt.Errorf("consumer: relay %q: must start with wss://, ws://, https:// or http://", relay)
	}
	if u.Host == "" {
		return "", "", fmt.Errorf("consumer: relay %q has no host", relay)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = subscribePath
	}
	query := u.Query()
	query.Del("cursor") // the consumer sets its own
	u.RawQuery, u.Fragment, u.User = query.Encode(), "", nil
	return strings.ToLower(u.Host), u.String(), nil
}

// readRelay connects, and reconnects, until the run ends.
func (c *Consumer) readRelay(ctx context.Context) error {
	backoff := c.o.MinBackoff
	for first := true; ; first = false {
		if c.link.blocked.Load() {
			return c.awaitOperator(ctx)
		}
		if !first {
			c.metrics.Reconnects.Inc()
		}
		before := c.progress.events.Load()
		err := c.connect(ctx)
		lasted := c.link.end()
		c.metrics.Connected.Set(0)
		if ctx.Err() != nil || c.ended.Load() {
			return nil //nolint:nilerr // the session's error is that it was ended
		}
		switch {
		case c.feed.failed() != nil:
			return c.feed.failed()
		case errors.Is(err, errStore):
			return err
		case errors.Is(err, ErrRelay) && c.o.StopOnError:
			return err
		case c.link.blocked.Load():
			continue
		}
		// A relay that sent anything works, even if it sent little: a small PDS is
		// silent most of the time. An error frame does not count.
		if lasted > backoff || c.progress.events.Load() > before && !errors.Is(err, ErrRelay) {
			backoff = c.o.MinBackoff
		}
		wait := backoff/2 + rand.N(backoff/2+1)
		if a, ok := errors.AsType[*outward.Answer](err); ok && a.IsBusy() {
			wait = max(wait, a.After)
		}
		what := "no connection to the relay"
		if !c.o.StopOnError { // a replay answers no queries
			what += "; queries are still answered"
		}
		c.log.Warn(what, "error", err, "retry_in", wait.Round(time.Millisecond).String()) //nolint:sloglint // one of two texts
		if outward.Wait(ctx, wait) != nil {
			return nil //nolint:nilerr // that is how a run ends
		}
		backoff = min(2*backoff, c.o.MaxBackoff)
	}
}

// connect connects at the stored cursor, and reads until the connection ends.
func (c *Consumer) connect(ctx context.Context) error {
	if err := c.feed.drain(); err != nil {
		return err
	}
	address := c.url
	c.sequence.expected = nil
	if stored, ok := c.store.Cursor(c.source); ok {
		c.decided = c.decided && stored.Seq == c.from // no event came since
		c.from, c.hasFrom = stored.Seq, true
		if stored.Time.Unix() > 0 && !c.decided {
			c.sequence.expected = &stored
		}
	}
	if c.hasFrom {
		sep := "?"
		if strings.Contains(address, "?") {
			sep = "&"
		}
		from := int64(c.from)
		if c.sequence.expected != nil && from > 0 { // the relay sends the last applied event again, if its sequence is the same
			from--
		}
		address += sep + "cursor=" + strconv.FormatInt(from, 10)
	}
	c.resume(c.from)
	conn, err := Dial(ctx, address, c.o.UserAgent, nil)
	if err != nil {
		return err
	}
	if !c.hasFrom {
		if err := c.listen(ctx); err != nil {
			return errors.Join(err, conn.Close())
		}
	}
	c.log.Info("connected to the relay", "starts", c.startName())
	c.metrics.Connected.Set(1)
	c.link.begin()
	err = (&session{c: c, conn: conn}).run(ctx)
	if !c.hasFrom { // the relay does not send held events again
		err = errors.Join(err, c.decide((*numbering).takeUnnumbered))
	}
	if closeErr := conn.Close(); closeErr != nil && err == nil {
		err = closeErr
	}
	isReused := errors.Is(err, errReused)
	if !isReused && !errors.Is(err, errRestarted) && (!errors.Is(err, ErrRelay) || !strings.Contains(err.Error(), "FutureCursor")) {
		return err
	}
	if failed := c.feed.drain(); failed != nil { // only the applying goroutine changes this source's cursor otherwise
		return errors.Join(err, failed)
	}
	if isReused {
		return c.reused(ctx, err)
	}
	return c.futureCursor(ctx, err)
}
