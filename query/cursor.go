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
	"time"

	"skein.blue/intern/dict"
	"skein.blue/query/algebra"
)

// errCursor is returned for a cursor that this store did not make for this query.
var errCursor = errors.New("the cursor does not belong to this query on this server")

// cursors seals page cursors. A cursor holds the id of the last member of a page, which strings
// of the expression had no id on the first page, and, if the expression contains an age, the
// time of the first page. It is encrypted and bound to the expression with the store's secret.
// So ids never leave the process, and a cursor that was truncated, edited, or made for another
// query is rejected. Cursors survive restarts.
//
// The nonce is a hash of the content: the same page has the same cursor, so that equal answers
// have equal bytes (see etag).
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

func (c *cursors) seal(e *algebra.Expr, after dict.ID, u algebra.Unseen) string {
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
	return c.sealBytes(plain, e.Question())
}

// sealBytes seals the content of a cursor for one query.
func (c *cursors) sealBytes(plain []byte, question string) string {
	mac := hmac.New(sha256.New, c.key[:])
	_, _ = mac.Write(plain) // never fails
	_, _ = mac.Write([]byte(question))
	nonce := mac.Sum(nil)[:c.aead.NonceSize():c.aead.NonceSize()]
	return base64.RawURLEncoding.EncodeToString(c.aead.Seal(nonce, nonce, plain, []byte(question)))
}

// openBytes returns the content of a cursor that was sealed for a query.
func (c *cursors) openBytes(cursor, question string) ([]byte, error) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	n := c.aead.NonceSize()
	if err != nil || len(sealed) < n {
		return nil, errCursor
	}
	plain, err := c.aead.Open(nil, sealed[:n], sealed[n:], []byte(question))
	if err != nil {
		return nil, errCursor
	}
	return plain, nil
}

// open returns the content of a cursor, and the expression with its ages counted back from the
// time of the first page.
func (c *cursors) open(given *algebra.Expr, cursor string) (e *algebra.Expr, after dict.ID, u algebra.Unseen, err error) {
	e = given
	plain, err := c.openBytes(cursor, e.Question())
	want := 8 + (len(e.Strings)+7)/8
	if err == nil && e.HasAge && len(plain) == want+8 {
		e, err = e.AsOf(time.UnixMicro(int64(binary.BigEndian.Uint64(plain[want:]))))
		plain = plain[:want]
	}
	if err != nil || len(plain) != want {
		return nil, 0, nil, errCursor
	}
	u = make(algebra.Unseen, len(e.Strings))
	for i := range u {
		u[i] = plain[8+i/8]&(1<<(i%8)) != 0
	}
	return e, dict.ID(binary.BigEndian.Uint64(plain)), u, nil
}
