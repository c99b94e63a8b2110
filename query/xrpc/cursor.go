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
	key := sha256.Sum256(append([]byte("skein query place\x00"), secret...))
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

// Seal seals a place, which has a fixed size (encoding/binary), and a text after it, for one query.
func (c *Cursors) Seal(question string, place any, text ...byte) string {
	plain, err := binary.Append(nil, binary.BigEndian, place)
	if err != nil {
		panic(err) // its size is not fixed
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

// Open reads into place what Seal sealed for a query, and returns the text.
func (c *Cursors) Open(question, cursor string, place any) (text []byte, err error) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	n := c.aead.NonceSize()
	if err != nil || len(sealed) < n || strings.ContainsAny(cursor, "\r\n") { // the decoder skips line ends
		return nil, ErrCursor
	}
	plain, err := c.aead.Open(nil, sealed[:n], sealed[n:], []byte(question))
	if err == nil {
		n, err = binary.Decode(plain, binary.BigEndian, place) // fails for a place of another version
	}
	if err != nil {
		return nil, ErrCursor
	}
	return plain[n:], nil
}

// SealList seals the start of the next page of a set or a list. more is what it depends on besides
// the set.
func (c *Cursors) SealList(e *language.Expr, more string, p algebra.Place) string {
	p.Begun = true
	if e.HasAge { // otherwise the same page has the same cursor, unless the time matters
		p.Now = e.Now.UnixMicro()
	}
	return c.Seal("list "+more+"\x00"+e.Question(), p)
}

// OpenList opens a cursor of SealList, and returns the expression with its ages counted back from the time of the first page.
func (c *Cursors) OpenList(e *language.Expr, more, cursor string) (_ *language.Expr, p algebra.Place, err error) {
	text, err := c.Open("list "+more+"\x00"+e.Question(), cursor, &p)
	if err != nil || len(text) > 0 {
		return e, p, ErrCursor
	}
	if e.HasAge {
		e, err = e.AsOf(time.UnixMicro(p.Now))
	}
	return e, p, err
}
