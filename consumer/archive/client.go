package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"skein.blue/internal/outward"
)

// plan is the answer to planSnapshot.
type plan struct {
	PlannedThroughSeq int64         `json:"plannedThroughSeq"`
	SealedTipSeq      int64         `json:"sealedTipSeq"`
	Segments          []planSegment `json:"segments"`
}

type planSegment struct {
	Name     string `json:"name"`
	Checksum string `json:"checksum"`
	MinSeq   int64  `json:"minSeq"`
	MaxSeq   int64  `json:"maxSeq"`
	Mode     string `json:"mode"` // segment, or blocks
	Blocks   []struct {
		First int `json:"first"`
		Last  int `json:"last"`
	} `json:"blocks"`
}

var (
	// errReplan means that a segment differs from the plan: the archive compacted it
	// meanwhile.
	errReplan = errors.New("the archive's segment has changed since the plan")
	// ErrArchive means that an archive refused a request.
	ErrArchive = errors.New("the archive refused the request")
)

// client sends requests to an archive.
type client struct {
	base string // https://host
	key  string // "" if the archive needs none
	// collections are the collections whose records to request.
	collections []string
	http        *http.Client
	tries       int           // attempts of a request
	delay       time.Duration // after the first failure
	retrying    func(what string, err error, wait time.Duration)
}

const (
	maxPlan    = 64 << 20
	maxSegment = 2 << 30
	longest    = 2 * time.Minute // wait between two tries
)

// status is an HTTP error.
type status struct {
	code  int
	text  string
	after time.Duration // Retry-After
}

// Error implements error.
func (s *status) Error() string { return fmt.Sprintf("HTTP %d: %s", s.code, s.text) }

// do repeats a request until it succeeds, or a retry cannot help. take reads the body; do
// retries after its errors, too.
func (c *client) do(ctx context.Context, what string, request func() (*http.Request, error), take func(*http.Response) error) error {
	for n := 1; ; n++ {
		err := c.once(ctx, request, take)
		if err == nil || errors.Is(err, errReplan) || ctx.Err() != nil {
			return err
		}
		wait := min(longest, c.delay<<min(n-1, 10))
		wait = wait/2 + rand.N(wait/2+1) // jitter
		if s, ok := errors.AsType[*status](err); ok {
			if s.code == http.StatusNotFound {
				return fmt.Errorf("%w: %s: %w", errReplan, what, err)
			}
			if s.code != http.StatusTooManyRequests && s.code != http.StatusRequestTimeout && s.code < 500 {
				return fmt.Errorf("%w: %s: %w", ErrArchive, what, err)
			}
			wait = max(wait, min(s.after, longest))
		}
		if n >= c.tries {
			return fmt.Errorf("%s: %w", what, err)
		}
		if c.retrying != nil {
			c.retrying(what, err, wait)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// pace is the least that an archive sends.
var pace = outward.Pace{Bytes: 256 << 10, Within: time.Minute}

func (c *client) once(ctx context.Context, request func() (*http.Request, error), take func(*http.Response) error) error {
	req, err := request()
	if err != nil {
		return err
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("requesting from the archive: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return &status{code: resp.StatusCode, text: strings.TrimSpace(string(text)), after: outward.RetryAfter(resp.Header, time.Now())}
	}
	return take(resp)
}

func (c *client) url(method string, query url.Values) string {
	u := c.base + "/xrpc/network.bsky.jetstream." + method
	if len(query) > 0 {
		u += "?" + query.Encode()
	}
	return u
}

// plan requests the list of files to fetch after a seq. before, if not 0, is the tip of
// the first plan.
func (c *client) plan(ctx context.Context, after, before int64) (p plan, err error) {
	body := map[string]any{"afterSeq": after, "collections": c.collections}
	if before > 0 {
		body["beforeSeq"] = before
	}
	b, err := json.Marshal(body)
	if err != nil {
		return p, fmt.Errorf("archive: %w", err)
	}
	err = c.do(ctx, "planSnapshot", func() (*http.Request, error) {
		req, err := http.NewRequest(http.MethodPost, c.url("planSnapshot", nil), bytes.NewReader(b)) //nolint:noctx // do adds it
		if err == nil {
			req.Header.Set("Content-Type", "application/json")
		}
		return req, err
	}, func(resp *http.Response) error {
		p = plan{}
		return json.NewDecoder(io.LimitReader(resp.Body, maxPlan)).Decode(&p)
	})
	if err != nil {
		return p, err
	}
	if p.PlannedThroughSeq < after && p.SealedTipSeq > after {
		return p, fmt.Errorf("%w: planSnapshot after %d goes back to %d", ErrArchive, after, p.PlannedThroughSeq)
	}
	return p, nil
}

// segment fetches a whole segment, and checks its checksum against the plan. If a
// connection breaks, it keeps the received bytes and requests the rest.
func (c *client) segment(ctx context.Context, s *planSegment, into []byte, count func(n int)) ([]byte, error) {
	b := into[:0]
	u := c.url("getSegment", url.Values{"name": {s.Name}})
	tag := ""
	err := c.do(ctx, "getSegment "+s.Name, func() (*http.Request, error) {
		req, err := http.NewRequest(http.MethodGet, u, nil) //nolint:noctx // do adds it
		if err == nil && len(b) > 0 && tag != "" {
			req.Header.Set("Range", fmt.Sprintf("bytes=%d-", len(b)))
			req.Header.Set("If-Range", tag)
		}
		return req, err
	}, func(resp *http.Response) error {
		if resp.StatusCode == http.StatusOK {
			b, tag = b[:0], resp.Header.Get("ETag")
		}
		if resp.ContentLength > maxSegment-int64(len(b)) {
			return &status{code: http.StatusRequestEntityTooLarge, text: fmt.Sprintf("a segment of %d bytes", resp.ContentLength)}
		}
		had := len(b)
		err := readInto(resp.Body, &b, had+int(max(resp.ContentLength, 0)))
		count(len(b) - had)
		return err
	})
	if err != nil {
		return b, err
	}
	if len(b) < headerLen {
		return b, fmt.Errorf("%w: %s has %d bytes", ErrSegment, s.Name, len(b))
	}
	if h, err := readHeader(b); err != nil {
		return b, fmt.Errorf("%s: %w", s.Name, err)
	} else if got := fmt.Sprintf("%016x", h.checksum); got != s.Checksum {
		return b, fmt.Errorf("%w: checksum of %s is %s, the plan says %s", errReplan, s.Name, got, s.Checksum)
	}
	return b, nil
}

// readInto appends a stream to b, which will have about size bytes.
func readInto(r io.Reader, b *[]byte, size int) error {
	if size > cap(*b) {
		grown := make([]byte, len(*b), size+512)
		copy(grown, *b)
		*b = grown
	}
	for {
		if len(*b) == cap(*b) {
			if len(*b) >= maxSegment {
				return &status{code: http.StatusRequestEntityTooLarge, text: "an endless segment"}
			}
			*b = append(*b, 0)[:len(*b)]
		}
		n, err := r.Read((*b)[len(*b):cap(*b)])
		*b = (*b)[:len(*b)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading from the archive: %w", err)
		}
	}
}

// frame fetches one block.
func (c *client) frame(ctx context.Context, segment string, index int, count func(n int)) (b []byte, err error) {
	u := c.url("getBlock", url.Values{"segment": {segment}, "blockIndex": {strconv.Itoa(index)}})
	err = c.do(ctx, fmt.Sprintf("getBlock %s %d", segment, index), func() (*http.Request, error) {
		return http.NewRequest(http.MethodGet, u, nil) //nolint:noctx // do adds it
	}, func(resp *http.Response) error {
		b = b[:0]
		err := readInto(io.LimitReader(resp.Body, maxBlock), &b, int(max(min(resp.ContentLength, maxBlock), 0)))
		count(len(b))
		return err
	})
	return b, err
}
