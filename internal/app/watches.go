package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"skein.blue/graph/format"
	"skein.blue/graph/kinds"
	"skein.blue/internal/backup"
	"skein.blue/internal/kv"
	"skein.blue/internal/outward"
	"skein.blue/internal/say"
	"skein.blue/query/language"
	"skein.blue/query/watch"
)

// A Watch is a line of the file of --watches.
type Watch struct {
	name, set string
	line      int
	path      string // of the file that receives the changes, or
	url       *url.URL
	secret    []byte // that signs what the URL receives
}

// ReadWatches reads a file of watches. secret signs the messages to URLs whose lines name none.
func (n *Network) ReadWatches(file, secret string, table *kinds.Table) (all []Watch, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, UsageError("--watches: %v", err)
	}
	words := language.NewVocabulary(table)
	for i, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		w, err := n.readWatch(line, secret, words)
		if j := slices.IndexFunc(all, func(o Watch) bool { return o.name == w.name }); err == nil && j >= 0 {
			err = fmt.Errorf("the watch %s is already defined on line %d", w.name, all[j].line)
		}
		if err != nil {
			return nil, UsageError("--watches: %s, line %d: %v", file, i+1, err)
		}
		w.line = i + 1
		all = append(all, w)
	}
	return all, nil
}

func (n *Network) readWatch(line, secret string, words *language.Vocabulary) (w Watch, err error) {
	name, rest, ok := strings.Cut(line, "=")
	at := strings.LastIndex(rest, "->")
	w.name = strings.TrimSpace(name)
	if !ok || at < 0 || w.name == "" || strings.ContainsAny(w.name, " \t()") {
		return w, fmt.Errorf("%q is not a watch; write NAME = EXPRESSION -> https://…, or -> file:PATH", language.Brief(line))
	}
	w.set = strings.TrimSpace(rest[:at])
	e, err := words.Parse(w.set, language.MaxExpr, time.Now())
	if err == nil {
		err = watch.Watchable(e)
	}
	if err != nil {
		return w, fmt.Errorf("%s: %w", w.name, err)
	}
	to, own, _ := strings.Cut(rest[at+len("->"):], " secret=")
	to = strings.TrimSpace(to)
	if w.path, ok = strings.CutPrefix(to, "file:"); ok || !strings.Contains(to, "://") {
		if w.path == "" {
			return w, errors.New("file: needs a path, as in file:/var/lib/skein/changes.jsonl")
		}
		return w, nil
	}
	switch w.url, err = url.Parse(to); {
	case err != nil, w.url.Host == "", w.url.Scheme != "https" && w.url.Scheme != "http":
		return w, fmt.Errorf("%q is not a URL such as https://example.com/hook", language.Brief(to))
	case !n.AllowPrivate && (w.url.Scheme == "http" || !outward.PublicHost(w.url.Host)):
		return w, fmt.Errorf("%s is not a public https:// address, which --allow-private-hosts allows", w.url.Host)
	}
	encoded, ok := strings.CutPrefix(cmp.Or(strings.TrimSpace(own), secret), "whsec_")
	if w.secret, err = base64.StdEncoding.DecodeString(encoded); err != nil || !ok || len(w.secret) < 24 {
		return w, errors.New("a URL needs a secret of 24 bytes or more, with which its messages are signed: set SKEIN_WATCH_SECRET, or end the line with secret=…, to the output of: echo whsec_$(openssl rand -base64 32)")
	}
	return w, nil
}

// watches runs the watches of a server.
type watches struct {
	*server

	hooks   *http.Client
	limiter say.Limiter
	backup  time.Time // that the store was restored from
	failing prometheus.Gauge
	files   sync.Mutex // guards the files that receive changes: watches may share one
}

// runWatches starts the watches, and forgets the places of those that there are no more.
func (s *server) runWatches(ctx context.Context, t *tasks) error {
	r := &watches{
		server: s, hooks: outward.NewClient(outward.Options{AllowPrivate: s.o.Network.AllowPrivate}),
		failing: prometheus.NewGauge(prometheus.GaugeOpts{Name: "skein_watches_failing", Help: "Watches of --watches whose receiver does not take their messages, or whose set cannot be read. The log says why."}),
	}
	s.Registry.MustRegister(r.failing)
	if m, err := backup.Restored(s.Path); err == nil {
		r.backup = m.Time
	}
	err := s.KV.Update(ctx, func(tx kv.Txn) error {
		return kv.ScanPrefix(tx, format.WatchKey(""), func(key, _ []byte) error {
			if !slices.ContainsFunc(s.o.Watches, func(w Watch) bool { return bytes.Equal(format.WatchKey(w.name), key) }) {
				tx.Delete(bytes.Clone(key))
			}
			return nil
		})
	})
	for _, w := range s.o.Watches {
		t.run("watch "+w.name, func(ctx context.Context) error { return r.run(ctx, w) })
	}
	return err
}

// run runs a watch until ctx ends. Its place is in the store.
func (r *watches) run(ctx context.Context, w Watch) error {
	key := format.WatchKey(w.name)
	log := r.log.With("component", "watches", "watch", w.name)
	fails := false
	failed := func(err error, wait time.Duration) {
		if fails != (err != nil) {
			fails = !fails
			r.failing.Add(map[bool]float64{true: 1, false: -1}[fails])
		}
		if err == nil {
			return
		}
		if held, ok := r.limiter.Allow(w.name); ok {
			log.Warn("a watch cannot send its changes, which wait in order: correct its line in the file of --watches and restart skein, or start what receives them", "line", w.line, "error", err, "retry_in", wait.String(), "occurrences", held+1)
		}
	}
	l := &LastingWatch{
		Asker: Asker{Server: "http://localhost", UserAgent: "skein watches", Client: &http.Client{Transport: local{r.api}}},
		Set:   w.set, Forever: true, Backup: r.backup,
		Load: func(ctx context.Context) (stored []byte, err error) {
			err = r.KV.View(ctx, func(tx kv.Reader) error {
				v, _, err := tx.Get(key)
				stored = bytes.Clone(v)
				return err
			})
			return stored, err
		},
		Save: func(ctx context.Context, place []byte) error {
			if err := r.KV.Update(ctx, func(tx kv.Txn) error { tx.Set(key, place); return nil }); err != nil {
				return err
			}
			return r.KV.Sync() // after a power failure, no id that a receiver has seen may name another change
		},
		Failed: failed,
	}
	l.Tell = func(ctx context.Context, c Told) error {
		m := message{Type: c.Type, Time: c.Time, Data: data{w.name, w.set, c.Member}}
		for wait := firstRetry; ; wait = min(2*wait, 5*time.Minute) {
			again, err := r.send(ctx, &w, c.ID, m)
			if err == nil {
				failed(nil, 0)
				return nil
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			again = max(wait, again)
			failed(err, again)
			if err := outward.Wait(ctx, again); err != nil {
				return err
			}
		}
	}
	return l.Run(ctx)
}

// firstRetry is the wait before a message is sent again.
var firstRetry = time.Second

// A message is what the receiver of a watch gets: the form of Standard Webhooks (https://www.standardwebhooks.com).
type message struct {
	ID   string    `json:"id,omitempty"` // in files; URLs receive it in a header
	Type string    `json:"type"`
	Time time.Time `json:"timestamp"`
	Data data      `json:"data"`
}

type data struct {
	Watch  string `json:"watch"`
	Set    string `json:"set"`
	Member string `json:"member,omitempty"`
}

// send passes a message to the receiver of a watch. If that fails, again is the wait that the receiver asks for.
func (r *watches) send(ctx context.Context, w *Watch, id string, m message) (again time.Duration, err error) {
	if w.url == nil {
		m.ID = id
	}
	body, err := json.Marshal(m)
	if err != nil || w.url == nil {
		r.files.Lock()
		defer r.files.Unlock()
		return 0, errors.Join(err, appendLine(w.path, body))
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url.String(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, w.secret)
	mac.Write(slices.Concat([]byte(id+"."+now+"."), body))
	for name, value := range map[string]string{
		"Content-Type": "application/json", "User-Agent": r.o.Network.UserAgent,
		"Webhook-Id": id, "Webhook-Timestamp": now, "Webhook-Signature": "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)),
	} {
		req.Header.Set(name, value)
	}
	resp, err := r.hooks.Do(req)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return 0, fmt.Errorf("%s: %w", w.url.Host, failed.Err) // its path may be secret
	} else if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // the connection can be used again
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return outward.RetryAfter(resp.Header, time.Now()), fmt.Errorf("%s answered %s", w.url.Host, resp.Status)
	}
	return 0, nil
}

// appendLine appends a line to a file, and removes what it has written if that fails. A line that a power failure has cut off ends before it.
func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	end, err := f.Seek(0, io.SeekEnd)
	last := []byte{'\n'} // also of an empty file
	if _, _ = f.ReadAt(last, end-1); last[0] != '\n' {
		line = append([]byte{'\n'}, line...)
	}
	if err == nil {
		_, err = f.Write(append(line, '\n'))
		if err = errors.Join(err, f.Sync()); err != nil {
			err = errors.Join(err, f.Truncate(end))
		}
	}
	return errors.Join(err, f.Close())
}
