package identities

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"skein.blue/internal/kv"
	"skein.blue/internal/outward"
)

// Bounds of a page of the export. The directory sends at most pageLines.
const (
	pageLines   = 1000
	maxLine     = 64 << 10 // the directory accepts operations of 7,500 bytes
	maxPage     = 32 << 20
	pageTimeout = 2 * time.Minute
	maxWait     = 10 * time.Minute // between attempts
)

// Run reads the export until ctx ends: at first all of it, and then what is new.
func (m *Mirror) Run(ctx context.Context) {
	from := max(m.newest.Load()-overlap.Milliseconds(), 0)
	m.log.Info("reading the did:plc directory", "after", time.UnixMilli(m.newest.Load()).UTC())
	failed, wasFresh := 0, false
	for ctx.Err() == nil {
		began := m.o.now()
		p, err := m.page(ctx, from)
		if err == nil || p.lines > 0 { // what was read before an error counts
			if applied := m.apply(ctx, p); applied != nil {
				err = errors.Join(err, applied)
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			failed++
			wait := max(min(m.o.retry<<min(failed-1, 20), maxWait), p.after)
			if held, ok := m.limit.Allow("export"); ok {
				m.log.Warn("reading the did:plc directory failed; retrying, and asking it for each account meanwhile", "directory", m.o.URL, "error", err, "retry_in", wait, "occurrences", held+1)
			}
			_ = outward.Wait(ctx, wait)
			continue
		}
		failed = 0
		if p.lines >= pageLines { // there is more; read the last millisecond again, which may be cut
			next := p.newest - 1
			if next <= from {
				if next = p.newest; p.oldest == p.newest {
					m.log.Warn("a page of the did:plc directory's export has a single time; operations of that millisecond may be missing", "created_at", time.UnixMilli(p.newest).UTC())
				}
			}
			from = next
			continue
		}
		m.complete.Store(began.UnixNano())
		if !wasFresh {
			wasFresh = true
			m.log.Info("the copy of the did:plc directory is complete")
		}
		from = max(m.newest.Load()-overlap.Milliseconds(), from)
		_ = outward.Wait(ctx, m.o.poll)
	}
}

// page is the content of one answer.
type page struct {
	rows           map[string]row // the newest operation of each account
	lines          int
	oldest, newest int64         // Unix milliseconds; 0 for an empty page
	after          time.Duration // with an error: how long the directory asks to wait
}

// page reads the operations after a time. It skips lines that are not operations; one that is not even JSON
// is an error. With an error, the page has what came before it.
func (m *Mirror) page(ctx context.Context, after int64) (p page, err error) {
	p.rows = map[string]row{}
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	address := fmt.Sprintf("%s/export?count=%d&after=%s", m.o.URL, pageLines, url.QueryEscape(time.UnixMilli(after).UTC().Format("2006-01-02T15:04:05.000Z")))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return p, fmt.Errorf("the directory's address: %w", err)
	}
	resp, err := m.o.Client.Do(req)
	if err != nil {
		return p, fmt.Errorf("asking the directory: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		p.after = min(outward.RetryAfter(resp.Header, m.o.now()), maxWait)
		return p, fmt.Errorf("the directory answered %s", resp.Status)
	}
	body := &io.LimitedReader{R: resp.Body, N: maxPage}
	lines := bufio.NewReaderSize(body, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		whole := err == nil
		if err != nil && !errors.Is(err, io.EOF) {
			return p, fmt.Errorf("line %d of the answer: %w", p.lines+1, err)
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if !json.Valid(line) {
				return p, fmt.Errorf("line %d of the answer: %w: not JSON", p.lines+1, errLine)
			}
			if err := p.add(line); err != nil {
				m.log.Error("skipped a line of the did:plc directory's export; its account may be out of date", "line", strconv.Quote(string(line[:min(len(line), 200)])), "error", err)
			}
			p.lines++
		}
		if !whole {
			break
		}
	}
	if body.N == 0 {
		return p, fmt.Errorf("the answer has more than %d bytes", maxPage)
	}
	if p.lines > 0 && p.newest == 0 {
		return p, fmt.Errorf("%w: none of the %d in the answer", errLine, p.lines)
	}
	return p, nil
}

// add adds a line.
func (p *page) add(line []byte) error {
	key, r, nullified, err := parseLine(line)
	if err != nil {
		return err
	}
	at := int64(r.at)
	if p.oldest == 0 || at < p.oldest {
		p.oldest = at
	}
	p.newest = max(p.newest, at)
	if old, ok := p.rows[string(key)]; !nullified && (!ok || old.at <= r.at) {
		p.rows[string(key)] = r
	}
	return nil
}

// apply writes a page.
func (m *Mirror) apply(ctx context.Context, p page) error {
	keys := make([][]byte, 0, len(p.rows))
	for key := range p.rows {
		keys = append(keys, []byte(key))
	}
	newest := max(p.newest, m.newest.Load())
	err := m.o.Store.Update(ctx, func(tx kv.Txn) error {
		tx.Set([]byte{keyCursor}, binary.AppendUvarint(nil, uint64(newest)))
		return tx.MultiGet(keys, func(i int, old []byte, ok bool) error {
			r := p.rows[string(keys[i])]
			if was, err := parseRow(old); !ok || err != nil || was.at <= r.at {
				tx.Set(keys[i], r.bytes())
			}
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("writing the copy: %w", err)
	}
	m.newest.Store(newest)
	return nil
}
