//go:build !fdb

package fdbkv

import (
	"context"
	"fmt"

	"skein.blue/internal/kv"
)

// Built reports whether this program can open a store on FoundationDB.
const Built = false

// Open returns ErrNotBuilt, with the command that builds a program that can.
func Open(_ context.Context, o Options) (kv.Store, error) {
	return nil, fmt.Errorf("%s: %w; install FoundationDB's client library (libfdb_c 7.3) and build with: CGO_ENABLED=1 go build -tags fdb ./cmd/skein", o.Location, ErrNotBuilt)
}
