package app

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"skein.blue/consumer/backfill"
	"skein.blue/graph/kinds"
	"skein.blue/internal/kv/fdbkv"
	"skein.blue/internal/kv/pebblekv"
	"skein.blue/internal/say"
	"skein.blue/query/language"
)

// This file reads the options of a store from text. Each method is the validator of a flag, and so
// also reads the flag's environment variable.

// ErrUsage marks errors in what a command line asks for. It is wrapped; test with errors.Is.
var ErrUsage = errors.New("usage")

// UsageError returns an ErrUsage.
func UsageError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUsage, fmt.Sprintf(format, args...))
}

// ParseMemory sets Memory.
func (o *StoreOptions) ParseMemory(s string) error {
	n, err := ParseBytes(s)
	switch most := AvailableMemory(); {
	case err != nil:
		return err
	case n < 32<<20:
		return errors.New("the minimum is 32MiB")
	case n > most:
		return fmt.Errorf("only %s is available to this process", say.Bytes(uint64(most)))
	}
	o.Memory = n
	return nil
}

// ParseMinFree sets MinFree.
func (o *StoreOptions) ParseMinFree(s string) error {
	n, err := ParseBytes(s)
	o.MinFree = uint64(n)
	return err
}

// ParseBytes parses a number of bytes, with or without a unit.
func ParseBytes(s string) (int64, error) {
	n, err := humanize.ParseBytes(s)
	if err != nil || n > 1<<62 {
		return 0, fmt.Errorf("%q is not a size; write it like 512MiB", s)
	}
	return int64(n), nil
}

// ParseTime parses a time, a date, or an age before now, such as 24h or 7d.
func ParseTime(s string) (time.Time, error) {
	t, _, err := language.ParseTime(s, time.Now())
	return t, err
}

// ParseKinds adds the kinds that a file lists.
func (o *StoreOptions) ParseKinds(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return o.AddKinds(string(b))
}

// AddPosts adds the usual kinds of posts, if they are wanted.
func (o *StoreOptions) AddPosts(wanted bool) error {
	if !wanted {
		return nil
	}
	return o.AddKinds(kinds.Posts)
}

// AddKinds adds the kinds of lines of a file.
func (o *StoreOptions) AddKinds(lines string) error {
	more, err := kinds.Parse(lines)
	o.Kinds = append(o.Kinds, more...)
	return err
}

// Check returns an ErrUsage for options that cannot be meant.
func (o *StoreOptions) Check() error {
	switch scheme, _, isURL := strings.Cut(o.Store, "://"); {
	case o.Store == "":
		return UsageError("--store is empty; name a folder")
	case isURL && scheme != FoundationDB:
		return UsageError("--store %q: expected a folder, or fdb:///path/to/fdb.cluster?prefix=skein", o.Store)
	case strings.HasPrefix(o.Store, "~/"):
		return UsageError("--store %q: the shell did not expand ~; write the whole path", o.Store)
	case InFolder(o.Store):
		return nil
	}
	if _, err := fdbkv.Parse(o.Store); err != nil {
		return UsageError("--store: %v", err)
	}
	if o.AcceptLoss != "" {
		return UsageError("--accept-loss %s: a store on FoundationDB has no write-ahead logs", o.AcceptLoss)
	}
	return nil
}

// asUsage makes an ErrUsage of an error whose cause are options that the store cannot have.
func asUsage(err error) error {
	for _, cause := range []error{kinds.ErrContradiction, pebblekv.ErrMinFree, backfill.ErrAround} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
	}
	return err
}
