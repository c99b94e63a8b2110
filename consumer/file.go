package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"skein.blue/internal/frames"
)

// fileSource returns the name of a file's cursor: its absolute path.
func fileSource(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("consumer: frames file %s: %w", path, err)
	}
	return abs, nil
}

// readFile reads the file to its end. It returns an error if ctx ends first.
func (c *Consumer) readFile(ctx context.Context) (err error) {
	f, err := os.Open(c.o.Frames)
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if st, err := f.Stat(); err == nil {
		c.size.Store(st.Size())
	}
	defer func() { c.metrics.ops(c.decoder.Kinds, &c.decoder.Ops, &c.countedOps) }()
	c.resume(c.from)
	r := frames.NewReader(f)
	due := time.Now()
	defer func() { err = errors.Join(err, c.handleRest()) }()
	for !c.ended.Load() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("consumer: stopped at byte %d of %s: %w", r.Offset(), c.source, err)
		}
		frame, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, frames.ErrTooLarge):
			err = errors.Join(c.handleRest(), c.lost(tooLarge, err.Error()))
		case err != nil:
			return fmt.Errorf("consumer: reading %s: %w", c.source, err)
		default:
			err = c.handle(frame)
		}
		if err != nil {
			return err
		}
		if c.o.Rate > 0 {
			due = c.wait(ctx, due)
		}
	}
	return nil
}

// wait waits until the next frame is due, and returns that time. due is when the frame before was.
func (c *Consumer) wait(ctx context.Context, due time.Time) time.Time {
	due = due.Add(time.Duration(float64(time.Second) / c.o.Rate))
	if d := time.Until(due); d > time.Millisecond {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	return due
}
