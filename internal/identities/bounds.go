package identities

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"golang.org/x/net/publicsuffix"
)

// Bounds on concurrent fetches of DID documents: from the did:plc directory, which all
// accounts share, from the hosts under one registered domain, and from all hosts of did:web.
const (
	PLCAtOnce    = 32
	DomainAtOnce = 4
	WebAtOnce    = 64
)

// bounds limits the concurrent fetches from each source of documents. Its zero value is ready
// to use.
type bounds struct {
	mu      sync.Mutex // guards sources
	sources map[string]*source
}

// source is a source of documents. users counts the fetches that hold or await one of its
// slots.
type source struct {
	slots chan struct{}
	users int
}

// limit is how many documents may be fetched from a source at a time.
type limit struct {
	source string
	most   int
}

// limitsOf returns the limits for a look-up of a DID, the narrowest first: a look-up that
// waits for its own host must not hold a slot that others need.
func limitsOf(did syntax.DID) []limit {
	if did.Method() == "plc" {
		return []limit{{"plc", PLCAtOnce}}
	}
	return []limit{{"web " + PayerOf(did), DomainAtOnce}, {"web", WebAtOnce}}
}

// enter waits for a slot of each source of the DID's document. It returns ErrBusy if ctx ends
// first.
func (b *bounds) enter(ctx context.Context, did syntax.DID) (leave func(), err error) {
	var held []func()
	leave = func() {
		for _, give := range held {
			give()
		}
	}
	for _, l := range limitsOf(did) {
		s := b.use(l)
		select {
		case s.slots <- struct{}{}:
			held = append(held, func() { <-s.slots; b.unuse(l.source) })
		case <-ctx.Done():
			b.unuse(l.source)
			leave()
			return nil, fmt.Errorf("%w: %s: %d of %q", ErrBusy, did, l.most, l.source)
		}
	}
	return leave, nil
}

// use returns a source, which exists until unuse has been called as often as use.
func (b *bounds) use(l limit) *source {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.sources[l.source]
	if s == nil {
		if b.sources == nil {
			b.sources = map[string]*source{}
		}
		s = &source{slots: make(chan struct{}, l.most)}
		b.sources[l.source] = s
	}
	s.users++
	return s
}

func (b *bounds) unuse(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.sources[name]; s != nil {
		if s.users--; s.users == 0 {
			delete(b.sources, name)
		}
	}
}

// PayerOf names what a DID cost its owner: of a did:plc the DID itself, which the directory
// rations, and of a did:web the registered domain. Names below such a domain are free,
// including those that a company gives away (pages.dev, github.io).
func PayerOf(did syntax.DID) string {
	if did.Method() != "web" {
		return did.String()
	}
	host, _, _ := strings.Cut(strings.ToLower(did.Identifier()), ":")
	suffix, public := publicsuffix.PublicSuffix(host)
	for !public && strings.Contains(suffix, ".") {
		_, parent, _ := strings.Cut(suffix, ".")
		suffix, public = publicsuffix.PublicSuffix(parent)
	}
	below := strings.TrimSuffix(strings.TrimSuffix(host, suffix), ".")
	return below[strings.LastIndexByte(below, '.')+1:] + "." + suffix
}
