package query

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"skein/intern/dict"
)

// errCursor is returned for a cursor that this store did not make for this
// question.
var errCursor = errors.New("cursor is not one that this server gave for this set")

// cursors seals page cursors. A cursor holds the id of the last member of a
// page and which strings of the expression were unseen on the first page. It
// is encrypted and bound to the expression with the store's secret: ids never
// leave the process, and a cursor that was cut, edited, or comes from another
// question is found out. It outlives restarts.
//
// The nonce is a hash of what is sealed: the same page has the same cursor, so
// that the same answer is the same bytes (see etag).
type cursors struct {
	aead cipher.AEAD
	key  [32]byte
}

func newCursors(secret []byte) (*cursors, error) {
	key := sha256.Sum256(append([]byte("skein query cursor\x00"), secret...))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, fmt.Errorf("query: preparing cursors: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("query: preparing cursors: %w", err)
	}
	return &cursors{aead, key}, nil
}

func (c *cursors) seal(e *Expr, after dict.ID, u unseen) string {
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
	mac := hmac.New(sha256.New, c.key[:])
	_, _ = mac.Write(plain) // never fails
	_, _ = mac.Write([]byte(e.source))
	nonce := mac.Sum(nil)[:c.aead.NonceSize():c.aead.NonceSize()]
	return base64.RawURLEncoding.EncodeToString(c.aead.Seal(nonce, nonce, plain, []byte(e.source)))
}

func (c *cursors) open(e *Expr, cursor string) (after dict.ID, u unseen, err error) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(sealed) < c.aead.NonceSize() {
		return 0, nil, errCursor
	}
	n := c.aead.NonceSize()
	plain, err := c.aead.Open(nil, sealed[:n], sealed[n:], []byte(e.source))
	if err != nil || len(plain) != 8+(len(e.strings)+7)/8 {
		return 0, nil, errCursor
	}
	u = make(unseen, len(e.strings))
	for i := range u {
		u[i] = plain[8+i/8]&(1<<(i%8)) != 0
	}
	return dict.ID(binary.BigEndian.Uint64(plain)), u, nil
}
