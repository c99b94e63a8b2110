package xrpc

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
)

// ErrCursor is returned for a cursor that this store did not make for this query.
var ErrCursor = errors.New("the cursor does not belong to this query on this server")

// Cursors seals page cursors. A cursor holds the id of the last member of a page, which strings
// of the expression had no id on the first page, and, if the expression contains an age, the
// time of the first page. It is encrypted and bound to the expression with the store's secret.
// So ids never leave the process, and a cursor that was truncated, edited, or made for another
// query is rejected. Cursors survive restarts.
//
// The nonce is a hash of the content: the same page has the same cursor, so that equal answers
// have equal bytes (see etag).
type Cursors struct {
	aead cipher.AEAD
	key  [32]byte
}

// NewCursors returns the Cursors of a store, by its secret.
func NewCursors(secret []byte) (*Cursors, error) {
	key := sha256.Sum256(append([]byte("skein query cursor\x00"), secret...))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, fmt.Errorf("xrpc: preparing cursors: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("xrpc: preparing cursors: %w", err)
	}
	return &Cursors{aead, key}, nil
}

// SealPage seals the start of the next page of the set of an expression.
func (c *Cursors) SealPage(e *language.Expr, after dict.ID, u algebra.Unseen) string {
	plain := binary.BigEndian.AppendUint64(nil, uint64(after))
	for i := 0; i < len(u); i += 8 {
		var b byte
		for j := range 8 {
			if i+j < len(u) && u[i+j] {
				b |= 1 << j
			}
		}
		plain = append(plain, b)
	}
	if e.HasAge {
		plain = binary.BigEndian.AppendUint64(plain, uint64(e.Now.UnixMicro()))
	}
	return c.Seal(plain, e.Question())
}

// Seal seals the content of a cursor for one query.
func (c *Cursors) Seal(plain []byte, question string) string {
	mac := hmac.New(sha256.New, c.key[:])
	// The length keeps contents apart whose bytes are divided differently: a nonce that serves two
	// contents gives both away.
	_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(plain)))) // never fails
	_, _ = mac.Write(plain)
	_, _ = mac.Write([]byte(question))
	nonce := mac.Sum(nil)[:c.aead.NonceSize():c.aead.NonceSize()]
	return base64.RawURLEncoding.EncodeToString(c.aead.Seal(nonce, nonce, plain, []byte(question)))
}

// Open returns the content of a cursor that was sealed for a query.
func (c *Cursors) Open(cursor, question string) ([]byte, error) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	n := c.aead.NonceSize()
	if err != nil || len(sealed) < n || strings.ContainsAny(cursor, "\r\n") { // the decoder skips line ends
		return nil, ErrCursor
	}
	plain, err := c.aead.Open(nil, sealed[:n], sealed[n:], []byte(question))
	if err != nil {
		return nil, ErrCursor
	}
	return plain, nil
}

// OpenPage returns the content of a cursor, and the expression with its ages counted back from the
// time of the first page.
func (c *Cursors) OpenPage(given *language.Expr, cursor string) (e *language.Expr, after dict.ID, u algebra.Unseen, err error) {
	e = given
	plain, err := c.Open(cursor, e.Question())
	want := 8 + (len(e.Strings)+7)/8
	if e.HasAge {
		want += 8
	}
	if err == nil && len(plain) == want && e.HasAge {
		e, err = e.AsOf(time.UnixMicro(int64(binary.BigEndian.Uint64(plain[want-8:]))))
	}
	if err != nil || len(plain) != want {
		return nil, 0, nil, ErrCursor
	}
	u = make(algebra.Unseen, len(e.Strings))
	for i := range u {
		u[i] = plain[8+i/8]&(1<<(i%8)) != 0
	}
	return e, dict.ID(binary.BigEndian.Uint64(plain)), u, nil
}

// SealList seals the start of the next page of a list. more is what the list depends on besides
// the set.
func (c *Cursors) SealList(e *language.Expr, more string, p algebra.Place) string {
	plain := []byte{0}
	if p.Sorted {
		plain[0] = 1
	}
	plain = binary.BigEndian.AppendUint64(plain, p.Micros)
	plain = binary.BigEndian.AppendUint64(plain, uint64(p.ID))
	now := p.Now
	if e.HasAge { // otherwise the same page has the same cursor, unless the time matters
		now = e.Now.UnixMicro()
	}
	plain = binary.BigEndian.AppendUint64(plain, uint64(now))
	return c.Seal(plain, "list "+more+"\x00"+e.Question())
}

// OpenList opens a cursor of a list of this set.
func (c *Cursors) OpenList(e *language.Expr, more, cursor string) (*language.Expr, algebra.Place, error) {
	plain, err := c.Open(cursor, "list "+more+"\x00"+e.Question())
	if err != nil || len(plain) != 25 {
		return e, algebra.Place{}, ErrCursor
	}
	p := algebra.Place{Begun: true, Sorted: plain[0] == 1, Micros: binary.BigEndian.Uint64(plain[1:]), ID: dict.ID(binary.BigEndian.Uint64(plain[9:])), Now: int64(binary.BigEndian.Uint64(plain[17:]))}
	if e.HasAge {
		e, err = e.AsOf(time.UnixMicro(p.Now))
	}
	return e, p, err
}
