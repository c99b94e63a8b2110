package identities

import (
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
)

// Keyspaces of the copy.
const (
	keyAccount = 'a'
	keyCursor  = 'c'
)

// Kinds of rows.
const (
	rowTombstone = iota // the account is deleted
	rowOther            // the operation has something that a row cannot hold: ask the directory
	rowNoKey            // the address of the host, which may be empty
	rowK256             // 33 bytes of a key on secp256k1, and the address
	rowP256             // 33 bytes of a key on NIST P-256, and the address
)

// keyBytes is the size of a compressed public key on both curves.
const keyBytes = 33

// maxAddress bounds the address of a host, in bytes. A longer one is rowOther.
const maxAddress = 512

// row is the newest operation of an account.
type row struct {
	at      uint64 // Unix milliseconds of the operation
	kind    byte
	key     []byte // of rowK256 and rowP256
	address string // of the host
}

// errRow means that the bytes of a row are malformed.
var errRow = errors.New("plc: malformed row")

// bytes returns the bytes of a row: its kind, the time as a uvarint, the key and the address.
func (r *row) bytes() []byte {
	b := binary.AppendUvarint([]byte{r.kind}, r.at)
	return append(append(b, r.key...), r.address...)
}

// parseRow is the inverse of bytes. It copies what it needs of v.
func parseRow(v []byte) (r row, err error) {
	if len(v) == 0 || v[0] > rowP256 {
		return r, errRow
	}
	at, n := binary.Uvarint(v[1:])
	if n <= 0 {
		return r, errRow
	}
	r.kind, r.at, v = v[0], at, v[1+n:]
	if r.kind >= rowK256 {
		if len(v) < keyBytes {
			return r, errRow
		}
		r.key, v = append(r.key, v[:keyBytes]...), v[keyBytes:]
	}
	if len(v) > maxAddress || r.kind < rowNoKey && len(v) > 0 {
		return r, errRow
	}
	r.address = string(v)
	return r, nil
}

// identity returns what the account's document would say.
func (r *row) identity(did syntax.DID) (*identity.Identity, error) {
	i := &identity.Identity{DID: did, Handle: syntax.HandleInvalid, Keys: map[string]identity.VerificationMethod{}, Services: map[string]identity.ServiceEndpoint{}}
	if r.address != "" {
		i.Services["atproto_pds"] = identity.ServiceEndpoint{Type: "AtprotoPersonalDataServer", URL: r.address}
	}
	var key atcrypto.PublicKey
	var err error
	switch r.kind {
	case rowK256:
		key, err = atcrypto.ParsePublicBytesK256(r.key)
	case rowP256:
		key, err = atcrypto.ParsePublicBytesP256(r.key)
	}
	if err != nil {
		return nil, fmt.Errorf("plc: the key of %s: %w", did, err)
	}
	if key != nil {
		i.Keys["atproto"] = identity.VerificationMethod{Type: "Multikey", PublicKeyMultibase: key.Multibase()}
	}
	return i, nil
}

// alphabet is the base32 of did:plc.
var alphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

const didPrefix = "did:plc:"

// accountKey returns the key of an account's row, and whether did is a did:plc.
func accountKey(did string) (key []byte, ok bool) {
	text, ok := strings.CutPrefix(did, didPrefix)
	if !ok || len(text) != 24 { // exactly 15 bytes
		return nil, false
	}
	key, err := alphabet.AppendDecode([]byte{keyAccount}, []byte(text))
	return key, err == nil
}
