package consumer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"time"

	"skein.blue/consumer/proof"
	"skein.blue/consumer/wire"
)

// fileSource returns the name of a file's cursor: its absolute path.
func fileSource(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("consumer: frames file %s: %w", path, err)
	}
	return abs, nil
}

// readFile reads the file to its end.
func (c *Consumer) readFile(ctx context.Context) (err error) {
	f, err := os.Open(c.o.Frames)
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if st, err := f.Stat(); err == nil {
		c.progress.size.Store(st.Size())
	}
	return c.readFrames(ctx, wire.NewReader(f).Next)
}

// pushed returns the frames of Options.Read.
func pushed(read func(handle func(frame []byte) error) error) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		err := read(func(frame []byte) error {
			if !yield(frame, nil) {
				return context.Canceled
			}
			return nil
		})
		if err == nil {
			err = io.EOF
		}
		if !errors.Is(err, context.Canceled) {
			yield(nil, err)
		}
	}
}

// readFrames takes in the frames that next returns, until io.EOF, and then what is held. It returns an
// error if ctx ends first.
func (c *Consumer) readFrames(ctx context.Context, next func() ([]byte, error)) (err error) {
	c.resume(c.from)
	defer func() {
		err = errors.Join(err, c.decide((*numbering).settle))
		c.metrics.decoded(&c.decoder, &c.counted)
	}()
	receive, stop := c.verified(func() (i proof.Item) {
		i.Frame, i.Err = next()
		return i
	}, func() {})
	defer stop()
	due := time.Now()
	for !c.ended.Load() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("consumer: stopped after %d bytes of messages of %s: %w", c.progress.bytes.Load(), c.source, err)
		}
		i := receive()
		var err error
		switch {
		case errors.Is(i.Err, io.EOF):
			return nil
		case errors.Is(i.Err, wire.ErrTooLarge):
			err = c.lost(tooLarge, i.Err.Error())
		case i.Err != nil:
			return fmt.Errorf("consumer: reading %s: %w", c.source, i.Err)
		default:
			err = c.handle(i.Frame, i.Ruling)
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
