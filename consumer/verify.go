package consumer

import (
	"context"

	"skein.blue/consumer/proof"
	"skein.blue/consumer/wire"
	"skein.blue/graph"
)

// A Verifier checks whether an account made what a message says. Any goroutine may call it.
type Verifier interface {
	// Verify returns "" if the account made the Commit or Sync, else the reason to drop it, and
	// an error with the details.
	Verify(ctx context.Context, m *wire.Message) (wire.Reason, error)
	// Changed says that an account's DID document may have changed.
	Changed(did []byte)
}

// rule asks the Verifier. For an account in the index, a missing key counts as unreachable, so that
// its repo is queued and does not seem complete. An unknown account without a key is assumed to be
// fictitious.
func (c *Consumer) rule(ctx context.Context, m *wire.Message) proof.Ruling {
	reason, detail := c.o.Verifier.Verify(ctx, m)
	if reason != wire.NoKey {
		return proof.Ruling{Reason: reason, Detail: detail}
	}
	known := true
	err := c.store.View(ctx, func(s *graph.View) (err error) {
		_, known, _, err = s.Account(string(m.DID))
		return err
	})
	if err != nil || known {
		reason = wire.KeyUnreachable
	}
	return proof.Ruling{Reason: reason, Detail: detail}
}

// verified returns a function that returns what receive does with the Verifier's rulings, if there is
// a Verifier. stop ends the reading, by unblock.
func (c *Consumer) verified(receive func() proof.Item, unblock func()) (next func() proof.Item, stop func()) {
	if c.o.Verifier == nil {
		return receive, func() {}
	}
	o := &proof.Order{Rule: c.rule, Changed: c.o.Verifier.Changed, Wants: func(m *wire.Message) bool {
		wanted := c.decoder.Wants(m)
		if wanted && c.o.Part != nil { // the account's next deletions must be verified, too, even if this message is decoded later
			c.o.Part.Note(m.DID)
		}
		return wanted
	}}
	return o.Ahead(receive, unblock)
}
