package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
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
	// ErrRestarted means that the archive has fewer events than were read.
	ErrRestarted = errors.New("the archive was restarted, and cannot be continued")
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
	log         *slog.Logger
}

const (
	maxPlan    = 64 << 20
	maxSegment = 2 << 30
	longest    = 2 * time.Minute // wait between two tries
)

// do repeats a request until it succeeds, or a retry cannot help. body is that of a POST, nil for a GET. take reads
// the answer; do retries after its errors, too.
func (c *client) do(ctx context.Context, what, url string, body []byte, take func(*http.Response) error) error {
	for n := 1; ; n++ {
		err := c.once(ctx, url, body, take)
		if err == nil || ctx.Err() != nil {
			return err
		}
		wait := min(longest, c.delay<<min(n-1, 10))
		wait = wait/2 + rand.N(wait/2+1) // jitter
		if a, ok := errors.AsType[*outward.Answer](err); ok {
			if a.Code == http.StatusNotFound && body == nil { // a file; the method for plans cannot vanish
				return fmt.Errorf("%w: %s: %w", errReplan, what, err)
			}
			if a.IsFinal() {
				return fmt.Errorf("%w: %s: %w", ErrArchive, what, err)
			}
			wait = max(wait, min(a.After, longest))
		}
		if n >= c.tries {
			return fmt.Errorf("%s: %w", what, err)
		}
		c.log.Warn("archive request failed; retrying", "request", what, "error", err, "retry_in", wait.Round(time.Millisecond).String())
		if err := outward.Wait(ctx, wait); err != nil {
			return err
		}
	}
}

// pace is the least that an archive sends.
var pace = outward.Pace{Bytes: 256 << 10, Within: time.Minute}

func (c *client) once(ctx context.Context, url string, body []byte, take func(*http.Response) error) error {
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("requesting from the archive: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("requesting from the archive: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return outward.AnswerOf(resp)
	}
	defer func() { _ = resp.Body.Close() }()
	return take(resp)
}

func (c *client) url(method string, query url.Values) string {
	return c.base + "/xrpc/network.bsky.jetstream." + method + "?" + query.Encode()
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
	err = c.do(ctx, "planSnapshot", c.url("planSnapshot", nil), b, func(resp *http.Response) error {
		p = plan{}
		err := json.NewDecoder(io.LimitReader(resp.Body, maxPlan)).Decode(&p)
		if err == nil && p.SealedTipSeq < after { // or a cache or a replica is late
			err = fmt.Errorf("%w: it ends at %d, but was read to %d", ErrRestarted, p.SealedTipSeq, after)
		}
		return err
	})
	if err != nil {
		return p, err
	}
	if p.PlannedThroughSeq < after && p.SealedTipSeq > after {
		return p, fmt.Errorf("%w: planSnapshot after %d goes back to %d", ErrArchive, after, p.PlannedThroughSeq)
	}
	return p, nil
}

// file fetches a file of at most that many bytes into the memory of another one, and counts its bytes.
func (c *client) file(ctx context.Context, what, url string, into []byte, most int64, count func(n int64)) ([]byte, error) {
	err := c.do(ctx, what, url, nil, func(resp *http.Response) error {
		tooLarge := &outward.Answer{Code: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("a file of more than %d bytes", most)}
		if resp.ContentLength > most {
			return tooLarge
		}
		buf := bytes.NewBuffer(into[:0])
		buf.Grow(int(max(resp.ContentLength, 0)) + bytes.MinRead)
		n, err := buf.ReadFrom(io.LimitReader(resp.Body, most+1))
		count(n)
		into = buf.Bytes()
		switch {
		case err != nil:
			return fmt.Errorf("reading from the archive: %w", err)
		case n > most:
			return tooLarge
		}
		return nil
	})
	return into, err
}

// segment fetches a whole segment, and checks its checksum against the plan.
func (c *client) segment(ctx context.Context, s *planSegment, into []byte, count func(n int64)) ([]byte, error) {
	b, err := c.file(ctx, "getSegment "+s.Name, c.url("getSegment", url.Values{"name": {s.Name}}), into, maxSegment, count)
	if err != nil {
		return b, err
	}
	if h, err := readHeader(b); err != nil {
		return b, fmt.Errorf("%s: %w", s.Name, err)
	} else if got := fmt.Sprintf("%016x", h.checksum); got != s.Checksum {
		return b, fmt.Errorf("%w: checksum of %s is %s, the plan says %s", errReplan, s.Name, got, s.Checksum)
	}
	return b, nil
}

// frame fetches one block.
func (c *client) frame(ctx context.Context, segment string, index int, count func(n int64)) ([]byte, error) {
	u := c.url("getBlock", url.Values{"segment": {segment}, "blockIndex": {strconv.Itoa(index)}})
	return c.file(ctx, fmt.Sprintf("getBlock %s %d", segment, index), u, nil, maxBlock, count)
}
