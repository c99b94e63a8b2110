package xrpc

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
	"skein.blue/query/language"
)

// ErrCursor is returned for a cursor that this store did not make for this query.
var ErrCursor = Invalid("the cursor does not belong to this query on this server")

// Cursors seals page cursors. A cursor holds the place of the last member of a page and, if it matters, the
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
func NewCursors(secret []byte) *Cursors {
	key := sha256.Sum256(append([]byte("skein query cursor\x00"), secret...))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return &Cursors{aead, key}
}

// Seal seals numbers, and a text after them, for one query.
func (c *Cursors) Seal(question string, text []byte, numbers ...uint64) string {
	plain := binary.AppendUvarint(nil, uint64(len(numbers)))
	for _, n := range numbers {
		plain = binary.AppendUvarint(plain, n)
	}
	plain = append(plain, text...)
	mac := hmac.New(sha256.New, c.key[:])
	// The length keeps contents apart whose bytes are divided differently: a nonce that serves two
	// contents gives both away.
	_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(plain)))) // never fails
	_, _ = mac.Write(plain)
	_, _ = mac.Write([]byte(question))
	nonce := mac.Sum(nil)[:c.aead.NonceSize():c.aead.NonceSize()]
	return base64.RawURLEncoding.EncodeToString(c.aead.Seal(nonce, nonce, plain, []byte(question)))
}

// Open returns what Seal sealed for a query.
func (c *Cursors) Open(question, cursor string) (numbers []uint64, text []byte, err error) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	n := c.aead.NonceSize()
	if err != nil || len(sealed) < n || strings.ContainsAny(cursor, "\r\n") { // the decoder skips line ends
		return nil, nil, ErrCursor
	}
	plain, err := c.aead.Open(nil, sealed[:n], sealed[n:], []byte(question))
	if err != nil {
		return nil, nil, ErrCursor
	}
	count, n := binary.Uvarint(plain)
	for range count {
		plain = plain[n:]
		var number uint64
		if number, n = binary.Uvarint(plain); n <= 0 { // of another version
			return nil, nil, ErrCursor
		}
		numbers = append(numbers, number)
	}
	return numbers, plain[max(n, 0):], nil
}

// SealList seals the start of the next page of a set or a list. more is what it depends on besides
// the set.
func (c *Cursors) SealList(e *language.Expr, more string, p algebra.Place) string {
	sorted, now := uint64(0), p.Now
	if p.Sorted {
		sorted = 1
	}
	if e.HasAge { // otherwise the same page has the same cursor, unless the time matters
		now = e.Now.UnixMicro()
	}
	return c.Seal("list "+more+"\x00"+e.Question(), nil, sorted, p.Micros, uint64(p.ID), uint64(now))
}

// OpenList opens a cursor of SealList, and returns the expression with its ages counted back from the time of the first page.
func (c *Cursors) OpenList(e *language.Expr, more, cursor string) (*language.Expr, algebra.Place, error) {
	at, _, err := c.Open("list "+more+"\x00"+e.Question(), cursor)
	if err != nil || len(at) != 4 {
		return e, algebra.Place{}, ErrCursor
	}
	p := algebra.Place{Begun: true, Sorted: at[0] == 1, Micros: at[1], ID: dict.ID(at[2]), Now: int64(at[3])}
	if e.HasAge {
		e, err = e.AsOf(time.UnixMicro(p.Now))
	}
	return e, p, err
}
